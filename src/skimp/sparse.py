"""torch.sparse: the functions that op rows declare for this namespace."""

from skimp._compat import refusals as _refusals
from skimp._engine.dispatch.forms import NAMESPACES

globals().update(NAMESPACES.get("sparse", {}))
__getattr__ = _refusals.names(__name__)
