"""torch.backends: flags of libraries that skimp does not use. They can be set and read, and change
nothing.
"""

from skimp._compat.modules import lookup as _lookup
from skimp.backends import cpu, cuda, cudnn, mha, mkldnn

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkldnn"]
__getattr__ = _lookup(__name__)
