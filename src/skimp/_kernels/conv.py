"""Convolution of arrays as products of matrices: im2col for a block, a product, the next block.

The three functions are the three faces of one trilinear form <g, x * w>: `forward` gives the place
of g, `adjoint` that of x, `weights` that of w. Each works on a block of outputs at a time, so
scratch is bounded whatever the images are.

Shapes: x (n, groups, ci, *size), w (groups, co, ci, *kernel), g (n, groups, co, *out).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._kernels import conv_onednn, conv_planes, conv_rows
from skimp._kernels.blas import multiply, spread
from skimp._kernels.im2col import (
    LANES,
    SCRATCH,
    Block,
    Im2col,
    Ints,
    Window,
    as_matrices,
    blocks,
    channels_inner,
    channels_outer,
    gathered,
    rows_flat,
    working,
)
from skimp._kernels.scratch import row_sums

Array = np.ndarray[Any, Any]

_GATHERED: Final = 16  # multiplications that take as long as an element of im2col's matrix
_NARROW: Final = 8  # channels of a group up to which several groups are multiplied at once


# -- the three products ---------------------------------------------------------------------------


def _each(todo: list[Any], multiplications: int, worker: Any) -> None:
    """worker() makes (a function that does one item, its Im2col): one for each thread that shares
    the items."""
    items = iter(todo)  # shared by the threads: next() is atomic

    def work() -> None:
        fn, im2col = worker()
        for item in items:
            fn(item)
            im2col.release()
        im2col.close()

    spread(work, len(todo), multiplications)


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> None:
    """out = x * weight + bias: for each place, the sum over channels and taps."""
    if out.size == 0 or conv_onednn.forward(x, weight, bias, out, w):
        return
    if conv_rows.suits(w, x, out.shape[2], weight, out, bias):
        add = None if bias is None else bias[0]
        conv_rows.forward(x[:, 0], weight[0], add, out[:, 0], w)
        return
    if conv_planes.suits(w, x, out.shape[2], weight, out, bias):
        add = None if bias is None else bias[:, 0]
        conv_planes.forward(x[:, :, 0], weight[:, 0, 0], add, out[:, :, 0], w)
        return
    depth = max(1, x.shape[2] * w.taps)
    for some in _bundles(x, w):
        add = None if bias is None else bias[some]

        def worker(some: slice = some, add: Array | None = add) -> Any:
            im2col, matrix = _factor(x, weight[some], add, w, working(out.dtype))

            def fn(block: Block) -> None:
                columns = im2col.gather(x[:, some], block)
                _multiply(im2col, columns, matrix, out[block.images, some, :, block.lines])

            return fn, im2col

        many = some.stop - some.start
        work = len(x) * many * math.prod(w.out) * depth * (weight.shape[1] + _GATHERED)
        _each(list(blocks(w, len(x), many * depth, many * weight.shape[1])), work, worker)


def _factor(
    x: Array, weight: Array, add: Array | None, w: Window, dtype: np.dtype[Any]
) -> tuple[Im2col, Array]:
    """The im2col of x, and the matrix of weights (groups, co, ci, *kernel) that its columns are
    multiplied with: (groups, co, depth), where channels are last (depth, co). A bias (groups, co)
    is the last of the depth, against ones."""
    groups, co, ci = weight.shape[:3]
    im2col = Im2col(w, x.shape[2], dtype, groups, add is not None)
    depth = ci * w.taps
    matrix = im2col.take_for_all(groups * co * (depth + im2col.ones)).reshape(groups, co, -1)
    last = im2col.channels_last
    inner = (*w.kernel, ci) if last else (ci, *w.kernel)
    into = matrix[..., :depth].reshape(groups, co, *inner)  # a view: dims are split
    (channels_outer(into) if last else into)[...] = weight
    if add is not None:
        matrix[..., depth] = add
    return im2col, matrix[0].T if last else matrix


def _bundles(x: Array, w: Window) -> list[slice]:
    """Groups that are worked on together: several where the runs of each would be short."""
    groups, channels = x.shape[1:3]
    many = 1
    if groups > 1 and channels <= _NARROW:
        many = max(1, min(groups, SCRATCH // max(1, channels * w.taps * math.prod(w.out))))
    return [slice(i, min(i + many, groups)) for i in range(0, groups, many)]


def _multiply(im2col: Im2col, columns: Array, matrix: Array, target: Array) -> None:
    """target (images, groups, co, *lines) = the product of gathered columns with `_factor`'s
    matrix."""
    if im2col.channels_last:
        _multiply_rows(im2col, columns, matrix, target[:, 0])
    else:
        _multiply_columns(im2col, matrix, columns, target)


def _multiply_rows(im2col: Im2col, rows: Array, matrix: Array, target: Array) -> None:
    """target (images, co, *lines) = rows (images x places, depth) @ matrix (depth, co). The product
    is in BLAS's favourite order; turning it round costs a tenth of it."""
    last = channels_inner(target)
    shape = (len(rows), matrix.shape[1])
    if target.dtype == im2col.dtype and last.flags.c_contiguous:
        multiply(rows, matrix, last.reshape(shape))
        return
    into = im2col.take(math.prod(shape)).reshape(shape)
    multiply(rows, matrix, into)
    last[...] = into.reshape(last.shape)


def _multiply_columns(im2col: Im2col, matrix: Array, columns: Array, target: Array) -> None:
    """target (images, groups, co, *lines) = matrix (groups, co, depth) @ columns (images, groups,
    depth, places), in place where BLAS can write it."""
    if target.dtype == im2col.dtype and rows_flat(target):
        multiply(matrix, columns, as_matrices(target))
        return
    shape = (*target.shape[:3], columns.shape[-1])
    into = im2col.take(math.prod(shape)).reshape(shape)
    multiply(matrix, columns, into)
    target[...] = into.reshape(target.shape)


def weights(g: Array, x: Array, out: Array, w: Window, bias: Array | None = None) -> None:
    """out (groups, co, ci, *kernel): for each tap, the sum of g times what the tap saw; bias
    (groups, co): the sum of g, which rides along against ones."""
    if conv_onednn.weights(g, x, out, w, bias):
        return
    if conv_rows.suits(w, x, g.shape[2], g, out, bias):
        conv_rows.weights(g[:, 0], x[:, 0], out[0], w, None if bias is None else bias[0])
        return
    if conv_planes.suits(w, x, g.shape[2], g, out, bias):
        add = None if bias is None else bias[:, 0]
        if conv_planes.weights(g[:, :, 0], x[:, :, 0], out[:, 0, 0], w, add):
            return
    channels, dtype = x.shape[2], working(out.dtype)
    depth = max(1, channels * w.taps)
    # channels first, each image of a block has a product of its own
    apart = max(depth, depth * g.shape[2] // max(1, math.prod(w.out)))
    ones = bias is not None
    for some in _bundles(x, w):
        many = some.stop - some.start
        each = depth if Im2col(w, channels, dtype, many, ones).channels_last else apart
        todo = list(blocks(w, len(x), many * each, many * g.shape[2])) if g.size else []
        sums = _Lanes(todo, (many, g.shape[2], channels * w.taps + ones), dtype)

        def worker(some: slice = some, sums: _Lanes = sums) -> Any:
            im2col = Im2col(w, channels, dtype, some.stop - some.start, ones)

            def fn(lane: int) -> None:
                for block in sums.blocks(lane):
                    columns = im2col.gather(x[:, some], block)
                    sums.add(lane, im2col, g[block.images, some, :, block.lines], columns)
                    im2col.release()

            return fn, im2col

        work = len(x) * many * math.prod(w.out) * depth * (g.shape[2] + _GATHERED)
        _each(sums.numbers, work, worker)
        sums.write(Im2col(w, channels, dtype, many), out[some])
        if bias is not None:
            bias[some] = sums.total()[..., -1]


def forward_and_weights(
    x: Array, weight: Array, out: Array, g: Array, grad: Array, w: Window, whole: Array | None
) -> None:
    """`forward` into out, and `weights` of g and x into grad, from columns gathered once; whole
    (groups, channels) is the sum of x."""
    if conv_rows.suits(w, x, out.shape[2], weight, out, g, grad, whole):
        one = None if whole is None else whole[0]
        conv_rows.forward_and_weights(x[:, 0], weight[0], out[:, 0], g[:, 0], grad[0], w, one)
        return
    channels, dtype = x.shape[2], working(out.dtype)
    depth = max(1, channels * w.taps)
    todo = list(blocks(w, len(x), x.shape[1] * depth, g.shape[2])) if out.size else []
    sums = _Lanes(todo, (x.shape[1], g.shape[2], channels * w.taps), dtype)
    seen = [np.zeros(x.shape[1:3], dtype) for _ in sums.numbers]

    def worker() -> Any:
        im2col, matrix = _factor(x, weight, None, w, dtype)

        def fn(lane: int) -> None:
            for block in sums.blocks(lane):
                columns = im2col.gather(x, block)
                _multiply(im2col, columns, matrix, out[block.images, :, :, block.lines])
                sums.add(lane, im2col, g[block.images, :, :, block.lines], columns)
                if whole is not None and block.start == 0:
                    seen[lane] += _channel_sums(x[block.images], dtype)
                im2col.release()

        return fn, im2col

    _each(sums.numbers, 2 * g.size * depth, worker)
    sums.write(Im2col(w, channels, dtype, x.shape[1]), grad)
    if whole is not None:
        whole[...] = sum(seen[1:], seen[0])


def _channel_sums(x: Array, dtype: np.dtype[Any]) -> Array:
    """The sums of x (images, groups, channels, *places) for each channel, of each row's own."""
    rows = np.ascontiguousarray(x, dtype).reshape(math.prod(x.shape[:3]), -1)
    total: Array = np.add.reduce(row_sums(rows).reshape(x.shape[:3]), axis=0)
    return total


class _Lanes:
    """A gradient of weights as sums over every so many-th block, which are added up at the end,
    whoever made them."""

    def __init__(self, todo: list[Block], shape: Ints, dtype: np.dtype[Any]) -> None:
        self._todo = todo
        self.numbers = list(range(min(LANES, max(1, len(todo)))))
        self.totals = [np.empty(shape, dtype) for _ in self.numbers]
        self._begun = [False for _ in self.numbers]

    def blocks(self, lane: int) -> list[Block]:
        return self._todo[lane :: len(self.totals)]

    def add(self, lane: int, im2col: Im2col, g: Array, columns: Array) -> None:
        """What a block with these columns adds."""
        total = self.totals[lane]
        if self._begun[lane]:
            np.add(total, _weigh(im2col, g, columns), out=total)
        else:
            _weigh(im2col, g, columns, total)
            self._begun[lane] = True

    def write(self, im2col: Im2col, out: Array) -> None:
        """out (groups, co, ci, *kernel) = the sum of all, without that of ones."""
        depth = im2col.channels * im2col.w.taps
        out[...] = im2col.weight_back(self.total()[..., :depth])

    def total(self) -> Array:
        for lane, begun in enumerate(self._begun):
            if not begun:  # there was no block for it
                self.totals[lane][...] = 0
        return sum(self.totals[1:], self.totals[0])


def _weigh(im2col: Im2col, g: Array, columns: Array, into: Array | None = None) -> Array:
    """What a block adds to the gradient of the weights (groups, co, depth), perhaps in `into`."""
    if im2col.channels_last:
        part = into
        if part is None:
            part = im2col.take(g.shape[2] * columns.shape[1]).reshape(1, g.shape[2], -1)
        room = im2col.take(g.shape[2] * len(columns)).reshape(g.shape[2], len(columns))
        multiply(gathered(g[:, 0], im2col.dtype, room), columns, part[0])
        return part
    flat = g if g.dtype == im2col.dtype and rows_flat(g) else g.astype(im2col.dtype, order="C")
    shape = (*g.shape[:3], columns.shape[-2])
    parts = im2col.take(math.prod(shape)).reshape(shape)
    multiply(as_matrices(flat), np.swapaxes(columns, -1, -2), parts)
    total: Array = np.add.reduce(parts, axis=0, out=into)
    return total
