"""torch.__config__: what computes here."""

from __future__ import annotations

import numpy as np

from skimp._kernels import onednn
from skimp._kernels.blas import get_num_threads
from skimp.version import VERSION, __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions of what computes here."""
    return (
        f"skimp {VERSION}, which behaves as PyTorch {__version__.partition('+')[0]}:\n  - NumPy "
        f"{np.__version__}\n  - {onednn.state()}\n  - no C++ of its own, no CUDA"
    )


def parallel_info() -> str:
    """The threads that an op may use."""
    return f"skimp.get_num_threads() : {get_num_threads()}\n"
