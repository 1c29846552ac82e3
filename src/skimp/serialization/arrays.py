"""NumPy's numbers, arrays and generators in files, which `weights_only=False` builds.

NumPy's own functions for this trust what they get; these take the arguments apart first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp.serialization.limits import refuse, refused, shown

KINDS: Final = frozenset("biufcSUmM")
_DESCRIPTION: Final = re.compile(
    r"[<>|=]?(([biufcSUVO?])(\d{0,9})|[mM]8(\[\d{0,4}[A-Za-z]{1,2}\])?)"
)
_NAMES: Final = frozenset(("bool", "float16", "float32", "float64", "int8", "int16", "int32",
                           "int64", "uint8", "uint16", "uint32", "uint64", "complex64",
                           "complex128"))  # fmt: skip
FIELDS: Final = 1000
DIMENSIONS: Final = 32


def dtype(name: Any, align: Any = False, copy: Any = True) -> np.dtype[Any]:
    """numpy.dtype of a plain type's name; fields come with the state."""
    if type(name) is not str or not (_DESCRIPTION.fullmatch(name) or name in _NAMES):
        refuse(f"the NumPy type {shown(name)}")
    return np.dtype(name, copy=True)


def scalar(kind: Any, data: Any = None) -> Any:
    """numpy._core.multiarray.scalar: a number from its bytes."""
    _check(kind, (), data)
    return np.frombuffer(data, kind)[0]


def blank(cls: Any, shape: Any, code: Any) -> np.ndarray[Any, Any]:
    """numpy._core.multiarray._reconstruct: an empty array, whose state comes later."""
    if cls is not np.ndarray:
        refuse(f"an array of class {shown(cls)}")
    return np.empty(0, np.int8)


def fill_dtype(found: Any, state: Any) -> None:
    """The order of a type's bytes, its fields, its unit of time.

    NumPy's function changes the type itself, so this is one that was made for the file.
    """
    if type(state) is not tuple or not 8 <= len(state) <= 9:
        refuse(f"the state of a NumPy type in {shown(state)}")
    if state[1] not in ("<", ">", "|", "="):
        refuse(f"the NumPy type {found.str} in byte order {shown(state[1])}")
    if found.kind != "V":
        if any(part is not None for part in state[2:5]):
            refuse(f"the NumPy type {found.str} with fields")
        if found.kind in "mM":
            _check_unit(state)
        found.__setstate__(state)
        return
    new = _structured(found, state)
    if new.subdtype is not None:
        found.__setstate__((3, "|", state[2], None, None, found.itemsize, new.alignment, 0))
    elif new.names is not None:
        found.__setstate__((3, "|", None, *state[3:5], found.itemsize, new.alignment, 16))


def _check_unit(state: tuple[Any, ...]) -> None:
    """The last part of a time's state: ({}, (unit, number, 1, 1))."""
    last = state[8] if len(state) == 9 else None
    if type(last) is not tuple or len(last) != 2 or type(last[1]) is not tuple:
        refuse("a NumPy time without a unit")
    unit = last[1]
    if len(unit) != 4 or type(unit[0]) is not bytes or not unit[0].decode("latin1").isalpha():
        refuse("a NumPy time with a strange unit")
    if any(type(n) is not int or not 0 < n < 1 << 30 for n in unit[1:]):
        refuse("a NumPy time with a strange unit")


def _structured(found: np.dtype[Any], state: tuple[Any, ...]) -> np.dtype[Any]:
    """The type with fields that a state describes, made by NumPy's checked way."""
    names, fields = state[3], state[4]
    if (names is None) != (fields is None) or (state[2] is not None and names is not None):
        refuse("a NumPy type with parts")
    if state[2] is not None:
        return _subarray(found, state[2])
    if names is None:
        return np.dtype((np.void, found.itemsize))
    if type(names) is not tuple or type(fields) is not dict or len(names) > FIELDS:
        refuse("a NumPy type whose fields are none")
    kinds, places = [], []
    for name in names:
        field = fields.get(name) if type(name) is str else None
        if type(field) is not tuple or len(field) not in (2, 3):
            refuse(f"the field {shown(name)}")
        kind, place = field[:2]
        if not isinstance(kind, np.dtype) or kind.kind not in KINDS | {"V"}:
            refuse(f"the field {shown(name)} of type {shown(kind)}")
        if type(place) is not int or not 0 <= place <= found.itemsize - kind.itemsize:
            refuse(f"the field {shown(name)} outside its type")
        kinds.append(kind)
        places.append(place)
    if len(fields) != len(names):
        refuse("a NumPy type with fields without names")
    return np.dtype(
        {"names": names, "formats": kinds, "offsets": places, "itemsize": found.itemsize}
    )


def _subarray(found: np.dtype[Any], part: Any) -> np.dtype[Any]:
    """The type of a field that is an array: (type, shape)."""
    if type(part) is not tuple or len(part) != 2:
        refuse("a NumPy type with parts")
    kind, shape = part
    if not isinstance(kind, np.dtype) or not _is_plain(kind) or type(shape) is not tuple:
        refuse("a NumPy type with parts")
    _check_shape(shape)
    if kind.itemsize * math.prod(shape) != found.itemsize:
        refuse(f"a NumPy type of {found.itemsize} bytes with other parts")
    return np.dtype((kind, shape))


def set_state(found: Any, state: Any, nest: Callable[[Any, Any], Any]) -> None:
    """The shape and content of an array that `blank` made."""
    if type(state) is not tuple or len(state) != 5:
        refuse(f"the state of an array in {shown(state)}")
    _, shape, kind, in_columns, data = state
    if isinstance(kind, np.dtype) and kind.kind == "O":
        _check_shape(shape)
        if type(data) is not list or len(data) != math.prod(shape):
            refuse(f"an array of {math.prod(shape)} objects from {shown(data)}")
        nest(found, data)
    else:
        _check(kind, shape, data)
    found.__setstate__((1, shape, kind, bool(in_columns), data))


def _check(kind: Any, shape: Any, data: Any) -> None:
    if not isinstance(kind, np.dtype) or not _is_plain(kind):
        refuse(f"NumPy values of type {shown(kind)}")
    _check_shape(shape)
    need = math.prod(shape) * kind.itemsize
    if type(data) is not bytes or len(data) != need:
        refuse(f"an array of {need} bytes from {shown(data)}")


def _is_plain(kind: np.dtype[Any]) -> bool:
    return kind.kind in KINDS or (kind.kind == "V" and not kind.hasobject)


def _check_shape(shape: Any) -> None:
    if type(shape) is not tuple or len(shape) > DIMENSIONS:
        refuse(f"an array of shape {shown(shape)}")
    if any(type(n) is not int or not 0 <= n < 1 << 60 for n in shape):
        refuse(f"an array of shape {shown(shape)}")


# -- generators -----------------------------------------------------------------------------------


def bit_generator(cls: Any = "MT19937") -> Any:
    """numpy.random._pickle.__bit_generator_ctor, of a class or, in older files, its name."""
    for known in (np.random.MT19937, np.random.PCG64):
        if cls is known or cls == known.__name__:
            return known(0)
    raise refused(f"the generator {shown(cls)}")


def random_state(bits: Any = "MT19937", constructor: Any = None) -> np.random.RandomState:
    """numpy.random._pickle.__randomstate_ctor."""
    if type(bits) is not np.random.MT19937:
        bits = bit_generator(bits)
    if type(bits) is not np.random.MT19937:
        refuse(f"a RandomState on {shown(bits)}")
    return np.random.RandomState(bits)


def generator(bits: Any = "MT19937", constructor: Any = None) -> np.random.Generator:
    """numpy.random._pickle.__generator_ctor."""
    if type(bits) not in (np.random.MT19937, np.random.PCG64):
        bits = bit_generator(bits)
    return np.random.Generator(bits)


class Seeds:
    """What a generator was seeded from. Left out: it only serves to make further generators."""


def seed_sequence(*args: Any) -> Seeds:
    """numpy.random.bit_generator.__pyx_unpickle_SeedSequence."""
    return Seeds()
