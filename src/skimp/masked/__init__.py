"""torch.masked: the functions that op rows declare for this namespace."""

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch.forms import NAMESPACES

globals().update(NAMESPACES.get("masked", {}))
__getattr__ = _lookup(__name__)
