"""Muon: momentum whose matrix is brought near an orthogonal one (Jordan et al. 2024)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from skimp._engine.tensor.checks import require_ndim, require_not_negative, require_one_of
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.optim.formulas import lerp
from skimp.optim.steps import PerParameter, hyperparameters, number, update, zeros

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(matrix: Tensor, coefficients: Any, steps: int, eps: float) -> Tensor:
    """Singular values pulled towards 1 by a quintic of Newton-Schulz, in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.mT
    x.div_(x.norm().clamp(min=eps))
    for _ in range(steps):
        gram = x @ x.mT
        x = ops.addmm(x, ops.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _factor(how: str | None, rows: int, columns: int) -> float:
    """What the learning rate is multiplied with for a matrix of this shape."""
    if how in (None, "original"):
        return math.sqrt(max(1, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns))


def _averaged(buf: Any, g: Any, momentum: float) -> tuple[Any, ...]:
    return (lerp(buf, g, 1 - momentum),)


def _moved(p: Any, o: Any, lr: float, decay: float, factor: float) -> tuple[Any, ...]:
    return (p * (1 - lr * decay) - lr * factor * o,)


@hyperparameters("lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn")
class Muon(PerParameter):
    """Momentum whose matrix is brought near an orthogonal one; biases, embeddings and the head
    belong to another optimizer.

    Shape: matrices (n, m), dense.
    Dtypes: floating point.
    Raises: ValueError for parameters that are no matrices and options out of range; RuntimeError in
    step for complex parameters and sparse gradients.
    Memory: parameters and state are written in place; a step works in bfloat16 copies.
    Source: Jordan et al. 2024, Muon; match_rms_adamw: Liu et al. 2025, Muon is scalable.
    """

    params: Any
    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = _COEFFICIENTS
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None

    _skimp_may_wait: ClassVar = False

    def _skimp_check(self, given: dict[str, Any]) -> None:
        super()._skimp_check(given)
        for name in ("lr", "momentum", "weight_decay"):
            title = "Learning rate" if name == "lr" else name.replace("_", " ")
            require_not_negative(given[name], f"{title} should be >= 0 but is: {{got}}")
        says = "Adjust learning rate function {got} is not supported"
        require_one_of(given["adjust_lr_fn"], (None, "original", "match_rms_adamw"), says)

    def _skimp_begin(self) -> None:
        says = "Muon only supports 2D parameters whereas we found a parameter with size: "
        for group in self.param_groups:
            for p in group["params"]:
                require_ndim(p, 2, says=f"{says}{p.size()}")

    def _skimp_update(self, group: dict[str, Any], p: Tensor, grad: Tensor, *options: Any) -> None:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros(grad)
        buf: Tensor = state["momentum_buffer"]
        momentum = group["momentum"]
        update(_averaged, (buf,), (grad,), momentum)
        ahead = grad.lerp(buf, momentum) if group["nesterov"] else buf
        turned = orthogonal(ahead, group["ns_coefficients"], group["ns_steps"], group["eps"])
        factor = _factor(group["adjust_lr_fn"], *p.shape)
        numbers = (number(group["lr"]), group["weight_decay"], factor)
        update(_moved, (p,), (turned.to(p.dtype),), *numbers)
