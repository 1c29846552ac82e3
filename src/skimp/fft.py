"""torch.fft: the functions that op rows declare for this namespace."""

from skimp._tensor import Tensor as Tensor  # annotations of programs name it here
from skimp.ops.forms import NAMESPACES

globals().update(NAMESPACES.get("fft", {}))
