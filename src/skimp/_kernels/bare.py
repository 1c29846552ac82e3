"""NumPy's functions of C, without its Python before them: asking each argument whether another
library takes the call over costs .1 to .4 us, as much as they take on small arrays.

`einsum` looks for no order of its operands either: that takes 2 us, longer than sums of small rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy._core import multiarray, umath

from skimp._kernels import compiled

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])


def _behind(function: F) -> F:
    """What NumPy's own function calls (a name that is not public) for arrays of its own."""
    return getattr(function, "_implementation", function)


def ufunc(function: F) -> F:
    """A ufunc, of small arrays in a third of its time where loops are compiled, with the same bits:
    to be called with arrays, numbers beside them, and `out`. Of arrays of no dims it makes arrays.
    """
    return _ufunc(function)  # type: ignore[no-any-return]


@cache
def _ufunc(function: Any) -> Any:
    found = compiled.loops()
    return function if found is None else found.ufunc(function)


@cache
def reduction(function: Any) -> Any:
    """The `reduce` of a ufunc, likewise, along one axis or all."""
    found = compiled.loops()
    return function.reduce if found is None else found.reduction(function)


def _joining(name: str, function: F) -> F:
    found = compiled.loops()
    return function if found is None else getattr(found, name)(function)


def _stack(arrays: list[Array], dim: int) -> Array:
    shape, count = arrays[0].shape, len(arrays)
    ndim = len(shape)
    if not -ndim - 1 <= dim <= ndim or any([a.shape != shape for a in arrays]):
        raise ValueError("arrays must have one shape, to be put along one of its dims or a new one")
    dim %= ndim + 1
    if not dim and (not ndim or (count <= _FEW and arrays[0].flags.c_contiguous)):
        return np.array(arrays)
    if dim == ndim:
        return concatenate([a[..., None] for a in arrays], dim)
    # the same memory as end to end along the dim that follows
    return concatenate(arrays, dim).reshape((*shape[:dim], count, *shape[dim:]))


_FEW: Final = 16  # arrays that are soonest stacked as a list of them


# names that are no public ones
clip: Final[Any] = getattr(umath, "clip", None)  # the ufunc of `ndarray.clip`
einsum: Final[Any] = getattr(multiarray, "c_einsum", np.einsum)
count_nonzero: Final[Callable[[Any], int]] = getattr(
    multiarray, "count_nonzero", np.count_nonzero
)  # of all dims


def remembering(make: Callable[[Any, Any], Array]) -> Callable[[Any, Any], Array]:
    """`make(value, dtype)`, whose arrays are to be read alone: most programs use few numbers."""
    kept = lru_cache(maxsize=256, typed=True)(make)

    def number(value: Any, dtype: Any) -> Array:
        if value or type(value) is int:
            return kept(value, dtype)
        return make(value, dtype)  # zeros have two signs

    return number


number: Final = remembering(np.array)  # as ufuncs take it soonest beside arrays of this type
literal: Final = lru_cache(maxsize=256, typed=True)(np.array)  # the same, of what is not zero


@lru_cache(maxsize=64)
def zero(dtype: Any) -> Array:
    """The 0-d zero of a type, to be read alone."""
    made = np.zeros((), dtype)
    made.flags.writeable = False
    return made


bincount: Final = _behind(np.bincount)
concatenate: Final = _joining("concatenate", _behind(np.concatenate))
copyto: Final = _behind(np.copyto)
dot: Final = _behind(np.dot)
empty: Final = _joining("empty", np.empty)  # whose longer arrays begin with a line of the cache
empty_like: Final = _behind(np.empty_like)
inner: Final = _behind(np.inner)
lexsort: Final = _behind(np.lexsort)
may_share_memory: Final = _behind(np.may_share_memory)
result_type: Final = _behind(np.result_type)
shares_memory: Final = _behind(np.shares_memory)
vdot: Final = _behind(np.vdot)
stack: Final = _joining("stack", _stack)  # NumPy's is made of a dozen functions
where: Final = _behind(np.where)

absolute: Final = ufunc(np.absolute)
add: Final = ufunc(np.add)
bitwise_and: Final = ufunc(np.bitwise_and)
bitwise_or: Final = ufunc(np.bitwise_or)
bitwise_xor: Final = ufunc(np.bitwise_xor)
copysign: Final = ufunc(np.copysign)
divide: Final = ufunc(np.divide)
equal: Final = ufunc(np.equal)
EXP: Final = _joining("exponential", np.exp)  # a ufunc, in all ways of float32
exp: Final = ufunc(EXP)
expm1: Final = ufunc(np.expm1)
floor: Final = ufunc(np.floor)
greater: Final = ufunc(np.greater)
greater_equal: Final = ufunc(np.greater_equal)
isfinite: Final = ufunc(np.isfinite)
isnan: Final = ufunc(np.isnan)
less: Final = ufunc(np.less)
less_equal: Final = ufunc(np.less_equal)
log: Final = ufunc(np.log)
log1p: Final = ufunc(np.log1p)
logical_and: Final = ufunc(np.logical_and)
logical_not: Final = ufunc(np.logical_not)
logical_or: Final = ufunc(np.logical_or)
maximum: Final = ufunc(np.maximum)
minimum: Final = ufunc(np.minimum)
multiply: Final = ufunc(np.multiply)
negative: Final = ufunc(np.negative)
not_equal: Final = ufunc(np.not_equal)
remainder: Final = ufunc(np.remainder)
sign: Final = ufunc(np.sign)
sqrt: Final = ufunc(np.sqrt)
square: Final = ufunc(np.square)
subtract: Final = ufunc(np.subtract)
tanh: Final = ufunc(np.tanh)

sums: Final[Any] = reduction(np.add)
highest: Final[Any] = reduction(np.maximum)
lowest: Final[Any] = reduction(np.minimum)
