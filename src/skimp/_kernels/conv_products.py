"""Convolution by kernels of one tap, which is a product for each image, by oneDNN (`onednn`).

Its products of a batch read and write images where they lie, in one call; its convolutions want
channels in bundles, and bringing images into that layout and back takes longer than the work. The
faces are those of `conv_onednn`. Bits don't depend on how many images or threads there are.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.blas import spread
from skimp._kernels.conv_pieces import TYPE, Three
from skimp._kernels.im2col import LANES, Ints, Window
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import Scratch, row_sums
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


def made(face: str, arrays: Three, bias: Array | None, w: Window) -> bool:
    """Whether it makes one of `conv_onednn`'s faces, of x, weights and g, follows from shapes,
    types, strides and the library alone."""
    x, weight, g = arrays
    n, groups, ci = x.shape[:3]
    co = weight.shape[1]
    if (
        groups > 1
        or w.taps > 1
        or any([s > 1 for s in w.stride])
        or any(w.padding)
        or any([a.dtype != TYPE or not a.size for a in arrays])
        or max(co, ci) > _DEEP
        or (face == "weights" and _many_parts(n, co, ci, math.prod(w.out)))
    ):
        return False
    seen, given = _lies(x), _lies(g)
    if seen is None or given is None:
        return False
    effort = n * math.prod(w.out) * (co * ci + _MOVED * (co + ci))
    if face == "weights":
        return _weights(x, g, weight, bias, seen, given, effort)
    matrix = np.ascontiguousarray(weight).reshape(1, co, ci)
    add = None if bias is None else np.ascontiguousarray(bias)
    if face == "forward":
        one = (1, co, ci), (co * ci, ci, 1)
        return _run(one, seen, given, matrix, x, g, add, effort)
    one = (1, ci, co), (co * ci, 1, ci)
    return _run(one, given, seen, matrix, g, x, add, effort)


def _many_parts(n: int, co: int, ci: int, places: int) -> bool:
    """Whether images' own gradients of weights are much beside the images, or long sums."""
    much = n * co * ci > _PARTS or _ADDED * co * ci > places * (co + ci)
    return much or places > _LONG


def _lies(a: Array) -> Lies | None:
    """Images (n, 1, channels, *size) as matrices (channels, places), if they are that in memory:
    by rows or by columns, apart from each other."""
    n, _, channels, *size = a.shape
    places = math.prod(size)
    steps = [s // TYPE.itemsize for s in a.strides]
    if any([s % TYPE.itemsize for s in a.strides]):
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


def _weights(
    x: Array, g: Array, out: Array, bias: Array | None, seen: Lies, given: Lies, effort: int
) -> bool:
    """Each image's own gradient of the weights, and their sum in the order of the images."""
    n, co, _ = given[0]
    ci = seen[0][1]
    with Scratch((n, co, ci), TYPE) as parts:
        into = (n, co, ci), (co * ci, ci, 1)
        if not _run(given, _turned(seen), into, g, x, parts, None, effort):
            return False
        out[...] = np.add.reduce(parts, 0).reshape(out.shape)
    if bias is not None:
        rows = row_sums(np.ascontiguousarray(g).reshape(n * co, -1))
        bias[...] = np.add.reduce(rows.reshape(n, co), 0)
    return True


def _run(
    a: Lies,
    b: Lies,
    c: Lies,
    one: Array,
    other: Array,
    into: Array,
    bias: Array | None,
    effort: int,
) -> bool:
    """into = one @ other (+ bias), on a team, or a few images after the other shared by our own
    threads; False if oneDNN has no such product."""
    n, large = c[0][0], effort >= _SHARED and config.threads > 1
    # both are made at first: which one is asked for changes with what else the machine does
    todo = _cut(a, b, c, bias is not None, -(-n // LANES), 1)
    whole = _cut(a, b, c, bias is not None, n, config.threads) if large else todo
    if todo is None or whole is None:
        return False
    arrays = [one, other, into] if bias is None else [one, other, into, bias]
    at = [shaping.address(array) for array in arrays]
    team = together(large)
    if team > 1:
        whole[0][0].make(at, team)
        return True
    items = iter(todo)  # shared by the threads: next() is atomic

    def work() -> None:
        for runs, skipped in items:
            runs.make([place + skip for place, skip in zip(at, skipped, strict=False)])

    spread(work, len(todo), effort // 2)
    return True


@lru_cache(512)
def _cut(
    a: Lies, b: Lies, c: Lies, bias: bool, count: int, team: int
) -> list[tuple[Runs, Ints]] | None:
    """The products of so many images after the other, for a team of so many, and how many bytes on
    each array begins for them."""
    found: list[tuple[Runs, Ints]] = []
    n, several = c[0][0], a[0][0] > 1
    for start in range(0, n, count):
        many = min(count, n - start)
        some = [((many, *lies[0][1:]), lies[1]) for lies in (a, b, c)]
        runs = _runs(some[0] if several else a, some[1], some[2], bias, team)
        if runs is None:
            return None
        skipped = [start * lies[1][0] * TYPE.itemsize for lies in (a, b, c)]
        found.append((runs, (skipped[0] if several else 0, skipped[1], skipped[2], 0)))
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
