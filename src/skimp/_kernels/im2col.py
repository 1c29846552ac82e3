"""im2col: what each place of a convolution's result sees of the input, as columns of a matrix.

Columns are gathered for a block of places at a time, multiplied and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
SCRATCH: Final = 1 << 19  # elements of columns gathered at once, about
_TURNED: Final = 32  # channels that become the inner side at once
_FEW: Final = 1 << 20  # elements of columns that are gathered at once if there are no more
LANES: Final = 4  # partial sums of a gradient of weights
_HALVES: Final = 2  # bytes of the types that are multiplied as float32


class _Steps(NamedTuple):
    size: Ints
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    out: Ints


class Window(_Steps):
    """Where a kernel goes: the sizes of input, kernel and output, and its steps."""

    @cached_property
    def reach(self) -> Ints:
        """How many input elements a kernel spans."""
        return tuple([(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])

    @cached_property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @cached_property
    def as_it_is(self) -> bool:
        """Whether each place sees one element, its own."""
        moved = any(self.padding) or any([s != 1 for s in self.stride])
        return self.taps == 1 and self.size == self.out and not moved

    @cached_property
    def seen(self) -> Window | None:
        """Of a kernel of one tap by steps, and without padding: that of what it sees, without what
        lies between."""
        if self.taps > 1 or any(self.padding) or max(self.stride, default=1) == 1:
            return None
        return self._replace(size=self.out, stride=(1,) * len(self.out))

    @cached_property
    def steps(self) -> tuple[Any, ...]:
        """The index of what one tap sees of images without padding."""
        places = zip(self.out, self.stride, strict=True)
        return ..., *[slice(0, (o - 1) * step + 1, step) for o, step in places]

    def rows(self, start: int, stop: int) -> tuple[int, int]:
        """The rows (of the first spatial dim, padding included) that output rows start..stop
        read."""
        return start * self.stride[0], (stop - 1) * self.stride[0] + self.reach[0]


def out_size(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """How many places a kernel has."""
    return tuple(
        [
            (s + 2 * p - d * (k - 1) - 1) // t + 1
            for s, k, t, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
        ]
    )


@dataclass(frozen=True)
class Block:
    """Images first..last of the batch and output rows start..stop of each."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def images(self) -> slice:
        return slice(self.first, self.last)

    @property
    def lines(self) -> slice:
        return slice(self.start, self.stop)


def blocks(w: Window, n: int, depth: int, channels: int) -> Iterator[Block]:
    """Cut n images so that the columns of a block, `depth` elements for each output, are about
    SCRATCH, at most half as much again, or one row's: in so many blocks that threads share them
    evenly. Where all columns are few beside the weights of as many as `channels`, one block has
    them all: its product is as large as that of the blocks, and BLAS's own threads share it."""
    each = depth * math.prod(w.out)
    if each <= SCRATCH:
        few = n * math.prod(w.out) <= channels and n * each <= _FEW
        count = 1 if few else LANES * max(1, round(n * each / (LANES * SCRATCH)))
        step = max(1, -(-n // count), min(n, SCRATCH // max(4 * each, 1)))
        for first in range(0, n, step):
            yield Block(first, min(first + step, n), 0, w.out[0])
        return
    lines = max(1, SCRATCH // (depth * math.prod(w.out[1:])))
    for image in range(n):
        for start in range(0, w.out[0], lines):
            yield Block(image, image + 1, start, min(start + lines, w.out[0]))


def working(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which products of `dtype` are made."""
    return np.dtype(np.float32) if dtype.itemsize == _HALVES and dtype.kind not in "iu" else dtype


class Im2col:
    """Gathers the columns of one block: a row of channels and taps for each place.

    Channels are the inner side in memory (`channels_last`: images x places, taps x channels) where
    that makes the longer runs, else places are (images, groups, channels x taps, places). With
    `ones`, the depth ends with a one, for a bias to be multiplied with. Where the columns are the
    input (`plain`: a kernel of one tap that goes everywhere) nothing is gathered.
    """

    def __init__(
        self, w: Window, channels: int, dtype: np.dtype[Any], groups: int = 1, ones: bool = False
    ) -> None:
        self.w = w
        self.channels = channels
        self.groups = groups
        self.dtype = dtype
        self.ones = ones
        dense = w.dilation[-1] == 1
        run = channels * (w.kernel[-1] if dense else 1)
        along = w.out[-1] if w.stride[-1] == 1 else 1
        self.plain = not ones and w.as_it_is
        self.channels_last = run > along and groups == 1 and not self.plain
        self._room: _Room | None = None
        self._taken: list[Array] = []
        self._kept: list[Array] = []

    def weight_back(self, matrix: Array) -> Array:
        """(groups, co, depth), in the order of the columns' depth, as (groups, co, ci, *kernel)."""
        lead = matrix.shape[:2]
        if self.channels_last:
            return channels_outer(matrix.reshape(*lead, *self.w.kernel, self.channels))
        return matrix.reshape(*lead, self.channels, *self.w.kernel)

    def gather(self, x: Array, block: Block) -> Array:
        """The columns that `block` reads of x (n, groups, channels, *size): (images x places,
        depth) with channels last, else (images, groups, depth, places). They stay as they are
        until the next block's."""
        if self.plain and x.dtype == self.dtype and rows_flat(x):
            return as_matrices(x[block.images, :, :, block.lines])
        room = self._room
        if room is None or not room.holds(block):
            if room is not None:
                room.close()
            room = self._room = _Room(self, block)
        room.fill(x.reshape(len(x), self.channels * self.groups, *self.w.size), block)
        room.places[...] = room.seen
        return room.matrix

    def take(self, length: int) -> Array:
        """Scratch memory, the caller's until `release`."""
        found = take(length, self.dtype)
        self._taken.append(found)
        return found

    def take_for_all(self, length: int) -> Array:
        """Scratch memory, the caller's until `close`."""
        found = take(length, self.dtype)
        self._kept.append(found)
        return found

    def release(self) -> None:
        """Give back what the last block took."""
        for each in self._taken:
            give(each)
        self._taken = []

    def close(self) -> None:
        """Give back the room too, at the end."""
        for each in self._kept:
            give(each)
        if self._room is not None:
            self._room.close()


class _Room:
    """Scratch memory for the columns of blocks of one size: the part of the input that a block
    reads, with its padding, whose zeros are written once; and its columns, with their ones."""

    def __init__(self, im2col: Im2col, block: Block) -> None:
        w = im2col.w
        self._size = (block.last - block.first, block.start, block.stop)
        low, high = w.rows(block.start, block.stop)
        ends = [(o - 1) * t + r for o, t, r in zip(w.out, w.stride, w.reach, strict=True)]
        size = (high - low, *ends[1:])
        whole = im2col.channels * im2col.groups
        shape = (self._size[0], whole, *size)
        self._flat = take(math.prod(shape), im2col.dtype)
        last = im2col.channels_last
        padded = self._flat.reshape((shape[0], *size, whole) if last else shape)
        if last:
            padded = padded.transpose((0, padded.ndim - 1, *range(1, padded.ndim - 1)))
        self._parts = _TURNED if last else max(1, whole)
        into, self._origin = [slice(None), slice(None)], []
        for dim, (p, n, length) in enumerate(zip(w.padding, w.size, size, strict=True)):
            shift = p - (low if dim == 0 else 0)  # where the input's first element is
            begin, end = max(0, shift), min(length, n + shift)
            into.append(slice(begin, max(begin, end)))
            self._origin.append(slice(begin - shift, max(begin, end) - shift))
        if any(s.stop - s.start < n for s, n in zip(into[2:], size, strict=True)):
            _clear_around(padded, into)
        self._inner = padded[tuple(into)]
        self._lay_out(im2col, padded, (block.stop - block.start, *w.out[1:]))

    def _lay_out(self, im2col: Im2col, padded: Array, lines: Ints) -> None:
        """`seen` is the padded input as its columns, `places` where they are gathered in `matrix`,
        of which they may be all but the ones."""
        w, count, groups = im2col.w, self._size[0], im2col.groups
        strides = padded.strides  # (images, channels, *size), whatever the order in memory
        taps = [s * d for s, d in zip(strides[2:], w.dilation, strict=True)]
        steps = [s * t for s, t in zip(strides[2:], w.stride, strict=True)]
        depth = im2col.channels * w.taps
        deep = depth + im2col.ones
        self._gathered = take(groups * deep * count * math.prod(lines), im2col.dtype)
        self.matrix: Array
        if im2col.channels_last:
            self.matrix = self._gathered.reshape(-1, deep)
            inner = (*w.kernel, im2col.channels)
            shape = (count, *lines, *inner)
            along = (strides[0], *steps, *taps, strides[1])
            places = self.matrix[:, :depth]
            if im2col.ones:
                self.matrix[:, depth] = 1
            if w.dilation[-1] == 1:  # a row of taps and its channels are one run
                shape = (*shape[:-2], shape[-2] * shape[-1])
                along = (*along[:-2], along[-1])
        else:
            self.matrix = self._gathered.reshape(count, groups, deep, -1)
            shape = (count, groups, im2col.channels, *w.kernel, *lines)
            along = (strides[0], strides[1] * im2col.channels, strides[1], *taps, *steps)
            places = self.matrix[:, :, :depth]
            if im2col.ones:
                self.matrix[:, :, depth] = 1
        # by strides, over the buffer: `as_strided` takes 5 us
        self.seen: Array = np.ndarray(shape, im2col.dtype, self._flat, 0, along)
        self.places = places.reshape(shape)  # a view: dims are split

    def holds(self, block: Block) -> bool:
        return self._size == (block.last - block.first, block.start, block.stop)

    def fill(self, x: Array, block: Block) -> None:
        """Copy what the block reads of x (n, channels, *size), a few channels at a time where they
        become the inner side: of more, the lines of their rows don't stay in the L1 cache."""
        for first in range(0, x.shape[1], self._parts):
            part = slice(first, first + self._parts)
            self._inner[:, part] = x[(block.images, part, *self._origin)]

    def close(self) -> None:
        give(self._flat)
        give(self._gathered)


def _clear_around(padded: Array, inner: list[Any]) -> None:
    """Zeros on all of `padded` outside the box `inner`."""
    for dim in range(2, padded.ndim):
        window: list[Any] = [slice(None)] * padded.ndim
        for side in (slice(None, inner[dim].start), slice(inner[dim].stop, None)):
            window[dim] = side
            padded[tuple(window)] = 0


def channels_inner(a: Array) -> Array:
    """(images, channels, *size) as (images, *size, channels)."""
    return a.transpose((0, *range(2, a.ndim), 1))


def channels_outer(weight: Array) -> Array:
    """(groups, co, *kernel, ci) as (groups, co, ci, *kernel)."""
    last = weight.ndim - 1
    return weight.transpose((0, 1, last, *range(2, last)))


def rows_flat(a: Array) -> bool:
    """Whether each a[i, j, k] is one run of memory."""
    step = a.itemsize
    for size, stride in zip(a.shape[:2:-1], a.strides[:2:-1], strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def as_matrices(a: Array) -> Array:
    """(images, groups, channels, *places), whose places are runs of memory, with the places as one
    dim."""
    return a.reshape((*a.shape[:3], math.prod(a.shape[3:])))


def gathered(g: Array, dtype: np.dtype[Any], room: Array | None = None) -> Array:
    """g (images, channels, *places) as a matrix (channels, images x places), in `room`."""
    if len(g) == 1 and g.dtype == dtype and rows_flat(g[None]):
        matrix: Array = as_matrices(g[None])[0, 0]
        return matrix
    if room is None:
        room = np.empty((g.shape[1], g.size // max(1, g.shape[1])), dtype)
    room.reshape(g.shape[1], len(g), *g.shape[2:])[...] = np.swapaxes(g, 0, 1)
    return room
