"""torch.nn.attention: which kernel computes attention. There is one, whatever is asked for."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from skimp._compat.modules import lookup as _lookup

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


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepted: a context in which attention is computed as it always is.

    Raises: AssertionError for what names no backend.
    """
    for kind in backends if isinstance(backends, list) else [backends]:
        if not isinstance(kind, SDPBackend):
            raise AssertionError(
                "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                f"{type(kind).__name__}"
            )
    yield


WARN_FOR_UNFUSED_KERNELS = False


def current_flash_attention_impl() -> str | None:
    """The implementation of flash attention that is switched on: none."""
    return None


def list_flash_attention_impls() -> list[str]:
    """The implementations of flash attention that can be switched on: none."""
    return []
