"""torch.cpu.amp: the old names of torch.amp, deprecated in PyTorch too."""

from __future__ import annotations

from skimp import amp
from skimp._engine.tensor import dtypes
from skimp.amp.older import DeviceScaler, deprecated

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801  (PyTorch's name)
    """`amp.autocast("cpu")`."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: dtypes.dtype = dtypes.bfloat16,
        cache_enabled: bool = True,
    ) -> None:
        deprecated("cpu", "autocast")
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(DeviceScaler):
    """`amp.GradScaler("cpu")`."""

    _own_device = "cpu"
