"""torch.backends: flags of libraries that skimp does not use. They can be set and read, and change
nothing.
"""

from skimp.backends import (
    cpu,
    cuda,
    cudnn,
    cusparselt,
    mha,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    quantized,
)

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "mha",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
]
