"""Places as integers: where elements lie in the one run of memory that a tensor spans, block by
block.

Gathers and scatters along a dim, with any strides on either side, become one-dimensional reads and
writes. Blocks keep the integers in the cache; nothing the size of the index is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from skimp._engine.eval.convert import laid
from skimp._engine.eval.expr import Array
from skimp._engine.eval.pieces import box_of, cuts
from skimp._engine.eval.plan import run_block
from skimp._engine.eval.run import threads_for
from skimp._kernels import bare
from skimp._kernels.threads import quietly, share

BLOCK: Final = 1 << 15  # elements of an index that are worked on at once

Box = tuple[slice, ...]  # a part of a shape
_BITS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def bits(a: Array) -> Array:
    """The elements as unsigned integers of their size, which NumPy moves fastest (complex128 as it
    is).
    """
    kind = _BITS.get(a.itemsize)
    return a if kind is None else a.view(kind)


def span(a: Array) -> Array:
    """All memory from the first element of `a` to the last, as a vector; `a` is not empty."""
    if a.flags.c_contiguous:
        return a.reshape(-1)
    n = (
        1
        + sum([(size - 1) * step for size, step in zip(a.shape, a.strides, strict=True)])
        // a.itemsize
    )
    return laid(a, (n,), (a.itemsize,))


def steps(a: Array) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple([s // a.itemsize for s in a.strides])


def boxes(shape: tuple[int, ...], limit: int = BLOCK) -> Iterator[Box]:
    """Cut a shape into runs of C order of about `limit` elements."""
    if math.prod(shape) <= limit:
        if 0 not in shape:
            yield tuple([slice(0, n) for n in shape])
        return
    sides = _sides(shape, limit)
    for number in range(math.prod(map(len, sides))):
        yield box_of(number, sides)[0]


def _sides(shape: tuple[int, ...], limit: int) -> list[Any]:
    return [cuts(n, part) for n, part in zip(shape, run_block(shape, limit), strict=True)]


def in_boxes(shape: tuple[int, ...], work: Callable[[Box], None], limit: int = BLOCK) -> None:
    """`work(box)` for every box of a shape, on the threads: boxes must not depend on each
    other.
    """
    if math.prod(shape) <= limit:
        if 0 not in shape:
            quietly(work, tuple([slice(0, n) for n in shape]))
        return
    sides = _sides(shape, limit)
    numbers = iter(range(math.prod(map(len, sides))))  # shared by the threads: next() is atomic

    def run() -> None:
        for number in numbers:
            work(box_of(number, sides)[0])

    share(run, threads_for(math.prod(shape)))


class Along:
    """The places of a target's elements whose position along `dim` an index tells, the others
    being the index's own.
    """

    def __init__(self, target: Array, dim: int, index: Array) -> None:
        self.strides = steps(target)
        self.dim = dim
        self.index = index

    def __call__(self, box: Box) -> Array:
        """Places in the target's span of the index elements in the box."""
        places: Array = np.multiply(self.index[box], self.strides[self.dim], dtype=np.int64)
        last = len(box) - 1
        for dim, cut in enumerate(box):
            if dim == self.dim or self.strides[dim] == 0 or cut.stop <= 1:
                continue
            stop = min(cut.stop, self.index.shape[dim])
            step = self.strides[dim]
            own = np.arange(cut.start * step, stop * step, step)
            places += own.reshape(-1, *[1] * (last - dim))
        return places


class Joint:
    """The places that several broadcast indices point to, in dims of their own, and all that lies
    under each.
    """

    def __init__(
        self, strides: tuple[int, ...], indices: list[Array], rest: tuple[tuple[int, int], ...]
    ) -> None:
        self.strides = strides
        self.indices = indices
        self.rest = rest  # (size, stride) of the dims that no index touches
        self.shape = (*indices[0].shape, *[size for size, _ in rest])

    def __call__(self, box: Box) -> Array:
        """Places of the part of the result (broadcast dims, then untouched ones) in the box."""
        lead = len(box) - len(self.rest)
        places: Array = np.multiply(self.indices[0][box[:lead]], self.strides[0], dtype=np.int64)
        for index, step in zip(self.indices[1:], self.strides[1:], strict=True):
            places = places + np.multiply(index[box[:lead]], step, dtype=np.int64)
        places = np.reshape(places, (*places.shape, *[1] * len(self.rest)))
        for k, (size, step) in enumerate(self.rest):
            cut = box[lead + k]
            own = np.arange(cut.start, min(cut.stop, size)) * step
            places = places + own.reshape(-1, *[1] * (len(self.rest) - 1 - k))
        return places


def first_outside(index: Array, low: int, high: int) -> int | None:
    """An index below `low` or not below `high`, if there is one."""
    if index.size == 0:
        return None
    least, most = int(index.min()), int(index.max())
    if low <= least and most < high:
        return None
    flat = index.reshape(-1)
    return int(flat[np.argmax((flat < low) | (flat >= high))])


def counted_from_front(index: Array, n: int) -> Array:
    """The index with negative positions counted from the end; itself where there are none."""
    if index.size and int(index.min()) < 0:
        return bare.where(index < 0, index + n, index)
    return index


def take_slices(target: Array, source: Array, dim: int, index: Array) -> bool:
    """`target = source.take(index, dim)` where both are dense in the same order of dims; else
    False.

    The index is a vector of positions counted from the front.
    """
    order = sorted(range(source.ndim), key=lambda d: -source.strides[d])
    source, target, dim = source.transpose(order), target.transpose(order), order.index(dim)
    if not (source.flags.c_contiguous and target.flags.c_contiguous):
        return False
    width = math.prod(source.shape[dim + 1 :])
    table = source.reshape(-1, source.shape[dim], width)
    into = target.reshape(-1, index.size, width)
    if width >= BLOCK:
        for k, i in enumerate(index):
            into[:, k] = table[:, i]
        return True

    def work(box: Box) -> None:
        outer, inner = box
        np.take(table[outer], index[inner], axis=1, out=into[outer, inner], mode="clip")

    in_boxes(into.shape[:2], work, max(1, (1 << 16) // width))
    return True
