"""torch.distributed.tensor: refused; no tensor is one, and programs may ask."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
)
__all__ = list(_NAMES)
__getattr__ = names(__name__, _NAMES, "skimp joins no processes to groups; tensors are whole")
