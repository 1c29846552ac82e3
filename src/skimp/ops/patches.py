"""Convolution of arrays as products of matrices: patches are gathered, multiplied, forgotten.

The three functions are the three faces of one trilinear form <g, x * w>: `forward` gives the place
of g, `adjoint` that of x, `weights` that of w. Each works on a block of outputs at a time, so
scratch is bounded whatever the images are.

Shapes: x (n, groups, ci, *size), w (groups, co, ci, *kernel), g (n, groups, co, *out).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from skimp.backend.blas import one_thread
from skimp.backend.scratch import give, take
from skimp.config import config
from skimp.threads import share

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

SCRATCH: Final = 1 << 19  # elements of patches gathered at once, about
_NARROW: Final = 8  # channels of a group up to which several groups are multiplied at once
_LANES: Final = 4  # partial sums of a gradient of weights
_HALVES: Final = 2  # bytes of the types that are multiplied as float32


@dataclass(frozen=True)
class Window:
    """Where a kernel goes: the sizes of input, kernel and output, and its steps."""

    size: Ints
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    out: Ints

    @cached_property
    def reach(self) -> Ints:
        """How many input elements a kernel spans."""
        return tuple([(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])

    @cached_property
    def taps(self) -> int:
        return math.prod(self.kernel)

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


def blocks(w: Window, n: int, depth: int) -> Iterator[Block]:
    """Cut n images so that the patches of a block, `depth` elements for each output, are about
    SCRATCH, at most half as much again, or one row's: in so many blocks that threads share them
    evenly."""
    each = depth * math.prod(w.out)
    if each <= SCRATCH:
        count = _LANES * max(1, round(n * each / (_LANES * SCRATCH)))
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


# -- patches --------------------------------------------------------------------------------------


class Patches:
    """Gathers the patches of one block: a row of channels and taps for each place.

    Channels are the inner side in memory (`channels_last`: images x places, taps x channels) where
    that makes the longer runs, else places are (images, groups, channels x taps, places).
    """

    def __init__(self, w: Window, channels: int, dtype: np.dtype[Any], groups: int = 1) -> None:
        self.w = w
        self.channels = channels
        self.groups = groups
        self.dtype = dtype
        dense = w.dilation[-1] == 1
        run = channels * (w.kernel[-1] if dense else 1)
        along = w.out[-1] if w.stride[-1] == 1 else 1
        self.channels_last = run > along and groups == 1
        self._taken: list[Array] = []

    def weight(self, weight: Array) -> Array:
        """(co, ci, *kernel) as the matrix (co, depth) whose columns are in the order of the
        patches' depth."""
        if self.channels_last:
            weight = np.moveaxis(weight, 1, -1)
        return np.ascontiguousarray(weight, dtype=self.dtype).reshape(len(weight), -1)

    def weight_back(self, matrix: Array) -> Array:
        """The reverse of `weight`."""
        if self.channels_last:
            return np.moveaxis(matrix.reshape(-1, *self.w.kernel, self.channels), -1, 1)
        return matrix.reshape(-1, self.channels, *self.w.kernel)

    def gather(self, x: Array, block: Block) -> Array:
        """The patches that `block` reads of x (n, groups, channels, *size): (images x places,
        depth) with channels last, else (images, groups, depth, places)."""
        w = self.w
        whole = self.channels * self.groups
        padded = self._fill(x.reshape(len(x), whole, *w.size), block)
        lines = (block.stop - block.start, *w.out[1:])
        count, places = block.last - block.first, math.prod(lines)
        nd = len(w.size)
        strides = padded.strides  # (images, channels, *size), whatever the order in memory
        taps = [s * d for s, d in zip(strides[2:], w.dilation, strict=True)]
        steps = [s * t for s, t in zip(strides[2:], w.stride, strict=True)]
        depth = self.channels * w.taps
        flat = self.take(self.groups * depth * count * places)
        if self.channels_last:
            shape = (count, *lines, *w.kernel, self.channels)
            along = (strides[0], *steps, *taps, strides[1])
            matrix: Array = flat.reshape(count * places, depth)
        else:
            shape = (count, whole, *w.kernel, *lines)
            along = (strides[0], strides[1], *taps, *steps)
            matrix = flat.reshape(count, self.groups, depth, places)
        if self.channels_last and w.dilation[-1] == 1:  # a row of taps and its channels are one run
            shape = (*shape[: 2 * nd], shape[-2] * shape[-1])
            along = (*along[: 2 * nd], along[-1])
        source = np.ndarray(shape, padded.dtype, padded.base, 0, along)  # as_strided: 10 us
        np.copyto(matrix.reshape(shape), source)
        return matrix

    def take(self, length: int) -> Array:
        """Scratch memory, the caller's until `release`."""
        found = take(length, self.dtype)
        self._taken.append(found)
        return found

    def release(self) -> None:
        """Give back what the last block took."""
        for each in self._taken:
            give(each)
        self._taken = []

    def _fill(self, x: Array, block: Block) -> Array:
        """The part of x that the block reads, with its padding, as (images, channels, *size)."""
        w = self.w
        low, high = w.rows(block.start, block.stop)
        ends = [(o - 1) * t + r for o, t, r in zip(w.out, w.stride, w.reach, strict=True)]
        size = (high - low, *ends[1:])
        shape = (block.last - block.first, self.channels * self.groups, *size)
        padded = self._blank(shape)
        into, origin = [slice(None), slice(None)], [block.images, slice(None)]
        for dim, (p, n, length) in enumerate(zip(w.padding, w.size, size, strict=True)):
            shift = p - (low if dim == 0 else 0)  # where the input's first element is
            begin, end = max(0, shift), min(length, n + shift)
            into.append(slice(begin, max(begin, end)))
            origin.append(slice(begin - shift, max(begin, end) - shift))
        if any(s.stop - s.start < n for s, n in zip(into[2:], size, strict=True)):
            _clear_around(padded, into)
        padded[tuple(into)] = x[tuple(origin)]
        return padded

    def _blank(self, shape: Ints) -> Array:
        if self.channels_last:
            made = self._store((shape[0], *shape[2:], shape[1]))
            return np.moveaxis(made, -1, 1)
        return self._store(shape)

    def _store(self, shape: Ints) -> Array:
        return self.take(math.prod(shape)).reshape(shape)


def _clear_around(padded: Array, inner: list[Any]) -> None:
    """Zeros on all of `padded` outside the box `inner`."""
    for dim in range(2, padded.ndim):
        window: list[Any] = [slice(None)] * padded.ndim
        for side in (slice(None, inner[dim].start), slice(inner[dim].stop, None)):
            window[dim] = side
            padded[tuple(window)] = 0


# -- the three products ---------------------------------------------------------------------------


def _each(todo: list[Any], elements: int, worker: Any) -> None:
    """worker() makes a function that does one item: one for each thread that shares the items."""
    items = iter(todo)  # shared by the threads: next() is atomic

    def work() -> None:
        fn = worker()
        for item in items:
            fn(item)

    if len(todo) > 1 and config.threads > 1 and elements >= config.threads_from:
        with one_thread():
            share(work, config.threads)
    else:
        share(work, 1)


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> None:
    """out = x * weight + bias: for each place, the sum over channels and taps."""
    if out.size == 0:
        return
    depth = max(1, x.shape[2] * w.taps)
    for some in _bundles(x, w):
        add = None if bias is None else bias[some]

        def worker(some: slice = some, add: Array | None = add) -> Any:
            patches = Patches(w, x.shape[2], working(out.dtype), some.stop - some.start)
            matrix = np.stack([patches.weight(each) for each in weight[some]])
            if patches.channels_last:
                matrix = np.ascontiguousarray(matrix[0].T)
            row = None if add is None else add.astype(patches.dtype)

            def fn(block: Block) -> None:
                columns = patches.gather(x[:, some], block)
                target = out[block.images, some, :, block.lines]
                if patches.channels_last:
                    _multiply_rows(patches, columns, matrix, row, target[:, 0])
                else:
                    _multiply_columns(patches, matrix, columns, row, target)
                patches.release()

            return fn

        many = some.stop - some.start
        elements = len(x) * many * math.prod(w.out) * depth
        _each(list(blocks(w, len(x), many * depth)), elements, worker)


def _bundles(x: Array, w: Window) -> list[slice]:
    """Groups that are worked on together: several where the runs of each would be short."""
    groups, channels = x.shape[1:3]
    many = 1
    if groups > 1 and channels <= _NARROW:
        many = max(1, min(groups, SCRATCH // max(1, channels * w.taps * math.prod(w.out))))
    return [slice(i, min(i + many, groups)) for i in range(0, groups, many)]


def _multiply_rows(
    patches: Patches, rows: Array, matrix: Array, add: Array | None, target: Array
) -> None:
    """target (images, co, *lines) = rows (images x places, depth) @ matrix (depth, co) + add. The
    product is in BLAS's favourite order; turning it round costs a tenth of it."""
    last = np.moveaxis(target, 1, -1)
    direct = target.dtype == patches.dtype and last.flags.c_contiguous
    shape = (len(rows), matrix.shape[1])
    into = last.reshape(shape) if direct else patches.take(math.prod(shape)).reshape(shape)
    np.matmul(rows, matrix, out=into)
    if add is not None:
        into += add[0]
    if not direct:
        target[...] = np.moveaxis(into.reshape(last.shape), -1, 1)


def _multiply_columns(
    patches: Patches, matrix: Array, columns: Array, add: Array | None, target: Array
) -> None:
    """target (images, groups, co, *lines) = matrix (groups, co, depth) @ columns (images, groups,
    depth, places) + add, in place where BLAS can write it."""
    if target.dtype == patches.dtype and _rows_flat(target):
        into = _as_matrices(target)
    else:
        shape = (*target.shape[:3], columns.shape[-1])
        into = patches.take(math.prod(shape)).reshape(shape)
    np.matmul(matrix, columns, out=into)
    if add is not None:
        into += add[..., None]
    if not np.may_share_memory(into, target):
        target[...] = into.reshape(target.shape)


def _rows_flat(a: Array) -> bool:
    """Whether each a[i, j, k] is one run of memory."""
    step = a.itemsize
    for size, stride in zip(a.shape[:2:-1], a.strides[:2:-1], strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _as_matrices(a: Array) -> Array:
    """(images, groups, channels, *places), whose places are runs of memory, with the places as one
    dim."""
    return np.lib.stride_tricks.as_strided(
        a, (*a.shape[:3], math.prod(a.shape[3:])), (*a.strides[:3], a.itemsize)
    )


def weights(g: Array, x: Array, out: Array, w: Window) -> None:
    """out (groups, co, ci, *kernel): for each tap, the sum of g times what the tap saw."""
    channels, dtype = x.shape[2], working(out.dtype)
    depth = max(1, channels * w.taps)
    # channels first, each image of a block has a product of its own
    each = max(depth, depth * g.shape[2] // max(1, math.prod(w.out)))
    for some in _bundles(x, w):
        many = some.stop - some.start
        todo = list(blocks(w, len(x), many * each)) if g.size else []
        lanes = min(
            _LANES, max(1, len(todo))
        )  # sums that are added up at the end, whoever made them
        totals = [np.zeros((many, g.shape[2], channels * w.taps), dtype) for _ in range(lanes)]

        def worker(some: slice = some, todo: list[Any] = todo, totals: list[Array] = totals) -> Any:
            patches = Patches(w, channels, dtype, some.stop - some.start)

            def fn(lane: int) -> None:
                for block in todo[lane :: len(totals)]:
                    columns = patches.gather(x[:, some], block)
                    totals[lane] += _weigh(patches, g[block.images, some, :, block.lines], columns)
                    patches.release()

            return fn

        _each(list(range(lanes)), g.size * depth // max(1, g.shape[2]), worker)
        last = Patches(w, channels, dtype, many)
        for group, total in zip(out[some], sum(totals[1:], totals[0]), strict=True):
            group[...] = last.weight_back(total)


def _weigh(patches: Patches, g: Array, columns: Array) -> Array:
    """What a block adds to the gradient of the weights (groups, co, depth)."""
    if patches.channels_last:
        part = patches.take(g.shape[2] * columns.shape[1]).reshape(1, g.shape[2], -1)
        room = patches.take(g.shape[2] * len(columns)).reshape(g.shape[2], len(columns))
        np.matmul(_gathered(g[:, 0], patches.dtype, room), columns, out=part[0])
        return part
    flat = g if g.dtype == patches.dtype and _rows_flat(g) else g.astype(patches.dtype, order="C")
    shape = (*g.shape[:3], columns.shape[-2])
    parts = patches.take(math.prod(shape)).reshape(shape)
    np.matmul(_as_matrices(flat), np.swapaxes(columns, -1, -2), out=parts)
    total: Array = np.add.reduce(parts, axis=0)
    return total


def _gathered(g: Array, dtype: np.dtype[Any], room: Array | None = None) -> Array:
    """g (images, channels, *places) as a matrix (channels, images x places), in `room`."""
    if len(g) == 1 and g.dtype == dtype and _rows_flat(g[None]):
        matrix: Array = _as_matrices(g[None])[0, 0]
        return matrix
    if room is None:
        room = np.empty((g.shape[1], g.size // max(1, g.shape[1])), dtype)
    room.reshape(g.shape[1], len(g), *g.shape[2:])[...] = np.swapaxes(g, 0, 1)
    return room


def adjoint(g: Array, weight: Array, out: Array, w: Window) -> None:
    """out (n, groups, ci, *size) = for each input element, the sum over the places whose kernel
    covers it."""
    if all(s == 1 for s in w.stride) and all(
        p <= r - 1 for p, r in zip(w.padding, w.reach, strict=True)
    ):
        turned = np.flip(np.swapaxes(weight, 1, 2), tuple(range(3, weight.ndim)))
        padding = tuple([r - 1 - p for p, r in zip(w.padding, w.reach, strict=True)])
        back = Window(w.out, w.kernel, w.stride, padding, w.dilation, w.size)
        forward(g, turned, None, out, back)
        return
    if all(d == 1 for d in w.dilation):
        _phases(g, weight, out, w)
        return
    for group in range(g.shape[1]):
        _scatter(g[:, group], weight[group], out[:, group], w)


def _phases(g: Array, weight: Array, out: Array, w: Window) -> None:
    """The adjoint for larger steps, without dilation: the input elements that are equally far from
    a step see the same taps, so each such set is a convolution of g with every so many-th tap."""
    sides = [
        [_phase(r, k, t, p) for r in range(t)]
        for k, t, p in zip(w.kernel, w.stride, w.padding, strict=True)
    ]
    ones = (1,) * len(w.size)
    for phase in itertools.product(*sides):
        steps = list(zip(phase, w.stride, strict=True))
        places: Any = (..., *[slice(p.first, None, t) for p, t in steps])
        target = out[places]
        kernel = tuple([p.taps for p in phase])
        if 0 in target.shape:
            continue
        if 0 in kernel:
            target[...] = 0
            continue
        taps: Any = (..., *[slice(p.number, None, t) for p, t in steps])
        turned = np.flip(np.swapaxes(weight[taps], 1, 2), tuple(range(3, weight.ndim)))
        padding = tuple([p.padding for p in phase])
        back = Window(w.out, kernel, ones, padding, ones, target.shape[3:])
        forward(g, turned, None, target, back)


class Phase(NamedTuple):
    """The input elements at `number` from a step along one dim: the first of them, how many taps
    they see, and the padding with which these go over g."""

    number: int
    first: int
    taps: int
    padding: int


def _phase(number: int, kernel: int, step: int, padding: int) -> Phase:
    taps = len(range(number, kernel, step))
    skipped = -(-(padding - number) // step) if padding > number else 0
    return Phase(number, skipped * step + number - padding, taps, taps - 1 - skipped)


def _scatter(g: Array, weight: Array, out: Array, w: Window) -> None:
    """The same for any steps: products of blocks of g, added tap by tap to the (padded) input
    that they came from."""
    dtype = working(out.dtype)
    n, channels = out.shape[:2]
    # (taps, ci) x co, so that each tap's part is one run
    matrix = (
        np.ascontiguousarray(np.moveaxis(weight, 1, -1), dtype=dtype).reshape(len(weight), -1).T
    )
    padded = [
        max((o - 1) * t + r, p + s)
        for o, t, r, p, s in zip(w.out, w.stride, w.reach, w.padding, w.size, strict=True)
    ]
    inner = tuple([slice(p, p + s) for p, s in zip(w.padding, w.size, strict=True)])
    total: Array | None = None
    for block in blocks(w, n, max(1, len(matrix))) if g.size else ():
        if block.start == 0:
            total = np.zeros((channels, block.last - block.first, *padded), dtype)
        assert total is not None
        columns = matrix @ _gathered(g[block.images, :, block.lines], dtype)
        shape = (channels, block.last - block.first, block.stop - block.start, *w.out[1:])
        for tap, part in zip(np.ndindex(*w.kernel), columns.reshape(w.taps, *shape), strict=True):
            total[_places(tap, block, w)] += part
        if block.stop == w.out[0]:
            out[block.images] = np.moveaxis(total[(slice(None), slice(None), *inner)], 0, 1)
    if total is None:
        out[...] = 0


def _places(tap: Any, block: Block, w: Window) -> tuple[slice, ...]:
    """Which elements of the padded input this tap of the kernel covers, for the block's outputs."""
    found = [slice(None), slice(None)]
    for dim, (i, d, t, o) in enumerate(zip(tap, w.dilation, w.stride, w.out, strict=True)):
        start, count = (block.start, block.stop - block.start) if dim == 0 else (0, o)
        begin = i * d + start * t
        found.append(slice(begin, begin + (count - 1) * t + 1, t))
    return tuple(found)
