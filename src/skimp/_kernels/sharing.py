"""Passes over memory that a team shares (`teams`), where `skimp compile` was run: NumPy's ufuncs, by
its own loops, and loops of ours that are told how many threads run them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from skimp._kernels import bare, compiled, teams
from skimp._kernels.threads import alone
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
_NUMBERS: Final = (int, float)


def call(loop: Callable[..., T], elements: int, cost: float, *args: Any) -> T:
    """loop(*args, threads), of which a thread takes `cost` seconds for each of the elements."""
    began = _begun(elements, cost)
    if not began:
        return loop(*args, 1)
    found = loop(*args, _team())
    teams.done(began, elements * cost)
    return found


def run(ufunc: Any, *arrays: Any, out: Array) -> None:
    """ufunc(*arrays, out=out)"""
    if _ran(ufunc, arrays, out) is None:
        ufunc(*arrays, out=out)


def made(ufunc: Any, *arrays: Any) -> Any:
    """ufunc(*arrays), of arrays the first of which is the largest."""
    found = _ran(ufunc, arrays, None)
    return ufunc(*arrays) if found is None else found


def _ran(ufunc: Any, arrays: tuple[Any, ...], out: Array | None) -> Array | None:
    """The result, if a team made it."""
    cost, loops, first = COSTS.get(ufunc), compiled.loops(), arrays[0]
    like = first if out is None else out
    if cost is None or loops is None or not like.flags.c_contiguous:
        return None
    n, dtype = like.size, like.dtype
    read: list[Any] = []
    for a in arrays:
        if type(a) is not np.ndarray:
            if type(a) not in _NUMBERS or first is a or first.dtype.kind != "f":
                return None
            a = bare.number(a, first.dtype)
        elif a.ndim and a.shape != like.shape:
            return None
        read += (a,)
    if not (began := _begun(n, cost)):
        return None
    if out is None:
        out = np.empty(like.shape, np.bool_ if ufunc in _PREDICATES else dtype)
    outs = len(read)
    steps = ((ufunc, *range(outs + 1)),)
    found = loops.ran(steps, (*read, out), n, n, outs, outs, _team())
    teams.done(began, n * cost)
    return out if found else None


def _begun(elements: int, cost: float) -> float:
    """When work begins that a team shares; 0 where none does."""
    if elements < FROM or config.threads < 2 or not alone():
        return 0.0
    return teams.worth(elements * cost)


def _team() -> int:
    """How many threads it has: always as many, for OpenMP lets go of others."""
    threads = config.threads
    if teams.told.size != threads:  # who is made now gets signals
        teams.told.size = 0
    return threads
