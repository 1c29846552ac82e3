"""torch.distributed.fsdp: parameters, gradients and optimizer state held once over all ranks."""

from __future__ import annotations

from skimp._compat.modules import lookup, public

__all__: list[str] = []
__all__.extend(public(__name__))
__getattr__ = lookup(__name__)
