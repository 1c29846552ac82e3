"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO

from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.storages import UntypedStorage as Storage

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
