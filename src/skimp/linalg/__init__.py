"""torch.linalg: the functions that op rows declare for this namespace."""

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._ops.linalg.checks import LinAlgError as LinAlgError

globals().update(NAMESPACES.get("linalg", {}))
