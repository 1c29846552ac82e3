"""Shapes changed, tensors joined and taken apart, elements picked by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import skimp as torch
from skimp import Tensor
from skimp.array_api.types import alike

Axes = int | tuple[int, ...]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of the shape that all broadcast to."""
    return list(torch.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A view of a larger shape."""
    return torch.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis; all elements in a row without one."""
    tensors = alike(*arrays)
    if axis is None:
        return torch.cat([each.reshape(-1) for each in tensors])
    return torch.cat(tensors, axis)


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """A view with one more dimension, of size 1."""
    return torch.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """Elements in reverse order: a copy, as PyTorch has no negative strides."""
    return torch.flip(x, axes_of(x, axis))


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """A view with dimensions at other places."""
    return torch.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view with dimensions in another order."""
    return torch.permute(x, axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element several times in a row."""
    return torch.repeat_interleave(x, repeats, dim=axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; `copy=False` raises ValueError where views cannot."""
    if copy:
        return x.clone(memory_format=torch.contiguous_format).view(shape)
    result = torch.reshape(x, shape)
    # a size of 0 or an impossible shape has raised or shares nothing that counts
    if copy is False and x.numel() and result.data_ptr() != x.data_ptr():
        raise ValueError(
            f"reshape: {tuple(x.shape)} with strides {x.stride()} is no view of shape "
            f"{tuple(shape)}; allow a copy with copy=None"
        )
    return result


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """Elements moved round; one `shift` serves all of several axes."""
    if isinstance(shift, int) and isinstance(axis, tuple):
        shift = (shift,) * len(axis)
    return torch.roll(x, shift, () if axis is None else axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """A view without some dimensions, which must be of size 1 (PyTorch lets others stand)."""
    axes = axes_of(x, axis)
    for each in axes:
        if x.shape[each] != 1:
            raise ValueError(f"squeeze: axis {each} of shape {tuple(x.shape)} is not of size 1")
    return torch.squeeze(x, axes)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape beside each other along a new axis."""
    return torch.stack(alike(*arrays), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices at some places of an axis, which only a vector may leave out."""
    if axis is None and x.dim() != 1:
        raise ValueError(f"take: x has {x.dim()} dimensions, not 1; give axis")
    where = (0 if axis is None else axis) % x.dim()
    picked: Tensor = x[(slice(None),) * where + (indices.long(),)]
    return picked


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements at places of an axis, places that are chosen apart for each row."""
    return torch.take_along_dim(x, indices.long(), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole tensor several times along each axis."""
    return torch.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along an axis."""
    return tuple(torch.unbind(x, axis))


def axes_of(x: Tensor, axis: Any) -> tuple[int, ...]:
    """All axes for None, and one or several as a tuple."""
    if axis is None:
        return tuple(range(x.dim()))
    return (axis,) if isinstance(axis, int) else tuple(axis)
