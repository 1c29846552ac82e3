"""torch.backends.mkldnn: whether oneDNN is there; its flags are kept and change nothing.

Convolutions, large products and GELU are oneDNN's where it is installed (`pip install
'skimp[onednn]'`), unless the process was started with `SKIMP_ONEDNN=never`.
"""

from __future__ import annotations

import contextlib

from skimp._kernels import onednn
from skimp.backends.flags import using

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Whether oneDNN is there, and used."""
    return onednn.library() is not None


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
