"""torch.nn: in this version its functions; modules follow."""

from skimp.nn import functional

__all__ = ["functional"]
