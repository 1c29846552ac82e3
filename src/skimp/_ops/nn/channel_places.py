"""Sums over the channels of images that lie channels last: what batch_norm and group_norm need,
forwards and backwards.

A tensor is read as (n, places, channels). NumPy takes longer to begin a row of few channels than to
add it, so several places are one run, each with sums of its own, in the working type; they are
joined in float64, in the order of the places. No result depends on blocks or threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.expr import Expr
from skimp._engine.eval.run import evaluate, threads_for
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels.bare import einsum
from skimp._kernels.scratch import Scratch
from skimp._kernels.threads import share

LEAST: Final = 1 << 14  # elements from which it takes less time than ops
_LANES: Final = 1 << 11  # elements of a run
_BESIDE: Final = 1 << 9  # of one beside which numbers are written out, at least
_ADDED: Final = 1 << 5  # places that a sum in the working type is of at least, if there are as many
_PIECE: Final = 1 << 17  # elements of what stays in the cache until it is read again
_PASSES: Final = 3  # over a piece, as memory gives them


def lie_last(t: Tensor) -> bool:
    """Whether the channels of each place are a run, and the tensor is worth looking at that way."""
    shape, strides, _ = t._skimp_layout or t._skimp_layout_of()
    return t._dtype.is_floating_point and not t._hollow and _do_lie_last(shape, strides)


@lru_cache(1024)
def _do_lie_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(shape) not in (4, 5) or shape[1] < 2 or math.prod(shape) < LEAST:
        return False
    layout = Layout(shape, strides, 0)
    return layouts.is_channels_last(layout, len(shape)) and layouts.suggests_channels_last(layout)


def images_of(t: Tensor) -> Array:
    """The elements as (n, places, channels)."""
    return _as_places(t._skimp_array())


def _as_places(a: Array) -> Array:
    n, count = a.shape[:2]
    return a.transpose(0, *range(2, a.ndim), 1).reshape(n, -1, count)


def as_one(images: Array) -> Array:
    """All images as one, whose places are theirs."""
    return images.reshape(1, -1, images.shape[2])


def room_like(t: Tensor) -> tuple[Tensor, Array]:
    """A tensor to be filled, of the working type and the same layout, and its images."""
    shape = shape_of(t)
    made, into = blank(shape, dtypes.accumulator(t._dtype), layouts.channels_last_strides(shape))
    return made, _as_places(into)


def gradient_images(g: Tensor, into: Array) -> Array:
    """The values of a gradient of such images: in `into` if it is deferred, or lies otherwise."""
    source, order = source_of(g)
    n, count, *size = shape_of(g)
    target = into.reshape(n, *size, count).transpose(0, len(size) + 1, *range(1, len(size) + 1))
    if isinstance(source, Expr):
        lying = target.transpose(order)
        if lying.flags.c_contiguous and source.dtype == into.dtype:
            evaluate(source, lying)
            return into
    del source  # whoever holds it keeps its result from taking over what it reads
    own = g._skimp_array()
    if own.dtype == into.dtype and own.strides == target.strides:
        return _as_places(own)
    target[...] = own
    return into


# -- pieces ---------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """Places of some images, as runs of `several`; each of those has sums in rows from `row` on."""

    images: slice
    places: slice
    several: int
    row: int

    def of(self, images: Array) -> Array:
        """(images, runs, lanes)"""
        found = images[self.images, self.places]
        return found.reshape(len(found), -1, self.several * images.shape[2])

    def beside(self, line: Array, count: int) -> Array:
        """The same of a `_line` of numbers for each of so many channels."""
        own = line if len(line) == 1 else line[self.images]
        return own[:, :, : self.several * count]

    def sums_in(self, rows: Array, sums: Array) -> None:
        """Put what runs add up to where it belongs, in (images, rows, channels)."""
        into = rows[self.images, self.row : self.row + self.several]
        into[...] = sums.reshape(into.shape)


class _Cut(NamedTuple):
    pieces: list[_Piece]
    several: int
    lengths: Array
    """How many places each row's sum is of, (rows, 1)."""


@lru_cache(256)
def _cut(n: int, places: int, count: int) -> _Cut:
    several = max(1, min(_LANES // count, places // _ADDED))
    step = max(several, _PIECE // count // several * several)
    whole = places - places % several
    parts = [(i, min(i + step, whole), several) for i in range(0, whole, step)]
    parts += [(whole, places, 1)] if whole < places else []
    many = max(1, _PIECE // (count * places))  # images at once, where each is one part
    pieces: list[_Piece] = []
    lengths: list[int] = []
    for start, stop, each in parts:
        row = len(lengths)
        lengths += [(stop - start) // each] * each
        pieces += [
            _Piece(slice(i, i + many), slice(start, stop), each, row) for i in range(0, n, many)
        ]
    return _Cut(pieces, several, np.array(lengths, np.float64)[:, None])


def _over(cut: _Cut, elements: int, work: Callable[[_Piece], None], steps: int) -> None:
    pieces = iter(cut.pieces)

    def some() -> None:
        for piece in pieces:  # shared by the threads: next() is atomic
            work(piece)

    share(some, min(threads_for(elements, steps), len(cut.pieces)))


def _line(numbers: Array, cut: _Cut) -> Array:
    """Numbers (images or 1, channels) for each lane of a run, (images or 1, 1, lanes)."""
    return np.tile(numbers[:, None], (1, 1, cut.several))


# -- sums -----------------------------------------------------------------------------------------


def moments(x: Array) -> tuple[Array, Array]:
    """Mean and biased variance of each channel of each image, (n, channels) in float64."""
    n, places, count = x.shape
    cut = _cut(n, places, count)
    rows = _sums_and_squares(x, cut, x.dtype)
    if rows.dtype.itemsize < 8 and not math.isfinite(rows[1].item(rows[1].argmax())):
        rows = _sums_and_squares(x, cut, np.dtype(np.float64))
    total, square = rows.astype(np.float64, copy=False)
    mean = np.add.reduce(total, 1) / places
    # each row's are around its own mean, or what that is in the working type
    centre = np.divide(total, cut.lengths, out=total)
    apart = np.subtract(centre, mean[:, None], out=centre)
    square += np.multiply(np.square(apart, out=apart), cut.lengths, out=apart)
    return mean, np.add.reduce(square, 1) / places


def _sums_and_squares(x: Array, cut: _Cut, dtype: np.dtype[Any]) -> Array:
    """Each row's sum, and that of the squares around its mean, (2, n, rows, channels)."""
    rows = np.empty((2, len(x), len(cut.lengths), x.shape[2]), dtype)

    def work(piece: _Piece) -> None:
        own = piece.of(x)
        total = np.add.reduce(own, axis=1, keepdims=True, dtype=dtype)
        with Scratch(own.shape, dtype) as apart:
            np.subtract(own, total / dtype.type(own.shape[1]), out=apart)
            squares = einsum("ijk,ijk->ik", apart, apart)
        piece.sums_in(rows[0], total)
        piece.sums_in(rows[1], squares)

    _over(cut, x.size, work, _PASSES)
    return rows


def gradient_sums(g: Array, x: Array, middle: Array) -> Array:
    """The sums of g and of g * (x - middle) for each channel of each image, (2, n, channels) in
    float64. `middle`: (n or 1, channels)."""
    n, places, count = x.shape
    cut = _cut(n, places, count)
    rows = np.empty((2, n, len(cut.lengths), count), g.dtype)
    line = _line(middle.astype(g.dtype, copy=False), cut)

    def work(piece: _Piece) -> None:
        own, seen = piece.of(g), piece.of(x)
        with Scratch(own.shape, own.dtype) as apart:
            np.subtract(seen, piece.beside(line, count), out=apart)
            products = einsum("ijk,ijk->ik", own, apart)
        piece.sums_in(rows[0], np.add.reduce(own, axis=1))
        piece.sums_in(rows[1], products)

    _over(cut, x.size, work, _PASSES)
    found: Array = np.add.reduce(rows, 2, dtype=np.float64)
    return found


def blend(g: Array, x: Array, out: Array, *numbers: Array) -> None:
    """out = x * b + c + g * a, of a, b and c (n or 1, channels); it may be g itself."""
    n, places, count = x.shape
    cut = _cut(n, places, count)
    lines = [_line(each.astype(g.dtype, copy=False), cut) for each in numbers]

    def work(piece: _Piece) -> None:
        into = piece.of(out)
        a, b, c = [piece.beside(line, count) for line in lines]
        with Scratch(into.shape, into.dtype) as scaled:
            np.multiply(piece.of(g), a, out=scaled)
            np.multiply(piece.of(x), b, out=into)
            np.add(into, c, out=into)
            np.add(into, scaled, out=into)

    _over(cut, x.size, work, _PASSES + 1)


def beside(like: Tensor, *numbers: Array) -> list[Tensor]:
    """Numbers (n or 1, channels) as tensors that broadcast against images that lie last, written
    out for so many of their last dims that a run is long enough for NumPy."""
    _, count, *size = shape_of(like)
    first, lanes = len(size), count
    while first and lanes < _BESIDE:
        first -= 1
        lanes *= size[first]
    found = []
    for each in numbers:
        shape = (len(each), count, *(1,) * first, *size[first:])
        made, into = blank(
            shape, dtypes.FROM_NUMPY[each.dtype], layouts.channels_last_strides(shape)
        )
        into[...] = each.reshape(*each.shape, *(1,) * len(size))
        found.append(made)
    return found
