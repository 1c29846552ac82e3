"""Adam's relatives: NAdam, RAdam, Adamax."""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.optim.adam import decayed, moments
from skimp.optim.formulas import absolute, lerp, maximum, sqrt
from skimp.optim.steps import (
    ByFormula,
    PerParameter,
    advance,
    counter,
    fractions,
    hyperparameters,
    named,
    update,
    zeros,
)

_CHECKS: dict[str, Any] = {
    "lr": "learning rate",
    "eps": "epsilon value",
    "betas": fractions,
    "weight_decay": "weight_decay value",
}


def nadam_step(p: Any, m: Any, v: Any, g: Any, *numbers: Any) -> tuple[Any, ...]:
    of_g, of_m, correction, lr, betas, eps, decay, decoupled, maximize = numbers
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    denom = sqrt(v / correction) + eps
    return p + of_g * g / denom + of_m * m / denom, m, v


@hyperparameters(
    "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize foreach capturable "
    "differentiable"
)
class NAdam(PerParameter):
    """Adam with Nesterov's momentum, whose weight grows with the steps by `momentum_decay`.

    Source: Dozat 2016, Incorporating Nesterov momentum into Adam.
    """

    params: Any
    lr: Any = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False

    _skimp_checks: ClassVar = {**_CHECKS, "momentum_decay": "momentum_decay value"}
    _skimp_numbers = named("lr betas eps weight_decay decoupled_weight_decay maximize")
    _skimp_counters: ClassVar = ("step", "mu_product")

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        state = self.state[p]
        if not state:
            state |= {"step": counter(), "mu_product": counter(value=1.0)}
            state |= {"exp_avg": zeros(p), "exp_avg_sq": zeros(p)}
        k, (lr, betas, *_) = advance(state), options
        fade = group["momentum_decay"]
        mu = betas[0] * (1.0 - 0.5 * (0.96 ** (k * fade)))
        mu_next = betas[0] * (1.0 - 0.5 * (0.96 ** ((k + 1) * fade)))
        kept = state["mu_product"]._skimp_writable()
        kept *= mu
        product = float(kept)
        update(
            nadam_step,
            (p, state["exp_avg"], state["exp_avg_sq"]),
            (grad,),
            -lr * (1.0 - mu) / (1.0 - product),
            -lr * mu_next / (1.0 - product * mu_next),
            1 - betas[1] ** k,
            *options,
        )


def radam_step(p: Any, m: Any, v: Any, g: Any, k: float, *options: Any) -> tuple[Any, ...]:
    lr, betas, eps, decay, decoupled, maximize = options
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


@hyperparameters(
    "lr betas eps weight_decay maximize foreach capturable decoupled_weight_decay differentiable"
)
class RAdam(ByFormula):
    """Adam whose steps are plain momentum until the variance of the second moment is known (about
    five steps), and are rectified by it then.

    Source: Liu et al. 2019, On the variance of the adaptive learning rate.
    """

    params: Any
    lr: Any = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False

    _skimp_checks: ClassVar = _CHECKS
    _skimp_state: ClassVar = {"step": counter, "exp_avg": zeros, "exp_avg_sq": zeros}
    _skimp_formula = staticmethod(radam_step)
    _skimp_numbers = named("lr betas eps weight_decay decoupled_weight_decay maximize")


def adamax_step(p: Any, m: Any, top: Any, g: Any, k: float, *options: Any) -> tuple[Any, ...]:
    lr, (beta1, beta2), eps, decay, maximize = options
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    m = lerp(m, g, 1 - beta1)
    top = maximum(top * beta2, absolute(g) + eps)
    return p - lr / (1 - beta1**k) * m / top, m, top


@hyperparameters("lr betas eps weight_decay foreach maximize differentiable capturable")
class Adamax(ByFormula):
    """Adam with the infinity norm: divides by the largest recent gradient, fading by betas[1].

    Source: Kingma and Ba 2014, Adam, section 7.
    """

    params: Any
    lr: Any = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False

    _skimp_checks: ClassVar = _CHECKS
    _skimp_state: ClassVar = {"step": counter, "exp_avg": zeros, "exp_inf": zeros}
    _skimp_formula = staticmethod(adamax_step)
    _skimp_numbers = named("lr betas eps weight_decay maximize")
