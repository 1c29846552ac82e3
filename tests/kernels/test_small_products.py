"""Small products by the loop of NumPy's `matmul`, called straight (`matmul.h`): those of NumPy's
calls, with their bits, however the factors lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skimp._kernels import blas, compiled, loops, products
from skimp._kernels.products import FIRST, NEITHER, SECOND

SIZES = (0, 1, 2, 5, 16, 31, 64)
WAYS = ("rows", "rows", "rows", "columns", "gaps", "wide", "back", "spread", "odd", "swapped")


@pytest.fixture(scope="module", autouse=True)
def compiled_loops() -> None:
    if compiled.loops() is None:
        pytest.skip("no loops are compiled")


def lying(shape: tuple[int, ...], kind: str, rng: Any) -> Any:
    def numbers(*sizes: int) -> Any:
        return rng.choice((1.0, -0.0, 3.0), sizes) * rng.standard_normal(sizes)

    way = rng.choice(WAYS[: -1 if len(shape) > 2 else None])  # loops of batches know one order
    made = numbers(*shape).astype(kind)
    if way == "columns" and len(shape) > 1:
        return np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2)
    if way == "gaps":
        return made.repeat(2, -1)[..., ::2]
    if way == "wide":
        return np.concatenate([made, made], -1)[..., : shape[-1]]
    if way == "back":
        return made[..., ::-1]
    if way == "spread":
        return np.broadcast_to(made[(..., *(slice(1),) * len(shape))], shape)
    if way == "odd":
        moved = np.zeros(made.nbytes + 1, np.uint8)[1:].view(kind).reshape(shape)
        moved[...] = made
        return moved
    return made.astype(made.dtype.newbyteorder()) if way == "swapped" else made


def is_same(got: Any, want: Any) -> bool:
    if got is None or want is None:
        return got is want
    where = got.shape == want.shape and got.dtype == want.dtype
    return bool(where and got.tobytes() == want.tobytes())


def test_as_they_stand_they_are_the_functions() -> None:
    assert loops.multiply(blas._multiply, blas.UFUNCS, 9, 9) is blas._multiply
    assert loops.times(products._times, blas.UFUNCS, 9, 9, 9) is products._times


@pytest.mark.parametrize("seed", range(8))
def test_products_of_any_layout(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(300):
        m, k, n = rng.choice(SIZES, 3).tolist()
        lead = tuple(rng.choice((1, 2, 3), rng.choice((0, 0, 0, 1, 2))).tolist())
        kind = rng.choice(("f", "f", "d", "F", "i"))
        a, b = lying((*lead, m, k), kind, rng), lying((*lead, k, n), kind, rng)
        if not lead and rng.random() < 0.1:
            b = a.T  # one factor and its transpose: another function of BLAS
        assert is_same(blas.multiply(a, b), blas._multiply(a, b))
        into, other = np.ones((2, *a.shape[:-1], b.shape[-1]), a.dtype.newbyteorder("="))
        assert blas.multiply(a, b, out=into) is into
        assert is_same(into, blas._multiply(a, b, other))


@pytest.mark.parametrize("seed", range(8))
def test_products_as_they_are_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(400):
        m, k, n = rng.choice(SIZES, 3).tolist()
        flipped = int(rng.choice((FIRST, SECOND, NEITHER)))
        lead = tuple(rng.choice((1, 2, 3), rng.choice((0, 0, 1, 2))).tolist())
        one = (*lead, k, m) if flipped == FIRST else (*lead, m, k)
        other = (*lead, n, k) if flipped == SECOND else (*lead, k, n)
        one, other = one[-rng.integers(1, 5) :], other[-rng.integers(1, 5) :]
        kind = rng.choice(("f", "f", "d", "F"))
        args: list[Any] = [lying(one, kind, rng), lying(other, kind, rng), flipped]
        args += [int(rng.choice((m * n, m * n + 1, 1 << 15))), None]
        if rng.random() < 0.4:
            args.append(lying([(n,), (m, n)][rng.integers(2)], kind, rng))
        assert is_same(products.times(*args), products._times(*args))


def test_what_a_result_may_not_be_written_over() -> None:
    a, b = np.eye(4, dtype=np.float32), np.arange(16, dtype=np.float32).reshape(4, 4)
    assert np.array_equal(blas.multiply(a, b, out=a), b)
    with pytest.raises(ValueError, match="mismatch"):
        blas.multiply(b, b, out=np.empty((3, 4), np.float32))
