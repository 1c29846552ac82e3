"""torch.backends.cuda: not built; its flags are kept. Attention's say which masks it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.interrupts import region
from skimp._ops.nn.attention import KERNELS


class _MatMul:
    """How products would be computed on a GPU."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


matmul = _MatMul()


def is_built() -> bool:
    """Whether there is code for CUDA."""
    return False


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted."""
    KERNELS["flash"] = enabled


def flash_sdp_enabled() -> bool:
    """What was asked for."""
    return KERNELS["flash"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Accepted."""
    KERNELS["mem_efficient"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """What was asked for."""
    return KERNELS["mem_efficient"]


def enable_math_sdp(enabled: bool) -> None:
    """Accepted."""
    KERNELS["math"] = enabled


def math_sdp_enabled() -> bool:
    """What was asked for."""
    return KERNELS["math"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Accepted."""
    KERNELS["cudnn"] = enabled


def cudnn_sdp_enabled() -> bool:
    """What was asked for."""
    return KERNELS["cudnn"]


@region
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """The flags of attention inside a `with`."""
    before = dict(KERNELS)
    try:
        KERNELS.update(
            flash=enable_flash,
            math=enable_math,
            mem_efficient=enable_mem_efficient,
            cudnn=enable_cudnn,
        )
        yield
    finally:
        KERNELS.update(before)


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Accepted."""
    KERNELS["reduced"] = enabled


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What was asked for."""
    return KERNELS.get("reduced", False)


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
