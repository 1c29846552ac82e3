"""torch.distributed.algorithms: what is done around the communication of gradients."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public

__all__: list[str] = []
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
