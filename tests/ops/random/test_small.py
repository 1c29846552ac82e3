"""Small draws: PyTorch's numbers on the fast paths and behind them, and its state afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp.config import using

sizes = st.sampled_from([1, 3, 7, 15, 16, 17, 32, 48, 100, 256, 257, 623, 640, 4096, 5000])
CALLS: dict[str, Callable[[Any, int], Any]] = {
    "rand": lambda t, n: t.rand(n),
    "rand_shape": lambda t, n: t.rand(2, n),
    "rand_double": lambda t, n: t.rand(n, dtype=t.float64),
    "randn": lambda t, n: t.randn(n),
    "randn_list": lambda t, n: t.randn([n, 2]),
    "randn_out": lambda t, n: t.randn(n, out=t.empty(n)),
    "randint": lambda t, n: t.randint(9, (n,)),
    "randint_low": lambda t, n: t.randint(-4, 5, (n, 2)),
    "randint_wide": lambda t, n: t.randint(0, 1 << 40, (n,)),
    "randperm": lambda t, n: t.randperm(n),
    "randperm_int32": lambda t, n: t.randperm(n, dtype=t.int32),
    "randperm_int8": lambda t, n: t.randperm(n % 129, dtype=t.int8),
    "bernoulli": lambda t, n: t.bernoulli(t.full((n,), 0.3)),
    "bernoulli_double": lambda t, n: t.bernoulli(t.full((n,), 0.3, dtype=t.float64)),
    "dropout": lambda t, n: t.nn.functional.dropout(t.ones(n, 2), 0.3),
    "dropout_double": lambda t, n: t.nn.functional.dropout(t.ones(n, dtype=t.float64)),
    "eval": lambda t, n: t.nn.functional.dropout(t.ones(n), 0.5, False),
}


@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.sampled_from(sorted(CALLS)), sizes, st.booleans()), min_size=1, max_size=25
    ),
)
@settings(max_examples=40, deadline=None)
def test_programs_draw_pytorchs_numbers(seed: int, program: list[tuple[str, int, bool]]) -> None:
    skimp.manual_seed(seed)
    torch.manual_seed(seed)
    for name, n, small in program:
        with using() if small else using(small_below=0):
            ours = CALLS[name](skimp, n)
        theirs = CALLS[name](torch, n)
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert str(ours.dtype) == str(theirs.dtype)
        assert ours.numpy().tobytes() == theirs.numpy().tobytes(), name
    state = torch.get_rng_state().numpy()
    assert skimp.get_rng_state().numpy().tobytes() == state.tobytes()


REFUSED: list[tuple[type[Exception], Callable[[Any], Any]]] = [
    (RuntimeError, lambda t: t.rand(-1)),
    (RuntimeError, lambda t: t.randn(2, -3)),
    (RuntimeError, lambda t: t.randint(3, 3, (2,))),
    (RuntimeError, lambda t: t.randperm(-2)),
    (RuntimeError, lambda t: t.randperm(258, dtype=t.uint8)),
    (RuntimeError, lambda t: t.randperm(2050, dtype=t.float16)),
    (NotImplementedError, lambda t: t.randperm(2, dtype=t.bool)),
    (NotImplementedError, lambda t: t.randperm(2, out=t.empty(2, dtype=t.complex64))),
    (RuntimeError, lambda t: t.bernoulli(t.tensor([0.5, 1.5]))),
    (ValueError, lambda t: t.nn.functional.dropout(t.ones(3), 1.5)),
    (TypeError, lambda t: t.nn.functional.dropout()),
]


@pytest.mark.parametrize(("error", "call"), REFUSED)
def test_refusals_are_pytorchs_and_leave_the_stream(
    error: type[Exception], call: Callable[[Any], Any]
) -> None:
    skimp.manual_seed(3)
    with pytest.raises(error):
        call(torch)
    with pytest.raises(error):
        call(skimp)
    after = skimp.rand(5)
    skimp.manual_seed(3)
    assert np.array_equal(skimp.rand(5).numpy(), after.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("p", [0.15, 0.45, 0.1])
def test_what_stays_grows_by_what_pytorch_divides(p: float, dtype: str) -> None:
    """By 1 over 1 - p in float32, which is not the float32 next to 1 / (1 - p)."""
    found: list[Any] = []
    for lib in (skimp, torch):
        lib.manual_seed(0)
        kind = getattr(lib, dtype)
        x, images = lib.ones(50, dtype=kind).requires_grad_(), lib.ones(2, 9, 3, dtype=kind)
        y = lib.nn.functional.dropout(x, p)
        y.sum().backward()
        found += [y, x.grad, lib.nn.functional.dropout(lib.ones(200_000, dtype=kind), p)]
        found += [lib.nn.functional.dropout1d(images, p)]
    for one, other in zip(found[:4], found[4:], strict=True):
        np.testing.assert_array_equal(
            one.detach().double().numpy(), other.detach().double().numpy()
        )


def test_gradient_of_dropout_keeps_one_byte_for_each_element() -> None:
    """And nothing else, on the fast path too."""
    x = skimp.ones(16, 32).requires_grad_()
    before = skimp.cuda.memory_allocated()
    y = skimp.nn.functional.dropout(x, 0.5)
    assert skimp.cuda.memory_allocated() - before == y.nbytes + x.numel()
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())  # type: ignore[union-attr]


def test_random_module() -> None:
    skimp.random.manual_seed(3)
    with skimp.random.fork_rng():
        skimp.rand(5)
    x = skimp.rand(2)
    skimp.manual_seed(3)
    assert skimp.rand(2).tolist() == x.tolist()
