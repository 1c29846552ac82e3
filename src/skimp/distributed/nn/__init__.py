"""torch.distributed.nn: communication with gradients."""

from __future__ import annotations

from skimp.distributed.nn.functional import *  # noqa: F403  (its list is this one's)
from skimp.distributed.nn.functional import __all__ as __all__
