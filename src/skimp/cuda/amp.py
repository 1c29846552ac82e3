"""torch.cuda.amp: the old names of torch.amp, deprecated in PyTorch too."""

from __future__ import annotations

import functools
from typing import Any

from skimp import amp
from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor import dtypes
from skimp.amp.older import DeviceScaler, deprecated

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__getattr__ = _lookup(__name__)


class autocast(amp.autocast):  # noqa: N801  (PyTorch's name)
    """`amp.autocast("cuda")`."""

    def __init__(
        self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True
    ) -> None:
        deprecated("cuda", "autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(DeviceScaler):
    """`amp.GradScaler("cuda")`."""

    _own_device = "cuda"


custom_fwd: Any = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd: Any = functools.partial(amp.custom_bwd, device_type="cuda")
