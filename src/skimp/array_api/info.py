"""What the standard asks a library to say about itself."""

from __future__ import annotations

from typing import Any

import skimp as torch
from skimp._engine.tensor.devices import device as Device
from skimp._engine.tensor.dtypes import dtype as Dtype
from skimp.array_api.types import isdtype

_DTYPES = (
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip


class Info:
    """Answers about this namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What depends on values works; NumPy's arrays have at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where tensors are made."""
        return torch.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Dtype]:
        """The types of Python's numbers, and of indices."""
        real = torch.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": torch.int64,
            "indexing": torch.int64,
        }

    def devices(self) -> list[Device]:
        """Where tensors may be."""
        return [Device("cpu")]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Dtype]:
        """The standard's types that are here, by name; all, or those of some kinds."""
        return {each.name: each for each in _DTYPES if kind is None or isdtype(each, kind)}


def __array_namespace_info__() -> Info:  # noqa: N807  (the standard's name)
    """What this namespace can do."""
    return Info()
