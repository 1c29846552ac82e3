"""Copies between any two layouts and types, in pieces that use whole cache lines on both sides."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from skimp._engine.eval.convert import collides, convert, laid, turn
from skimp._engine.eval.expr import Array
from skimp._engine.eval.make import collapse, run_block, tile_block, transposed_dim
from skimp._engine.eval.pieces import box_of, cuts
from skimp._engine.eval.program import LeafLayout
from skimp._engine.eval.run import threads_for
from skimp._kernels import copies, shaping
from skimp._kernels.threads import quietly, share
from skimp.config import config

_SMALL: Final = 1 << 14  # elements below which one NumPy call is as good as any blocks
_TILE: Final = 1 << 16  # elements of a tile: 256 x 256
_RUN: Final = 1 << 18  # elements of a block that is not a tile
_ALIKE: Final = 1 << 20  # elements up to which rows of one type are copied by one call,
_LINE: Final = 32  # if they have at least so many elements


def copy(dst: Array, src: Array) -> None:
    """Copy `src`, of dst's shape or broadcast to it, into `dst`, converting as PyTorch does.

    The two share no memory, or are the very same elements.
    """
    size, alike = dst.size, dst.dtype is src.dtype
    if size < _SMALL and alike:
        dst[...] = src
    elif alike and copies.moved(src, dst):
        pass
    elif size < _SMALL or (
        (size < config.threads_from or threads_for(size) == 1) and _is_one_call(dst, src)
    ):
        if alike:  # nothing that NumPy could warn of
            copies.put(src, dst)
        else:
            quietly(convert, src, dst)
    else:
        _copy_blocks(dst, shaping.broadcast(src, dst.shape))


def _is_one_call(dst: Array, src: Array) -> bool:
    """Whether one NumPy call takes as long as the pieces themselves, without what cuts them."""
    if dst.size <= _RUN:
        # broadcast to more dims elements are read again
        return src.ndim < dst.ndim or not _jumps(dst.shape, dst.strides, src.strides)
    return (  # a bias in its rows, say
        dst.size <= _ALIKE
        and dst.dtype is src.dtype
        and dst.flags.c_contiguous
        and src.ndim > 0
        and src.shape[-1] == dst.shape[-1] >= _LINE
        and src.strides[-1] == src.itemsize
    )


@lru_cache(1024)
def _jumps(shape: tuple[int, ...], into: tuple[int, ...], source: tuple[int, ...]) -> bool:
    """Whether NumPy, which goes by the order of what is written `into`, would go through the source
    by strides that compete for the same places in the cache."""
    strides = [
        (abs(to), origin) for to, origin, size in zip(into, source, shape, strict=True) if size > 1
    ]
    return collides(min(strides, default=(0, 0))[1])


def _copy_blocks(dst: Array, src: Array) -> None:
    order = sorted(range(dst.ndim), key=lambda dim: -abs(dst.strides[dim]))
    dst, src = dst.transpose(order), src.transpose(order)
    layouts = (LeafLayout(dst.dtype, dst.strides), LeafLayout(src.dtype, src.strides))
    domain, (to, origin) = collapse(dst.shape, layouts)
    dst = laid(dst, domain, to.strides)
    src = laid(src, domain, origin.strides)
    across = transposed_dim(domain, (origin,))
    block = run_block(domain, _RUN) if across is None else tile_block(domain, across, _TILE)
    sides = [cuts(size, part) for size, part in zip(domain, block, strict=True)]
    numbers = iter(range(math.prod(map(len, sides))))  # shared by the threads: next() is atomic

    move = turn if across is not None and collides(origin.strides[-1]) else convert

    def work() -> None:
        for number in numbers:
            box, _ = box_of(number, sides)
            move(src[box], dst[box])

    share(work, threads_for(dst.size))
