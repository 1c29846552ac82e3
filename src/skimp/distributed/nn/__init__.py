"""torch.distributed.nn: communication with gradients. There is no group, so each refuses."""

from skimp.distributed.nn import functional
from skimp.distributed.nn.functional import *  # noqa: F403

__all__ = ["functional"]
__all__ += functional.__all__
