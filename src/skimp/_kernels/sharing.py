"""Passes over memory that a team shares (`teams`), where `skimp compile` was run: NumPy's ufuncs,
by its own loops, and loops of ours that are told how many threads run them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from skimp._kernels import bare, compiled, shaping, teams
from skimp._kernels.threads import Call, alone, told
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
            *(() if bare.clip is None else (bare.clip,)),
        ),
        BRIEF,
    ),
    **dict.fromkeys(
        (
            *(np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.power),
            *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh),
            *(np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.arctan2),
        ),
        _SLOW,
    ),
    bare.EXP: _SLOW if bare.EXP is np.exp else BRIEF,
}
# Of each, and of what calls its loops straight (`Kernel.fn` is that), NumPy's.
NUMPYS: Final = {one: ufunc for ufunc in COSTS for one in (ufunc, bare.ufunc(ufunc))}
_NUMBERS: Final = (int, float)
_BOOL: Final = np.dtype(np.bool_)
TYPES: Final = frozenset((np.dtype(np.float32), np.dtype(np.float64), _BOOL))
LINE: Final = 64  # bytes, of the cache


class Shared(NamedTuple):
    """A call of C, when its work began and how long one thread takes, as `teams.done` is told."""

    call: Call
    began: float
    seconds: float


def _call(loop: Callable[..., T], elements: int, cost: float, *args: Any) -> T:
    """loop(*args, threads), of which a thread takes `cost` seconds for each of the elements."""
    if elements < FROM or config.threads < 2 or not (began := begun(elements, cost)):
        return loop(*args, 1)
    found = loop(*args, team())
    teams.done(began, elements * cost)
    return found


def as_call(loop: Callable[..., Any], elements: int, cost: float, *args: Any) -> Call:
    """What `call` does, as a call of C that is still to be made. What a team takes for it is not
    entered, for nothing of Python's may follow."""
    return loop, *args, team() if begun(elements, cost) else 1


def made(ufunc: Any, *arrays: Any) -> Any:
    """ufunc(*arrays), of arrays of one type and numbers. The result begins with a line of the
    cache: NumPy's begin 16 bytes behind one, and what goes over the ends of lines takes up to twice
    as long.
    """
    like = arrays[-1] if type(arrays[0]) in _NUMBERS else arrays[0]
    if ufunc not in COSTS or like.dtype.char not in "fd" or not like.flags.c_contiguous:
        return ufunc(*arrays)
    for a in arrays:
        if type(a) is np.ndarray and a.ndim and a.shape != like.shape:
            return ufunc(*arrays)
    out = _begun_with_a_line(like.shape, _BOOL if ufunc in _PREDICATES else like.dtype)
    ufunc(*arrays, out=out)
    return out


def _begun_with_a_line(shape: tuple[int, ...], dtype: Any) -> Array:
    room = np.empty(prod(shape) * dtype.itemsize + LINE, np.uint8)
    return np.ndarray(shape, dtype, room, -shaping.address(room) % LINE)


def ran(ufunc: Any, arrays: Sequence[Any], out: Array, numbers: Sequence[float] = ()) -> bool:
    """Write ufunc(*arrays, *numbers) by its loop, on a team where that is worth it; whether it is
    done."""
    straight = _STRAIGHT.get(ufunc)
    if straight is None or out.size < FROM:
        return False
    done: bool = _loops.written(straight, arrays, out, numbers)
    return done


def listed(
    ufunc: Any, arrays: Sequence[Any], out: Array, numbers: Sequence[float] = ()
) -> Shared | None:
    """`ran` as a call of C that is still to be made, where a team shares it."""
    loops, known = compiled.loops(), NUMPYS.get(ufunc)
    n, outs = out.size, len(arrays) + len(numbers)
    if loops is None or known is None or n < FROM or config.threads < 2:
        return None
    for a in arrays:
        if type(a) is not np.ndarray or (a.ndim and a.shape != out.shape):
            return None
    beside = [bare.number(a, out.dtype) for a in numbers]
    asked = ((known, *range(outs + 1)),), (*arrays, *beside, out), n, n, outs, outs
    if not loops.ran(*asked, 1, True) or not (began := begun(n, COSTS[known])):
        return None
    return Shared((loops.ran, *asked, team()), began, n * COSTS[known])


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


def _prepared() -> Any:
    """`call` as C, which also has teams share what ufuncs make of long arrays."""
    if _loops is None:
        return _call
    for ufunc, cost in COSTS.items():
        _loops.priced(bare.ufunc(ufunc), cost)
    asked = teams.account, config, *told(), teams.told, teams.worth, teams.done, team
    return _loops.calling(_call, (*asked, perf_counter), (FROM, *teams.LIMITS))


_loops: Final = compiled.loops()
# By what writes long arrays: its ufunc of C.
_STRAIGHT: Final = {} if _loops is None else {u: bare.ufunc(own) for u, own in NUMPYS.items()}
LONG: Final = BYTES if _loops is None else sys.maxsize  # bytes from which `made` makes results
call: Final = _prepared()
