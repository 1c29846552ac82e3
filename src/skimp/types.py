"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO

from skimp import dtypes
from skimp._tensor import Tensor
from skimp.devices import device
from skimp.ops import formats
from skimp.ops.storages import UntypedStorage as Storage
from skimp.size import Size

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Size", "Storage", "Tensor"]

_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
_device, _dtype, _layout = device, dtypes.dtype, formats.layout
_size = Size | list[int] | tuple[int, ...]
_symsize = Size | Sequence[int]
Number = int | float | bool
Device = device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
IntLikeType = int
_TensorOrTensors = Tensor | Sequence[Tensor]
