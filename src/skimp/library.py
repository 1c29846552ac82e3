"""torch.library: refused, for there is no dispatcher to register operators with."""

from __future__ import annotations

from skimp.refusals import names

_NAMES = (
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__,
    _NAMES,
    "skimp has no dispatcher to register operators with; write a torch.autograd.Function",
)
