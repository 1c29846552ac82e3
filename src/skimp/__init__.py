"""skimp: PyTorch's tensors and memory model, where memory comes first."""

from __future__ import annotations

from typing import Any

import numpy as _np

_np.seterr(
    all="ignore"
)  # PyTorch is silent about 0/0 and overflow, and errstate per op would cost more than the op

from skimp import (  # noqa: E402
    autograd,
    cuda,
    linalg,
    memory,
    multiprocessing,
    nn,
    ops,
    optim,
    serialization,
    special,
    utils,
)
from skimp._tensor import Tensor  # noqa: E402
from skimp.autograd.modes import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from skimp.config import config, get_num_threads, set_num_threads  # noqa: E402
from skimp.devices import device, get_default_device, set_default_device  # noqa: E402
from skimp.dtypes import (  # noqa: E402
    bfloat16,
    bool,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from skimp.errors import OutOfMemoryError  # noqa: E402
from skimp.limits import finfo, iinfo  # noqa: E402
from skimp.ops.formats import (  # noqa: E402
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    strided,
)
from skimp.ops.forms import NAMESPACES as _NAMESPACES  # noqa: E402
from skimp.ops.random import Generator, default_generator  # noqa: E402
from skimp.ops.storages import TypedStorage, UntypedStorage, aliases, shares_memory  # noqa: E402
from skimp.printing import set_printoptions  # noqa: E402
from skimp.promotion import can_cast, get_default_dtype, promote_types, set_default_dtype  # noqa: E402
from skimp.serialization import load, save  # noqa: E402
from skimp.size import Size  # noqa: E402

short, int, long, half, float, double, cfloat, cdouble = (  # noqa: A001
    int16, int32, int64, float16, float32, float64, complex64, complex128,
)  # fmt: skip

__version__ = "0.1.0"
globals().update(_NAMESPACES[""])


def __getattr__(name: str) -> Any:
    from skimp.compat.missing import missing

    raise missing("torch", name, list(globals()))
