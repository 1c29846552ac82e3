"""Results shaped like an argument, or by sizes that the arguments say."""

from __future__ import annotations

from typing import Any

from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.meta import NO_ITEM, empty, like
from skimp._engine.tensor.tensor import Tensor

Ints = tuple[int, ...]


def as_first(input: Tensor, *_: Any, **__: Any) -> Tensor:
    """Shaped and laid out as the first argument."""
    return like(input)


def as_second(first: Tensor, second: Tensor, *_: Any, **__: Any) -> Tensor:
    """Shaped as the second argument, row-major."""
    return empty(second.shape, second._dtype)


def broadcast(input: Tensor, other: Tensor, *_: Any, **__: Any) -> Tensor:
    """Both, broadcast."""
    shape = layouts.broadcast_shapes(tuple(input.shape), tuple(other.shape))
    return empty(shape, input._dtype)


def frexp(input: Tensor) -> tuple[Tensor, Tensor]:
    return like(input), like(input, dtypes.int32)


def starts(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    return empty((size + 1,), dtypes.int32 if out_int32 else dtypes.int64)


def places(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    return empty((2, col_indices.numel()), dtypes.int32 if out_int32 else dtypes.int64)


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor:
    shape = input.shape if isinstance(input, Tensor) else ()
    return empty(shape, dtypes.int32 if out_int32 else dtypes.int64)


def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    return empty((bins,), input._dtype)


def isin(elements: Any = None, test_elements: Any = None, **words: Any) -> Tensor:
    first = elements if elements is not None else words.get("element")
    return empty(first.shape if isinstance(first, Tensor) else (), dtypes.bool)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes == -1:
        raise RuntimeError(NO_ITEM)
    return empty((*input.shape, num_classes), dtypes.int64)


def repeated(repeats: Tensor, output_size: Any = None) -> Tensor:
    if output_size is None:
        raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
    return empty((output_size,), repeats._dtype)
