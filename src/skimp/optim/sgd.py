"""SGD, with momentum, weight decay and Nesterov's variant."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import whole
from skimp.optim.optimizer import PerParameter, check_flags, number, update


def _gradient(p: Any, g: Any, decay: float, maximize: bool) -> Any:
    g = -g if maximize else g
    return g + decay * p if decay != 0 else g


def plain(p: Any, g: Any, lr: float, decay: float, maximize: bool) -> tuple[Any, ...]:
    return (p - lr * _gradient(p, g, decay, maximize),)


def first(
    p: Any,
    buf: Any,
    g: Any,
    lr: float,
    momentum: float,
    dampening: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    """The first step with momentum: the buffer is the gradient (cut off from its history, as in
    PyTorch).
    """
    g = _gradient(p, g, decay, maximize)
    g = g.detach() if isinstance(g, Tensor) else g
    return p - lr * (g + momentum * g if nesterov else g), g


def later(
    p: Any,
    buf: Any,
    g: Any,
    lr: float,
    momentum: float,
    dampening: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    g = _gradient(p, g, decay, maximize)
    buf = buf * momentum + (1 - dampening) * g
    return p - lr * (g + momentum * buf if nesterov else buf), buf


class SGD(PerParameter):
    """p -= lr * (momentum * buffer + gradient)."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)
        check_flags(fused, foreach, differentiable)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        lr, decay, maximize = number(group["lr"]), number(group["weight_decay"]), group["maximize"]
        momentum = group["momentum"]
        if momentum == 0:
            update(plain, (p,), (grad,), lr, decay, maximize)
            return
        state = self.state[p]
        buf = state.get("momentum_buffer")
        formula = later
        if buf is None:
            formula = first
            buf = state["momentum_buffer"] = whole.empty_like(p.detach())
        update(
            formula,
            (p, buf),
            (grad,),
            lr,
            momentum,
            group["dampening"],
            decay,
            group["nesterov"],
            maximize,
        )

    def _update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        """Only the rows of a sparse gradient (and of the sparse momentum) are read and written."""
        lr, momentum = number(group["lr"]), group["momentum"]
        grad = -grad if group["maximize"] else grad
        if number(group["weight_decay"]) != 0:
            grad = grad.add(p, alpha=group["weight_decay"])  # refused, in PyTorch's words
        if momentum != 0:
            state = self.state[p]
            buf = state.get("momentum_buffer")
            if buf is None:
                buf = grad.detach().clone()
            else:
                buf = (buf * momentum + grad * (1 - group["dampening"])).coalesce()
            state["momentum_buffer"] = buf
            grad = grad + buf * momentum if group["nesterov"] else buf
        p.add_(grad, alpha=-lr)
