"""torch.utils."""

from skimp.utils import _pytree, checkpoint, data, dlpack

__all__ = ["_pytree", "checkpoint", "data", "dlpack"]
