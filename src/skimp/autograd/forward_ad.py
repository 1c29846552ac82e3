"""torch.autograd.forward_ad: refused, for there are reverse derivatives only."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__, _NAMES, "skimp has reverse derivatives only; torch.func.jvp gives the same products"
)
