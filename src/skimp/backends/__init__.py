"""torch.backends: flags of libraries that skimp does not use. They can be set and read, and change
nothing.
"""

from skimp.backends import cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
