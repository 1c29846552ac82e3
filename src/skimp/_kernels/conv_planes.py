"""Convolution of each channel with a kernel of its own (depthwise), as sums of planes.

A product of matrices would have one row for each channel, and im2col holds each element once
for every tap, to be multiplied once. Instead a channel's places are laid out with their padding, so
that what one tap sees of all of them is one run of memory; einsum multiplies the runs of the first
dim's taps and adds them up in one pass, and these sums are added for the taps of the other dims.
What lies between the end of a row and the beginning of the next is computed as well, and left out.

With larger steps, elements that are equally far from a step lie together: what a tap sees is a run
again. Scratch memory is bounded; `suits` refuses larger planes, and those of one dim, whose taps
all are added one by one.

Shapes: x (n, channels, *size), weight (channels, *kernel), g (n, channels, *out).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels.bare import einsum
from skimp._kernels.blas import spread
from skimp._kernels.im2col import LANES, SCRATCH, Ints, Window
from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]

_BLOCK: Final = 1 << 17  # elements of the planes that are worked on together, about
_RUN: Final = 1 << 11  # elements of a run that stay in the L1 cache
_LONG: Final = 1 << 19  # multiplications of a call, 100 us, below which threads wait for each other
_SLOW: Final = 20  # times as long as one of BLAS's takes one of these


def suits(w: Window, x: Array, channels: int, *others: Array | None) -> bool:
    """Whether x (n, groups, 1, *size) has groups of one channel, each with as many `channels` of
    the result, and all are of one full type. That follows from shapes and types alone."""
    kind = x.dtype.char
    return (
        x.shape[1] > 1 == x.shape[2] == channels
        and kind in "fd"
        and len(w.size) > 1 < w.taps
        and all([a is None or (a.dtype.char == kind and a.size > 0) for a in others])
        and _layout(w).length <= SCRATCH
    )


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> None:
    """out = x * weight + bias (channels,)."""
    layout = _layout(w)
    todo = _blocks(layout, *x.shape[:2])
    items = iter(todo)  # shared by the threads: next() is atomic

    def work() -> None:
        room = _Room(layout, todo[0], x.dtype)
        sums, products = room.places(), room.places()
        for block in items:
            room.fill(x[block.images, block.channels])
            total, part = room.runs(sums, block), room.runs(products, block)
            for number, tap in enumerate(layout.taps):
                which: Any = (block.channels, tap.first, *tap.others)
                seen = room.seen(tap, block)
                einsum("cr,crl->cl", weight[which], seen, out=part if number else total)
                if number:
                    np.add(total, part, out=total)
            found = room.inner(sums, block)
            target = out[block.images, block.channels]
            if bias is None:
                target[...] = found
            else:
                np.add(found, bias[block.channels].reshape(-1, *[1] * len(w.out)), out=target)
        room.close()

    _share(work, len(todo), todo[0], layout, out.size * w.taps)


def weights(g: Array, x: Array, out: Array, w: Window, bias: Array | None) -> bool:
    """out (channels, *kernel): for each tap, the sum of g times what the tap saw; bias (channels,):
    the sum of g. False if they are of no use: between rows, zeros are multiplied with what is not
    finite."""
    layout = _layout(w)
    todo = _blocks(layout, *x.shape[:2])
    totals = np.zeros((min(LANES, len(todo)), *out.shape), out.dtype)
    sums = np.zeros((len(totals), len(out)), out.dtype)
    lanes = iter(range(len(totals)))  # every so many-th block, whoever works on it

    def work() -> None:
        room = _Room(layout, todo[0], x.dtype)
        places = room.places()
        places[...] = 0
        for lane in lanes:
            for block in todo[lane :: len(totals)]:
                room.fill(x[block.images, block.channels])
                room.inner(places, block)[...] = g[block.images, block.channels]
                runs = room.runs(places, block)
                for tap in layout.taps:
                    found = einsum("cl,crl->cr", runs, room.seen(tap, block))
                    which: Any = (lane, block.channels, tap.first, *tap.others)
                    totals[which] += found
                sums[lane, block.channels] += einsum("cl->c", runs)
        room.close()

    _share(work, len(totals), todo[0], layout, g.size * w.taps)
    np.add.reduce(totals, axis=0, out=out)
    if bias is not None:
        np.add.reduce(sums, axis=0, out=bias)
    return bool(np.isfinite(out).all())


def _share(
    work: Callable[[], object], items: int, block: _Block, layout: _Layout, multiplications: int
) -> None:
    """Run `work` on several threads where its calls are long."""
    call = math.prod(block.shape) * layout.plane * layout.taps[0].many
    spread(work, items if call >= _LONG else 1, _SLOW * multiplications)


class _Tap(NamedTuple):
    """Taps of the first dim whose runs are equally far apart, with one of each other dim."""

    first: slice
    others: Ints
    phase: int  # how far from a step they are, as a number
    start: int  # of the first run in a plane
    apart: int
    many: int


class _Layout:
    """How a channel's places lie: (*steps, images, *size), all elements that are equally far from a
    step together."""

    def __init__(self, w: Window) -> None:
        self.w = w
        self.size = tuple(
            [o - 1 + -(-r // t) for o, r, t in zip(w.out, w.reach, w.stride, strict=True)]
        )
        self.plane = math.prod(self.size)
        self.length = math.prod(w.stride) * self.plane
        self._pitch = [math.prod(self.size[dim + 1 :]) for dim in range(len(self.size))]
        self.run = 1 + sum([(o - 1) * p for o, p in zip(w.out, self._pitch, strict=True)])
        self.taps = list(self._taps())
        phases = itertools.product(*[range(t) for t in w.stride])
        self.parts = [part for phase in phases if (part := _part(phase, self)) is not None]

    def _taps(self) -> Iterator[_Tap]:
        w = self.w
        step, dilation, kernel = w.stride[0], w.dilation[0], w.kernel[0]
        every = step // math.gcd(step, dilation)  # as many taps on, one is as far from a step
        for others in np.ndindex(*w.kernel[1:]):
            for first in range(min(every, kernel)):
                yield _Tap(
                    slice(first, None, every),
                    others,
                    *self._begin((first, *others)),
                    every * dilation // step * self._pitch[0],
                    len(range(first, kernel, every)),
                )

    def _begin(self, tap: Ints) -> tuple[int, int]:
        """A tap's phase, and where its run begins."""
        phase = start = 0
        for i, d, t, p in zip(tap, self.w.dilation, self.w.stride, self._pitch, strict=True):
            phase = phase * t + i * d % t
            start += i * d // t * p
        return phase, start


@lru_cache(256)
def _layout(w: Window) -> _Layout:
    return _Layout(w)


class _Block(NamedTuple):
    """Some images' channels."""

    images: slice
    channels: slice

    @property
    def shape(self) -> tuple[int, int]:
        """How many: (channels, images)."""
        return self.channels.stop - self.channels.start, self.images.stop - self.images.start


def _blocks(layout: _Layout, n: int, channels: int) -> list[_Block]:
    images = min(n, max(1, _RUN // layout.length))
    many = min(channels, max(1, _BLOCK // (layout.length * images)))
    return [
        _Block(slice(i, min(i + images, n)), slice(j, min(j + many, channels)))
        for i in range(0, n, images)
        for j in range(0, channels, many)
    ]


class _Room:
    """Scratch memory of a thread for blocks up to the first one's size."""

    def __init__(self, layout: _Layout, block: _Block, dtype: np.dtype[Any]) -> None:
        self._layout = layout
        self._count = block.shape
        self._flat = take(math.prod(self._count) * layout.length, dtype)
        self._flat[...] = 0  # of which the padding stays
        self._taken = [self._flat]
        w, images = layout.w, self._count[1]
        planes = self._flat.reshape(-1, *w.stride, images, *layout.size)
        last = planes.ndim
        self._planes = planes.transpose(
            (len(w.stride) + 1, 0, *range(1, len(w.stride) + 1), *range(len(w.stride) + 2, last))
        )

    def places(self) -> Array:
        """Room for results, (channels, images, *size)."""
        flat = take(math.prod(self._count) * self._layout.plane, self._flat.dtype)
        self._taken.append(flat)
        return flat.reshape(*self._count, *self._layout.size)

    def fill(self, x: Array) -> None:
        """Lay out x (n, channels, *size)."""
        planes = self._planes[: len(x), : x.shape[1]]
        for into, seen in self._layout.parts:
            planes[into] = x[seen]

    def seen(self, tap: _Tap, block: _Block) -> Array:
        """What these taps see: (channels, taps, run)."""
        layout, item = self._layout, self._flat.itemsize
        channels, images = block.shape
        start = tap.phase * self._count[1] * layout.plane + tap.start
        shape = (channels, tap.many, (images - 1) * layout.plane + layout.run)
        along = (self._count[1] * layout.length * item, tap.apart * item, item)
        return np.ndarray(shape, self._flat.dtype, self._flat, start * item, along)

    def runs(self, places: Array, block: _Block) -> Array:
        """Results as runs: (channels, run)."""
        channels, images = block.shape
        run = (images - 1) * self._layout.plane + self._layout.run
        return places.reshape(len(places), -1)[:channels, :run]

    def inner(self, places: Array, block: _Block) -> Array:
        """Those results that are wanted: (images, channels, *out)."""
        channels, images = block.shape
        cut: Any = (slice(channels), slice(images), *[slice(o) for o in self._layout.w.out])
        return np.swapaxes(places[cut], 0, 1)

    def close(self) -> None:
        for flat in self._taken:
            give(flat)


def _part(phase: Ints, layout: _Layout) -> tuple[Any, Any] | None:
    """Where the input's elements go that are so far from a step, and which those are; None if there
    are none."""
    into: list[slice] = []
    seen: list[slice] = []
    w = layout.w
    for number, step, padding, size, length in zip(
        phase, w.stride, w.padding, w.size, layout.size, strict=True
    ):
        low = max(0, -(-(padding - number) // step))
        first = low * step + number - padding
        high = min(length, low + len(range(first, size, step)))
        if high <= low:
            return None
        into.append(slice(low, high))
        seen.append(slice(first, first + (high - low - 1) * step + 1, step))
    every = (slice(None), slice(None))
    return (*every, *phase, *into), (*every, *seen)
