"""torch.utils.bottleneck: refused."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = ("main",)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__,
    _NAMES,
    "run the program with skimp run, whose report says where memory went, or use torch.profiler",
)
