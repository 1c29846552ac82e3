"""Indexing by tensors: gathers copy, scatters write, with PyTorch's order of the resulting dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp import dtypes
from skimp._tensor import Tensor, fresh
from skimp.autograd import alias as history
from skimp.autograd import modes
from skimp.autograd.rules import Rule
from skimp.memory import layout as layouts
from skimp.ops.forms import export, op
from skimp.ops.pointwise import convert


class _Taken:
    """Marks a dimension that a bool mask of several dimensions covers together with the one before it."""


TAKEN = _Taken()


def as_index(i: Any) -> Tensor:
    """An index item as a tensor of ints or bools."""
    if not isinstance(i, Tensor):
        from skimp.ops.creation import as_tensor

        if isinstance(i, (list, tuple)) and not i:
            return fresh(np.empty(0, np.int64), dtypes.int64)
        i = as_tensor(i)
    if i._dtype.category > dtypes.INT or i._dtype in (dtypes.int8, dtypes.int16):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return i


def arrays_of(input: Tensor, tensors: list[Any]) -> tuple[Any, ...]:
    """A NumPy index: an int array or a full slice per dimension, masks replaced by the positions of their trues."""
    found: list[Any] = []
    dim = 0
    shape = input.shape
    for one in tensors:
        if one is TAKEN:
            continue
        if one is None:
            found.append(slice(None))
            dim += 1
        elif one._dtype in (dtypes.bool, dtypes.uint8):
            mask = one.array()
            for k, n in enumerate(mask.shape):
                if n != shape[dim + k]:
                    raise IndexError(
                        f"The shape of the mask {list(mask.shape)} at index {k} does not match the shape of the "
                        f"indexed tensor {list(shape)} at index {dim + k}"
                    )
            found.extend(np.nonzero(mask))
            dim += mask.ndim
        else:
            index = one.array()
            n = shape[dim]
            if index.size and (index.min() < -n or index.max() >= n):
                bad = index.min() if index.min() < -n else index.max()
                raise IndexError(f"index {int(bad)} is out of bounds for dimension {dim} with size {n}")
            found.append(index)
            dim += 1
    try:
        np.broadcast_shapes(*[f.shape for f in found if not isinstance(f, slice)])
    except ValueError:
        shapes = ", ".join(str(list(f.shape)) for f in found if not isinstance(f, slice))
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
    return tuple(found)


def _gather_back(g: Tensor, input: Tensor, indices: Any) -> Tensor:
    zeros = g.new_zeros(input.shape)  # type: ignore[attr-defined]
    return index_put_(zeros, indices, g, True)


@op("_gather", method=False, namespaces=(), rule=Rule("IndexBackward0", {
    "input": lambda g, input_shape, indices: index_put_(g.new_zeros(tuple(input_shape)), indices, g, True)}))  # fmt: skip
def gather(input: Tensor, indices: Any) -> Tensor:
    where = arrays_of(input, list(indices))
    array = input.array()
    if len(where) == 1 and array.flags.c_contiguous:
        return fresh(array.take(where[0], axis=0), input._dtype)
    return fresh(np.ascontiguousarray(array[where]) if array.ndim else array[where], input._dtype)


def scatter(target: Tensor, indices: list[Any], value: Tensor) -> None:
    """`target[indices] = value`."""
    index_put_(target, tuple(indices), value)


PUT = Rule("IndexPutBackward0", {
    "input": lambda g, indices, accumulate: g if accumulate else index_put_(g.clone(), indices, g.new_zeros(())),
    "values": lambda g, indices, values_shape: _put_values_back(g, indices, values_shape),
})  # fmt: skip


def _put_values_back(g: Tensor, indices: Any, shape: Any) -> Tensor:
    return gather(g, indices)


@op("index_put_", rule=None)
def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write `values` (or add them, every repetition of a place) where the index tensors point."""
    if values._dtype is not input._dtype:
        if not accumulate and values.ndim == 0 or values._dtype is input._dtype:
            values = values.to(input._dtype)
        else:
            from skimp.promotion import scalar_type_name

            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {scalar_type_name(input._dtype)} "
                f"for the destination and {scalar_type_name(values._dtype)} for the source."
            )
    indices = tuple([as_index(i) if i is not None and i is not TAKEN else i for i in indices])
    where = arrays_of(input, list(indices))
    tracked = modes.state.grad and (input._rg or values._rg)
    if modes.state.grad:
        history.before_inplace(input)
    kept = None
    if tracked:
        given = {"input": input, "indices": indices, "values": values, "accumulate": accumulate}
        kept = history.prepare(input, PUT, given)
    source = values.array()
    if input._storage is values._storage:
        source = source.copy()
    target = input.writable()
    _check_fits(target, where, source)
    if accumulate:
        np.add.at(target, where, source)
    else:
        target[where] = source
    if kept is not None:
        history.rebase(input, kept)
    return input


def _check_fits(target: Any, where: Any, source: Any) -> None:
    shape = np.broadcast_shapes(*[w.shape for w in where if not isinstance(w, slice)])
    del shape
    try:
        result = target[tuple([w[:0] if not isinstance(w, slice) and w.ndim == 1 and False else w for w in where])].shape
        layouts.broadcast_shapes(result, source.shape)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(source.shape)} cannot be broadcast to indexing result of "
            f"shape {list(result)}"
        ) from None


export("_index_put_", index_put_, namespaces=(), method=False)
_ = convert
