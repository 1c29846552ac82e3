"""Where split, chunk, tensor_split and unbind cut a dimension, as (start, length) of each part.

`layout_views.narrow` (or `select`, for unbind) then makes the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from skimp._engine.memory.layout import Ints, check_width, need_dims, normalize_dim
from skimp._engine.memory.layout_views import clamp_slice

Span = tuple[int, int]

_MOST_PARTS: Final = 1 << 28  # views of as many parts take more than 100 GB


def _check_parts(name: str, count: int) -> None:
    """Refuse at once what would run for hours, out of memory in the end."""
    if count > _MOST_PARTS:
        raise RuntimeError(f"{name}: {count} views are more than memory can hold")


def _spans(lengths: Sequence[int]) -> list[Span]:
    starts = accumulate(lengths, initial=0)
    return list(zip(starts, lengths, strict=False))


def split(shape: Ints, split_size: int, dim: int = 0) -> list[Span]:
    """Parts of split_size, the last one shorter where it does not divide the dimension."""
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if split_size < 0:
        raise RuntimeError(
            f"split expects split_size be non-negative, but got split_size={split_size}"
        )
    size = shape[normalize_dim(dim, len(shape))]
    if split_size == 0:
        if size:
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}"
            )
        return [(0, 0)]
    starts = range(0, max(size, 1), split_size)
    _check_parts("split", len(starts))
    return [(start, min(split_size, size - start)) for start in starts]


def split_with_sizes(shape: Ints, sizes: Sequence[int], dim: int = 0) -> list[Span]:
    """Parts of the sizes given, which must add up to the dimension's."""
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = shape[normalize_dim(dim, len(shape))]
    if min(sizes, default=0) < 0:
        raise RuntimeError(
            "split_with_sizes expects split_sizes have only non-negative entries, "
            f"but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != size:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return _spans(sizes)


def chunk(shape: Ints, chunks: int, dim: int = 0) -> list[Span]:
    """At most so many parts, all but the last of one size."""
    if not shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = shape[normalize_dim(dim, len(shape))]
    if size == 0:
        _check_parts("chunk", chunks)
        return [(0, 0)] * chunks
    return split(shape, -(-size // chunks), dim)


def tensor_split(shape: Ints, where: int | Sequence[int], dim: int = 0) -> list[Span]:
    """So many parts, of sizes that differ by at most 1, or the parts between the indices given."""
    if not shape:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    size = shape[normalize_dim(dim, len(shape))]
    if not isinstance(where, int):
        check_width(where)
        edges = [0, *where, None]
        return [clamp_slice(size, *pair) for pair in pairwise(edges)]
    if where <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {where}")
    _check_parts("tensor_split", where)
    least, longer = divmod(size, where)
    return _spans([least + (part < longer) for part in range(where)])


def unbind(shape: Ints, dim: int = 0) -> tuple[int, int]:
    """(the dimension counted from the front, the number of parts)."""
    dim = normalize_dim(dim, len(shape))
    need_dims(dim, len(shape))
    _check_parts("unbind", shape[dim])
    return dim, shape[dim]
