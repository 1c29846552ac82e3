"""torch.distributed.algorithms: what is done around the communication of gradients."""

from __future__ import annotations

from skimp._compat.modules import lookup, public

__all__: list[str] = []
__all__.extend(public(__name__))
__getattr__ = lookup(__name__)
