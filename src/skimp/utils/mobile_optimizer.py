"""torch.utils.mobile_optimizer: refused."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "LintCode",
    "MobileOptimizerType",
    "generate_mobile_module_lints",
    "optimize_for_mobile",
)
__all__ = list(_NAMES)
__getattr__ = names(__name__, _NAMES, "skimp has no TorchScript, and no modules for phones")
