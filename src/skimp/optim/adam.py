"""Adam (Kingma and Ba 2014) and AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.optim.fused import lerp, maximum, sqrt
from skimp.optim.optimizer import (
    PerParameter,
    advance,
    check,
    check_betas,
    check_flags,
    counter,
    number,
    update,
    zeros,
)


def moments(m: Any, v: Any, g: Any, beta1: float, beta2: float) -> tuple[Any, Any]:
    """Running means of the gradient and of its square."""
    return lerp(m, g, 1 - beta1), v * beta2 + (1 - beta2) * g * g


def decayed(
    p: Any, g: Any, lr: float, decay: float, decoupled: bool, maximize: bool
) -> tuple[Any, Any]:
    """The parameter and the gradient after weight decay."""
    g = -g if maximize else g
    if decay == 0:
        return p, g
    return (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)


def adam(
    p: Any,
    m: Any,
    v: Any,
    g: Any,
    k: float,
    lr: float,
    betas: Any,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    return _moved(p, m, v, k, lr, betas, eps), m, v


def amsgrad(
    p: Any,
    m: Any,
    v: Any,
    top: Any,
    g: Any,
    k: float,
    lr: float,
    betas: Any,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    top = maximum(top, v)
    return _moved(p, m, top, k, lr, betas, eps), m, v, top


def _moved(p: Any, m: Any, v: Any, k: float, lr: float, betas: Any, eps: float) -> Any:
    size = lr / (1 - betas[0] ** k)
    root = (1 - betas[1] ** k) ** 0.5
    return p - size * m / (sqrt(v) / root + eps)


class Adam(PerParameter):
    """Steps scaled by running moments of the gradient."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        check(lr, eps=(eps, "epsilon value"))
        check_betas(betas)
        check(lr, decay=(weight_decay, "weight_decay value"))
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor) or isinstance(
            betas[0], int
        ) != isinstance(betas[1], int):
            raise ValueError("betas must be either both floats or both Tensors")
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        check_flags(fused, foreach, differentiable)

    def _update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        raise RuntimeError(
            "Adam does not support sparse gradients, please consider SparseAdam instead"
        )

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            state["exp_avg"] = zeros(p)
            state["exp_avg_sq"] = zeros(p)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros(p)
        numbers = (
            advance(state),
            number(group["lr"]),
            tuple(map(number, group["betas"])),
            group["eps"],
            number(group["weight_decay"]),
            group["decoupled_weight_decay"],
            group["maximize"],
        )
        written = [p, state["exp_avg"], state["exp_avg_sq"]]
        if group["amsgrad"]:
            update(amsgrad, [*written, state["max_exp_avg_sq"]], (grad,), *numbers)
        else:
            update(adam, written, (grad,), *numbers)


class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
