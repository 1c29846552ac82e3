"""Adam's relatives: NAdam (Dozat 2016), RAdam (Liu et al. 2019), Adamax (Kingma and Ba 2014)."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.optim.adam import decayed, moments
from skimp.optim.fused import absolute, lerp, maximum, sqrt
from skimp.optim.optimizer import (
    PerParameter,
    advance,
    check,
    check_betas,
    counter,
    number,
    update,
    zeros,
)


def nadam(
    p: Any,
    m: Any,
    v: Any,
    g: Any,
    of_g: float,
    of_m: float,
    correction: float,
    lr: float,
    betas: Any,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    denom = sqrt(v / correction) + eps
    return p + of_g * g / denom + of_m * m / denom, m, v


class NAdam(PerParameter):
    """Adam with Nesterov's momentum."""

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr, eps=(eps, "epsilon value"))
        check_betas(betas)
        check(
            lr,
            decay=(weight_decay, "weight_decay value"),
            momentum=(momentum_decay, "momentum_decay value"),
        )
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            state["mu_product"] = counter(1.0)
            state["exp_avg"] = zeros(p)
            state["exp_avg_sq"] = zeros(p)
        k, lr, betas = advance(state), number(group["lr"]), group["betas"]
        fade = group["momentum_decay"]
        mu = betas[0] * (1.0 - 0.5 * (0.96 ** (k * fade)))
        mu_next = betas[0] * (1.0 - 0.5 * (0.96 ** ((k + 1) * fade)))
        kept = state["mu_product"].writable()
        kept *= mu
        product = float(kept)
        update(
            nadam,
            (p, state["exp_avg"], state["exp_avg_sq"]),
            (grad,),
            -lr * (1.0 - mu) / (1.0 - product),
            -lr * mu_next / (1.0 - product * mu_next),
            1 - betas[1] ** k,
            lr,
            betas,
            group["eps"],
            group["weight_decay"],
            group["decoupled_weight_decay"],
            group["maximize"],
        )


def radam(
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
    beta2 = betas[1]
    correction = 1 - beta2**k
    step = m / (1 - betas[0] ** k) * lr
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * k * beta2**k / correction
    if length > 5.0:
        rect = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        step = step * (correction**0.5 / (sqrt(v) + eps)) * rect**0.5
    return p - step, m, v


class RAdam(PerParameter):
    """Adam that waits until the variance of its steps is known."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr, eps=(eps, "epsilon value"))
        check_betas(betas)
        check(lr, decay=(weight_decay, "weight_decay value"))
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            state["exp_avg"] = zeros(p)
            state["exp_avg_sq"] = zeros(p)
        update(
            radam,
            (p, state["exp_avg"], state["exp_avg_sq"]),
            (grad,),
            advance(state),
            number(group["lr"]),
            group["betas"],
            group["eps"],
            group["weight_decay"],
            group["decoupled_weight_decay"],
            group["maximize"],
        )


def adamax(
    p: Any,
    m: Any,
    top: Any,
    g: Any,
    size: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    m = lerp(m, g, 1 - beta1)
    top = maximum(top * beta2, absolute(g) + eps)
    return p - size * m / top, m, top


class Adamax(PerParameter):
    """Adam with the infinity norm."""

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check(lr, eps=(eps, "epsilon value"))
        check_betas(betas)
        check(lr, decay=(weight_decay, "weight_decay value"))
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            state["exp_avg"] = zeros(p)
            state["exp_inf"] = zeros(p)
        beta1, beta2 = group["betas"]
        size = number(group["lr"]) / (1 - beta1 ** advance(state))
        update(
            adamax,
            (p, state["exp_avg"], state["exp_inf"]),
            (grad,),
            size,
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )
