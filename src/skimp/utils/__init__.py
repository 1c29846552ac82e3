"""torch.utils."""

from skimp.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
