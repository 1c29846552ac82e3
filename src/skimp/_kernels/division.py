"""Division: remainders and quotients that are rounded to integers, as PyTorch has them. Kernels as
those of `pointwise`.
"""

from __future__ import annotations

from math import isnan as is_nan
from typing import Any, Final

import numpy as np

from skimp._kernels import bare
from skimp._kernels.pieces import in_pieces
from skimp._kernels.pointwise import INTEGERS, Array, loose
from skimp._kernels.scratch import give, take

_ONE_BY_ONE: Final = 1 << 10  # elements up to which C's remainders take less time than passes
_PIECE: Final = 1 << 13
_EXACT: Final = 2.0**56  # squares of quotients which float64 has with their product
_SIGN: Final = np.array(-(2**31), np.int32)
_DOUBLE: Final = np.dtype(np.float64)


def _refuse_zero(b: Any, out: Array) -> None:
    if out.size and not np.logical_and.reduce(b, None):
        raise RuntimeError("ZeroDivisionError")


@loose
def fmod(a: Array, b: Any, *, out: Array) -> None:
    """The remainder with the sign of the dividend."""
    if out.dtype.kind in INTEGERS:
        _refuse_zero(b, out)
        np.fmod(a, b, out=out)
    elif out.size < _ONE_BY_ONE or out.dtype.char != "f":
        _fmod_one_by_one(a, b, out)
    else:
        alone = np.ndim(b) == 0
        for one, *by, to in in_pieces(*((a, out) if alone else (a, b, out)), length=_PIECE):
            if not _fmod_by_quotients(one, b if alone else by[0], to):
                _fmod_one_by_one(one, b if alone else by[0], to)


def _fmod_one_by_one(a: Array, b: Any, out: Array) -> None:
    """By C's function: in float64, as exact, and several times faster."""
    np.fmod(a, b, out=out, dtype=np.float64, casting="same_kind")


def _fmod_by_quotients(a: Array, b: Any, out: Array) -> bool:
    """`fmod` of float32; whether no quotient was infinite, NaN or so large that float64 has not
    all of its digits. With 24 digits in each number the whole part of others, its product and the
    difference are exact.
    """
    large = out.size > _PIECE  # what has gaps
    room = take(2 * out.size, _DOUBLE) if large else np.empty(2 * out.size)
    left, whole = room.reshape(2, *out.shape)
    left[...] = a
    by = np.asarray(b, _DOUBLE)
    bare.divide(left, by, out=whole)
    np.trunc(whole, out=whole)
    fits = bool(_squares(whole) < _EXACT)
    if fits:
        bare.multiply(whole, by, out=whole)
        bare.subtract(left, whole, out=whole)
        fits = not is_nan(_squares(whole))  # as 0 times infinity is
    if fits:
        out[...] = whole
        sign = bare.bitwise_and(a.view(np.int32), _SIGN)
        bare.bitwise_or(out.view(np.int32), sign, out=out.view(np.int32))
    if large:
        give(room)
    return fits


def _squares(x: Array) -> Any:
    """Their sum."""
    flat = x.reshape(-1)
    return flat.dot(flat) if flat.size <= _PIECE else bare.sums(bare.square(flat))


@loose
def remainder(a: Array, b: Any, *, out: Array) -> None:
    """The remainder with the sign of the divisor; a zero keeps the sign of the dividend."""
    if out.dtype.kind in INTEGERS:
        _refuse_zero(b, out)
        bare.remainder(a, b, out=out)
        return
    fmod(a, b, out=out)
    none = bare.zero(out.dtype)
    wrong = bare.not_equal(bare.less(out, none), bare.less(b, none))
    wrong = bare.logical_and(wrong, bare.not_equal(out, none))
    if bare.count_nonzero(wrong):
        np.add(out, b, out=out, where=wrong)


@loose
def floor_divide(a: Array, b: Any, *, out: Array) -> None:
    """The quotient rounded down, as Python's //."""
    if out.dtype.kind in INTEGERS:
        _refuse_zero(b, out)
    np.floor_divide(a, b, out=out)


@loose
def trunc_divide(a: Array, b: Any, *, out: Array) -> None:
    """The quotient rounded towards zero."""
    if out.dtype.kind in INTEGERS:
        _refuse_zero(b, out)
        np.fmod(a, b, out=out)
        bare.subtract(a, out, out=out)
        np.floor_divide(out, b, out=out)
    else:
        bare.divide(a, b, out=out)
        np.trunc(out, out=out)


def trunc_divide_rounded(dtype: Any) -> Any:
    """trunc_divide of a narrow type computed in a wider one: rounded before it is cut."""

    def trunc_divide_of_narrow(a: Array, b: Any, *, out: Array) -> None:
        bare.divide(a, b, out=out)
        np.trunc(out.astype(dtype), out=out, casting="same_kind")

    return trunc_divide_of_narrow
