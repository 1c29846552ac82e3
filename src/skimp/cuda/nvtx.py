"""torch.cuda.nvtx: marks for NVIDIA's profilers. There is no CUDA, so those that are set raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public

__all__ = ["range"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Refused where it is entered, not where it decorates a function: there is no CUDA.

    Raises: RuntimeError.
    """
    __getattr__("range_push")(msg.format(*args, **kwargs))
    yield
