"""torch.amp.GradScaler: losses scaled up before backward, gradients down before the step, steps
with inf or nan left out.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import tensor


class OptState(enum.Enum):
    """What has been done to an optimizer's gradients since the last update."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


@dataclass
class _Known:
    stage: OptState = OptState.READY
    found_inf: bool | None = None


class GradScaler:
    """PyTorch's: the scale grows after `growth_interval` good steps and falls after a bad one.

    Without CUDA a scaler for `"cuda"` (the default) is disabled, with PyTorch's warning: all calls
    pass through.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        if enabled and device == "cuda":
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
        self._enabled = enabled and device != "cuda"
        if self._enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if self._enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._begun = False
        self._known: dict[int, _Known] = {}

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        self._begun = True
        if isinstance(outputs, Tensor):
            return outputs * tensor(self._scale, dtype=dtypes.float32)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(o) for o in outputs])
        if isinstance(outputs, Iterator):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and note inf and nan."""
        if not self._enabled:
            return
        self._skimp_check_begun("unscale_")
        known = self._skimp_of(optimizer)
        if known.stage is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if known.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        known.found_inf = self._skimp_unscale(optimizer)
        known.stage = OptState.UNSCALED

    def _skimp_unscale(self, optimizer: Any) -> bool:
        inverse = 1.0 / self._scale
        found = False
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if p.grad.dtype is dtypes.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    found |= not p.grad.isfinite().all().item()
                    p.grad.mul_(inverse)
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`unscale_` where that was not done, then the optimizer's step unless a gradient had inf
        or nan.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._skimp_check_begun("step")
        known = self._skimp_of(optimizer)
        if known.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if known.stage is OptState.READY:
            self.unscale_(optimizer)
        result = None if known.found_inf else optimizer.step(*args, **kwargs)
        known.stage = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """The next iteration's scale."""
        if not self._enabled:
            return
        self._skimp_check_begun("update")
        if new_scale is not None:
            self._scale = _float32(float(new_scale))
        else:
            found = [k.found_inf for k in self._known.values() if k.found_inf is not None]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._skimp_adjust(any(found))
        self._known.clear()

    def _skimp_adjust(self, found_inf: bool) -> None:
        if found_inf:
            self._scale = _float32(self._scale * self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = _float32(self._scale * self._growth_factor)
            if grown != float("inf"):
                self._scale = grown
            self._growth_tracker = 0

    def _skimp_of(self, optimizer: Any) -> _Known:
        return self._known.setdefault(id(optimizer), _Known())

    def _skimp_check_begun(self, name: str) -> None:
        if not self._begun:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1 where nothing is scaled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes; empty where nothing is scaled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a "
                "disabled instance of GradScaler."
            )
        self._scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]


def _float32(value: float) -> float:
    found: float = tensor(value, dtype=dtypes.float32).item()
    return found
