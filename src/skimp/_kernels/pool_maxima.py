"""Maxima of windows, and what goes back to the elements that they are of."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, compiled, scratch
from skimp._kernels.pool import Pool, each_few, padded_planes, sum_dtype

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_WINDOWS: Final = 1 << 15  # windows whose maxima are found at once, with their taps
_PLACES: Final = 1 << 16  # windows whose places are written out at once
_BRIEF: Final = 1 << 13  # of which arrays of their own cost less than scratch memory
_PLANES: Final = 3  # dims of several planes
_FLAGS: Final = np.dtype(bool)


def lowest(dtype: np.dtype[Any]) -> Any:
    """What is below everything else of a type."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def maximum(x: Array, out: Array, taps: Array | None, w: Pool) -> None:
    """out = the largest element of each window; taps = which tap it is (the first of equals; the
    last nan)."""
    each_few(
        w,
        x,
        lambda planes: maximum_of_planes(
            x[planes], out[planes], None if taps is None else taps[planes], w
        ),
    )


def maximum_of_planes(x: Array, best: Array, taps: Array | None, w: Pool) -> None:
    """The same for a few planes, on this thread."""
    if w.apart and w.kernel == (2, 2) and taps is not None:
        _maximum_of_four(x, best, taps, w)
        return
    if taps is not None:
        step = max(1, _WINDOWS * len(x) // max(1, best.size))
        for start in range(0, len(x), step):
            some = slice(start, start + step)
            _maximum_and_tap(x[some], best[some], taps[some], w)
        return
    source = padded_planes(x, w, lowest(x.dtype))
    first, *others = w.seen
    best[...] = source[first]
    for seen in others:
        np.maximum(best, source[seen], out=best)


def _maximum_and_tap(x: Array, best: Array, taps: Array, w: Pool) -> None:
    """What a tap shows is read twice, so it is laid out in the order of the results first: of a few
    rows of windows at once, or of one where there is no room for more."""
    source = padded_planes(x, w, lowest(x.dtype))
    shown = [source[seen] for seen in w.seen]
    kinds = best.dtype, _FLAGS, taps.dtype
    if best.size <= _BRIEF:
        laid = [bare.empty_like(best, kind) for kind in kinds]
        _find(shown, best, taps, *laid)
        if _is_odd(best, w, laid[1]):
            _find_carefully(source, taps, w)
        return
    dim = best.ndim - len(w.size)
    row = best.size // best.shape[dim]
    wanted = min(best.size, max(_WINDOWS, row))
    rooms = scratch.spares([(wanted, kind) for kind in kinds])
    if rooms is None:
        rooms = [scratch.take(row, kind) for kind in kinds]
    plain, step = True, len(rooms[0]) // row
    for start in range(0, best.shape[dim], step):
        some = (*(slice(None),) * dim, slice(start, start + step))
        part = best[some]
        laid = _lying(rooms, part)
        _find([each[some] for each in shown], part, taps[some], *laid)
        plain = plain and not _is_odd(part, w, laid[1])
    for room in rooms:
        scratch.give(room)
    if not plain:
        _find_carefully(source, taps, w)


def _lying(rooms: list[Array], a: Array) -> list[Array]:
    """The first elements of each in the shape of `a`, in whose order they lie."""
    if a.flags.c_contiguous:
        return [room[: a.size].reshape(a.shape) for room in rooms]
    order = sorted(range(a.ndim), key=lambda dim: -a.strides[dim])
    shape, back = [a.shape[dim] for dim in order], [order.index(dim) for dim in range(a.ndim)]
    return [room[: a.size].reshape(shape).transpose(back) for room in rooms]


def _maximum_of_four(x: Array, best: Array, taps: Array, w: Pool) -> None:
    """Windows of two by two that do not meet: the winners of two rows, then of these."""
    if (loops := _loops_of(x, best, taps, w)) is not None:
        loops.pooled(x, best, taps)
        return
    one, two, three, four = [x[seen].copy() for seen in w.seen]
    right_above, right_below = np.greater(two, one), np.greater(four, three)
    np.maximum(one, two, out=one)
    np.maximum(three, four, out=three)
    below = np.greater(three, one)
    np.maximum(one, three, out=best)
    if bare.count_nonzero(best != best):
        _find_carefully(x, taps, w)
        return
    right_below ^= right_above  # right = right_below where below, else right_above
    right_below &= below
    right_above ^= right_below
    rows = below.view(np.uint8)  # twice added: NumPy's shift of bytes takes ten times as long
    np.add(right_above.view(np.uint8), rows, out=taps)
    np.add(taps, rows, out=taps)


def _loops_of(planes: Array, windows: Array, taps: Array, w: Pool) -> Any:
    """The compiled module, for windows of two by two side by side; None of others."""
    if not w.apart or w.kernel != (2, 2) or w.stride != (2, 2) or planes.ndim != _PLANES:
        return None
    return compiled.taking(planes, windows) if taps.flags.c_contiguous else None


def _find(
    shown: list[Array], best: Array, taps: Array, each: Array, more: Array, number: Array
) -> None:
    """`each`, `more` and `number` are written to."""
    best[...] = shown[0]
    taps[...] = 0
    for at, seen in enumerate(shown[1:], 1):
        each[...] = seen
        np.greater(each, best, out=more)
        np.maximum(best, each, out=best)
        np.multiply(more, taps.dtype.type(at), out=number)
        np.maximum(taps, number, out=taps)  # the last that is above all before it


def _is_odd(best: Array, w: Pool, flags: Array) -> bool:
    """Whether there is nan, or padding looks like an element."""
    if bare.count_nonzero(np.not_equal(best, best, out=flags)):
        return True
    padded = w.padded != w.size
    return padded and bool(bare.count_nonzero(np.equal(best, lowest(best.dtype), out=flags)))


def _find_carefully(source: Array, taps: Array, w: Pool) -> None:
    """The same where there is nan, or where padding looks like an element."""
    best = np.full(taps.shape, lowest(source.dtype), source.dtype)
    started = np.zeros(taps.shape, bool)
    if w.outside is not None:
        taps[...] = w.first
    for number, (tap, seen) in enumerate(zip(w.taps, w.seen, strict=True)):
        x = source[seen]
        better = ((x > best) | (x != x) | ~started) & w.inside(tap)
        bare.copyto(best, x, where=better)
        bare.copyto(taps, number, where=better)
        started |= better


def spread(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """out = each element's sum of g over the windows whose tap shows it: the adjoint of
    `picked`."""
    each_few(w, g, lambda planes: spread_of_planes(g[planes], taps[planes], out[planes], w))


def spread_of_planes(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """The same for a few planes, on this thread."""
    if w.apart:
        _spread_apart(g, taps, out, w)
        return
    count = max(1, _PLACES * len(g) // max(1, g.size))
    for start in range(0, len(g), count):
        some = slice(start, start + count)
        _add_at_taps(g[some], taps[some], out[some], w)


def _add_at_taps(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """Each window's g is added where its tap lies, one window after the other: a few rows of them
    at once."""
    wide = sum_dtype(out.dtype)
    held = None if out.dtype == wide else scratch.take(out.size, wide)
    made = out if held is None else _lying([held], out)[0]
    made[...] = 0
    flat = made.ravel("K")
    pitches = tuple([step // made.itemsize for step in made.strides])
    dim = made.ndim - len(w.size)
    offset, corners = w.lies(pitches[dim:])
    ahead = [
        (np.arange(made.shape[d]) * pitches[d]).reshape(-1, *(1,) * (made.ndim - 1 - d))
        for d in range(dim)
    ]
    row = g.size // g.shape[dim]
    room = scratch.spare(min(g.size, max(_PLACES, row)), offset.dtype)
    if room is None:
        room = scratch.take(row, offset.dtype)
    step = len(room) // row
    for start in range(0, g.shape[dim], step):
        some = (*(slice(None),) * dim, slice(start, start + step))
        given = g[some].astype(wide, copy=False)
        at = room[: given.size].reshape(given.shape)
        offset.take(taps[some], out=at, mode="clip")  # with "raise" it would write a copy first
        for each in (*ahead, corners[0][start : start + step], *corners[1:]):
            at += each
        if w.outside is not None:
            outside = np.broadcast_to(w.outside[start : start + step], at.shape)
            at[outside] = 0
            given = np.where(outside, wide.type(0), given)
        np.add.at(flat, at.reshape(-1), given.reshape(-1))
    scratch.give(room)
    if held is not None:
        out[...] = made
        scratch.give(held)


def _spread_apart(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """Each element is in one window at most: what its tap won, or nothing, is written to it."""
    if not w.covers:
        out[...] = 0
    if (loops := _loops_of(out, g, taps, w)) is not None:
        loops.pooled_back(g, taps, out)
        return
    kind = np.dtype(f"i{g.itemsize}")  # bits times one are themselves, nan and all
    bits, into = g.view(kind), out.view(kind)
    for number, seen in enumerate(w.seen):
        np.multiply(bits, (taps == number).view(np.uint8), out=into[seen])


def picked(x: Array, taps: Array, out: Array, w: Pool) -> None:
    """out = what the tap of each window shows of x."""

    def fn(planes: slice) -> None:
        source = padded_planes(x[planes], w, 0)
        for number, seen in enumerate(w.seen):
            bare.copyto(out[planes], source[seen], where=taps[planes] == number)

    each_few(w, x, fn)


def positions(taps: Array, out: Array, w: Pool) -> None:
    """out = taps as positions in the flattened plane (int64)."""
    offset, corners = w.lies(tuple([math.prod(w.size[d + 1 :]) for d in range(len(w.size))]))
    np.take(offset, taps, out=out, mode="clip")  # with "raise" it would write a copy first
    for corner in corners:
        out += corner
