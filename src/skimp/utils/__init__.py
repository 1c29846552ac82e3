"""torch.utils."""

from skimp.utils import dlpack

__all__ = ["dlpack"]
