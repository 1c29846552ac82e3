"""Uninitialised tensors with given strides."""

from __future__ import annotations

from typing import Any, Unpack

from skimp._engine.dispatch.forms import export
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import create, empty_strided
from skimp._ops.create.options import Options, beside, making, sizes_of


@create
@making()
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: Any = None, **options: Unpack[Options]
) -> Tensor:
    """An uninitialised dense tensor whose dims lie in memory in the order `physical_layout`, the
    outermost first.
    """
    shape = sizes_of((size,))
    order = [int(d) for d in physical_layout]
    if len(shape) != len(order):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(shape)} is not equal to len(physical_layout) = {len(order)}"
        )
    for d in order:
        if not 0 <= d < len(shape):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got "
                f"{d})"
            )
    if len(set(order)) != len(order):
        raise RuntimeError("Duplicate dim not allowed")
    inner = contiguous_strides(tuple([shape[d] for d in order]))
    strides = [0] * len(shape)
    for d, stride in zip(order, inner, strict=True):
        strides[d] = stride
    return empty_strided(shape, strides, dtype=dtype, **options)


@making()
def new_empty_strided(
    input: Tensor, size: Any, stride: Any, *, dtype: Any = None, **options: Unpack[Options]
) -> Tensor:
    """An uninitialised tensor with these strides, of this tensor's dtype."""
    return empty_strided(size, stride, dtype=dtype or input._dtype, **beside(input, options))


export("new_empty_strided", new_empty_strided, namespaces=())


SAYS = """\
Shape: `size`.
Dtypes: any.
Raises: RuntimeError for a negative size and for as many strides as there are no dims."""
