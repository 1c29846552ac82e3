"""Operands of ufuncs in longer runs: the same numbers, and only where it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp
from skimp._kernels import repeats

Shape = tuple[int, ...]


def like(shape: Shape, order: Shape, dtype: type = np.float32) -> Any:
    """An array whose dims lie in this order, from the outside in."""
    return np.zeros([shape[d] for d in order], dtype).transpose(np.argsort(order))


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


HEADS, TURNED = (8, 4, 32, 16), (0, 2, 1, 3)  # heads before places, as they lie after a transpose


def test_what_is_repeated_between_dims_is_laid_out() -> None:
    x, angles, out = like(HEADS, TURNED), numbers(32, 16), like(HEADS, TURNED)
    x[...] = numbers(*HEADS)
    one, other = repeats.in_runs([x, angles], out, True)
    assert one is x
    assert other.shape == HEADS
    assert other.strides == (0, 64, 256, 4)  # as often as there are heads, not images
    np.testing.assert_array_equal(other, np.broadcast_to(angles, HEADS))


def test_rows_in_another_order_go_where_the_result_will_be() -> None:
    x, rows, out = like(HEADS, TURNED), numbers(*HEADS), like(HEADS, TURNED)
    found = repeats.in_runs([x, rows], out, True)
    assert found[1] is out
    np.testing.assert_array_equal(out, rows)
    out[...] = 5
    assert repeats.in_runs([x, rows], out, False)[1] is rows  # it may be an operand
    assert (out == 5).all()
    truths = like(HEADS, TURNED, np.bool_)
    assert repeats.in_runs([x, rows], truths, True)[1] is rows


@pytest.mark.parametrize("name", ["logaddexp", "remainder", "lerp"])
def test_kernels_of_several_passes_keep_their_operands(name: str) -> None:
    """Where the result will be, the first pass would write over an operand of the second."""
    f = getattr(skimp, name)
    count = 3 if name == "lerp" else 2
    for turned in range(count):
        given = [skimp.tensor(numbers(16, 32, 48) - i) for i in range(count)]
        laid = [t.transpose(0, 2).contiguous().transpose(0, 2) for t in given]
        laid[turned] = skimp.zeros(16, 32, 49)[..., 1:].copy_(given[turned])
        assert skimp.equal(f(*laid), f(*given))


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ((512, 64), (64,)),  # the runs are long
        ((4096, 16), (4096, 1)),  # it would be as large as the result
        ((8, 4096, 4, 16), (4096, 1, 16)),  # it would be large
        ((2, 64, 64, 16), (64, 1, 16)),  # it would be half of the result
    ],
)
def test_others_stay_as_they_are(own: Shape, other: Shape) -> None:
    given = [numbers(*own), numbers(*other)]
    found = repeats.in_runs(given, np.empty(own, np.float32), True)
    assert all(a is b for a, b in zip(found, given, strict=True))


@pytest.mark.parametrize("other", [(32, 16), (4, 1, 1), (4, 1, 16), (8, 1, 32, 1), HEADS])
@pytest.mark.parametrize("order", [TURNED, (0, 1, 2, 3), (2, 0, 1, 3), (3, 2, 1, 0)])
def test_results_are_the_same_bits(other: Shape, order: Shape) -> None:
    x = skimp.from_numpy(numbers(*HEADS)).permute(*order).contiguous()
    x = x.permute(*[order.index(d) for d in range(4)])
    y = skimp.from_numpy(numbers(*other))
    for f in (skimp.sub, skimp.mul, skimp.atan2, skimp.lt):
        wanted = f(x.contiguous(), y.expand(HEADS).contiguous())
        for made in (f(x, y), f(y, x)) if f is skimp.mul else (f(x, y),):
            assert np.array_equal(made.numpy(), wanted.numpy())
    before = x.clone()
    assert np.array_equal(x.add_(y).numpy(), before.numpy() + y.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("other", [(2, 70, 80), (2, 1, 80)])
def test_kernels_of_several_passes_keep_operands_of_any_type(dtype: str, other: Shape) -> None:
    """What is laid out where the result will be is read once, by a ufunc."""
    rows = skimp.from_numpy(numbers(80, 70, 2)).to(getattr(skimp, dtype)).permute(2, 1, 0)
    y = skimp.from_numpy(numbers(*other)).to(rows.dtype)
    calls = {
        "remainder": lambda x, y: skimp.remainder(x, y),
        "lerp": lambda x, y: skimp.lerp(x, y, x),
        "addcmul": lambda x, y: skimp.addcmul(y, x, y, value=0.5),
        "clamp": lambda x, y: skimp.clamp(x, y, y + 1),
    }
    for name, f in calls.items():
        wanted = f(rows.contiguous(), y.expand(2, 70, 80).contiguous())
        assert f(rows, y.expand(2, 70, 80)).tolist() == wanted.tolist(), name
        assert f(rows, y).tolist() == wanted.tolist(), name
