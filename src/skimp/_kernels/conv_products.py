"""Convolution by kernels of one tap, which is a product for each image, by oneDNN (`onednn`).

Its products of a batch read and write images where they lie, in one call; its convolutions want
channels in bundles, and bringing images into that layout and back takes longer than the work. The
faces are those of `conv_onednn`. Bits don't depend on how many images or threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.blas import shares
from skimp._kernels.conv_pieces import TYPE
from skimp._kernels.im2col import LANES, Ints, Window
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import give, row_sums, take
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]
Lies = tuple[Ints, Ints]  # the shape of matrices of a batch, and their strides in elements

_PARTS: Final = 1 << 19  # elements of the images' own gradients of weights, at most
# What is added up in one go. Beyond 2048 oneDNN cuts sums where the number of threads says.
_DEEP: Final = 1 << 10  # channels
_LONG: Final = 1 << 12  # places, of which an image's gradient of weights is the sum
_KIND: Final = b"brg"  # how the name of code begins whose sums are cut so
_ADDED: Final = 4  # times what an element of an image takes, one of these takes
_SHARED: Final = 1 << 21  # multiplications from which threads that are awake pay
_MOVED: Final = 32  # multiplications that take as long as moving an element
_BRIEF: Final = 1 << 19  # multiplications that NumPy has done before oneDNN's is called


class Product(NamedTuple):
    """How a face is made of arrays of some shapes and strides: by products of a few images after
    the other, each with how many bytes behind the arrays' first elements its own are, or by one
    that a team shares. Without any NumPy multiplies."""

    face: str
    parts: list[tuple[Runs, Ints]]
    whole: Runs | None
    sizes: Ints  # images, and the channels of g and of x
    effort: int

    def make(self, x: Array, weight: Array, g: Array, bias: Array | None) -> None:
        """Make one of `conv_onednn`'s faces."""
        if not self.parts:
            quietly(self._make_brief, x, weight, g, bias)
            return
        if self.face == "weights":
            self._make_weights(x, weight, g, bias)
            return
        matrix = weight if weight.flags.c_contiguous else np.ascontiguousarray(weight)
        ends = (x, g) if self.face == "forward" else (g, x)
        if bias is None:
            self._run(shaping.addresses(matrix, *ends))
        else:
            beside = np.ascontiguousarray(bias)  # which is read until then
            self._run(shaping.addresses(matrix, *ends, beside))

    def _make_brief(self, x: Array, weight: Array, g: Array, bias: Array | None) -> None:
        """The same by NumPy, which reads and writes images where they lie as matrices."""
        n, co, ci = self.sizes
        seen, given = x.reshape(n, ci, -1), g.reshape(n, co, -1)
        matrix = weight.reshape(co, ci)
        if self.face == "forward":
            np.matmul(matrix, seen, out=given)
            if bias is not None:
                np.add(given, bias.reshape(co, 1), out=given)
        elif self.face == "adjoint":
            np.matmul(matrix.T, given, out=seen)
            if bias is not None:
                np.add(seen, bias.reshape(ci, 1), out=seen)
        else:
            parts = np.matmul(given, seen.transpose(0, 2, 1))
            np.add.reduce(parts.reshape(n, *weight.shape), 0, out=weight)
            if bias is not None:
                _sum_channels(given, bias)

    def _make_weights(self, x: Array, out: Array, g: Array, bias: Array | None) -> None:
        """Each image's own gradient of the weights, and their sum in the order of the images."""
        n, co, ci = self.sizes
        room = take(n * co * ci, TYPE)
        self._run(shaping.addresses(g, x, room))
        total = np.add.reduce(room.reshape(self.sizes), 0)
        out[...] = total.reshape(out.shape)
        give(room)
        if bias is not None:
            _sum_channels(g.reshape(n, co, -1), bias)

    def _run(self, at: list[int]) -> None:
        """Multiply what lies at these addresses: the factors, the product, and a bias, if any."""
        team = 1 if self.whole is None else together(True)
        if self.whole is not None and team > 1:
            self.whole.make(at, team)
        elif shares(len(self.parts), self.effort // 2):
            work = partial(_run_each, iter(self.parts), at)  # shared: next() is atomic
            share(work, min(config.threads, len(self.parts)))
        else:
            _run_each(self.parts, at)


def _sum_channels(g: Array, bias: Array) -> None:
    """bias = the sums of g (n, channels, places) for each channel."""
    n, co, _ = g.shape
    rows = row_sums(np.ascontiguousarray(g).reshape(n * co, -1))
    bias[...] = np.add.reduce(rows.reshape(n, co), 0)


def _run_each(parts: Iterable[tuple[Runs, Ints]], at: list[int]) -> None:
    for runs, behind in parts:
        runs.make(list(map(add, at, behind)))


def product(
    face: str, w: Window, n: int, kernels: Ints, lie: tuple[Ints, Ints, Ints], bias: bool
) -> Product | None:
    """How a face is made of float32 of these strides, of n images and weights of this shape; None
    if it is no such product, or oneDNN has none."""
    groups, co, ci = kernels[:3]
    if (
        groups > 1
        or w.taps > 1
        or any([s > 1 for s in w.stride])
        or any(w.padding)
        or w.size != w.out  # of a transposed one there may be more than its kernel reaches
        or max(co, ci) > _DEEP
        or not n * co * ci * math.prod(w.out)
        or (face == "weights" and _many_parts(n, co, ci, math.prod(w.out)))
    ):
        return None
    seen, given = _lies((n, groups, ci, *w.size), lie[0]), _lies((n, groups, co, *w.out), lie[2])
    if seen is None or given is None:
        return None
    if n * co * ci * math.prod(w.out) <= _BRIEF:
        return Product(face, [], None, (n, co, ci), 0)
    effort = n * math.prod(w.out) * (co * ci + _MOVED * (co + ci))
    a: Lies
    b: Lies
    c: Lies
    if face == "weights":
        a, b, c = given, _turned(seen), ((n, co, ci), (co * ci, ci, 1))
    elif face == "forward":
        a, b, c = ((1, co, ci), (co * ci, ci, 1)), seen, given
    else:
        a, b, c = ((1, ci, co), (co * ci, 1, ci)), given, seen
    beside = bias and face != "weights"
    # both are made at first: which one is asked for changes with what else the machine does
    count = -(-n // LANES) if shares(LANES, effort // 2) else n
    parts = _cut(a, b, c, beside, count, 1)
    large = effort >= _SHARED and config.threads > 1
    whole = _cut(a, b, c, beside, n, config.threads) if large else parts
    if parts is None or whole is None:
        return None
    return Product(face, parts, whole[0][0] if large else None, (n, co, ci), effort)


def _many_parts(n: int, co: int, ci: int, places: int) -> bool:
    """Whether images' own gradients of weights are much beside the images, or long sums."""
    much = n * co * ci > _PARTS or _ADDED * co * ci > places * (co + ci)
    return much or places > _LONG


def _lies(shape: Ints, strides: Ints) -> Lies | None:
    """Images (n, 1, channels, *size) as matrices (channels, places), if they are that in memory:
    by rows or by columns, apart from each other."""
    n, _, channels, *size = shape
    places = math.prod(size)
    steps = [s // TYPE.itemsize for s in strides]
    if any([s % TYPE.itemsize for s in strides]):
        return None
    step, run = 1, None
    for length, own in zip(size[::-1], steps[:2:-1], strict=True):
        if length > 1:
            if run is None:
                step = run = own
            elif own != run:
                return None
            run *= length
    down = steps[2] if channels > 1 else step * places
    apart = steps[0] if n > 1 else channels * places
    by_rows = step == 1 and down >= places
    if not (by_rows or (down == 1 and step >= channels)):
        return None
    most = (channels - 1) * down + (places - 1) * step + 1
    return ((n, channels, places), (apart, down, step)) if apart >= most else None


def _turned(lies: Lies) -> Lies:
    (n, rows, columns), (apart, down, right) = lies
    return (n, columns, rows), (apart, right, down)


def _cut(
    a: Lies, b: Lies, c: Lies, bias: bool, count: int, team: int
) -> list[tuple[Runs, Ints]] | None:
    """The products of so many images after the other, for a team of so many, and how many bytes on
    each array begins for them; None if oneDNN has no such product."""
    found: list[tuple[Runs, Ints]] = []
    n, several = c[0][0], a[0][0] > 1
    for start in range(0, n, count):
        many = min(count, n - start)
        some = [((many, *lies[0][1:]), lies[1]) for lies in (a, b, c)]
        runs = _runs(some[0] if several else a, some[1], some[2], bias, team)
        if runs is None:
            return None
        behind = [start * lies[1][0] * TYPE.itemsize for lies in (a, b, c)]
        found.append((runs, (behind[0] if several else 0, behind[1], behind[2], 0)))
    return found


@lru_cache(512)
def _runs(a: Lies, b: Lies, c: Lies, bias: bool, team: int) -> Runs | None:
    one, other, into = [onednn.layout(*lies) for lies in (a, b, c)]
    channels = c[0][1]
    beside = onednn.layout((1, channels, 1), (channels, 1, 1)) if bias else None
    try:
        with onednn.team(team):
            then = [] if beside is None else [(onednn.ADD, beside)]
            primitive = onednn.products(one, other, into, then)
    except onednn.Unsupported:
        return None
    if not primitive.name.startswith(_KIND):
        return None
    layouts = {onednn.FROM: one, onednn.WEIGHTS: other, onednn.TO: into}
    return Runs(primitive, layouts | ({} if beside is None else {onednn.ADDED[0]: beside}))
