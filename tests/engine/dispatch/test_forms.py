"""Every form of the pointwise functions, the fast path of small tensors, and the derivatives."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._engine.dispatch.row import FORMS
from tests.support.pointwise_rows import ALIASES, BINARY, UNARY, quarters
from tests.support.samples import array, same, same_gradients, twin

# -- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_aliases_are_functions_of_one_op_under_names_of_their_own(name: str) -> None:
    alias, f = getattr(skimp, name), getattr(skimp, ALIASES[name])
    assert FORMS[alias].op is FORMS[f].op
    theirs = getattr(torch, name)
    assert alias.__name__ == theirs.__name__
    assert alias.__qualname__ == theirs.__qualname__
    assert hasattr(skimp.Tensor, name) == hasattr(torch.Tensor, name)
    assert hasattr(skimp.Tensor, f"{name}_") == hasattr(torch.Tensor, f"{name}_")


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_every_form_of_torch_is_there(name: str) -> None:
    assert hasattr(skimp.Tensor, name) == hasattr(torch.Tensor, name)
    if hasattr(torch.Tensor, f"{name}_"):
        assert hasattr(skimp.Tensor, f"{name}_")
    with pytest.raises(TypeError):
        getattr(skimp, name)("a", *(["b"] if name in BINARY else []))


def test_every_name_of_torch_special_is_there() -> None:
    composed = {"softmax", "log_softmax", "logsumexp"}  # of rows, not of elements
    for name in dir(torch.special):
        if callable(getattr(torch.special, name)) and name[0].islower() and name not in composed:
            assert hasattr(skimp.special, name), name


# -- the fast path of small tensors ----------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_short_way_gives_the_bits_of_the_general_way(data: Any) -> None:
    """Operands at hand, of any layout, against the general way and against torch."""
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    shapes = data.draw(
        st.sampled_from(
            [((3, 4), (3, 4)), ((3, 1), (1, 4)), ((3, 4), (4,)), ((), (3,)), ((2, 3, 4), (3, 4))]
        )
    )
    x, y = (
        data.draw(st.sampled_from([quarters(s, dtype, i), _strided(s, dtype, i)]))
        for i, s in enumerate(shapes)
    )
    number = data.draw(st.sampled_from([2, -3, 0.1, 1e300, 7, 2**62]))
    f = data.draw(
        st.sampled_from(
            [operator.add, operator.sub, operator.mul, operator.eq, operator.lt, operator.truediv]
        )
    )
    a, b = twin(x), twin(y)
    with skimp.config.using(defer="never"):
        short = [f(a, b), f(a, number), f(number, a), skimp.exp(a), -a, abs(a)]
    with skimp.config.using(small_below=0):
        a, b = twin(x), twin(y)
        general = [f(a, b), f(a, number), f(number, a), skimp.exp(a), -a, abs(a)]
        for one, other in zip(short, general, strict=True):
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(array(one), array(other))
    theirs = [f(x, y), f(x, number), f(number, x), torch.exp(x), -x, abs(x)]
    same(short, theirs, tolerance=1e-6)


def _strided(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """The same shape, transposed in memory."""
    return quarters(shape[::-1], dtype, seed).permute(tuple(reversed(range(len(shape)))))


def test_short_in_place_bumps_the_version_and_honours_aliases() -> None:
    for lib in (torch, skimp):
        x = lib.arange(6.0)
        x += 1.0
        x *= x
        x.add_(lib.ones(6))
        assert x._version == 3
        view = x[1:]
        x[:-1].add_(0.5)
        with pytest.raises(RuntimeError):
            x[:-1].mul_(view)
        with pytest.raises(RuntimeError):
            x += lib.ones(2, 6)
        assert x.tolist() == [2.5, 5.5, 10.5, 17.5, 26.5, 37.0]


# -- gradients ------------------------------------------------------------------------------------

SMOOTH = [
    n
    for n in UNARY
    if n not in ("bitwise_not", "logical_not", "signbit") and not n.startswith("is")
]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_unary(name: str) -> None:
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    if name == "acosh":
        x = x + 1.5
    if name != "sgn":  # its zeros in torch are a tensor without elements
        same_gradients(lambda lib, x: getattr(lib, name)(x), x, tolerance=1e-8)
    ours = getattr(skimp, name)(twin(x).requires_grad_())
    theirs = getattr(torch, name)(x.clone().requires_grad_())
    if theirs.grad_fn is not None:
        assert ours.grad_fn.name() == theirs.grad_fn.name()


@pytest.mark.parametrize("name", ["entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri"])
def test_gradients_of_special(name: str) -> None:
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    same_gradients(lambda lib, x: getattr(lib.special, name)(x), x, tolerance=1e-8)


NOT_DIFFERENTIABLE = (
    *("floor_divide", "heaviside", "gcd", "lcm", "eq", "ne", "lt", "le", "gt", "ge"),
    *("igamma", "igammac"),  # by their first argument; tests/kernels has their values
)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in BINARY
        if n not in NOT_DIFFERENTIABLE and not n.startswith(("bitwise", "logical_"))
    ],
)
def test_gradients_of_binary(name: str) -> None:
    x = torch.linspace(0.3, 1.9, 6, dtype=torch.float64).reshape(2, 3)
    y = torch.tensor([0.4, 1.3, 2.2], dtype=torch.float64)
    same_gradients(lambda lib, x, y: getattr(lib, name)(x, y), x, y, tolerance=1e-8)


def test_gradients_with_numbers() -> None:
    x = torch.linspace(0.3, 1.9, 6, dtype=torch.float64)
    for f in (
        lambda x: x**3,
        lambda x: x**-0.5,
        lambda x: 2.5**x,
        lambda x: 2 / x,
        lambda x: 3 - x,
        lambda x: x % 0.7,
        lambda x: x.clamp(0.5, 1.0),
        lambda x: x.clamp(min=1.0),
        lambda x: x.clamp_max(1.0),
        lambda x: x.xlogy(2.0),
        lambda x: x.copysign(-1.0),
        lambda x: x.sub(x * x, alpha=3),
        lambda x: x.polygamma(2),
        lambda x: x.mvlgamma(1),
        lambda x: x.logit(0.1),
        lambda x: x.float_power(2),
        lambda x: x.addcmul(x, x, value=2.0),
        lambda x: x.addcdiv(x, x + 1, value=-0.5),
        lambda x: x.lerp(x * x, 0.3),
        lambda x: x.lerp(x * x, x),
        lambda x: x.div(0.3, rounding_mode="trunc"),
        lambda x: x.maximum(x.flip(0)),
        lambda x: x.clamp(x * 0.9, x * 1.1),
    ):
        same_gradients(lambda lib, x, f=f: f(x), x, tolerance=1e-8)
    same_gradients(lambda lib, x: lib.special.xlog1py(x, 2.0), x, tolerance=1e-8)


def test_gradients_of_complex_numbers() -> None:
    z = (torch.linspace(0.3, 1.9, 4, dtype=torch.float64) + 0.7j).requires_grad_()
    w = torch.tensor([0.2 - 1j, 1.0, 2.0j, -1.0], dtype=torch.complex128).requires_grad_()
    for f in (
        lambda z, w: z * w,
        lambda z, w: z / w,
        lambda z, w: z**w,
        lambda z, w: z**2,
        lambda z, w: (z * 2j).exp(),
        lambda z, w: z.log() + w.sin(),
        lambda z, w: z.abs() * w,
        lambda z, w: z.sgn() + w.tanh(),
        lambda z, w: z.angle() * w,
        lambda z, w: (2j - z).sqrt() * w.conj_physical(),
        lambda z, w: z.sigmoid() + w,
        lambda z, w: z.add(w, alpha=2j),
    ):
        a, b = twin(z), twin(w)
        theirs = torch.autograd.grad(f(z, w).sum().abs() ** 2, (z, w), allow_unused=True)
        ours = skimp.autograd.grad(f(a, b).sum().abs() ** 2, (a, b), allow_unused=True)
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(
                    array(one.resolve_conj()), array(other.resolve_conj()), rtol=1e-9, atol=1e-12
                )


def test_ops_without_derivative_say_so_in_backward() -> None:
    for lib in (torch, skimp):
        x = lib.ones(3, requires_grad=True)
        for f in (lambda x: x // 2, lambda x, lib=lib: lib.heaviside(x, x)):
            result = f(x).sum()
            assert result.requires_grad
            with pytest.raises(RuntimeError, match="not implemented"):
                result.backward()


def test_out_refuses_what_autograd_would_follow() -> None:
    x = skimp.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        skimp.exp(x, out=skimp.empty(3))
    with pytest.raises(TypeError):
        skimp.exp("a")


@pytest.mark.parametrize("needs", [True, False])
def test_parameters_are_operands_like_any_tensor(needs: bool) -> None:
    """Their results are plain tensors, with the nodes and gradients of a tensor in their place."""
    for lib in (torch, skimp):
        x, values = lib.arange(3.0), lib.arange(3.0) + 1
        for f in (
            *(lambda a, b, f=f: f(a, b) for f in (operator.add, operator.mul, operator.truediv)),
            lambda a, b: a < b,
            lambda a, b, lib=lib: lib.maximum(a, b).exp(),
            lambda a, b: b.relu() @ a,
            lambda a, b: a.clone().add_(b.detach()),
        ):
            p = lib.nn.Parameter(values.clone(), requires_grad=needs)
            t = values.clone().requires_grad_(needs)
            made = [f(x, p), f(x, t), f(p, x)]
            assert {type(m) for m in made} == {lib.Tensor}
            assert made[0].tolist() == made[1].tolist()
            assert type(made[0].grad_fn).__name__ == type(made[1].grad_fn).__name__
            if made[0].requires_grad:
                made[0].sum().backward()
                made[1].sum().backward()
                assert p.grad.tolist() == t.grad.tolist()
