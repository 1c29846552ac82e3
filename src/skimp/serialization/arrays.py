"""NumPy's numbers and arrays in files, which `weights_only=False` builds.

Every argument is checked, and arrays of Python objects are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp.serialization.rebuild import refuse

KINDS = frozenset("biufcSU")


def dtype(name: Any, align: Any = False, copy: Any = True) -> np.dtype[Any]:
    """numpy.dtype, of plain types only."""
    found = np.dtype(name) if isinstance(name, str) else None
    if found is None or found.kind not in KINDS or found.names is not None:
        refuse(f"the NumPy type {name!r}")
    return np.dtype(found)


def scalar(kind: Any, data: Any) -> Any:
    """numpy._core.multiarray.scalar: a number from its bytes."""
    _check(kind, (), data)
    return np.frombuffer(data, kind)[0]


def blank(cls: Any, shape: Any, code: Any) -> np.ndarray[Any, Any]:
    """numpy._core.multiarray._reconstruct: an empty array, whose state comes later."""
    if cls is not np.ndarray:
        refuse(f"an array of class {cls!r}")
    return np.empty(0, np.int8)


def set_state(found: Any, state: Any) -> None:
    """The shape and bytes of an array; the byte order of a type, which must be this machine's."""
    if not isinstance(state, tuple) or len(state) < 5:
        refuse(f"the state of a NumPy {type(found).__name__}")
    if isinstance(found, np.dtype):
        if state[1] not in ("<", "|", "=") or state[2] is not None:
            refuse(f"the NumPy type {found} in byte order {state[1]!r}, or with fields")
        return
    _, shape, kind, in_columns, data = state
    _check(kind, shape, data)
    found.__setstate__((1, shape, kind, bool(in_columns), data))


def _check(kind: Any, shape: Any, data: Any) -> None:
    if not isinstance(kind, np.dtype) or kind.kind not in KINDS:
        refuse(f"NumPy values of type {kind!r}")
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        refuse(f"an array of shape {shape!r}")
    need = math.prod(shape) * kind.itemsize
    if not isinstance(data, bytes) or len(data) != need:
        refuse(f"an array of {need} bytes from something else")
