"""torch.library: custom ops, and libraries of ops. What needs a dispatcher is refused."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.library import custom, registry
from skimp.library.checks import opcheck
from skimp.library.custom import *  # noqa: F403
from skimp.library.registry import *  # noqa: F403

__all__: list[str] = ["opcheck"]
__all__ += custom.__all__ + registry.__all__
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
