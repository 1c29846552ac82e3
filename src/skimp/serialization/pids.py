"""How a pickle refers to a storage, taken apart, and the bytes of machines of the other order."""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array
from skimp._ops.create.storages import UntypedStorage
from skimp._ops.create.tensor_types import STORAGE_TYPES
from skimp.serialization.limits import refuse, shown

_DTYPES: Final[dict[Any, dtypes.dtype]] = {kind: dtype for dtype, kind in STORAGE_TYPES.items()}
KEY: Final = 100  # characters of a storage's key and of its place


class Reference(NamedTuple):
    """A storage that lies outside the pickle. `dtype` is None where the bytes have none."""

    dtype: dtypes.dtype | None
    key: str
    tag: str
    nbytes: int


def parsed(pid: Any) -> Reference:
    """The parts of ("storage", type, key, place, number of elements)."""
    if type(pid) is not tuple or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
        refuse(f"an object from outside the pickle: {shown(pid)}")
    kind, key, tag, n = pid[1:5]
    dtype = _DTYPES.get(kind) if isinstance(kind, type) else None
    if dtype is None and kind is not UntypedStorage:
        refuse(f"a storage of type {shown(kind)}")
    if type(n) is not int or not 0 <= n < 1 << 60:
        refuse(f"a storage of {shown(n)} elements")
    return Reference(dtype, _word(key), _word(tag), n * (1 if dtype is None else dtype.itemsize))


def _word(value: Any) -> str:
    if type(value) is bytes:
        value = value.decode("ascii")
    if type(value) is not str or len(value) > KEY:
        refuse(f"a storage called {shown(value)}")
    return str(value)


def in_this_order(data: Array, dtype: dtypes.dtype | None, order: str) -> None:
    """Turn the bytes of each number around, in place, if they are in the other order."""
    if order == sys.byteorder or dtype is None or dtype.itemsize == 1:
        return
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    data.view(np.dtype(f"u{width}")).byteswap(inplace=True)
