"""Where a tensor's elements lie: pure arithmetic on shapes, strides and offsets, no arrays.

The rules are PyTorch's (TensorImpl, TensorIterator, ExpandUtils), down to the strides that nobody
reads: those of dimensions of size 0 and 1. Lengths are counted in elements, never in bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

Ints = tuple[int, ...]


class Layout(NamedTuple):
    """The places of a tensor's elements in its storage; strides and offset count elements."""

    shape: Ints
    strides: Ints
    offset: int


numel = math.prod  # the number of elements of a shape


@lru_cache(maxsize=4096)
def contiguous_strides(shape: Ints) -> Ints:
    """The strides of a shape in row-major order; a dimension of size 0 counts as 1."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        if size > 1:
            step *= size
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def contiguous(shape: Ints) -> Layout:
    """The layout of a fresh row-major tensor."""
    return Layout(shape, contiguous_strides(shape), 0)


def is_contiguous(layout: Layout) -> bool:
    """Whether the elements follow each other in row-major order (an empty tensor: yes)."""
    shape, strides, _ = layout
    return strides == contiguous_strides(shape) or _runs_through(shape, strides)


def _runs_through(shape: Ints, strides: Ints) -> bool:
    """Row-major apart from the strides of dimensions of size 1, or empty."""
    if 0 in shape:
        return True
    return _is_packed_in(range(len(shape) - 1, -1, -1), shape, strides)


def _is_packed_in(order: Iterable[int], shape: Ints, strides: Ints) -> bool:
    """Whether the dimensions, innermost first, follow each other without gaps."""
    expected = 1
    for dim in order:
        if shape[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= shape[dim]
    return True


# Innermost first, by the number of dimensions: NHWC and NDHWC.
_CHANNELS_LAST: Final[dict[int, Ints]] = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def is_channels_last(layout: Layout, ndim: int = 4) -> bool:
    """Whether the layout is dense in channels_last order (ndim 4), channels_last_3d (ndim 5)."""
    if len(layout.shape) != ndim:
        return False
    return _is_packed_in(_CHANNELS_LAST[ndim], layout.shape, layout.strides)


def suggests_channels_last(layout: Layout) -> bool:
    """PyTorch's suggest_memory_format: strides grow in channels_last order; ambiguous ones count as
    row-major.
    """
    shape, strides, _ = layout
    order = _CHANNELS_LAST.get(len(shape))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for d in order:
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def channels_last_strides(shape: Ints) -> Ints:
    """The strides of a 4-d shape in channels_last, or of a 5-d shape in channels_last_3d."""
    return _pack(_CHANNELS_LAST[len(shape)], shape)


def check_rank_for_channels_last(shape: Ints, ndim: int) -> None:
    """Raise PyTorch's error unless channels_last (ndim 4) or channels_last_3d (5) applies."""
    if len(shape) != ndim:
        name = "channels_last" if ndim == 4 else "channels_last_3d"
        raise RuntimeError(f"required rank {ndim} tensor to use {name} format")


def is_non_overlapping_and_dense(layout: Layout) -> bool:
    """Whether the elements fill one run of memory, each place once, in any order of dimensions."""
    return _is_dense(layout.shape, layout.strides)


@lru_cache(maxsize=4096)
def _is_dense(shape: Ints, strides: Ints) -> bool:
    if 0 in shape:
        return True
    wide = [dim for dim, size in enumerate(shape) if size > 1]
    wide.sort(key=strides.__getitem__)
    return _is_packed_in(wide, shape, strides)


# --- the order of dimensions in memory --------------------------------------------------------


def _compare(dim0: int, dim1: int, shape: Ints, all_strides: Sequence[Ints]) -> int:
    """Above 0: dim0 lies further out than dim1; below 0: further in; 0: cannot be told."""
    for strides in all_strides:
        step0, step1 = strides[dim0], strides[dim1]
        if step0 == 0 or step1 == 0:
            continue  # a broadcast dimension has no place of its own
        if step0 != step1:
            return 1 if step0 > step1 else -1
        if shape[dim0] > shape[dim1]:
            return 1
    return 0


def _innermost_first(shape: Ints, all_strides: Sequence[Ints]) -> list[int]:
    """TensorIterator's order: an insertion sort in which undecided pairs keep their places."""
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        at = start
        for before in range(start - 1, -1, -1):
            comparison = _compare(order[before], order[at], shape, all_strides)
            if comparison > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comparison < 0:
                break
    return order


@lru_cache(maxsize=1024)
def _memory_order(shape: Ints, strides: Ints) -> Ints:
    return tuple(reversed(_innermost_first(shape, (strides,))))


def memory_order(layout: Layout) -> Ints:
    """The permutation of the dimensions from the outermost in memory to the innermost."""
    return _memory_order(layout.shape, layout.strides)


@lru_cache(maxsize=1024)
def orders(shape: Ints, strides: Ints) -> tuple[Ints, Ints]:
    """`memory_order` of dims with strides of any unit, and the permutation that undoes it."""
    order = _memory_order(shape, strides)
    return order, tuple(sorted(range(len(order)), key=order.__getitem__))


def dense_strides_like(layouts: Sequence[Layout], shape: Ints) -> Ints:
    """The strides of a fresh result, of the broadcast shape, of a pointwise op on these inputs.

    A Python number that PyTorch wraps into a tensor (as add and mul do) is an input of no dims. It
    takes no part in the order, but its shape rules out the shortcuts for inputs of one shape, and
    those differ in the strides of dimensions of size 1.
    """
    row_major = contiguous_strides(shape)
    for own, strides, _ in layouts:
        if own and (strides != row_major or own != shape):
            break
    else:
        if 0 not in shape:  # a scalar beside an empty tensor changes the strides
            return row_major
    return _dense_strides(tuple([layout[:2] for layout in layouts]), shape)


@lru_cache(maxsize=1024)
def _dense_strides(inputs: tuple[tuple[Ints, Ints], ...], shape: Ints) -> Ints:
    if all(input_shape == shape for input_shape, _ in inputs):
        strides = _strides_of_one_shape([Layout(*each, 0) for each in inputs], shape)
        if strides is not None:
            return strides
    order = _innermost_first(shape, [broadcast_strides(*each, shape) for each in inputs])
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    return _pack(order, shape)


def _strides_of_one_shape(layouts: list[Layout], shape: Ints) -> Ints | None:
    """TensorIterator's shortcuts for inputs that all have the shape of the result."""
    if all(map(is_contiguous, layouts)):
        return contiguous_strides(shape)
    if len(shape) == 4 and all(map(is_channels_last, layouts)):
        return channels_last_strides(shape)
    first = layouts[0].strides
    if all(each.strides == first and is_non_overlapping_and_dense(each) for each in layouts):
        return first
    return None


def _pack(order: Iterable[int], shape: Ints) -> Ints:
    """Strides without gaps, innermost dimension first; after a size of 0 they are 0."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def empty_like_strides(layout: Layout) -> Ints:
    """The strides that empty_like and clone give under torch.preserve_format."""
    shape, strides, _ = layout
    if is_non_overlapping_and_dense(layout):
        return strides
    return _pack(reversed(memory_order(layout)), tuple([max(size, 1) for size in shape]))


# --- dimensions and shapes --------------------------------------------------------------------


def check_width(numbers: Iterable[int]) -> None:
    """Refuse integers of more than 64 bits."""
    if any([not -_WIDE <= n < _WIDE for n in numbers]):
        raise ValueError("Overflow when unpacking long long")


def normalize_dim(dim: int, ndim: int) -> int:
    """The dimension counted from the front; a 0-d tensor is taken to have one dimension."""
    if type(dim) is not int:
        dim = _whole(dim)
    limit = ndim or 1
    if 0 <= dim < limit:
        return dim
    if -limit <= dim < 0:
        return dim + limit
    check_width((dim,))
    raise IndexError(
        "Dimension out of range (expected to be in range of "
        f"[{-limit}, {limit - 1}], but got {dim})"
    )


def need_dims(dim: int, ndim: int) -> None:
    """Raise PyTorch's error where a size along `dim` is asked of a tensor without dimensions."""
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


_WIDE = 1 << 63  # dims are 64 bits wide in PyTorch


def _whole(dim: Any) -> int:
    """A dim that is no int: NumPy's integers and 0-d integer tensors count as one."""
    if isinstance(dim, (bool, type)) or not hasattr(dim, "__index__"):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    return int(dim.__index__())


def numbers(values: Iterable[Any]) -> Iterable[Any]:
    """A list of integers as it is given, but for flags: behind the first one they are numbers, as
    PyTorch's parser reads them.
    """
    if bool not in map(type, values := tuple(values)):
        return values
    return [int(v) if i and isinstance(v, bool) else v for i, v in enumerate(values)]


def listed(values: Any) -> Sequence[Any]:
    """A list of integers, or what stands for a list of one: a number of any kind, a tensor too. (A
    bool stays one: who reads the list refuses it.)
    """
    if isinstance(values, (tuple, list)):
        return values
    return (values if isinstance(values, bool) else operator.index(values),)


def left_out(dims: Any) -> bool:
    """None, or an empty list. (NumPy's numbers can't be compared with one.)"""
    return dims is None or (isinstance(dims, (tuple, list)) and not dims)


def normalize_dims(dims: Iterable[int], ndim: int) -> Ints:
    """The dimensions counted from the front, in the order given; each at most once."""
    normalized = tuple([normalize_dim(dim, ndim) for dim in numbers(dims)])
    if len(set(normalized)) < len(normalized):
        repeated = next(d for at, d in enumerate(normalized) if d in normalized[:at])
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return normalized


def check_shape(shape: Ints) -> None:
    """Raise PyTorch's error where a tensor to be created has a negative size."""
    for size in shape:
        if size < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {size}: {list(shape)}"
            )


def check_numel(shape: Ints) -> None:
    """Raise PyTorch's error where a view would have more elements than 63 bits can count.

    A negative size counts as 64 unsigned bits, so it passes beside a size of 0, as in PyTorch.
    """
    count = 1
    for size in shape:
        count *= size % 2**64
        if count >= 2**64:
            break
    if count >= 2**63:
        raise RuntimeError("numel: integer multiplication overflow")


def check_nbytes(shape: Ints, itemsize: int) -> None:
    """Raise PyTorch's error for a result that no machine has room for, before anything is made."""
    if math.prod(shape) * itemsize >= 2**63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")


def broadcast_shapes(*shapes: Ints) -> Ints:
    """The shape to which an op broadcasts its inputs, with the message of an op."""
    result = shapes[0]
    for shape in shapes:
        if shape != result:
            result = _broadcast_two(result, shape)
    return result


@lru_cache(maxsize=1024)
def _broadcast_two(a: Ints, b: Ints) -> Ints:
    ndim = max(len(a), len(b))
    padded_a = (1,) * (ndim - len(a)) + a
    padded_b = (1,) * (ndim - len(b)) + b
    for dim in range(ndim - 1, -1, -1):  # PyTorch reports the last mismatch
        size_a, size_b = padded_a[dim], padded_b[dim]
        if size_a != size_b and size_a != 1 and size_b != 1:
            raise RuntimeError(
                f"The size of tensor a ({size_a}) must match the size of tensor b ({size_b}) "
                f"at non-singleton dimension {dim}"
            )
    return tuple([y if x == 1 else x for x, y in zip(padded_a, padded_b, strict=True)])


def broadcast_shapes_function(*shapes: Ints) -> Ints:
    """`torch.broadcast_shapes`: the same shape as `broadcast_shapes`, with errors of its own."""
    result = [1] * max(map(len, shapes), default=0)
    for index, shape in enumerate(shapes):
        for dim in range(-1, -len(shape) - 1, -1):
            _broadcast_into(result, dim, shape, index)
    return tuple(result)


def _broadcast_into(result: list[int], dim: int, shape: Ints, index: int) -> None:
    size = shape[dim]
    if result[dim] == 1:
        if size < 0:
            raise ValueError("Attempting to broadcast a dimension with negative length!")
        result[dim] = size
    elif size not in (1, result[dim]):
        raise RuntimeError(
            f"Attempting to broadcast a dimension of length {size} at {dim}! Mismatching argument "
            f"at index {index} had {shape}; but expected shape should be broadcastable to {result}"
        )


def broadcast_strides(shape: Ints, strides: Ints, target: Ints) -> Ints:
    """The strides with which a tensor is read as one of the target shape: 0 where it repeats."""
    if shape == target:
        return strides
    lead = len(target) - len(shape)
    own = zip(shape, strides, target[lead:], strict=True)
    repeated = [0 if size == 1 and wanted != 1 else step for size, step, wanted in own]
    return (0,) * lead + tuple(repeated)


# --- extent in the storage --------------------------------------------------------------------


def storage_span(layout: Layout) -> tuple[int, int] | None:
    """The lowest place that the layout reaches and one past the highest; None where empty."""
    shape, strides, offset = layout
    if 0 in shape:
        return None
    low = high = offset
    for size, step in zip(shape, strides, strict=True):
        if step >= 0:
            high += step * (size - 1)
        else:
            low += step * (size - 1)
    return low, high + 1


def nbytes_needed(layout: Layout, itemsize: int) -> int:
    """The bytes that a storage must have to hold the layout; 0 for an empty tensor."""
    span = storage_span(layout)
    return span[1] * itemsize if span else 0
