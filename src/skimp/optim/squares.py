"""Steps scaled by squares of gradients: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.checks import require_between
from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.optim.adam import decayed
from skimp.optim.formulas import Looped, lerp, looped, of_gradient, sqrt
from skimp.optim.steps import ByFormula, advance, counter, hyperparameters, named, number, zeros


def _of_adagrad(
    k: float, lr: float, lr_decay: float, eps: float, decay: float, maximize: bool
) -> Looped:
    return "adagrad", (*of_gradient(decay, maximize), _size(k, lr, lr_decay), eps)


@looped(_of_adagrad)
def adagrad_step(p: Any, total: Any, g: Any, k: float, *options: Any) -> tuple[Any, ...]:
    lr, lr_decay, eps, decay, maximize = options
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    total = total + g * g
    return p - _size(k, lr, lr_decay) * g / (sqrt(total) + eps), total


def _size(k: float, lr: float, lr_decay: float) -> float:
    return lr / (1 + (k - 1) * lr_decay)


@hyperparameters(
    "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize differentiable fused"
)
class Adagrad(ByFormula):
    """Divides by the root of the sum of all squared gradients.

    The state is made with the optimizer, not with the first step.

    Shape: any; a sparse gradient changes its rows only, and takes no weight decay (RuntimeError).
    Raises: ValueError for options below 0.
    Source: Duchi et al. 2011, Adaptive subgradient methods.
    """

    params: Any
    lr: Any = 1e-2
    lr_decay: float = 0
    weight_decay: float = 0
    initial_accumulator_value: float = 0
    eps: float = 1e-10
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    fused: bool | None = None

    _skimp_checks: ClassVar = {
        "lr": "learning rate",
        "lr_decay": "lr_decay value",
        "weight_decay": "weight_decay value",
        "initial_accumulator_value": "initial_accumulator_value value",
        "eps": "epsilon value",
    }
    _skimp_state: ClassVar = {"step": counter, "sum": zeros}
    _skimp_formula = staticmethod(adagrad_step)
    _skimp_numbers = named("lr lr_decay eps weight_decay maximize")

    def _skimp_begin(self) -> None:
        super()._skimp_begin()
        for group in self.param_groups:
            for p in group["params"]:
                start = group["initial_accumulator_value"]
                value = complex(start, start) if p.is_complex() else start
                self.state[p] = {"step": counter(), "sum": ops.full_like(p.detach(), value)}

    def share_memory(self) -> None:
        """Move the state to memory that other processes can map."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _skimp_update_rows(self, group: dict[str, Any], p: Tensor, grad: Any) -> None:
        """Only the rows of a sparse gradient are read and written."""
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[p]
        size = _size(advance(state), number(group["lr"]), group["lr_decay"])
        grad = (-grad if group["maximize"] else grad).coalesce()
        values = grad._values()
        state["sum"].add_(grad.like(values.pow(2)))
        root = state["sum"].sparse_mask(grad)._values().sqrt().add_(group["eps"])
        p.add_(grad.like(values / root), alpha=-size)


def adadelta_step(p: Any, squares: Any, steps: Any, g: Any, *options: Any) -> tuple[Any, ...]:
    _k, lr, rho, eps, decay, maximize = options
    p, g = decayed(p, g, 0.0, decay, False, maximize)
    squares = squares * rho + (1 - rho) * g * g
    delta = sqrt(steps + eps) / sqrt(squares + eps) * g
    return p - lr * delta, squares, steps * rho + (1 - rho) * delta * delta


@hyperparameters("lr rho eps weight_decay maximize capturable foreach differentiable")
class Adadelta(ByFormula):
    """Steps in units of the parameter: a mean of earlier steps over a mean of gradients.

    Raises: ValueError for lr, eps or weight_decay below 0 and rho outside [0, 1];
    RuntimeError in step for sparse gradients.
    Source: Zeiler 2012, Adadelta.
    """

    params: Any
    lr: Any = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0
    foreach: bool | None = None
    _: KW_ONLY
    capturable: bool = False
    maximize: bool = False
    differentiable: bool = False

    _skimp_checks: ClassVar = {
        "lr": "learning rate",
        "rho": lambda rho: require_between(rho, 0.0, 1.0, "Invalid rho value: {got}"),
        "eps": "epsilon value",
        "weight_decay": "weight_decay value",
    }
    _skimp_state: ClassVar = {"step": counter, "square_avg": zeros, "acc_delta": zeros}
    _skimp_formula = staticmethod(adadelta_step)
    _skimp_numbers = named("lr rho eps weight_decay maximize")


def _of_rmsprop(
    _k: float, lr: float, alpha: float, eps: float, decay: float, momentum: float, centered: bool,
    maximize: bool,
) -> Looped | None:  # fmt: skip
    if centered:
        return None
    means = *of_gradient(decay, maximize), alpha, 1 - alpha
    if momentum > 0:
        return "rmsprop_momentum", (*means, momentum, lr, eps)
    return "rmsprop", (*means, lr, eps)


@looped(_of_rmsprop)
def rmsprop(p: Any, squares: Any, *rest: Any) -> tuple[Any, ...]:
    """`rest`: the buffer if there is momentum, the mean if centered, the gradient, then numbers."""
    *tensors, _k, lr, alpha, eps, decay, momentum, centered, maximize = rest
    p, g = decayed(p, tensors[-1], 0.0, decay, False, maximize)
    squares = squares * alpha + (1 - alpha) * g * g
    means = []
    if centered:
        mean = lerp(tensors[-2], g, 1 - alpha)
        means.append(mean)
        root = sqrt(squares - mean * mean) + eps
    else:
        root = sqrt(squares) + eps
    if momentum > 0:
        buf = tensors[0] * momentum + g / root
        return (p - lr * buf, squares, buf, *means)
    return (p - lr * g / root, squares, *means)


@hyperparameters(
    "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable"
)
class RMSprop(ByFormula):
    """Divides by the root of the running mean of squared gradients; `centered` takes the mean's
    square off first.

    eps is added after the root, as in PyTorch; TensorFlow adds it before.

    Raises: ValueError for options below 0; RuntimeError in step for sparse gradients.
    Source: Hinton 2012, Neural networks for machine learning, lecture 6; centered: Graves 2013.
    """

    params: Any
    lr: Any = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0
    momentum: float = 0
    centered: bool = False
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False

    _skimp_checks: ClassVar = {
        "lr": "learning rate",
        "eps": "epsilon value",
        "momentum": "momentum value",
        "weight_decay": "weight_decay value",
        "alpha": "alpha value",
    }
    _skimp_state: ClassVar = {"step": counter, "square_avg": zeros}
    _skimp_formula = staticmethod(rmsprop)
    _skimp_numbers = named("lr alpha eps weight_decay momentum centered maximize")

    def _skimp_state_of(self, group: dict[str, Any]) -> Any:
        buffer = {"momentum_buffer": zeros} if group["momentum"] > 0 else {}
        return self._skimp_state | buffer | ({"grad_avg": zeros} if group["centered"] else {})
