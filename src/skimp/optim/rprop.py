"""Rprop (Riedmiller and Braun 1993) and averaged SGD (Polyak and Juditsky 1992)."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import whole
from skimp.optim.adam import decayed
from skimp.optim.fused import above, below, clamp, sign, update, where
from skimp.optim.optimizer import PerParameter, advance, check, counter, number, zeros


def rprop(
    p: Any,
    prev: Any,
    size: Any,
    g: Any,
    down: float,
    up: float,
    low: float,
    high: float,
    maximize: bool,
) -> tuple[Any, ...]:
    g = -g if maximize else g
    same = g * prev
    size = clamp(
        size * where(above(same, 0.0), up, where(below(same, 0.0), down, size * 0.0 + 1.0)),
        low,
        high,
    )
    g = where(below(same, 0.0), 0.0, g)
    return p - sign(g) * size, g, size


class Rprop(PerParameter):
    """Steps from the sign of the gradient only."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            lr = number(group["lr"])
            state["step"] = counter()
            state["prev"] = zeros(p)
            state["step_size"] = whole.full_like(
                p.detach(), complex(lr, lr) if p.is_complex() else lr
            )
        advance(state)
        written = (p, state["prev"], state["step_size"])
        update(rprop, written, (grad,), *group["etas"], *group["step_sizes"], group["maximize"])


def asgd(
    p: Any, mean: Any, g: Any, eta: float, mu: float, lambd: float, decay: float, maximize: bool
) -> tuple[Any, ...]:
    _, g = decayed(p, g, 0.0, decay, False, maximize)
    p = p * (1 - lambd * eta) - eta * g
    return p, p * 1.0 if mu == 1 else mean + (p - mean) * mu


class ASGD(PerParameter):
    """SGD that also keeps the average of the parameters, `ax`."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check(lr, decay=(weight_decay, "weight_decay value"))
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        lr, lambd = number(group["lr"]), group["lambd"]
        if not state:
            state["step"] = counter()
            state["eta"] = counter(lr)
            state["mu"] = counter(1.0)
            state["ax"] = zeros(p)
        k = advance(state)
        eta, mu = state["eta"].item(), state["mu"].item()
        update(
            asgd,
            (p, state["ax"]),
            (grad,),
            eta,
            mu,
            lambd,
            group["weight_decay"],
            group["maximize"],
        )
        state["eta"].writable()[...] = lr / ((1 + lambd * lr * k) ** group["alpha"])
        state["mu"].writable()[...] = 1 / max(1, k - group["t0"])
