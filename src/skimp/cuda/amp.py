"""torch.cuda.amp: the old names of torch.amp, deprecated in PyTorch too."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from skimp import amp
from skimp._compat.modules import lookup
from skimp._engine.tensor import dtypes

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__getattr__ = lookup(__name__)


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', "
        "args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):  # noqa: N801  (PyTorch's name)
    """`amp.autocast("cuda")`."""

    def __init__(
        self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True
    ) -> None:
        _deprecated("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cuda")`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


custom_fwd: Any = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd: Any = functools.partial(amp.custom_bwd, device_type="cuda")
