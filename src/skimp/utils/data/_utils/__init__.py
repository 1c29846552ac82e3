"""The parts of a DataLoader."""

from skimp._compat.modules import lookup as _lookup
from skimp.utils.data._utils import collate, fetch, worker

__all__ = ["collate", "fetch", "worker"]
__getattr__ = _lookup(__name__)
