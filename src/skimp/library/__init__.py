"""torch.library: custom ops. What needs a dispatcher is refused."""

from __future__ import annotations

from skimp._compat.refusals import names
from skimp.library import custom
from skimp.library.custom import *  # noqa: F403

_NAMES = (
    "Library",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_torch_dispatch",
    "triton_op",
    "wrap_triton",
)
__all__ = list(_NAMES)
__all__ += custom.__all__
__getattr__ = names(
    __name__,
    _NAMES,
    "skimp has no dispatcher to register operators with; use torch.library.custom_op, or write a "
    "torch.autograd.Function",
)
