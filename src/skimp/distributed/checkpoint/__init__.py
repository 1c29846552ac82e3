"""torch.distributed.checkpoint: state dicts in a folder, to which each rank writes its own parts,
and from which any number of ranks reads what it needs.
"""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.distributed.checkpoint.files import (
    CheckpointException,
    FileSystemReader,
    FileSystemWriter,
    async_save,
    load,
    load_state_dict,
    save,
    save_state_dict,
)

__all__ = [
    "CheckpointException", "FileSystemReader", "FileSystemWriter", "async_save", "load",
    "load_state_dict", "save", "save_state_dict",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
