"""torch.fft: the functions that op rows declare for this namespace."""

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor as Tensor

globals().update(NAMESPACES.get("fft", {}))
