"""torch.serialization: tensors in files. PyTorch's zip format both ways, and safetensors."""

from __future__ import annotations

from skimp._compat.finder import join as _join
from skimp._compat.modules import lookup as _lookup
from skimp.serialization import safetensors
from skimp.serialization.loading import get_unsafe_globals_in_checkpoint, load
from skimp.serialization.options import (
    LoadEndianness,
    SourceChangeWarning,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
)
from skimp.serialization.places import default_restore_location
from skimp.serialization.safe import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from skimp.serialization.saving import DEFAULT_PROTOCOL, save

__all__ = [
    "DEFAULT_PROTOCOL", "LoadEndianness", "SourceChangeWarning", "add_safe_globals",
    "clear_safe_globals", "default_restore_location", "get_crc32_options",
    "get_default_load_endianness", "get_default_mmap_options", "get_safe_globals",
    "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "safetensors", "save",
    "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
]  # fmt: skip
__getattr__ = _lookup(__name__)
_join()
