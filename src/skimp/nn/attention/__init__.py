"""torch.nn.attention: which kernel computes attention. There is one, whatever is asked for."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.interrupts import region
from skimp._ops.nn.attention import KERNELS

__all__ = ["SDPBackend", "sdpa_kernel"]
__getattr__ = _lookup(__name__)


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_FLAGS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@region
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A context in which attention takes the masks that these kernels take in PyTorch. It is
    computed as it always is.

    Raises: AssertionError for what names no backend.
    """
    chosen = backends if isinstance(backends, list) else [backends]
    for kind in chosen:
        if not isinstance(kind, SDPBackend):
            raise AssertionError(
                "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                f"{type(kind).__name__}"
            )
    before = dict(KERNELS)
    try:
        KERNELS.update({name: kind in chosen for name, kind in _FLAGS.items()})
        yield
    finally:
        KERNELS.update(before)


WARN_FOR_UNFUSED_KERNELS = False


def current_flash_attention_impl() -> str | None:
    """The implementation of flash attention that is switched on: none."""
    return None


def list_flash_attention_impls() -> list[str]:
    """The implementations of flash attention that can be switched on: none."""
    return []
