"""torch.backends.mkldnn: not there; its flags are kept and change nothing."""

from __future__ import annotations

import contextlib

from skimp.backends.flags import using

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Whether oneDNN is there."""
    return False


def flags(
    enabled: bool | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
    fp32_precision: str | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Set flags inside a `with`."""
    return using(
        __name__,
        enabled=enabled,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
        fp32_precision=fp32_precision,
    )
