"""torch.nn.parallel: DistributedDataParallel; without GPUs, DataParallel calls its module."""

from __future__ import annotations

from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.nn.modules.module import Module

__all__ = ["DataParallel"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


class DataParallel(Module):
    """Calls `module`: what PyTorch's does without GPUs.

    Shape: as the module's.
    Dtypes: as the module's.
    Raises: what the module raises.
    Memory: as the module's: nothing is copied.
    """

    module: Module

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*inputs, **kwargs)
