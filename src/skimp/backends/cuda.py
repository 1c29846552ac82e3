"""torch.backends.cuda: not built; its flags are kept and change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skimp._compat.modules import lookup as _lookup


class _MatMul:
    """How products would be computed on a GPU."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


matmul = _MatMul()
_kernels = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """Whether there is code for CUDA."""
    return False


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted."""
    _kernels["flash"] = enabled


def flash_sdp_enabled() -> bool:
    """What was asked for."""
    return _kernels["flash"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Accepted."""
    _kernels["mem_efficient"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """What was asked for."""
    return _kernels["mem_efficient"]


def enable_math_sdp(enabled: bool) -> None:
    """Accepted."""
    _kernels["math"] = enabled


def math_sdp_enabled() -> bool:
    """What was asked for."""
    return _kernels["math"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Accepted."""
    _kernels["cudnn"] = enabled


def cudnn_sdp_enabled() -> bool:
    """What was asked for."""
    return _kernels["cudnn"]


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """The flags of attention inside a `with`."""
    before = dict(_kernels)
    _kernels.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _kernels.update(before)


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Accepted."""
    _kernels["reduced"] = enabled


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What was asked for."""
    return _kernels.get("reduced", False)


@dataclass(frozen=True)
class SDPAParams:
    """A call of attention, of which programs ask what could compute it on a GPU: nothing."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool


def is_flash_attention_available() -> bool:
    """Whether FlashAttention is there."""
    return False


def preferred_linalg_library(backend: Any = None) -> str:
    """Accepted: linear algebra is NumPy's."""
    return "default"


def preferred_blas_library(backend: Any = None) -> str:
    """Accepted: products are NumPy's."""
    return "default"


class _Plans:
    """Plans of Fourier transforms on a GPU: there are none."""

    size = 0
    max_size = 0

    def __getitem__(self, device: Any) -> _Plans:
        return self

    def clear(self) -> None:
        """There is nothing to forget."""


cufft_plan_cache = _Plans()
__getattr__ = _lookup(__name__)
