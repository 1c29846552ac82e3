"""torch.distributed.fsdp: parameters, gradients and optimizer state held once over all ranks."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public

__all__: list[str] = []
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
