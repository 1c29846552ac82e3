"""torch.linalg: the functions that op rows declare for this namespace."""

from skimp.ops.forms import NAMESPACES
from skimp.ops.linalg_checks import LinAlgError as LinAlgError

globals().update(NAMESPACES.get("linalg", {}))
