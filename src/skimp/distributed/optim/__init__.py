"""torch.distributed.optim: optimizers whose state is spread."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
