"""Adafactor: a second moment kept as a row and a column (Shazeer and Stern 2018)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from skimp._engine.tensor import finfo as limits
from skimp._engine.tensor.checks import require, require_not_negative
from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.optim.formulas import lerp
from skimp.optim.steps import PerParameter, advance, counter, hyperparameters, number, update, zeros


def _means(variance: Any, mean: Any, weight: float) -> tuple[Any, ...]:
    return (lerp(variance, mean, weight),)


def _squares(variance: Any, g: Any, weight: float) -> tuple[Any, ...]:
    return (lerp(variance, g * g, weight),)


def _moved(p: Any, u: Any, rate: float, keep: float) -> tuple[Any, ...]:
    return (p * keep - rate * u if keep != 1 else p - rate * u,)


def _rms(t: Tensor) -> float:
    return float(t.norm(2)) / math.sqrt(t.numel())


@hyperparameters("lr beta2_decay eps d weight_decay foreach maximize")
class Adafactor(PerParameter):
    """Scaled by squares of gradients of which only means of rows and of columns are kept: memory
    for n + m numbers where Adam keeps 2 n m.

    Shape: any, dense; the last two dimensions are the matrix, and parameters of fewer keep all.
    Dtypes: floating point.
    Raises: ValueError for options out of range; RuntimeError in step for complex parameters and
    sparse gradients.
    Memory: parameters and state are written in place; a step has temporaries of a parameter's size.
    Source: Shazeer and Stern 2018, Adafactor.
    """

    params: Any
    lr: Any = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False

    _skimp_may_wait: ClassVar = False

    def _skimp_check(self, given: dict[str, Any]) -> None:
        super()._skimp_check(given)
        floor, least = given["eps"]
        require_not_negative(given["lr"], "Learning rate should be >= 0 but is: {got}")
        require(
            given["beta2_decay"] <= 0.0,
            f"beta2_decay should be <= 0 but is: {given['beta2_decay']}",
        )
        if floor is not None:
            require_not_negative(floor, "epsilon1 should be >= 0 but is: {got}")
        require_not_negative(least, "epsilon2 should be >= 0 but is: {got}")
        require(given["d"] >= 1.0, f"Clipping threshold d should be >= 1 but is: {given['d']}")
        require_not_negative(given["weight_decay"], "weight_decay should be >= 0 but is: {got}")

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state = self.state[p]
        if not state:
            _begin(state, grad)
        step = advance(state)
        lr, (floor, least) = number(group["lr"]), group["eps"]
        floor = limits.finfo(p.dtype).eps if floor is None else floor
        weight = step ** group["beta2_decay"]
        rate = max(least, _rms(p)) * min(lr, 1 / math.sqrt(step))
        change = _variance(state, grad, weight, floor)  # from here on written in place
        change.clamp_(min=floor * floor).rsqrt_().mul_(grad)
        rate /= max(1.0, _rms(change) / group["d"])
        sign = -1 if group["maximize"] else 1
        update(_moved, (p,), (change,), sign * rate, 1 - lr * group["weight_decay"])


def _begin(state: dict[str, Any], grad: Tensor) -> None:
    state["step"] = counter()
    if grad.ndim > 1:
        *batch, rows, columns = grad.shape
        state["row_var"] = grad.new_zeros((*batch, rows, 1))
        state["col_var"] = grad.new_zeros((*batch, 1, columns))
    else:
        state["variance"] = zeros(grad)


def _variance(state: dict[str, Any], grad: Tensor, weight: float, floor: float) -> Tensor:
    """The estimate of the second moment, in a tensor of its own."""
    if grad.ndim <= 1:
        kept: Tensor = state["variance"]
        update(_squares, (kept,), (grad,), weight)
        return kept.clone()
    for name, dim in (("row_var", -1), ("col_var", -2)):
        mean = grad.norm(dim=dim, keepdim=True).square_().div_(grad.shape[dim])
        update(_means, (state[name],), (mean,), weight)
    rows: Tensor = state["row_var"]
    product: Tensor = rows @ state["col_var"]
    return product.div_(rows.mean(dim=-2, keepdim=True).clamp_(min=floor))
