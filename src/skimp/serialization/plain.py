"""Plain values that files write as calls, each built here from arguments that are looked at first.

A function here is what a file gets under a name such as `decimal.Decimal`: it takes what that
type's own pickles hold and refuses the rest.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from typing import Any, Final

from skimp._engine.tensor.devices import device
from skimp._engine.tensor.size import Size
from skimp.serialization import limits
from skimp.serialization.limits import check_key, refuse, refused, shown

NOBODY: Final[frozenset[type]] = frozenset()
INT64: Final = 1 << 63


def integer(value: Any, low: int = -INT64, high: int = INT64 - 1) -> int:
    """A whole number in a range, as it is."""
    if type(value) is not int or not low <= value <= high:
        refuse(f"{shown(value)} where a number from {low} to {high} belongs")
    return value


def text(value: Any, longest: int = limits.NAME) -> str:
    """A short text, as it is."""
    if type(value) is not str or len(value) > longest:
        refuse(f"{shown(value)} where a short text belongs")
    return value


def _members(values: Any, kinds: tuple[type, ...]) -> Any:
    if type(values) not in kinds:
        refuse(f"the members of a collection in {shown(values)}")
    for value in values:
        check_key(value, NOBODY)
    return values


def make_set(*args: Any) -> set[Any]:
    return set(_members(args[0], (list, tuple, set, frozenset))) if _count(args, 0, 1) else set()


def make_frozenset(*args: Any) -> frozenset[Any]:
    if not _count(args, 0, 1):
        return frozenset()
    return frozenset(_members(args[0], (list, tuple, set, frozenset)))


def make_bytes(*args: Any) -> bytes:
    """How protocol 2 writes b""."""
    _count(args, 0, 0)
    return b""


def make_bytearray(*args: Any) -> bytearray:
    """Of bytes, or of text in latin1 as protocol 2 has it; never of a size."""
    if not _count(args, 0, 2):
        return bytearray()
    if len(args) == 1 and type(args[0]) is bytes:
        return bytearray(args[0])
    if len(args) == 2 and type(args[0]) is str and args[1] in ("latin-1", "latin1"):
        return bytearray(args[0], "latin-1")
    raise refused("a bytearray made of something else than bytes")


def make_complex(real: Any, imag: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        refuse("a complex number that is not made of two numbers")
    return complex(real, imag)


def make_ordered_dict(*args: Any) -> collections.OrderedDict[Any, Any]:
    new: collections.OrderedDict[Any, Any] = collections.OrderedDict()
    if not _count(args, 0, 1):
        return new
    if type(args[0]) not in (list, tuple):
        refuse(f"an OrderedDict made of {shown(args[0])}")
    for pair in args[0]:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            refuse("an OrderedDict made of something else than pairs")
        check_key(pair[0], NOBODY)
        new[pair[0]] = pair[1]
    return new


def make_counter(*args: Any) -> collections.Counter[Any]:
    if _count(args, 0, 1) and type(args[0]) is not dict:
        refuse(f"a Counter made of {shown(args[0])}")
    new: collections.Counter[Any] = collections.Counter()
    dict.update(new, *args)
    return new


FACTORIES: Final = (None, dict, list, set, int, float, str, bool, tuple, collections.OrderedDict)


def make_defaultdict(*args: Any) -> collections.defaultdict[Any, Any]:
    """With a factory that makes an empty value, for the program will call it unasked."""
    if _count(args, 0, 1) and not any(args[0] is known for known in FACTORIES):
        refuse(f"a defaultdict whose factory is {shown(args[0])}")
    return collections.defaultdict(*args)


def make_deque(*args: Any) -> collections.deque[Any]:
    if not _count(args, 0, 2):
        return collections.deque()
    if type(args[0]) not in (list, tuple):
        refuse(f"a deque made of {shown(args[0])}")
    longest = args[1] if len(args) == 2 else None
    return collections.deque(args[0], None if longest is None else integer(longest, 0))


def make_dict(*args: Any) -> dict[Any, Any]:
    _count(args, 0, 0)
    return {}


def make_list(*args: Any) -> list[Any]:
    if _count(args, 0, 1) and type(args[0]) not in (list, tuple, set):
        refuse(f"a list made of {shown(args[0])}")
    return list(*args)


def make_range(*args: Any) -> range:
    _count(args, 1, 3)
    return range(*[integer(value, -(1 << 200), 1 << 200) for value in args])


def make_slice(*args: Any) -> slice:
    """Of numbers: slices in slices are freed by recursion."""
    _count(args, 1, 3)
    for value in args:
        if value is not None:
            integer(value, -(1 << 200), 1 << 200)
    return slice(*args)


# -- numbers and times ----------------------------------------------------------------------------

_DECIMAL: Final = re.compile(
    r"[+-]?(\d{1,1200}(\.\d{0,1200})?(E[+-]?\d{1,18})?|Infinity|s?NaN\d{0,20})", re.I | re.A
)


def make_decimal(value: Any) -> decimal.Decimal:
    if not _DECIMAL.fullmatch(text(value, 3000)):
        refuse(f"the decimal number {shown(value)}")
    return decimal.Decimal(value)


def make_fraction(numerator: Any, denominator: Any = 1) -> fractions.Fraction:
    """Of two numbers, or of the text that older Pythons write."""
    if type(numerator) is str and re.fullmatch(r"-?\d{1,1200}(/\d{1,1200})?", numerator, re.A):
        return fractions.Fraction(numerator)
    most = 1 << limits.BITS
    return fractions.Fraction(integer(numerator, -most, most), integer(denominator, 1, most))


def make_date(*args: Any) -> datetime.date:
    return datetime.date(*_packed(args, 4, 0))


def make_time(*args: Any) -> datetime.time:
    return datetime.time(*_packed(args, 6, 1))


def make_datetime(*args: Any) -> datetime.datetime:
    return datetime.datetime(*_packed(args, 10, 1))


def _packed(args: tuple[Any, ...], width: int, zones: int) -> Any:
    """A time as its bytes, and the zone, whose methods are called: it is a fixed difference."""
    _count(args, 1, 1 + zones)
    packed = args[0].encode("latin1") if type(args[0]) is str else args[0]
    if type(packed) is not bytes or len(packed) != width:
        refuse(f"a time in {shown(args[0])}")
    if len(args) == 2 and type(args[1]) not in (datetime.timezone, type(None)):
        refuse(f"the time zone {shown(args[1])}")
    return packed, *args[1:]


def make_timedelta(*args: Any) -> datetime.timedelta:
    _count(args, 0, 3)
    return datetime.timedelta(*[integer(value) for value in args])


def make_timezone(*args: Any) -> datetime.timezone:
    _count(args, 1, 2)
    if type(args[0]) is not datetime.timedelta:
        refuse(f"a time zone {shown(args[0])} from Greenwich")
    return datetime.timezone(args[0], *[text(name) for name in args[1:]])


def fill_uuid(found: uuid.UUID, state: Any) -> None:
    """The number, and whether it was made safely, which nobody asks."""
    if type(state) is not dict:
        refuse(f"a UUID in {shown(state)}")
    found.__setstate__({"int": integer(state.get("int"), 0, (1 << 128) - 1)})  # type: ignore[attr-defined]


def make_namespace(*args: Any) -> types.SimpleNamespace:
    """Empty; its attributes are its state."""
    _count(args, 0, 0)
    return types.SimpleNamespace()


# -- names ----------------------------------------------------------------------------------------


def path_maker(kind: type[pathlib.PurePath]) -> Callable[..., pathlib.PurePath]:
    """A builder of paths: of texts, which nobody looks up."""

    def make_path(*parts: Any) -> pathlib.PurePath:
        return kind(*[text(part, 1 << 16) for part in parts])

    return make_path


def make_device(*args: Any) -> device:
    _count(args, 1, 2)
    return device(text(args[0], 60), *[integer(i, 0, 1 << 15) for i in args[1:] if i is not None])


def make_size(*args: Any) -> Size:
    if not _count(args, 0, 1):
        return Size(())
    if type(args[0]) not in (tuple, list) or len(args[0]) > 64:
        refuse(f"the size {shown(args[0])}")
    return Size([integer(n) for n in args[0]])


def _count(args: tuple[Any, ...], least: int, most: int) -> int:
    if not least <= len(args) <= most:
        refuse(f"a call with {len(args)} arguments")
    return len(args)
