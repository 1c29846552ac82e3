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
from tests.engine.autograd.test_autograd_twins import agree, plain

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
