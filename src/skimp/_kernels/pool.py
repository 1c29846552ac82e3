"""Windows over arrays, their sums and columns: outputs are made of what windows show, one tap of
all windows at a time.

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

from skimp._kernels import bare, pool_onednn
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_UNIT: Final = 1 << 19  # elements of the planes worked on at once: of fewer, the calls show
_LEAST_UNIT: Final = 1 << 16  # the same where threads would else have too few to share
_BRIEF: Final = 1 << 14  # elements of which a copy costs less than a call for each tap


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

    @cached_property
    def seen(self) -> list[tuple[Any, ...]]:
        """For each tap, the elements of the padded plane that it shows of all windows."""
        return [(..., *self._steps(tap)) for tap in self.taps]

    @cached_property
    def number(self) -> np.dtype[Any]:
        """The smallest type that numbers the taps of a window."""
        return np.min_scalar_type(len(self.taps) + 1)

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


def each_few(w: Pool, x: Array, fn: Callable[[slice], None]) -> None:
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


def padded_planes(x: Array, w: Pool, value: Any) -> Array:
    """The planes with `value` around them, or as they are where no window reaches outside."""
    if w.padded == w.size:
        return x
    made = w.filled(x, value, x.dtype)
    made[w.inner] = x
    return made


# -- sums -----------------------------------------------------------------------------------------


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
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
        wide = sum_dtype(out.dtype)
        source = padded_planes(x[planes], w, 0)
        first, *others = w.seen
        found = source[first] + wide.type(0)  # of -0 alone the sum is 0
        for seen in others:
            found += source[seen]
        if wide.kind in "iu":
            out[planes] = np.trunc(found / divisor)
        else:
            out[planes] = found / divisor.astype(wide)

    each_few(w, x, fn)


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
        (*w.kernel, len(x), *w.out), x.dtype, padded_planes(x, w, 0), 0, (*taps, pitch, *places)
    )
    rows = np.ascontiguousarray(shown.reshape(len(w.taps), -1))
    found = np.add.reduce(rows, 0)
    found += 0  # of -0 alone the sum is 0
    np.divide(found.reshape(out.shape), divisor.astype(out.dtype), out=out)


def total_spread(g: Array, out: Array, divisor: Array, w: Pool) -> None:
    """The adjoint of `total`: each element's sum of g / divisor over the windows that show it."""

    def fn(planes: slice) -> None:
        wide = sum_dtype(out.dtype)
        each = g[planes] / divisor.astype(wide)
        if w.apart:
            each += wide.type(0)  # of -0 alone the sum is 0
            if not w.covers:
                out[planes] = 0
            for seen in w.seen:
                out[planes][seen] = each
            return
        made = w.filled(out[planes], 0, wide)
        for seen in w.seen:
            made[seen] += each
        out[planes] = made[w.inner]

    each_few(w, g, fn)


# -- columns --------------------------------------------------------------------------------------


def columns(x: Array, out: Array, w: Pool) -> None:
    """out (planes, taps, *places) = what each tap of all windows shows."""

    def fn(planes: slice) -> None:
        source = padded_planes(x[planes], w, 0)
        for number, seen in enumerate(w.seen):
            out[planes, number] = source[seen]

    each_few(w, x, fn)


def columns_back(columns: Array, out: Array, w: Pool) -> None:
    """out = the sum of what every window has for an element: the adjoint of `columns`."""

    def fn(planes: slice) -> None:
        made = w.filled(out[planes], 0, sum_dtype(out.dtype))
        for number, seen in enumerate(w.seen):
            made[seen] += columns[planes, number]
        out[planes] = made[w.inner]

    each_few(w, out, fn)


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
