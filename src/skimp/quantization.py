"""torch.quantization: the old place of torch.ao.quantization, refused too."""

from __future__ import annotations

from skimp._compat.refusals import names
from skimp.ao import quantization

_LATER = (  # than the move
    "QConfigMapping",
    "fuse_modules_qat",
    "get_default_qat_qconfig_mapping",
    "get_default_qconfig_mapping",
)
_NAMES = tuple([name for name in quantization._NAMES if name not in _LATER])
__all__ = list(_NAMES)
__getattr__ = names(__name__, _NAMES, quantization.REASON)
