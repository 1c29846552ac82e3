"""Steps scaled by squares of gradients: Adagrad (Duchi et al. 2011), Adadelta (Zeiler 2012),
RMSprop (Hinton 2012).
"""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import whole
from skimp.optim.adam import decayed
from skimp.optim.fused import lerp, sqrt
from skimp.optim.optimizer import (
    PerParameter,
    advance,
    check,
    check_flags,
    counter,
    number,
    update,
    zeros,
)


def adagrad(
    p: Any, total: Any, g: Any, size: float, eps: float, decay: float, maximize: bool
) -> tuple[Any, ...]:
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    total = total + g * g
    return p - size * g / (sqrt(total) + eps), total


class Adagrad(PerParameter):
    """Divides by the root of the sum of squared gradients."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check(
            lr,
            a=(lr_decay, "lr_decay value"),
            b=(weight_decay, "weight_decay value"),
            c=(initial_accumulator_value, "initial_accumulator_value value"),
            d=(eps, "epsilon value"),
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_flags(fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                start = group["initial_accumulator_value"]
                value = complex(start, start) if p.is_complex() else start
                self.state[p] = {"step": counter(), "sum": whole.full_like(p.detach(), value)}

    def share_memory(self) -> None:
        """Move the state to memory that other processes can map."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        size = number(group["lr"]) / (1 + (advance(state) - 1) * group["lr_decay"])
        update(
            adagrad,
            (p, state["sum"]),
            (grad,),
            size,
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )

    def _update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        """Only the rows of a sparse gradient are read and written."""
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[p]
        size = number(group["lr"]) / (1 + (advance(state) - 1) * group["lr_decay"])
        grad = (-grad if group["maximize"] else grad).coalesce()
        values = grad._values()
        state["sum"].add_(grad.like(values.pow(2)))
        root = state["sum"].sparse_mask(grad)._values().sqrt().add_(group["eps"])
        p.add_(grad.like(values / root), alpha=-size)


def adadelta(
    p: Any,
    squares: Any,
    steps: Any,
    g: Any,
    lr: float,
    rho: float,
    eps: float,
    decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    squares = squares * rho + (1 - rho) * g * g
    delta = sqrt(steps + eps) / sqrt(squares + eps) * g
    return p - lr * delta, squares, steps * rho + (1 - rho) * delta * delta


class Adadelta(PerParameter):
    """Steps in units of the parameter."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check(lr, a=(eps, "epsilon value"), b=(weight_decay, "weight_decay value"))
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            state["square_avg"] = zeros(p)
            state["acc_delta"] = zeros(p)
        advance(state)
        update(
            adadelta,
            (p, state["square_avg"], state["acc_delta"]),
            (grad,),
            number(group["lr"]),
            group["rho"],
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )


def rmsprop(p: Any, squares: Any, *rest: Any) -> tuple[Any, ...]:
    """`rest`: the mean if centered, the buffer if there is momentum, the gradient, then numbers."""
    *tensors, lr, alpha, eps, decay, momentum, centered, maximize = rest
    p, g = decayed(p, tensors[-1], 0.0, decay, False, maximize)
    squares = squares * alpha + (1 - alpha) * g * g
    out = [squares]
    if centered:
        mean = lerp(tensors[0], g, 1 - alpha)
        out.append(mean)
        root = sqrt(squares - mean * mean) + eps
    else:
        root = sqrt(squares) + eps
    if momentum > 0:
        buf = tensors[-2] * momentum + g / root
        return (p - lr * buf, *out, buf)
    return (p - lr * g / root, *out)


class RMSprop(PerParameter):
    """Divides by the root of the running mean of squared gradients."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(
            lr,
            a=(eps, "epsilon value"),
            b=(momentum, "momentum value"),
            c=(weight_decay, "weight_decay value"),
            d=(alpha, "alpha value"),
        )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        momentum, centered = group["momentum"], group["centered"]
        if not state:
            state["step"] = counter()
            state["square_avg"] = zeros(p)
            if momentum > 0:
                state["momentum_buffer"] = zeros(p)
            if centered:
                state["grad_avg"] = zeros(p)
        advance(state)
        written = [p, state["square_avg"]]
        if centered:
            written.append(state["grad_avg"])
        if momentum > 0:
            written.append(state["momentum_buffer"])
        update(
            rmsprop,
            written,
            (grad,),
            number(group["lr"]),
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            momentum,
            centered,
            group["maximize"],
        )
