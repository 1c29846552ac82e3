"""skimp: PyTorch's tensors and memory model, where memory comes first."""

from __future__ import annotations

import sys as _sys
import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

import skimp._engine.interpreter  # first: on an interpreter that it refuses, NumPy may fail
import skimp._kernels.patience  # before NumPy, whose BLAS reads it as it is loaded

# isort: split
import numpy as _np

# PyTorch is silent about 0/0 and overflow, and errstate per op would cost more than the op.
_np.seterr(all="ignore")
# seterr holds for this thread; in others NumPy would warn, in the name of our modules.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"skimp\.")

with skimp._engine.interpreter.collector_off():
    import skimp._compat as compat
    import skimp._ops
    from skimp import (
        amp,
        autograd,
        backends,
        cuda,
        distributed,
        fft,
        func,
        jit,
        linalg,
        masked,
        memory,
        nn,
        overrides,
        random,
        signal,
        sparse,
        special,
        types,
        utils,
        version,
    )

from skimp._compat.modules import listed as _listed, lookup as _lookup, serve as _serve
from skimp._compat.settings import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_warn_always,
    use_deterministic_algorithms,
)
from skimp._compat.symbolic import (
    SymBool,
    SymFloat,
    SymInt,
    sym_float,
    sym_fresh_size,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
)
from skimp._engine.autograd.anomaly import (
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_anomaly_enabled,
)
from skimp._engine.autograd.methods import is_inference
from skimp._engine.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from skimp._engine.dispatch.forms import NAMESPACES as _NAMESPACES
from skimp._engine.dispatch.unbound import beside as _beside
from skimp._engine.generated import keep as _keep
from skimp._engine.tensor.devices import device, get_default_device, set_default_device
from skimp._engine.tensor.dtypes import (
    bfloat16,
    bool,
    complex64,
    complex128,
    dtype,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from skimp._engine.tensor.finfo import finfo, iinfo
from skimp._engine.tensor.formats import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from skimp._engine.tensor.printing import set_printoptions
from skimp._engine.tensor.promotion import (
    can_cast,
    get_default_dtype,
    promote_types,
    set_default_dtype,
)
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels.blas import get_num_threads, let_idle_threads_sleep, set_num_threads
from skimp._ops.assertions import (
    _assert,
    _assert_async,
    _check,
    _check_index,
    _check_type,
    _check_value,
)
from skimp._ops.create import tensor_types
from skimp._ops.create.interop import to_dlpack
from skimp._ops.create.queries import (
    compiled_with_cxx11_abi,
    get_device_module,
    has_lapack,
    has_mkl,
    has_openmp,
    has_spectral,
    init_num_threads,
    is_storage,
    is_tensor,
    is_vulkan_available,
    set_default_tensor_type,
    typename,
)
from skimp._ops.create.storages import TypedStorage, UntypedStorage, aliases, shares_memory
from skimp._ops.random.generator import Generator, default_generator
from skimp.amp import GradScaler
from skimp.amp.autocast_mode import autocast
from skimp.amp.casting import set_autocast_cpu_enabled, set_autocast_enabled
from skimp.amp.state import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    is_autocast_cache_enabled,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_cpu_dtype,
    set_autocast_dtype,
    set_autocast_gpu_dtype,
)
from skimp.config import config
from skimp.errors import AcceleratorError, FatalError, OutOfMemoryError
from skimp.func import vmap
from skimp.func.control_flow import cond
from skimp.jit import fork, wait
from skimp.nn.modules.compiled import compile
from skimp.nn.native import (
    affine_grid_generator,
    batch_norm,
    binary_cross_entropy_with_logits,
    convolution,
    cosine_embedding_loss,
    embedding_bag,
    frobenius_norm,
    group_norm,
    gru,
    gru_cell,
    hinge_embedding_loss,
    instance_norm,
    kl_div,
    lstm,
    lstm_cell,
    margin_ranking_loss,
    norm_except_dim,
    nuclear_norm,
    poisson_nll_loss,
    rnn_relu,
    rnn_relu_cell,
    rnn_tanh,
    rnn_tanh_cell,
    triplet_margin_loss,
)
from skimp.random import fork_rng, thread_safe_generator
from skimp.version import __version__

if _TYPE_CHECKING:  # rows of names.txt: loaded when a program names them
    from skimp import (
        distributions,
        library,
        multiprocessing,
        optim,
        profiler,
        serialization,
        testing,
    )
    from skimp.serialization import load, save

short, int, long, half, float, double, cfloat, cdouble = (
    int16, int32, int64, float16, float32, float64, complex64, complex128,
)  # fmt: skip

e, pi, inf, nan, newaxis = _np.e, _np.pi, _np.inf, _np.nan, None
globals().update(tensor_types.NAMES)
Storage = tensor_types.NAMES["FloatStorage"]
globals().update(_NAMESPACES[""])
globals().update(_beside(globals()))
_sys.modules["skimp.compat"] = compat
globals()["torch"] = _sys.modules[__name__]  # PyTorch's package has itself


def load_ipython_extension(shell: _Any) -> None:
    """`%load_ext skimp`: the magic `%%memory`, and displays of reports and regions."""
    # displays load what a program that only computes has no use for
    from skimp.lens import notebook

    notebook.load(shell)


let_idle_threads_sleep()
del let_idle_threads_sleep
_serve()
_keep()
_HOME = __name__  # which becomes `torch`
__getattr__ = _lookup(_HOME)


def __dir__() -> list[str]:
    return _listed(_HOME, globals())
