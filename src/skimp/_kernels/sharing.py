"""Passes over memory that a team shares (`teams`), where `skimp compile` was run: NumPy's ufuncs,
by its own loops, and loops of ours that are told how many threads run them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from skimp._kernels import bare, compiled, shaping, teams
from skimp._kernels.threads import Call, alone
from skimp.config import config

Array = np.ndarray[Any, Any]
T = TypeVar("T")

FROM: Final = 1 << 15  # elements of a pass that is shared,
BYTES: Final = FROM * 4  # of float32
BRIEF: Final = 0.15e-9  # seconds for each element of a pass that memory is waited for in
_SLOW: Final = 0.35e-9  # and of others
_PREDICATES: Final = frozenset(
    (
        *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
        *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
        *(np.isnan, np.isfinite, np.isinf, np.signbit),
    )
)
# Of these elements have the same bits however a run is cut, which a test holds.
COSTS: Final[dict[Any, float]] = {
    **dict.fromkeys(_PREDICATES, BRIEF),
    **dict.fromkeys(
        (
            *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.square),
            *(np.maximum, np.minimum, np.fmax, np.fmin, np.positive, np.copysign, np.reciprocal),
            *(np.sqrt, np.floor, np.ceil, np.trunc, np.rint),
        ),
        BRIEF,
    ),
    **dict.fromkeys(
        (
            *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.power),
            *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh),
            *(np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.arctan2),
        ),
        _SLOW,
    ),
}
_NUMPYS: Final = {bare.ufunc(ufunc): ufunc for ufunc in COSTS}  # behind what calls them straight
_NUMBERS: Final = (int, float)
_BOOL: Final = np.dtype(np.bool_)
_LINE: Final = 64  # bytes
_FAR: Final = 1e30  # what every type holds is nearer to 0


class Shared(NamedTuple):
    """A call of C, when its work began and how long one thread takes, as `teams.done` is told."""

    call: Call
    began: float
    seconds: float


def call(loop: Callable[..., T], elements: int, cost: float, *args: Any) -> T:
    """loop(*args, threads), of which a thread takes `cost` seconds for each of the elements."""
    began = begun(elements, cost)
    if not began:
        return loop(*args, 1)
    found = loop(*args, team())
    teams.done(began, elements * cost)
    return found


def run(ufunc: Any, *arrays: Any, out: Array) -> None:
    """ufunc(*arrays, out=out)"""
    ufunc = _NUMPYS.get(ufunc, ufunc)
    read = _read(arrays, out) if out.size >= FROM else None
    if read is None or not _ran(ufunc, read, out):
        ufunc(*arrays, out=out)


def made(ufunc: Any, *arrays: Any) -> Any:
    """ufunc(*arrays), of arrays of one type and numbers."""
    ufunc = _NUMPYS.get(ufunc, ufunc)
    like = arrays[-1] if type(arrays[0]) in _NUMBERS else arrays[0]
    if ufunc not in COSTS or like.dtype.char not in "fd" or not like.flags.c_contiguous:
        return ufunc(*arrays)
    read = _read(arrays, like)
    if read is None:
        return ufunc(*arrays)
    out = _aligned(like.shape, _BOOL if ufunc in _PREDICATES else like.dtype)
    if not _ran(ufunc, read, out):
        ufunc(*read, out=out)
    return out


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array that begins with a line of the cache: NumPy's begin 16 bytes behind one, and what
    goes over the ends of lines takes up to twice as long."""
    room = np.empty(math.prod(shape) * dtype.itemsize + _LINE, np.uint8)
    return np.ndarray(shape, dtype, room, -shaping.address(room) % _LINE)


def _ran(ufunc: Any, read: list[Any], out: Array) -> bool:
    """Whether a team did it."""
    cost, loops = COSTS.get(ufunc), compiled.loops()
    if cost is None or loops is None or not (began := begun(out.size, cost)):
        return False
    found: bool = loops.ran(*_single(ufunc, read, out), team())
    teams.done(began, out.size * cost)
    return found


def _read(arrays: Sequence[Any], like: Array) -> list[Any] | None:
    """Arrays of the shape of one, and numbers as arrays; None where there are others."""
    found: list[Any] = []
    for a in arrays:
        if type(a) is not np.ndarray:
            if type(a) not in _NUMBERS or not -_FAR < a < _FAR or like.dtype.char not in "fd":
                return None
            a = bare.number(a, like.dtype)
        elif a.ndim and a.shape != like.shape:
            return None
        found += (a,)
    return found


def _single(ufunc: Any, read: list[Any], out: Array) -> tuple[Any, ...]:
    outs = len(read)
    return ((ufunc, *range(outs + 1)),), (*read, out), out.size, out.size, outs, outs


def listed(ufunc: Any, arrays: Sequence[Any], out: Array) -> Shared | None:
    """`run` as a call of C that is still to be made, where a team shares it."""
    cost, loops = COSTS.get(ufunc), compiled.loops()
    if cost is None or loops is None or out.size < FROM:
        return None
    read = _read(arrays, out)
    if read is None or not loops.ran(*(asked := _single(ufunc, read, out)), 1, True):
        return None
    began = begun(out.size, cost)
    return Shared((loops.ran, *asked, team()), began, out.size * cost) if began else None


def begun(elements: int, cost: float) -> float:
    """When work begins that a team shares; 0 where none does."""
    if elements < FROM or config.threads < 2 or not alone():
        return 0.0
    return teams.worth(elements * cost)


def team() -> int:
    """How many threads it has: always as many, for OpenMP lets go of others."""
    threads = config.threads
    if teams.told.size != threads:  # who is made now gets signals
        teams.told.size = 0
    return threads
