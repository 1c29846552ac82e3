"""Adam (Kingma and Ba 2014) and AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.optim.formulas import Looped, lerp, looped, maximum, of_gradient, of_lerp, sqrt
from skimp.optim.steps import ByFormula, counter, fractions, hyperparameters, named, zeros


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


def _of_adam(*numbers: Any) -> Looped:
    return "adam", _of_loop(*numbers)


def _of_amsgrad(*numbers: Any) -> Looped:
    return "amsgrad", _of_loop(*numbers)


def _of_loop(
    k: float, lr: float, betas: Any, eps: float, decay: float, decoupled: bool, maximize: bool
) -> tuple[float, ...]:
    beta1, beta2 = betas
    shrink = 1 - lr * decay if decoupled and decay != 0 else 1.0
    gradient = of_gradient(0.0 if decoupled else decay, maximize)
    rest = beta2, 1 - beta2, *_corrections(k, lr, betas), eps
    return *gradient, shrink, *of_lerp(1 - beta1), *rest


@looped(_of_adam)
def adam_step(p: Any, m: Any, v: Any, g: Any, k: float, *options: Any) -> tuple[Any, ...]:
    lr, betas, eps, decay, decoupled, maximize = options
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    return _moved(p, m, v, k, lr, betas, eps), m, v


@looped(_of_amsgrad)
def amsgrad_step(
    p: Any, m: Any, v: Any, top: Any, g: Any, k: float, *options: Any
) -> tuple[Any, ...]:
    lr, betas, eps, decay, decoupled, maximize = options
    p, g = decayed(p, g, lr, decay, decoupled, maximize)
    m, v = moments(m, v, g, *betas)
    top = maximum(top, v)
    return _moved(p, m, top, k, lr, betas, eps), m, v, top


def _moved(p: Any, m: Any, v: Any, k: float, lr: float, betas: Any, eps: float) -> Any:
    size, root = _corrections(k, lr, betas)
    return p - size * m / (sqrt(v) / root + eps)


def _corrections(k: float, lr: float, betas: Any) -> tuple[float, float]:
    return lr / (1 - betas[0] ** k), (1 - betas[1] ** k) ** 0.5


@hyperparameters(
    "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused "
    "decoupled_weight_decay"
)
class Adam(ByFormula):
    """Steps scaled by running means of the gradient and of its square.

    `weight_decay` is added to the gradient (AdamW's is not). `foreach`, `capturable` and `fused`
    are accepted: every step is fused. The moments cost twice the parameters' bytes, three times
    with `amsgrad`; they come with the first step.

    Source: Kingma and Ba 2014, Adam; amsgrad: Reddi et al. 2018.
    """

    params: Any
    lr: Any = 1e-3
    betas: Any = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0
    amsgrad: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False
    fused: bool | None = None
    decoupled_weight_decay: bool = False

    _skimp_checks: ClassVar = {
        "lr": "learning rate",
        "eps": "epsilon value",
        "betas": fractions,
        "weight_decay": "weight_decay value",
    }
    _skimp_state: ClassVar = {"step": counter, "exp_avg": zeros, "exp_avg_sq": zeros}
    _skimp_numbers = named("lr betas eps weight_decay decoupled_weight_decay maximize")

    def _skimp_check(self, given: dict[str, Any]) -> None:
        lr, (one, other) = given["lr"], given["betas"]
        fixed = isinstance(lr, Tensor) and given["foreach"] and not given["capturable"]
        says = "lr as a Tensor is not supported for capturable=False and foreach=True"
        require(not fixed, says)
        super()._skimp_check(given)
        alike = all(isinstance(one, kind) == isinstance(other, kind) for kind in (Tensor, int))
        require(alike, "betas must be either both floats or both Tensors")
        given["betas"] = (one, other)

    def _skimp_state_of(self, group: dict[str, Any]) -> Any:
        return self._skimp_state | ({"max_exp_avg_sq": zeros} if group["amsgrad"] else {})

    def _skimp_formula_of(self, group: dict[str, Any]) -> Any:
        return amsgrad_step if group["amsgrad"] else adam_step

    def _skimp_update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        raise RuntimeError(
            "Adam does not support sparse gradients, please consider SparseAdam instead"
        )


class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments: parameters shrink by
    lr * weight_decay first.

    Source: Loshchilov and Hutter 2017, Decoupled weight decay regularization.
    """

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
