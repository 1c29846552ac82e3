"""gradcheck finds right derivatives right and wrong ones wrong; the functional API equals the
oracle's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from skimp.autograd import GradcheckError, gradcheck, gradgradcheck
from tests.support.programs import agree, plain

VALUES = [0.3, 0.5, 0.7]


def tensor(torch: Any, values: Any = VALUES, dtype: str = "float64") -> Any:
    return torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)


class Wrong(skimp.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * ctx.factor, None


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_right(dtype: str) -> None:
    x, w = tensor(skimp, dtype=dtype), tensor(skimp, [0.9, 0.4, 0.2], dtype)

    def f(a: Any, b: Any) -> Any:
        return (a * b).exp() / b, a - b

    assert gradcheck(f, (x, w))
    assert gradgradcheck(f, (x, w))
    assert np.allclose(x.tolist(), VALUES)


def test_wrong() -> None:
    x = tensor(skimp)
    assert gradcheck(lambda t: Wrong.apply(t, 2.0), x)
    assert not gradcheck(lambda t: Wrong.apply(t, 3.0), x, raise_exception=False)
    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gradcheck(lambda t: Wrong.apply(t, 3.0), x)
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(lambda t: t, skimp.ones(2))


def test_wrong_for_complex_only() -> None:
    z = skimp.tensor([0.3 + 0.2j], dtype=skimp.complex128, requires_grad=True)
    assert not gradcheck(
        lambda t: Wrong.apply(t, 2.0), z, raise_exception=False
    )  # lacks the conjugate


def test_single_precision_is_warned_about() -> None:
    x = skimp.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="is not a double precision"):
        gradcheck(lambda t: t * 2, x, eps=1e-2, atol=1e-2)


PROGRAMS = {
    "vjp": lambda torch, f, x, w, v: f.vjp(lambda a, b: (a * b).exp(), (x, w), v),
    "jvp": lambda torch, f, x, w, v: f.jvp(lambda a, b: ((a * b).exp(), a), (x, w), (v, v)),
    "hvp": lambda torch, f, x, w, v: f.hvp(lambda a, b: (a * b).exp().sum(), (x, w), (v, v)),
    "vhp": lambda torch, f, x, w, v: f.vhp(lambda a: (a * a * a).sum(), x, v),
    "jacobian": lambda torch, f, x, w, v: f.jacobian(lambda a, b: (a * b).exp(), (x, w)),
    "jacobian_of_one": lambda torch, f, x, w, v: f.jacobian(lambda a: a.view(3, 1) * a, x),
    "jacobian_of_several": lambda torch, f, x, w, v: f.jacobian(lambda a: (a * 2, a.sum()), x),
    "hessian": lambda torch, f, x, w, v: f.hessian(lambda a, b: (a * b).exp().sum(), (x, w)),
    "hessian_of_one": lambda torch, f, x, w, v: f.hessian(lambda a: (a * a * a).sum(), x),
    "differentiable": lambda torch, f, x, w, v: torch.autograd.grad(
        f.jacobian(lambda a: (a * a).exp(), x, create_graph=True).sum(), x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_functional(name: str) -> None:
    found = []
    for torch in (skimp, oracle):
        x, w = tensor(torch), tensor(torch, [0.9, 0.4, 0.2])
        v = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        found.append(plain(PROGRAMS[name](torch, torch.autograd.functional, x, w, v)))
    assert agree(found[0], found[1])


def test_functional_refusals() -> None:
    f = skimp.autograd.functional
    x = tensor(skimp)
    with pytest.raises(
        TypeError, match="The inputs given to vjp must be either a Tensor or a tuple of Tensors"
    ):
        f.vjp(lambda a: a, [x])
    with pytest.raises(
        RuntimeError, match="can only be None if the user-provided function returns a single"
    ):
        f.vjp(lambda a: a, x)
    with pytest.raises(RuntimeError, match="independent of input 0"):
        f.jacobian(lambda a: skimp.ones(2, requires_grad=True) * 2, x, strict=True)
    with pytest.raises(RuntimeError, match="should contain a single element"):
        f.hessian(lambda a: a * a, x)
    assert np.array_equal(f.jacobian(lambda a: skimp.ones(2), x).numpy(), np.zeros((2, 3)))


# -- fast mode ------------------------------------------------------------------------------------


def _oracles_wrong() -> Any:
    class Theirs(oracle.autograd.Function):
        forward = staticmethod(vars(Wrong)["forward"].__func__)
        backward = staticmethod(vars(Wrong)["backward"].__func__)

    return Theirs


FAST: dict[str, Any] = {
    "square": lambda torch, wrong, x: x * x,
    "product": lambda torch, wrong, x: x.sum() * x,
    "two outputs": lambda torch, wrong, x: (x.sin(), x.cos().sum()),
    "constant": lambda torch, wrong, x: x.detach() * 0 + 1,
    "conjugate": lambda torch, wrong, x: x.conj() * x,
    "real of complex": lambda torch, wrong, x: x.abs(),
    "right factor": lambda torch, wrong, x: wrong.apply(x, 2.0),
    "wrong factor": lambda torch, wrong, x: wrong.apply(x, 1.9),
    "wrong second output": lambda torch, wrong, x: (x.sin(), wrong.apply(x, 2.1)),
}


CASES = [(name, "float64") for name in FAST]
# of complex outputs, PyTorch's sentences say first which part was looked at
CASES += [(name, "complex128") for name in FAST if "factor" not in name and "wrong" not in name]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_fast_mode_says_what_pytorchs_says(name: str, dtype: str) -> None:
    def says(torch: Any, wrong: Any) -> Any:
        def f(x: Any) -> Any:
            return FAST[name](torch, wrong, x)

        check, x = torch.autograd.gradcheck, tensor(torch, dtype=dtype)
        try:
            found = check(f, (x,), fast_mode=True)
        except RuntimeError as e:
            found = type(e).__name__, str(e).split("\n")[0]
        quiet = check(f, (x,), fast_mode=True, raise_exception=False)
        return found, quiet, plain(x)

    mine, theirs = says(skimp, Wrong), says(oracle, _oracles_wrong())
    agree(mine, theirs)


@pytest.mark.parametrize("factor", [1.0, 1.9, 2.0])
def test_fast_mode_of_complex_values_says_what_the_slow_one_says(factor: float) -> None:
    x = tensor(skimp, [0.3 + 0.2j, 0.5 - 0.1j], "complex128")
    found = [
        gradcheck(lambda x: Wrong.apply(x, factor), (x,), fast_mode=fast, raise_exception=False)
        for fast in (True, False)
    ]
    assert found == [False, False]  # the conjugate is missing, whatever the factor
    real = [
        gradcheck(lambda x: Wrong.apply(x.real, factor), (x,), fast_mode=f, raise_exception=False)
        for f in (True, False)
    ]
    assert real == [factor == 2.0] * 2


def test_fast_mode_calls_do_not_grow_with_the_input() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return (x * x).sum(0)

    x = skimp.rand(40, 30, dtype=skimp.float64, requires_grad=True)
    assert gradcheck(f, (x,), fast_mode=True)
    assert len(calls) < 10
    assert gradgradcheck(f, (x,), fast_mode=True)
    assert len(calls) < 40


def test_a_failure_of_the_fast_mode_shows_the_jacobians() -> None:
    with pytest.raises(GradcheckError, match="slow mode") as refused:
        gradcheck(lambda x: Wrong.apply(x, 1.5), (tensor(skimp),), fast_mode=True)
    assert "they differ" in str(refused.value)


@pytest.mark.parametrize("dim", [0, 1])
def test_third_derivatives_of_norms_are_those_of_their_formula(dim: int) -> None:
    """PyTorch's are not: mean and deviation count as constants in the last one."""
    functional = skimp.nn.functional

    def norm(x: Any) -> Any:
        if dim:
            return functional.layer_norm(x, (4,))
        return functional.batch_norm(x, None, None, training=True)

    def formula(x: Any) -> Any:
        deviation = x - x.mean(dim, keepdim=True)
        return deviation / (deviation.square().mean(dim, keepdim=True) + 1e-5).sqrt()

    def third(f: Any) -> Any:
        skimp.manual_seed(0)
        x = skimp.rand(3, 4, dtype=skimp.float64).requires_grad_()
        w = skimp.rand(3, 4, dtype=skimp.float64)
        y = f(x) ** 3
        for _ in range(3):
            (y,) = skimp.autograd.grad((y * w).sum(), x, create_graph=True)
        return y.detach().numpy()

    np.testing.assert_allclose(third(norm), third(formula), rtol=1e-9)
