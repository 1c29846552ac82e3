"""Convolution by rows: only the taps along the inner dims are gathered, and BLAS adds up the rest.

The columns of im2col hold each element of an image as many times as the kernel has taps. Gathered
for the taps of all dims but the first, rows of places lie one after another, and what another tap
of the first dim sees begins some rows later: the same memory from another address. So an image of
3 x 3 taps is written three times instead of nine, in runs, and three products give its places of
the result, each added to the last. Nothing has to be turned round, for places stay inside.

That pays for steps of one and images of many places (`suits`). Shapes as in `conv`, without groups.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import shaping
from skimp._kernels.blas import one_thread, spread
from skimp._kernels.gemm import AS_IT_IS, TRANSPOSED, gemms
from skimp._kernels.im2col import LANES, SCRATCH, Ints, Window, rows_flat
from skimp._kernels.openblas import gemm_of
from skimp._kernels.scratch import Scratch, give, row_sums, take

Array = np.ndarray[Any, Any]

_PLACES: Final = 192  # of an image, from which its products are worth a call each
_WORTH: Final = 1 << 20  # multiplications of a product, likewise
_CUT: Final = 512  # from which part of one is
_DEPTH: Final = 24  # channels and taps of a product, from which BLAS is quick


def suits(w: Window, x: Array, channels: int, *others: Array | None) -> bool:
    """Whether x (n, groups, ci, *size) is worth it beside the others, with so many channels of the
    result: of one group and one full type. That follows from shapes and types alone."""
    kind = x.dtype.char
    depth = x.shape[2] * w.taps
    return (
        x.shape[1] == 1
        and len(w.size) > 1 < w.taps
        and all([s == 1 for s in w.stride])
        and math.prod(w.out) >= _PLACES
        and math.prod(w.out) * depth * channels >= _WORTH * w.kernel[0]
        and depth >= _DEPTH * w.kernel[0]
        and kind in "fd"
        and all([a is None or (a.dtype.char == kind and a.size > 0) for a in others])
        and gemm_of(kind) is not None
    )


# -- the three products ---------------------------------------------------------------------------


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> None:
    """out (n, co, *out) = x (n, ci, *size) * weight (co, ci, *kernel) + bias (co,)."""
    matrix = _factor(weight, w)
    todo = _blocks(w, x.shape[1], len(x))

    def worker() -> Any:
        rows = _Rows(w, x.shape[1], x.dtype, todo[0])

        def fn(block: _Block) -> None:
            rows.fill(x[block.images], block)
            _multiply(rows, matrix, bias, out[block.images], block)

        return fn, rows

    _each(todo, worker, out.size * matrix[:, 0].size)


def weights(g: Array, x: Array, out: Array, w: Window, bias: Array | None = None) -> None:
    """out (co, ci, *kernel): for each tap, the sum of g times what the tap saw; bias (co,): that of
    g."""
    lanes = _Lanes(_blocks(w, x.shape[1], len(x)), g, w, x.shape[1], bias is not None)

    def worker() -> Any:
        rows = _Rows(w, x.shape[1], x.dtype, lanes.todo[0])

        def fn(lane: int) -> None:
            for block in lanes.blocks(lane):
                rows.fill(x[block.images], block)
                lanes.add(lane, rows, g, block)

        return fn, rows

    _each(lanes.numbers, worker, out.size * math.prod(w.out) * len(x))
    lanes.write(out)
    if bias is not None:
        bias[...] = lanes.seen()


def forward_and_weights(
    x: Array, weight: Array, out: Array, g: Array, grad: Array, w: Window, whole: Array | None
) -> None:
    """`forward` into out, and `weights` of g and x into grad, from rows gathered once; whole
    (channels,) is the sum of x."""
    matrix = _factor(weight, w)
    lanes = _Lanes(_blocks(w, x.shape[1], len(x)), g, w, x.shape[1], False)
    seen = np.zeros((len(lanes.numbers), x.shape[1]), x.dtype)

    def worker() -> Any:
        rows = _Rows(w, x.shape[1], x.dtype, lanes.todo[0])

        def fn(lane: int) -> None:
            for block in lanes.blocks(lane):
                rows.fill(x[block.images], block)
                _multiply(rows, matrix, None, out[block.images], block)
                lanes.add(lane, rows, g, block)
                if whole is not None and block.start == 0:
                    seen[lane] += channel_sums(x[block.images])

        return fn, rows

    _each(lanes.numbers, worker, 2 * out.size * matrix[:, 0].size)
    lanes.write(grad)
    if whole is not None:
        whole[...] = sum(seen[1:], seen[0])


def _each(items: list[Any], worker: Any, multiplications: int) -> None:
    """worker() makes (a function that does one item, its rows): one for each thread that shares the
    items."""
    shared = iter(items)  # by the threads: next() is atomic

    def work() -> None:
        fn, rows = worker()
        for item in shared:
            fn(item)
        rows.close()

    with one_thread():
        spread(work, len(items), multiplications)


def _factor(weight: Array, w: Window) -> Array:
    """The weights as a matrix (co, depth) for each tap of the first dim."""
    matrix = np.empty((w.kernel[0], *weight.shape[:2], *w.kernel[1:]), weight.dtype)
    matrix[...] = shaping.dim_first(weight, 2)
    return matrix.reshape(w.kernel[0], len(weight), -1)


def _multiply(rows: _Rows, matrix: Array, bias: Array | None, target: Array, block: _Block) -> None:
    """target (images, co, *out) gets the block's rows, in place where BLAS can write it."""
    part = target[:, :, block.start : block.start + block.lines]
    if rows_flat(part[:, None]):
        _products(rows, matrix, bias, part)
        return
    with Scratch(part.shape, part.dtype) as room:
        _products(rows, matrix, bias, room)
        part[...] = room


def _products(rows: _Rows, matrix: Array, bias: Array | None, into: Array) -> None:
    """into (images, co, *lines) = the sum over taps of the first dim."""
    _, channels, depth = matrix.shape
    if bias is not None:
        into[...] = bias.reshape((-1,) + (1,) * (into.ndim - 2))
    item, address = into.itemsize, shaping.address(matrix)
    for number, start in enumerate(rows.starts):
        gemms(
            into.dtype.char, (AS_IT_IS, AS_IT_IS), (channels, into[0, 0].size, depth),
            (address + number * channels * depth * item, depth, 0),
            (rows.address + start * item, rows.pitch, rows.step),
            number > 0 or bias is not None,
            (shaping.address(into), into.strides[1] // item, into.strides[0] // item), len(into),
        )  # fmt: skip


class _Lanes:
    """A gradient of weights as sums over every so many-th block, added up at the end, whoever made
    them."""

    def __init__(self, todo: list[_Block], g: Array, w: Window, channels: int, seen: bool) -> None:
        self.todo = todo
        self.numbers = list(range(min(LANES, len(todo))))
        depth = channels * math.prod(w.kernel[1:])
        self._shape = (w.kernel[0], channels, *w.kernel[1:], g.shape[1])
        self._totals = np.empty((len(self.numbers), w.kernel[0], depth, g.shape[1]), g.dtype)
        self._seen = np.zeros((len(self.numbers), g.shape[1]), g.dtype) if seen else None

    def blocks(self, lane: int) -> list[_Block]:
        return self.todo[lane :: len(self.numbers)]

    def add(self, lane: int, rows: _Rows, g: Array, block: _Block) -> None:
        """What a block adds: for each image and tap of the first dim a product, over its places."""
        part = g[block.images, :, block.start : block.start + block.lines]
        flat = part if rows_flat(part[:, None]) else np.ascontiguousarray(part)
        total, item = self._totals[lane], g.itemsize
        _, depth, channels = total.shape
        begun = block is not self.todo[lane]
        for number in range(len(flat)):
            gemms(
                g.dtype.char, (AS_IT_IS, TRANSPOSED), (depth, channels, flat[0, 0].size),
                (rows.address + number * rows.step * item, rows.pitch, rows.apart),
                (shaping.address(flat[number]), flat.strides[1] // item, 0),
                begun or number > 0,
                (shaping.address(total), channels, depth * channels), len(total),
            )  # fmt: skip
        if self._seen is not None:
            self._seen[lane] += channel_sums(flat)

    def write(self, out: Array) -> None:
        """out (co, ci, *kernel) = the sum of all."""
        total = sum(self._totals[1:], self._totals[0]).reshape(self._shape)
        order = (total.ndim - 1, 1, 0, *range(2, total.ndim - 1))
        out[...] = total.transpose(order)

    def seen(self) -> Array:
        assert self._seen is not None
        total: Array = sum(self._seen[1:], self._seen[0])
        return total


def channel_sums(x: Array) -> Array:
    """The sums of x (images, channels, *places) for each channel, of each row's own."""
    rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:2]), -1)
    total: Array = np.add.reduce(row_sums(rows).reshape(x.shape[:2]), axis=0)
    return total


# -- rows -----------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """`lines` rows of some images' places, from `start` on."""

    images: slice
    start: int
    lines: int


def _blocks(w: Window, channels: int, n: int) -> list[_Block]:
    """A few images, or as many of one's rows as scratch memory holds; few images are cut such that
    threads share them evenly."""
    row = channels * math.prod(w.kernel[1:]) * math.prod(w.out[1:])
    count = -(-w.out[0] // max(1, SCRATCH // row))
    even = LANES // math.gcd(n, LANES)
    if count < even and n < 2 * LANES and math.prod(w.out) >= even * _CUT:
        count = even
    lines = -(-w.out[0] // count)
    images = 1
    if count == 1:
        room = max(1, SCRATCH // (row * (lines + w.reach[0] - 1)))
        images = max(1, n // (LANES * -(-n // (LANES * room))))
    return [
        _Block(slice(image, min(image + images, n)), start, min(lines, w.out[0] - start))
        for image in range(0, n, images)
        for start in range(0, w.out[0], lines)
    ]


class _Tap(NamedTuple):
    """One of the inner dims' taps: its number in each, the places that see the input through it,
    and what they see. The others see padding."""

    number: Ints
    places: tuple[slice, ...]
    seen: tuple[slice, ...]
    shift: int  # how much further on in memory that is, where places are the input's
    padding: tuple[tuple[slice, ...], ...]  # the others


class _Rows:
    """Scratch memory of a thread for blocks up to the first one's size: (channels, *taps, images,
    rows, *places)."""

    def __init__(self, w: Window, channels: int, dtype: np.dtype[Any], block: _Block) -> None:
        self._count = block.lines + w.reach[0] - 1
        images = block.images.stop - block.images.start
        self.run = run = math.prod(w.out[1:])
        self.step = self._count * run  # from one image to the next
        self.pitch = images * self.step
        self.apart = w.dilation[0] * run  # from what a tap of the first dim sees to the next one's
        self.starts = [i * self.apart for i in range(w.kernel[0])]
        self._w = w
        self._taps = _taps(w)
        self._flat = take(channels * len(self._taps) * self.pitch, dtype)
        self._array = self._flat.reshape(channels, *w.kernel[1:], images, self._count, *w.out[1:])
        self.address = shaping.address(self._flat)
        self._at = -1

    def fill(self, x: Array, block: _Block) -> None:
        """What a block's places see of its images x (images, channels, *size)."""
        w = self._w
        first = block.start - w.padding[0]  # the input's row of row 0
        low = min(self._count, max(0, -first))
        high = max(low, min(self._count, w.size[0] - first))
        seen, lines = np.swapaxes(x[:, :, first + low : first + high], 0, 1), slice(low, high)
        runs = w.out[1:] == w.size[1:] and rows_flat(seen[:, None])
        if block.start != self._at:  # other rows are outside
            rows = self._array.reshape(-1, self._count, self.run)
            for outside in (slice(0, low), slice(high, self._count)):
                if outside.start < outside.stop:
                    rows[:, outside] = 0
            if not runs:
                self._pad(slice(None))
            self._at = block.start
        if runs:
            self._shift(seen, lines)
        elif high > low:
            for tap in self._taps:
                seen_by: Any = (slice(None), slice(None), slice(None), *tap.seen)
                self._places(tap, lines, tap.places)[:, : len(x)] = seen[seen_by]

    def _pad(self, lines: slice) -> None:
        """Zeros where taps see padding."""
        for tap in self._taps:
            for places in tap.padding:
                self._places(tap, lines, places)[...] = 0

    def _shift(self, x: Array, lines: slice) -> None:
        """Where a tap sees the images as they are, but for a shift: in runs over all rows, of which
        those elements that came round an edge are set to zero."""
        length = x[0, 0].size
        source = x.reshape(*x.shape[:2], length)  # views
        for tap in self._taps:
            into = self._places(tap, lines, ())[:, : x.shape[1]].reshape(*x.shape[:2], length)
            back, on = min(length, max(0, -tap.shift)), min(length, max(0, tap.shift))
            into[:, :, back : length - on] = source[:, :, on : length - back]
        self._pad(lines)

    def _places(self, tap: _Tap, lines: slice, places: tuple[slice, ...]) -> Array:
        index: Any = (slice(None), *tap.number, slice(None), lines, *places)
        found: Array = self._array[index]
        return found

    def close(self) -> None:
        give(self._flat)


@lru_cache(256)
def _taps(w: Window) -> list[_Tap]:
    return [_tap(w, number) for number in np.ndindex(*w.kernel[1:])]


def _tap(w: Window, number: Ints) -> _Tap:
    places: list[slice] = []
    seen: list[slice] = []
    padding: list[tuple[slice, ...]] = []
    shift = 0
    for dim, tap in enumerate(number, 1):
        size, out = w.size[dim], w.out[dim]
        first = tap * w.dilation[dim] - w.padding[dim]  # what the first place sees
        low = min(out, max(0, -first))
        high = max(low, min(out, size - first))
        places.append(slice(low, high))
        seen.append(slice(first + low, first + high))
        before = (slice(None),) * (dim - 1)
        padding += [(*before, s) for s in (slice(0, low), slice(high, out)) if s.start < s.stop]
        shift += first * math.prod(w.size[dim + 1 :])
    return _Tap(number, tuple(places), tuple(seen), shift, tuple(padding))
