"""torch.backends.cudnn: not there; its flags are kept and change nothing."""

from __future__ import annotations

import contextlib
from typing import Any

from skimp.backends.flags import using

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Whether cuDNN is there."""
    return False


def version() -> int | None:
    """The version of cuDNN."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN would take the tensor."""
    return False


def flags(
    enabled: bool | None = None,
    benchmark: bool | None = None,
    benchmark_limit: int | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
    fp32_precision: str | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Set flags inside a `with`."""
    return using(
        __name__,
        enabled=enabled,
        benchmark=benchmark,
        benchmark_limit=benchmark_limit,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
        fp32_precision=fp32_precision,
    )
