"""The layouts of views that read the same bytes otherwise: as another type, part or stride."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skimp._engine.memory.layout import Ints, Layout, check_numel, check_width, nbytes_needed
from skimp._engine.tensor.dtypes import dtype, float16, float32, float64
from skimp._engine.tensor.promotion import scalar_type_name

_COUNTED: Final = 1 << 63  # bytes that PyTorch can't count


def as_strided(shape: Sequence[int], strides: Sequence[int], offset: int) -> Layout:
    """The layout as given; whether it fits a storage is `check_fits_storage`'s to say."""
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    check_width((*shape, *strides, offset))
    if any(step < 0 for step in strides):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, "
            f"got strides: {list(strides)}"
        )
    return Layout(tuple(shape), tuple(strides), offset)


def check_fits_storage(layout: Layout, itemsize: int, storage_nbytes: int) -> None:
    """Raise PyTorch's error unless the layout lies inside a storage of so many bytes."""
    shape, strides, offset = layout
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    needed = nbytes_needed(layout, itemsize)
    below = 0 not in shape and any(s < 0 < step for s, step in zip(shape, strides, strict=True))
    if below or needed >= _COUNTED:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(shape)} "
            f"and strides={list(strides)}"
        )
    if needed > storage_nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, "
            f"and itemsize {itemsize} requiring a storage size of {needed} are out of bounds for "
            f"storage of size {storage_nbytes}"
        )
    check_numel(shape)


def view_dtype(layout: Layout, old: dtype, new: dtype) -> Layout:
    """`Tensor.view(dtype)`: the last dimension grows or shrinks with the size of an element."""
    if old.itemsize == new.itemsize:
        return layout
    names = f"to view {scalar_type_name(old)} as {scalar_type_name(new)} (different element sizes)"
    if not layout.shape:
        raise RuntimeError(f"self.dim() cannot be 0 {names}")
    if old.itemsize > new.itemsize:
        return _as_smaller(layout, old.itemsize // new.itemsize, names)
    return _as_larger(layout, new.itemsize // old.itemsize, names)


def _as_smaller(layout: Layout, ratio: int, names: str) -> Layout:
    shape, strides, offset = layout
    _check_last_stride(strides, names)
    return Layout(
        (*shape[:-1], shape[-1] * ratio),
        (*[step * ratio for step in strides[:-1]], 1),
        offset * ratio,
    )


def _as_larger(layout: Layout, ratio: int, names: str) -> Layout:
    shape, strides, offset = layout
    _check_divisible("size(-1)", shape[-1], ratio, names)
    _check_divisible("storage_offset()", offset, ratio, names)
    _check_last_stride(strides, names)
    for dim, step in enumerate(strides[:-1]):
        _check_divisible(f"stride({dim})", step, ratio, names)
    return Layout(
        (*shape[:-1], shape[-1] // ratio),
        (*[step // ratio for step in strides[:-1]], 1),
        offset // ratio,
    )


def _check_last_stride(strides: Ints, names: str) -> None:
    if strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {names}, but got {strides[-1]}")


def _check_divisible(what: str, value: int, ratio: int, names: str) -> None:
    if value % ratio:
        raise RuntimeError(f"self.{what} must be divisible by {ratio} {names}, but got {value}")


def view_as_real(layout: Layout, of: dtype) -> Layout:
    """A complex tensor with its two parts as a new last dimension."""
    if not of.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    shape, strides, offset = layout
    return Layout((*shape, 2), (*[step * 2 for step in strides], 1), offset * 2)


def view_as_complex(layout: Layout, of: dtype) -> Layout:
    """A real tensor whose last dimension, of size 2, becomes the parts of one number."""
    shape, strides, offset = layout
    if of not in (float16, float32, float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {scalar_type_name(of)}"
        )
    if not shape:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(step % 2 and s != 1 for s, step in zip(shape[:-1], strides[:-1], strict=True)):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return Layout(shape[:-1], tuple([step // 2 for step in strides[:-1]]), offset // 2)


def real(layout: Layout, of: dtype) -> Layout:
    """The real parts of a complex tensor; another tensor as it is."""
    return _part(layout, 0) if of.is_complex else layout


def imag(layout: Layout, of: dtype) -> Layout:
    """The imaginary parts of a complex tensor."""
    if not of.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(layout, 1)


def _part(layout: Layout, part: int) -> Layout:
    shape, strides, offset = layout
    return Layout(shape, tuple([step * 2 for step in strides]), offset * 2 + part)
