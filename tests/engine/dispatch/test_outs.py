"""What `out=` may be, and in which type the result is computed that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch as oracle

import skimp

X = [1.3, 2.7, 3.9, 0.0, -1.6, 200.0]
TYPES = ("float16", "bfloat16", "float32", "float64", "int64", "bool", "complex64")

POINTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda lib, x, out: lib.add(x, x.flip(0), out=out),
    "div": lambda lib, x, out: lib.div(x, x.flip(0) + 3, out=out),
    "exp": lambda lib, x, out: lib.exp(x.clamp(-1, 1), out=out),
    "atan2": lambda lib, x, out: lib.atan2(x, x.flip(0), out=out),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_wider_out_takes_what_the_result_would_have_been(name: str, half: str) -> None:
    for wide in ("float32", "float64", "complex64"):

        def run(lib: Any, wide: str = wide) -> list[Any]:
            x = lib.tensor(X, dtype=getattr(lib, half))
            made: list[Any] = POINTWISE[name](
                lib, x, lib.empty(6, dtype=getattr(lib, wide))
            ).tolist()
            return made

        assert run(skimp) == run(oracle)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", ["sum", "mean", "prod"])
@pytest.mark.parametrize("asked", [None, "float32", "float64"])
def test_a_reduction_is_computed_in_the_type_of_its_out(name: str, asked: str | None) -> None:
    def run(lib: Any, kind: str, wide: str) -> Any:
        x = lib.tensor(X).reshape(2, 3).to(getattr(lib, kind))
        words = {} if asked is None else {"dtype": getattr(lib, asked)}
        out = lib.empty(0, dtype=getattr(lib, wide))
        try:
            assert getattr(lib, name)(x, 0, out=out, **words) is out
        except RuntimeError:
            return RuntimeError
        return out

    for kind in TYPES:
        for wide in TYPES:
            theirs, ours = run(oracle, kind, wide), run(skimp, kind, wide)
            if theirs is RuntimeError:
                assert ours is RuntimeError, (kind, wide)
            else:  # rounded once, where PyTorch's sums of halves may round by the block
                near = {"rtol": 1e-2 if "16" in wide else 1e-6, "atol": 0}
                oracle.testing.assert_close(
                    oracle.tensor(ours.tolist(), dtype=theirs.dtype), theirs, **near
                )


CALLS: dict[str, Callable[..., Any]] = {
    "zeros": lambda lib, out: lib.zeros((2,), out=out),
    "full": lambda lib, out: lib.full((2,), 1.0, out=out),
    "arange": lambda lib, out: lib.arange(2, out=out),
    "linspace": lambda lib, out: lib.linspace(0, 1, 2, out=out),
    "randn": lambda lib, out: lib.randn((2,), out=out),
    "eye": lambda lib, out: lib.eye(2, out=out),
    "cat": lambda lib, out: lib.cat([lib.ones(2)], out=out),
    "stack": lambda lib, out: lib.stack([lib.ones(2)], out=out),
    "sum": lambda lib, out: lib.sum(lib.ones(2), 0, out=out),
    "cumsum": lambda lib, out: lib.cumsum(lib.ones(2), 0, out=out),
    "mm": lambda lib, out: lib.mm(lib.ones(2, 2), lib.ones(2, 2), out=out),
    "tensordot": lambda lib, out: lib.tensordot(lib.ones(2, 2), lib.ones(2, 2), 1, out=out),
    "gather": lambda lib, out: lib.gather(lib.ones(2), 0, lib.tensor([0]), out=out),
    "nonzero": lambda lib, out: lib.nonzero(lib.ones(2), out=out),
    "exp": lambda lib, out: lib.exp(lib.ones(2), out=out),
    "sort": lambda lib, out: lib.sort(lib.ones(2), out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_out_that_is_no_tensor_is_a_type_error(name: str) -> None:
    wrong = (
        lambda lib: (lib.ones(2),), lambda lib: [lib.ones(2)], lambda lib: 3, lambda lib: "x",
        lambda lib: lib.ones(2).numpy(), lambda lib: (1, 2),
        lambda lib: (lib.ones(2), lib.ones(2), lib.ones(2)),
    )  # fmt: skip
    for value in wrong:
        for lib in (oracle, skimp):
            with pytest.raises(TypeError):
                CALLS[name](lib, value(lib))


@pytest.mark.parametrize("name", ["inverse", "cholesky_inverse", "linalg.inv"])
def test_an_empty_out_takes_the_strides_of_lapacks_result(name: str) -> None:
    found = []
    for lib in (skimp, oracle):
        space, _, last = name.rpartition(".")
        f = getattr(getattr(lib, space) if space else lib, last)
        found.append(f(lib.eye(3), out=lib.empty(0)).stride())
    assert found[0] == found[1]


OWN = (
    "abs ceil floor trunc round frac sign sgn neg conj_physical nan_to_num hardshrink isposinf "
    "signbit softmax amax argmin all any norm quantile inverse special.round linalg.inv linalg.det "
    "linalg.cholesky linalg.svdvals linalg.norm linalg.vector_norm max logical_not exp square "
    "pow lerp"
)


@pytest.mark.parametrize("name", OWN.split())
def test_what_converts_nothing_refuses_an_out_of_another_type(name: str) -> None:
    """max, logical_not, exp, square, pow and lerp by a number convert."""

    def run(lib: Any, wide: str) -> Any:
        space, _, last = name.rpartition(".")
        f = getattr(getattr(lib, space) if space else lib, last)
        x = lib.eye(2)
        more = {"softmax": (0,), "quantile": (0.5,), "pow": (3,), "lerp": (x, 0.5)}.get(name, ())
        try:
            return f(x, *more, out=lib.empty(0, dtype=getattr(lib, wide))).dtype.itemsize
        except RuntimeError as error:
            return type(error)

    for wide in TYPES:
        assert run(skimp, wide) == run(oracle, wide), wide


def test_an_out_that_is_read_is_not_resized() -> None:
    for lib in (oracle, skimp):
        a = lib.ones(3)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            lib.add(a, lib.ones(2, 3), out=a)
        assert a.tolist() == [1.0, 1.0, 1.0]


# of the namespace, an input that requires grad, and an empty one of bools, int64 and float32
GRADIENTS: dict[str, Callable[..., Any]] = {
    "gt": lambda t, x, b, i, f: t.gt(x, x, out=b),
    "eq by a number": lambda t, x, b, i, f: t.eq(x, 1, out=f),
    "logical_not": lambda t, x, b, i, f: t.logical_not(x, out=b),
    "signbit": lambda t, x, b, i, f: t.signbit(x, out=b),
    "all": lambda t, x, b, i, f: t.all(x, out=b),
    "argmax": lambda t, x, b, i, f: t.argmax(x, out=i),
    "isin": lambda t, x, b, i, f: t.isin(x, x, out=b),
    "searchsorted": lambda t, x, b, i, f: t.searchsorted(x, x, out=i),
    "histc": lambda t, x, b, i, f: t.histc(x, 3, out=f),
    "bessel": lambda t, x, b, i, f: t.special.bessel_j0(x * 0, out=f),
    "add": lambda t, x, b, i, f: t.add(x, x, out=f),
    "sign": lambda t, x, b, i, f: t.sign(x, out=f),
    "sum": lambda t, x, b, i, f: t.sum(x, 0, out=f),
    "amax": lambda t, x, b, i, f: t.amax(x, 0, out=f),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_an_out_is_refused_where_autograd_would_follow(name: str) -> None:
    """Inputs may require grad where the result can't."""

    def run(lib: Any) -> Any:
        outs = [lib.empty(0, dtype=kind) for kind in (lib.bool, lib.int64, lib.float32)]
        try:
            return GRADIENTS[name](lib, lib.tensor([1.0, 2.0], requires_grad=True), *outs).tolist()
        except RuntimeError as error:
            return str(error)

    assert run(skimp) == run(oracle)


def test_an_out_may_require_grad_where_autograd_does_not_follow() -> None:
    for lib in (oracle, skimp):
        leaf = lib.ones(4).requires_grad_()
        inside = leaf * 2
        for out in (leaf, inside):
            version = out._version
            assert lib.lt(lib.zeros(4), lib.tensor([1.0, 0, 1, 0]), out=out) is out
            assert out.tolist() == [1.0, 0, 1, 0]
            assert (out.requires_grad, out._version) == (True, version + 1)
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            lib.add(lib.ones(4), 1, out=leaf)
        large = lib.ones(70000).requires_grad_()
        assert lib.isnan(lib.eq(lib.zeros(70000), 1, out=large)).sum() == large.sum() == 0


def test_limits_that_are_numbers_convert_nothing() -> None:
    """Of `clamp`: by tensors it converts."""

    def run(lib: Any, kind: str, wide: str, one: Any) -> Any:
        x = lib.ones(2, dtype=getattr(lib, kind))
        limit = lib.tensor(one) if isinstance(one, list) else one
        try:
            return lib.clamp(x, limit, out=lib.empty(2, dtype=getattr(lib, wide))).tolist()
        except RuntimeError:
            return RuntimeError

    for kind in ("float32", "float16", "int32"):
        for wide in ("float32", "float64", "int64"):
            for one in (1, 0.5, [1, 1]):
                assert run(skimp, kind, wide, one) == run(oracle, kind, wide, one), (kind, wide)


def test_an_out_that_shows_a_part_of_what_is_read_is_refused() -> None:
    """Though it would be made as large."""
    for lib in (oracle, skimp):
        x = lib.ones(3)
        with pytest.raises(RuntimeError, match="single memory location"):
            lib.exp(x, out=x[:2])


def test_an_out_with_bytes_takes_nothing_without() -> None:
    for lib in (oracle, skimp):
        with pytest.raises(RuntimeError, match="device"):
            lib.add(lib.ones(2, device="meta"), 1, out=lib.ones(2))
