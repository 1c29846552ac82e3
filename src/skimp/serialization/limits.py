"""How much a file may ask for, and how what it holds is shown in messages.

A few bytes can ask for much: a size, a value that holds itself twice, a key as deep as the file is
long. Every number here is far above what any saved program needs.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import pickle
import uuid
from typing import Any, Final, NoReturn

import numpy as np

from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size

DEPTH: Final = 200  # tuples in tuples: hashing, comparing and freeing them recurses in C
PARTS: Final = 128  # values in one key, counted as often as they occur in it
BITS: Final = 4096  # of an integer that is a key or a part of a number
MARKS: Final = 10_000  # open containers
NAME: Final = 500  # characters of a module's or class's name
MESSAGE: Final = 2000  # characters of an error's text
COPIES: Final = 8  # times the pickle's length: what the calls of one file may be given in all
SPARE: Final = 1 << 20  # bytes of that which every file may use

# Values whose hash and comparison are C's or a few lines of the standard library's, in time that is
# bounded by the value's own size.
KEYS: Final = frozenset(
    (
        str, bytes, bool, float, complex, type(None), type(...), type, range, device, Size,
        datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
        decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PosixPath, pathlib.WindowsPath,
        pathlib.PurePosixPath, pathlib.PureWindowsPath,
    )
)  # fmt: skip


def check_key(key: Any, users: frozenset[type]) -> None:
    """Raise for a key or a set's member whose hash would take long, go deep or call code.

    `users` are the classes that the program has named; how those hash is its own affair.
    """
    if type(key) is str:
        return
    waiting, n = [key], 0
    while waiting:
        value = waiting.pop()
        kind = type(value)
        n += 1
        if kind is tuple or kind is frozenset:
            if n + len(waiting) + len(value) > PARTS:
                refuse(f"a key of more than {PARTS} parts")
            waiting.extend(value)
        elif kind is int:
            if value.bit_length() > BITS:
                refuse(f"a key of {value.bit_length()} bits")
        elif not _is_quick(kind) and kind not in users:
            refuse(f"a key of type {kind.__name__}")


def _is_quick(kind: type) -> bool:
    identity: Any = object.__hash__
    if kind in KEYS or kind.__hash__ is identity:
        return True
    return issubclass(kind, np.number | np.bool_ | np.str_ | np.bytes_ | np.dtype)


def shown(value: Any) -> str:
    """A value for a message: short, whatever it is, and no code of its class is asked."""
    kind = type(value)
    if kind in (str, bytes):
        cut = repr(value[:60])
        return cut if len(value) <= 60 else f"{cut}... ({len(value)} long)"
    if kind is int:
        bits = value.bit_length()
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if kind in (bool, float, type(None)):
        return repr(value)
    if kind in (tuple, list) and len(value) <= 8:
        inner = ", ".join(shown(v) if type(v) in (str, int) else _kind(v) for v in value)
        return f"({inner})"
    return _kind(value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__[:60]}"


def refused(what: str) -> pickle.UnpicklingError:
    """The error for a file that asks for what no file of `torch.save` asks for."""
    return pickle.UnpicklingError(f"Weights only load failed. The file asks for {what}")


def refuse(what: str) -> NoReturn:
    """Raise it."""
    raise refused(what)


def give_up(what: str) -> NoReturn:
    """The error for a file that asks for more than its size explains."""
    refuse(f"{what}, more than its size explains")
