"""Muon: momentum whose matrix is brought near an orthogonal one (Jordan et al. 2024)."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import whole
from skimp.optim.fused import lerp
from skimp.optim.optimizer import PerParameter, number, update, zeros

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
        x = whole.addmm(x, whole.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
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


class Muon(PerParameter):
    """For matrices only; biases and embeddings belong to another optimizer."""

    _may_wait = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        named = (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay))
        for name, value in named:
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
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
