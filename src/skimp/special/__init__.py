"""torch.special: the functions that op rows declare for this namespace."""

from skimp._engine.dispatch.forms import NAMESPACES

globals().update(NAMESPACES.get("special", {}))
