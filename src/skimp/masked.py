"""torch.masked: the functions that op rows declare for this namespace."""

from skimp import refusals as _refusals
from skimp.ops.forms import NAMESPACES

globals().update(NAMESPACES.get("masked", {}))
__getattr__ = _refusals.names(__name__)
