"""Which tensors reach one place twice: PyTorch's tests before a write (MemoryOverlap.cpp)."""

from __future__ import annotations

from enum import Enum
from math import prod

from skimp._engine.memory.layout import Layout, is_non_overlapping_and_dense


class Overlap(Enum):
    """What is known of two tensors on one storage, or of one tensor with itself (NO, YES)."""

    NO = "no"
    YES = "yes"
    FULL = "full"
    PARTIAL = "partial"
    TOO_HARD = "too hard"  # PyTorch does not look further, and lets the op pass


def has_internal_overlap(layout: Layout) -> Overlap:
    """Whether two indices reach one place: NO, YES (an expanded dimension) or TOO_HARD."""
    if is_non_overlapping_and_dense(layout):
        return Overlap.NO
    if any(step == 0 and size > 1 for size, step in zip(layout.shape, layout.strides, strict=True)):
        return Overlap.YES
    return Overlap.TOO_HARD


def overlap_status(a: Layout, b: Layout, a_itemsize: int = 1, b_itemsize: int = 1) -> Overlap:
    """How two tensors on one storage share it: NO, PARTIAL, FULL or TOO_HARD.

    The caller knows that the storage is the same, and that a tensor with itself is FULL whatever
    its layout.
    """
    if 0 in a.shape or 0 in b.shape:
        return Overlap.NO
    if not (is_non_overlapping_and_dense(a) and is_non_overlapping_and_dense(b)):
        return Overlap.TOO_HARD
    a_begin, a_end = _byte_span(a, a_itemsize)
    b_begin, b_end = _byte_span(b, b_itemsize)
    if (a_begin, a_end) == (b_begin, b_end):
        return Overlap.FULL if a.strides == b.strides else Overlap.PARTIAL
    return Overlap.PARTIAL if a_begin < b_end and b_begin < a_end else Overlap.NO


def _byte_span(dense: Layout, itemsize: int) -> tuple[int, int]:
    begin = dense.offset * itemsize
    return begin, begin + prod(dense.shape) * itemsize


def assert_no_internal_overlap(written: Layout) -> None:
    """Refuse a write into a tensor that is known to map one place twice."""
    if has_internal_overlap(written) is Overlap.YES:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def assert_no_partial_overlap(
    written: Layout, read: Layout, written_itemsize: int = 1, read_itemsize: int = 1
) -> None:
    """Refuse to write one part of what is read; the same places in the same order are fine."""
    if overlap_status(written, read, written_itemsize, read_itemsize) is Overlap.PARTIAL:
        raise _overlap_error()


def assert_no_overlap(
    written: Layout, read: Layout, written_itemsize: int = 1, read_itemsize: int = 1
) -> None:
    """Refuse to write any place that is read, for ops that read after their first write."""
    status = overlap_status(written, read, written_itemsize, read_itemsize)
    if status in (Overlap.PARTIAL, Overlap.FULL):
        raise _overlap_error()


def _overlap_error() -> RuntimeError:
    return RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer "
        "to a single memory location. Please clone() the tensor before performing the operation."
    )
