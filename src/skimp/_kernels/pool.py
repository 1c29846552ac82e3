"""Pooling of arrays: outputs are made of what windows show, one tap of all windows at a time.

Arrays are planes (p, *size), or images (n, channels, *size) that lie channels last. A few are
worked on at once, so that what is read again stays in the cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, pool_onednn, scratch
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_UNIT: Final = 1 << 19  # elements of the planes worked on at once: of fewer, the calls show
_LEAST_UNIT: Final = 1 << 16  # the same where threads would else have too few to share
_BRIEF: Final = 1 << 14  # elements of which a copy costs less than a call for each tap
_WINDOWS: Final = 1 << 15  # windows whose maxima are found at once, with their taps
_PLACES: Final = 1 << 16  # windows whose places are written out at once


@dataclass(frozen=True)
class Pool:
    """Where windows lie: the sizes of planes, windows and results, and their steps."""

    size: Ints
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    out: Ints

    @cached_property
    def taps(self) -> list[Ints]:
        return list(itertools.product(*[range(k) for k in self.kernel]))

    @cached_property
    def padded(self) -> Ints:
        """The sizes of a plane that every window fits in."""
        return tuple(
            [
                max(p + n, (o - 1) * s + (k - 1) * d + 1)
                for n, k, s, p, d, o in zip(
                    self.size,
                    self.kernel,
                    self.stride,
                    self.padding,
                    self.dilation,
                    self.out,
                    strict=True,
                )
            ]
        )

    @cached_property
    def inner(self) -> tuple[Any, ...]:
        """Where the plane lies within the padded one."""
        return (..., *[slice(p, p + n) for p, n in zip(self.padding, self.size, strict=True)])

    @cached_property
    def apart(self) -> bool:
        """Whether no element is in two windows, nor any window outside the plane."""
        return (
            self.padded == self.size
            and not any(self.padding)
            and all(d == 1 for d in self.dilation)
            and all(k <= s for k, s in zip(self.kernel, self.stride, strict=True))
        )

    @cached_property
    def covers(self) -> bool:
        """Whether every element of the plane is in a window, where they are apart."""
        return self.kernel == self.stride and all(
            n == o * s for n, o, s in zip(self.size, self.out, self.stride, strict=True)
        )

    def steps_of(self, itemsize: int) -> tuple[Ints, int, Ints]:
        """How far apart taps, planes and windows are, in bytes of padded planes in a row."""
        found = self._steps_of.get(itemsize)
        if found is None:
            pitches = [math.prod(self.padded[d:]) * itemsize for d in range(len(self.size) + 1)]
            taps = tuple([p * d for p, d in zip(pitches[1:], self.dilation, strict=True)])
            places = tuple([p * s for p, s in zip(pitches[1:], self.stride, strict=True)])
            found = self._steps_of[itemsize] = taps, pitches[0], places
        return found

    @cached_property
    def _steps_of(self) -> dict[int, tuple[Ints, int, Ints]]:
        return {}

    @cached_property
    def divisors_of(self) -> dict[tuple[bool, int | None], Array]:
        """What `divisors` has found."""
        return {}

    def seen(self, tap: Ints) -> tuple[Any, ...]:
        """The elements of the padded plane that this tap of all windows shows."""
        return self._seen[tap]

    @cached_property
    def _seen(self) -> dict[Ints, tuple[Any, ...]]:
        return {tap: (..., *self._steps(tap)) for tap in self.taps}

    def lies(self, pitches: Ints) -> tuple[Array, list[Array]]:
        """Where each tap lies behind the corner of its window, and corners in their plane, whose
        dims are so far apart: by dims, of which they are the sums, or few of them as they are."""
        found = self._lies.get(pitches)
        if found is None:
            taps = [
                sum([t * d * p for t, d, p in zip(tap, self.dilation, pitches, strict=True)])
                for tap in self.taps
            ]
            corners: list[Array] = []
            for o, s, p, pitch in zip(self.out, self.stride, self.padding, pitches, strict=True):
                along = (np.arange(o) * s - p) * pitch
                corners = [*[each[..., None] for each in corners], along]
            if math.prod(self.out) <= _BRIEF:
                corners = [sum(corners[1:], start=corners[0])]
            found = self._lies[pitches] = np.array(taps, np.int64), corners
        return found

    @cached_property
    def _lies(self) -> dict[Ints, tuple[Array, list[Array]]]:
        return {}

    @cached_property
    def outside(self) -> Array | None:
        """For each window, whether no tap shows an element of the plane, as of dilated ones that
        lie around it; None where there is none."""
        if all([d == 1 for d in self.dilation]):
            return None
        found = np.ones((), bool)
        for o, s, p, d, k, n in zip(
            self.out, self.stride, self.padding, self.dilation, self.kernel, self.size, strict=True
        ):
            at = np.arange(o)[:, None] * s - p + np.arange(k) * d
            found = found[..., None] & ((at >= 0) & (at < n)).any(1)
        return None if found.all() else ~found

    @cached_property
    def first(self) -> Array:
        """For each window the first tap that does not lie before the plane, in any dim."""
        found = np.zeros((), np.int64)
        for o, s, p, d, k in zip(
            self.out, self.stride, self.padding, self.dilation, self.kernel, strict=True
        ):
            before = np.maximum(p - np.arange(o) * s, 0)
            found = found[..., None] * k + np.minimum(-(-before // d), k - 1)
        return found

    def around(self, x: Array) -> Ints:
        """The shape of `x` with padded planes."""
        return (*x.shape[: x.ndim - len(self.size)], *self.padded)

    def filled(self, x: Array, value: Any, dtype: np.dtype[Any]) -> Array:
        """Padded planes that lie as those of `x`, full of a value."""
        made = bare.empty_like(x, dtype, shape=self.around(x))
        made[...] = value
        return made

    def _steps(self, tap: Ints) -> list[slice]:
        return [
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, self.dilation, self.out, self.stride, strict=True)
        ]

    def inside(self, tap: Ints) -> Array:
        """For each window, whether this tap shows an element of the plane and not of its
        padding."""
        found = np.ones((), bool)
        for t, d, o, s, p, n in zip(
            tap, self.dilation, self.out, self.stride, self.padding, self.size, strict=True
        ):
            at = np.arange(o) * s + t * d - p
            found = found[..., None] & ((at >= 0) & (at < n))
        return found


def out_sizes(
    size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Ints:
    """How many windows there are; with `ceil` the last may reach outside, if it begins inside."""
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        left = n + 2 * p - d * (k - 1) - 1
        count = (left + (s - 1 if ceil else 0)) // s + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        found.append(count)
    return tuple(found)


def tap_dtype(w: Pool) -> np.dtype[Any]:
    """The smallest type that numbers the taps of a window."""
    return np.min_scalar_type(len(w.taps) + 1)


def _each(w: Pool, x: Array, fn: Callable[[slice], None]) -> None:
    """fn(planes) for a few planes, or images, at a time, on the threads."""
    planes, each = len(x), math.prod(w.around(x)[1:])
    if planes * each <= _LEAST_UNIT:
        quietly(fn, slice(0, planes))
        return
    threads = config.sharers(planes * each)
    unit = min(_UNIT, max(_LEAST_UNIT, planes * each // (2 * threads)))
    step = max(1, unit // max(1, each))
    starts = iter(range(0, planes, step))  # shared by the threads: next() is atomic

    def work() -> None:
        for start in starts:
            fn(slice(start, start + step))

    share(work, threads)


def _around(x: Array, w: Pool, value: Any) -> Array:
    """The planes with `value` around them, or as they are where no window reaches outside."""
    if w.padded == w.size:
        return x
    made = w.filled(x, value, x.dtype)
    made[w.inner] = x
    return made


def lowest(dtype: np.dtype[Any]) -> Any:
    """What is below everything else of a type."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


# -- maxima ---------------------------------------------------------------------------------------


def maximum(x: Array, out: Array, taps: Array | None, w: Pool) -> None:
    """out = the largest element of each window; taps = which tap it is (the first of equals; the
    last nan)."""
    _each(
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
    source = _around(x, w, lowest(x.dtype))
    best[...] = source[w.seen(w.taps[0])]
    for tap in w.taps[1:]:
        np.maximum(best, source[w.seen(tap)], out=best)


def _maximum_and_tap(x: Array, best: Array, taps: Array, w: Pool) -> None:
    """What a tap shows is read twice, so it is laid out in the order of the results first: of a few
    rows of windows at once, or of one where there is no room for more."""
    source = _around(x, w, lowest(x.dtype))
    dim = best.ndim - len(w.size)
    row = best.size // best.shape[dim]
    kinds = best.dtype, np.dtype(bool), taps.dtype
    wanted = min(best.size, max(_WINDOWS, row))
    rooms = scratch.spares([(wanted, kind) for kind in kinds])
    if rooms is None:
        rooms = [scratch.take(row, kind) for kind in kinds]
    shown = [source[w.seen(tap)] for tap in w.taps]
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
    one, two, three, four = (x[w.seen(tap)].copy() for tap in w.taps)
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
    for number, tap in enumerate(w.taps):
        x = source[w.seen(tap)]
        better = ((x > best) | (x != x) | ~started) & w.inside(tap)
        bare.copyto(best, x, where=better)
        bare.copyto(taps, number, where=better)
        started |= better


def spread(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """out = each element's sum of g over the windows whose tap shows it: the adjoint of
    `picked`."""

    if w.apart:
        _each(w, g, lambda planes: _spread_apart(g[planes], taps[planes], out[planes], w))
        return

    count = max(1, _PLACES * len(g) // max(1, g.size))

    def fn(planes: slice) -> None:
        for start in range(planes.start, min(planes.stop, len(g)), count):
            some = slice(start, min(start + count, planes.stop))
            _add_at_taps(g[some], taps[some], out[some], w)

    _each(w, g, fn)


def _add_at_taps(g: Array, taps: Array, out: Array, w: Pool) -> None:
    """Each window's g is added where its tap lies, one window after the other: a few rows of them
    at once."""
    wide = _sum_dtype(out.dtype)
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
    kind = np.dtype(f"i{g.itemsize}")  # bits times one are themselves, nan and all
    bits, into = g.view(kind), out.view(kind)
    for number, tap in enumerate(w.taps):
        np.multiply(bits, (taps == number).view(np.uint8), out=into[w.seen(tap)])


def picked(x: Array, taps: Array, out: Array, w: Pool) -> None:
    """out = what the tap of each window shows of x."""

    def fn(planes: slice) -> None:
        source = _around(x[planes], w, 0)
        for number, tap in enumerate(w.taps):
            bare.copyto(out[planes], source[w.seen(tap)], where=taps[planes] == number)

    _each(w, x, fn)


def positions(taps: Array, out: Array, w: Pool) -> None:
    """out = taps as positions in the flattened plane (int64)."""
    offset, corners = w.lies(tuple([math.prod(w.size[d + 1 :]) for d in range(len(w.size))]))
    np.take(offset, taps, out=out, mode="clip")  # with "raise" it would write a copy first
    for corner in corners:
        out += corner


# -- sums -----------------------------------------------------------------------------------------


def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def total(x: Array, out: Array, divisor: Array, w: Pool) -> None:
    """out = the sum of each window over its divisor."""
    inside = w.padded == w.size and all([d == 1 for d in w.dilation])
    if inside and pool_onednn.average(x, out, divisor, w.kernel, w.stride):
        return

    if is_brief(x, out, w):
        quietly(total_of_rows, x, out, divisor, w)
        return

    def fn(planes: slice) -> None:
        wide = _sum_dtype(out.dtype)
        source = _around(x[planes], w, 0)
        found = source[w.seen(w.taps[0])] + wide.type(0)  # of -0 alone the sum is 0
        for tap in w.taps[1:]:
            found += source[w.seen(tap)]
        if wide.kind in "iu":
            out[planes] = np.trunc(found / divisor)
        else:
            out[planes] = found / divisor.astype(wide)

    _each(w, x, fn)


def is_brief(x: Array, out: Array, w: Pool) -> bool:
    """Whether planes are row-major, summed in their own type, and what windows show is little."""
    return (
        1 < out.size <= _BRIEF // len(w.taps)
        and x.dtype is out.dtype
        and x.dtype.char in "fd"
        and x.flags.c_contiguous
        and out.flags.c_contiguous
    )


def total_of_rows(x: Array, out: Array, divisor: Array, w: Pool) -> None:
    """`total` of few elements: a copy whose rows are the taps, which NumPy adds one after the other
    (and not where each window's lie next to each other).
    """
    taps, pitch, places = w.steps_of(x.itemsize)
    shown = np.ndarray(
        (*w.kernel, len(x), *w.out), x.dtype, _around(x, w, 0), 0, (*taps, pitch, *places)
    )
    rows = np.ascontiguousarray(shown.reshape(len(w.taps), -1))
    found = np.add.reduce(rows, 0)
    found += 0  # of -0 alone the sum is 0
    np.divide(found.reshape(out.shape), divisor.astype(out.dtype), out=out)


def total_spread(g: Array, out: Array, divisor: Array, w: Pool) -> None:
    """The adjoint of `total`: each element's sum of g / divisor over the windows that show it."""

    def fn(planes: slice) -> None:
        wide = _sum_dtype(out.dtype)
        each = g[planes] / divisor.astype(wide)
        if w.apart:
            each += wide.type(0)  # of -0 alone the sum is 0
            if not w.covers:
                out[planes] = 0
            for tap in w.taps:
                out[planes][w.seen(tap)] = each
            return
        made = w.filled(out[planes], 0, wide)
        for tap in w.taps:
            made[w.seen(tap)] += each
        out[planes] = made[w.inner]

    _each(w, g, fn)


# -- columns --------------------------------------------------------------------------------------


def columns(x: Array, out: Array, w: Pool) -> None:
    """out (planes, taps, *places) = what each tap of all windows shows."""

    def fn(planes: slice) -> None:
        source = _around(x[planes], w, 0)
        for number, tap in enumerate(w.taps):
            out[planes, number] = source[w.seen(tap)]

    _each(w, x, fn)


def columns_back(columns: Array, out: Array, w: Pool) -> None:
    """out = the sum of what every window has for an element: the adjoint of `columns`."""

    def fn(planes: slice) -> None:
        made = w.filled(out[planes], 0, _sum_dtype(out.dtype))
        for number, tap in enumerate(w.taps):
            made[w.seen(tap)] += columns[planes, number]
        out[planes] = made[w.inner]

    _each(w, out, fn)


def divisors(w: Pool, include_padding: bool, override: int | None) -> Array:
    """What the sum of each window is divided by: one number where that is the same for all."""
    asked = include_padding, override
    found = w.divisors_of.get(asked)
    if found is None:
        found = w.divisors_of[asked] = _divisors(w, *asked)
    return found


def _divisors(w: Pool, include_padding: bool, override: int | None) -> Array:
    if override:
        return np.array(float(override))
    steps = zip(w.size, w.kernel, w.stride, w.padding, w.out, strict=True)
    if all([p == 0 and (o - 1) * s + k <= n for n, k, s, p, o in steps]):
        return np.array(float(math.prod(w.kernel)))
    found = np.ones(())
    for n, k, s, p, o in zip(w.size, w.kernel, w.stride, w.padding, w.out, strict=True):
        start = np.arange(o) * s - p
        stop = np.minimum(start + k, n + p)
        if not include_padding:
            start, stop = np.maximum(start, 0), np.minimum(stop, n)
        found = found[..., None] * (stop - start)
    return found
