"""torch.sparse: the functions that op rows declare for this namespace."""

from skimp.ops.forms import NAMESPACES

globals().update(NAMESPACES.get("sparse", {}))
