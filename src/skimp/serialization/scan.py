"""The names in a pickle, found without building anything."""

from __future__ import annotations

import _compat_pickle
import pickle
import pickletools
from typing import IO, Any

from skimp.serialization.limits import NAME

_TEXTS = frozenset(("BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINUNICODE8"))
_GETS = frozenset(("BINGET", "LONG_BINGET", "GET"))
_PUTS = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))


def modern(module: str, name: str, old: bool) -> tuple[str, str]:
    """Python 3's name of what protocols below 3 call as Python 2 did."""
    if not old:
        return module, name
    renamed = _compat_pickle.IMPORT_MAPPING.get(module, module), name
    return _compat_pickle.NAME_MAPPING.get((module, name), renamed)


def globals_of(file: IO[bytes]) -> list[tuple[str, str]]:
    """Module and name of each, in their order; what is no pickle is an UnpicklingError."""
    try:
        return list(_walk(file))
    except (ValueError, UnicodeError, KeyError, IndexError, OverflowError) as error:
        raise pickle.UnpicklingError(
            f"Weights only load failed. The pickle is damaged: {str(error)[:200]}"
        ) from None


def globals_after(file: IO[bytes]) -> list[tuple[str, str]]:
    """Those from where a file is read to its pickle's end, or to what is no pickle any more."""
    found = []
    try:
        for one in _walk(file):
            found += [one]
    except (ValueError, UnicodeError, KeyError, IndexError, OverflowError):
        return found
    return found


def _walk(file: IO[bytes]) -> Any:
    words: list[str] = ["", ""]
    memo: dict[Any, str] = {}
    count, old = 0, True
    value: Any
    for op, value, _ in pickletools.genops(file):
        if op.name == "PROTO":
            old = value < 3
        elif op.name in _TEXTS:
            words = [words[-1], value if len(value) <= NAME else ""]
        elif op.name in _GETS:
            words = [words[-1], memo.get(value, "")]
        elif op.name in _PUTS:
            memo[value] = words[-1]
        elif op.name == "MEMOIZE":
            memo[count] = words[-1]
        elif op.name == "GLOBAL":
            module, _, name = value.partition(" ")
            yield modern(module[:NAME], name[:NAME], old)
        elif op.name == "STACK_GLOBAL":
            yield words[0], words[1]
        if op.name in _PUTS or op.name == "MEMOIZE":
            count += 1
