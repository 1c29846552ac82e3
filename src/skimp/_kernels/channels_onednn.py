"""Images times a number for each channel, plus another, by oneDNN (`onednn`), where it is
installed.

One pass instead of NumPy's two to four, with the same bits: each multiplication and each addition
is rounded by itself. So whoever asks has NumPy do it where oneDNN does not, and nobody can tell.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, onednn, shaping
from skimp._kernels.onednn_runs import SHARED, Runs, together
from skimp._kernels.scratch import row_sums
from skimp._kernels.threads import Call

Array = np.ndarray[Any, Any]
Limits = tuple[float, ...]
Lie = tuple[tuple[int, ...], ...]  # the shape and the strides of each of several arrays

_TYPE: Final = np.dtype(np.float32)
LEAST: Final = 1 << 17  # elements below which NumPy has done nearly as soon


def takes(dtype: np.dtype[Any]) -> bool:
    """Whether images of this type are for it, where they are large."""
    return dtype == _TYPE and onednn.library() is not None and _exact()


@cache
def _exact() -> bool:
    """Whether this processor's code rounds each operation by itself, as NumPy does: else it would
    be another result than where NumPy does the work."""
    x, old = np.sin(np.arange(1 << 14, dtype=_TYPE)).reshape(2, 2, 8, 512)
    a, b = np.cos(np.arange(16, dtype=_TYPE)).reshape(2, 8, 1)
    want, out = (x * a + b) + old, bare.empty_like(x)
    plus = _runs((2, 8, 512), True, False, None, 1, True)
    total = _runs((2, 8, 512), True, True, None, 1)
    if plus is None or total is None:
        return False
    plus.make(shaping.addresses(x, a, out, b, old))
    total.make(shaping.addresses(x, a, old, b))
    return np.array_equal(out, want) and np.array_equal(old, want)


def scaled(
    x: Array,
    a: Array,
    b: Array,
    out: Array,
    hold: Limits | None = None,
    plus: Array | None = None,
    own: bool = False,
) -> bool:
    """out = x * a + b (+ plus), held between two numbers if they are given, which may be where x
    is, or what is added; whether oneDNN makes it. `own`: a and b were made of x's own moments.
    """
    sizes = _sizes_of(x, a, b, out, hold, plus, own)
    if sizes is None:
        return False
    team = together(x.size >= SHARED)
    runs = _runs(sizes, True, False, hold, team, plus is not None)
    at = apart(sizes[1], x, a, b, out, plus)
    if runs is None or at is None:
        return False
    runs.make(at, team)
    return True


def calls(
    x: Array,
    a: Array,
    b: Array,
    out: Array,
    hold: Limits | None = None,
    plus: Array | None = None,
    own: bool = False,
) -> list[Call]:
    """What `scaled` does, as calls of C that are still to be made, on this thread alone; none where
    oneDNN does not."""
    sizes = _sizes_of(x, a, b, out, hold, plus, own)
    if sizes is None:
        return []
    runs = _runs(sizes, True, False, hold, 1, plus is not None)
    at = apart(sizes[1], x, a, b, out, plus)
    return [] if runs is None or at is None else runs.calls(at)


def blended(g: Array, x: Array, out: Array, a: Array, *rest: Array) -> bool:
    """out = (x * b + c) + g * a, of which the `rest` are b and c, or g * a without any; it may be
    where g is. Whether oneDNN makes it."""
    sizes = _sizes(x, (a, *rest), g, out)
    if sizes is None:
        return False
    team = together(x.size >= SHARED)
    first = _runs(sizes, False, False, None, team)
    second = _runs(sizes, True, True, None, team)
    if first is None or second is None:
        return False
    of_g, of_x, at, at_a, *more = shaping.addresses(g, x, out, a, *rest)
    first.make((of_g, at_a, at), team)
    if more:
        second.make((of_x, more[0], at, more[1]), team)
    return True


def _sizes_of(
    x: Array, a: Array, b: Array, out: Array, hold: Limits | None, plus: Array | None, own: bool
) -> tuple[int, int, int] | None:
    """As `_sizes`. What holds loses NaN and the sign of 0: so a and b must be finite then, b not 0,
    and images finite, which is looked for. Of its `own` moments they are not where x is not."""
    sizes = _sizes(x, (a, b), out) if plus is None else _sizes(x, (a, b), out, plus)
    if sizes is None or hold is None:
        return sizes
    if not _plain(a, b):
        return None
    rows = sizes[0] * sizes[1]
    if not own and not _finite(x.reshape(rows, -1)):
        return None
    return sizes if plus is None or _finite(plus.reshape(rows, -1)) else None


def apart(
    channels: int, x: Array, a: Array, b: Array, out: Array, plus: Array | None
) -> list[int] | None:
    """Where they are; None if `out` shares memory with one of the others, but is not an image where
    it is, element for element."""
    at = shaping.addresses(x, a, out, b) if plus is None else shaping.addresses(x, a, out, b, plus)
    low, nbytes = at[2], out.nbytes
    for images in at[::4]:
        if images != low and -nbytes < images - low < nbytes:
            return None
    most = channels * _TYPE.itemsize
    for numbers in at[1:4:2]:
        if -most < numbers - low < nbytes:
            return None
    return at


def _sizes(x: Array, numbers: tuple[Array, ...], *others: Array) -> tuple[int, int, int] | None:
    """Images, channels, places, if all lie so that oneDNN can be told about them."""
    shape = x.shape
    if x.size < LEAST or not takes(x.dtype) or not x.flags.c_contiguous:
        return None
    for array in others:
        if array.dtype != _TYPE or array.shape != shape or not array.flags.c_contiguous:
            return None
    lie: Lie = ()
    for number in numbers:
        if number.dtype != _TYPE:
            return None
        lie = *lie, number.shape, number.strides
    return sizes_by(shape, lie)


@lru_cache(1024)
def sizes_by(shape: tuple[int, ...], lie: Lie) -> tuple[int, int, int] | None:
    """The same, of images of this shape and the shapes and strides of numbers."""
    dims = {_dim_of(*each) for each in zip(lie[::2], lie[1::2], strict=True)}
    dim = dims.pop()
    if dims or dim is None:
        return None
    if not dim:
        return 1, 1, math.prod(shape)
    places = math.prod(shape[dim:]) // shape[dim]
    return (math.prod(shape[:dim]), shape[dim], places) if places > 1 else None


def _dim_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The dim, from the last (-1) on, along which there are several numbers, one
    after the other; 0 where there is one, None where they lie otherwise."""
    found = 0
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size > 1 and stride:
            if found or stride != _TYPE.itemsize:
                return None
            found = dim - len(shape)
    return found


def _plain(a: Array, b: Array) -> bool:
    """Whether all are finite, and the latter not 0."""
    a, b = a[once(a.strides)], b[once(b.strides)]
    return math.isfinite(bare.vdot(a, a) + bare.vdot(b, b)) and bare.count_nonzero(b) == b.size


@lru_cache(256)
def once(strides: tuple[int, ...]) -> tuple[slice, ...]:
    """The index that gives each number once."""
    return tuple([slice(None if step else 1) for step in strides])


def _finite(rows: Array) -> bool:
    """Whether all are, by their sum (which may be too large, and then NumPy's way is taken)."""
    return math.isfinite(row_sums(rows).sum())


@lru_cache(256)
def _runs(
    sizes: tuple[int, int, int],
    add: bool,
    total: bool,
    hold: Limits | None,
    team: int,
    plus: bool = False,
) -> Runs | None:
    _, channels, places = sizes
    images = onednn.layout(sizes, (channels * places, places, 1))
    beside = onednn.layout((1, channels, 1), (channels, 1, 1))
    if team > 1:  # now: what is made when a team rests would be memory that comes late
        _runs(sizes, add, total, hold, 1, plus)
    try:
        with onednn.team(team):
            added = [beside] * add + [images] * plus
            then: list[onednn.After] = [(onednn.ADD, each) for each in added]
            then += [(onednn.TOTAL, None)] * total
            then += [] if hold is None else [(onednn.HELD, hold)]
            primitive = onednn.binary(onednn.MULTIPLY, images, beside, then)
    except onednn.Unsupported:
        return None
    if onednn.REFERENCE in primitive.name:
        return None
    layouts = {onednn.FROM: images, onednn.BESIDE: beside, onednn.TO: images}
    return Runs(primitive, layouts | dict(zip(onednn.ADDED, added, strict=False)))
