"""Rprop (Riedmiller and Braun 1993) and averaged SGD (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.options import KW_ONLY
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.optim.adam import decayed
from skimp.optim.formulas import above, below, clamp, sign, where
from skimp.optim.fused import update
from skimp.optim.steps import (
    ByFormula,
    PerParameter,
    advance,
    counter,
    hyperparameters,
    named,
    number,
    zeros,
)


def rprop_step(p: Any, prev: Any, size: Any, g: Any, *options: Any) -> tuple[Any, ...]:
    _k, (down, up), (low, high), maximize = options
    g = -g if maximize else g
    same = g * prev
    factor = where(above(same, 0.0), up, where(below(same, 0.0), down, size * 0.0 + 1.0))
    size = clamp(size * factor, low, high)
    g = where(below(same, 0.0), 0.0, g)
    return p - sign(g) * size, g, size


def _first_size(lr: float) -> Callable[[Tensor], Tensor]:
    return lambda p: ops.full_like(p.detach(), complex(lr, lr) if p.is_complex() else lr)


@hyperparameters("lr etas step_sizes foreach maximize differentiable capturable")
class Rprop(ByFormula):
    """Steps from the sign of the gradient only; their size grows while it stays and shrinks where
    it turns. For whole batches: it takes the gradient's noise for turns.

    Raises: ValueError for lr below 0 and etas that are not 0 < etas[0] < 1 < etas[1];
    RuntimeError in step for sparse gradients.
    Source: Riedmiller and Braun 1993.
    """

    params: Any
    lr: Any = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50)
    _: KW_ONLY
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False

    _skimp_checks: ClassVar = {"lr": "learning rate"}
    _skimp_formula = staticmethod(rprop_step)
    _skimp_numbers = named("etas step_sizes maximize")

    def _skimp_check(self, given: dict[str, Any]) -> None:
        super()._skimp_check(given)
        down, up = given["etas"]
        require(0.0 < down < 1.0 < up, f"Invalid eta values: {down}, {up}")

    def _skimp_state_of(self, group: dict[str, Any]) -> Any:
        first = _first_size(number(group["lr"]))
        return {"step": counter, "prev": zeros, "step_size": first}


def asgd_step(
    p: Any, mean: Any, g: Any, eta: float, mu: float, lambd: float, decay: float, maximize: bool
) -> tuple[Any, ...]:
    _, g = decayed(p, g, 0.0, decay, False, maximize)
    p = p * (1 - lambd * eta) - eta * g
    return p, p * 1.0 if mu == 1 else mean + (p - mean) * mu


@hyperparameters("lr lambd alpha t0 weight_decay foreach maximize differentiable capturable")
class ASGD(PerParameter):
    """SGD that also keeps the average of the parameters since step `t0`, in `state[p]["ax"]`; the
    program has to take it from there.

    Raises: ValueError for lr or weight_decay below 0; RuntimeError in step for sparse gradients.
    Source: Polyak and Juditsky 1992, Acceleration of stochastic approximation by averaging.
    """

    params: Any
    lr: Any = 1e-2
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6
    weight_decay: float = 0
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False

    _skimp_checks: ClassVar = {"lr": "learning rate", "weight_decay": "weight_decay value"}
    _skimp_numbers = named("lambd weight_decay maximize")
    _skimp_counters: ClassVar = ("step", "eta", "mu")

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        state = self.state[p]
        lr, lambd = number(group["lr"]), group["lambd"]
        if not state:
            state |= {"step": counter(), "eta": counter(value=lr), "mu": counter(value=1.0)}
            state["ax"] = zeros(p)
        k = advance(state)
        update(
            asgd_step, (p, state["ax"]), (grad,), state["eta"].item(), state["mu"].item(), *options
        )
        state["eta"]._skimp_writable()[...] = lr / ((1 + lambd * lr * k) ** group["alpha"])
        state["mu"]._skimp_writable()[...] = 1 / max(1, k - group["t0"])
