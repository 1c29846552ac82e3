"""take, put and take_along_dim: elements by their places in one vector, or along a dim."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.view_forms import held_array, small_array
from skimp._engine.eval.positions import bits, counted_from_front, first_outside, in_boxes, span
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._ops import batching
from skimp._ops.index.scatter import gather, small_gather
from skimp._ops.index.writers import writer

Ints = tuple[int, ...]

_FEW = 1 << 12  # positions that one call looks up


def _flat_index(name: str, index: Tensor, n: int) -> Array:
    if index._dtype is not dtypes.int64:
        raise RuntimeError(
            f"{name}(): Expected a long tensor for index, but got {scalar_type_name(index._dtype)}"
        )
    where = meta.checked(index)
    if n == 0 and where.size:
        raise IndexError(f"{name}(): tried to take from an empty tensor")
    bad = first_outside(where, -n, n)
    if bad is not None:
        raise IndexError(f"out of range: tried to access index {bad} on a tensor of {n} elements.")
    return counted_from_front(where, n)


def _small_take(input: Tensor, index: Tensor) -> Tensor | None:
    x, where = held_array(input), small_array(index) if type(index) is Tensor else None
    if x is None or where is None or index._dtype is not dtypes.int64 or where.size > _FEW:
        return None
    try:
        found = x.take(where)
    except IndexError:  # PyTorch's words are the general way's
        return None
    return fresh(found, input._dtype)


@general(
    out="same",
    fast=_small_take,
    rule=Rule(
        "TakeBackward0",
        input=lambda g, input_shape, index: g.new_zeros(tuple(input_shape)).put(index, g, True),
    ),
    batch=batching.places.take,
    copies="selected",
)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their positions in the input seen as one vector.

    Shape: the index's.
    """
    where = _flat_index("take", index, input.numel())
    if input._hollow:
        return meta.empty(index.shape, input._dtype)
    result, target = blank(tuple(index.shape), input._dtype, None, (input,))
    source, into = bits(input._skimp_array()), bits(target)
    if not into.size:
        return result
    if not into.ndim:
        into, where = into.reshape(1), where.reshape(1)
    if source.flags.c_contiguous:
        flat = source.reshape(-1)

        def from_flat(box: Any) -> None:
            np.take(flat, where[box], out=into[box], mode="clip")

        in_boxes(into.shape, from_flat)
        return result

    def work(box: Any) -> None:
        into[box] = source[np.unravel_index(where[box], source.shape)]

    in_boxes(into.shape, work)
    return result


@writer(
    out=False,
    row_major=False,
    rule=Rule(
        "PutBackward0",
        input=lambda g, index, source, accumulate: (
            g if accumulate else g.put(index, source.new_zeros(source.shape))
        ),
        source=lambda g, index, source_shape: g.take(index).reshape(tuple(source_shape)),
    ),
)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> None:
    """Write (or add) elements at positions in the input seen as one vector.

    Shape: any; the result's is the input's.
    """
    if index._dtype is not dtypes.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {scalar_type_name(index._dtype)}"
        )
    if input._dtype is not source._dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{scalar_type_name(input._dtype)} and source.dtype = {scalar_type_name(source._dtype)}"
        )
    count, own = source.numel(), index.numel()
    if count != own:
        raise IndexError(
            "put_(): Expected source and index to have the same number of but got source.numel() = "
            f"{count}, index.numel() = {own}"
        )
    where = _flat_index("put_", index, input.numel()).reshape(-1)
    outs.check_no_overlap(input, (index, source))
    if input._hollow:
        return
    values = source._skimp_array().reshape(-1)
    target = input._skimp_writable()
    if not where.size:
        return
    at: Any = where
    if not target.flags.c_contiguous:
        parts = np.unravel_index(where, target.shape)
        at = sum(p * (s // target.itemsize) for p, s in zip(parts, target.strides, strict=True))
    if accumulate:
        np.add.at(span(target), at, values)
    else:
        span(target)[at] = values


def _small_along(input: Tensor, indices: Tensor, dim: Any = None) -> Tensor | None:
    """`gather`, where nothing broadcasts or is recorded, and all is counted from the front."""
    x, where = small_array(input), small_array(indices)
    if x is None or where is None or type(dim) is not int or (input._rg and modes.state.grad):
        return None
    if where.ndim != x.ndim or not -x.ndim <= dim < x.ndim:
        return None
    d = dim % x.ndim
    same = x.shape[:d] == where.shape[:d] and x.shape[d + 1 :] == where.shape[d + 1 :]
    return small_gather(input, d, indices) if same else None


@general(out="same", composite=False, fast=_small_along)
def take_along_dim(input: Tensor, indices: Tensor, dim: Any = None) -> Tensor:
    """`gather` with broadcasting, as NumPy's take_along_axis: without a dim, of the input as one
    vector.

    Shape: the indices', broadcast with the input's but for `dim`; without a dim one vector.
    """
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    have, own = shape_of(input), shape_of(indices)
    if len(have) != len(own):
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {len(have)} dimensions for input, and {len(own)} dimensions for indices"
        )
    if indices._dtype is not dtypes.int64:
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{scalar_type_name(indices._dtype)}"
        )
    dim = layouts.normalize_dim(dim, len(have))
    if not have:
        return gather(input, dim, indices)
    indices = _from_front(indices, have[dim])
    of_input, of_index = _beside_each_other(have, own, dim)
    if of_index != own:
        indices = indices.expand(of_index)
    return gather(input.expand(of_input), dim, indices)


@lru_cache(maxsize=256)
def _beside_each_other(have: Ints, own: Ints, dim: int) -> tuple[Ints, Ints]:
    """The shapes of an input and its indices, broadcast but for `dim`."""
    one, other = [(*shape[:dim], 1, *shape[dim + 1 :]) for shape in (have, own)]
    wide = layouts.broadcast_shapes(one, other)
    before, after = wide[:dim], wide[dim + 1 :]
    return (*before, have[dim], *after), (*before, own[dim], *after)


def _from_front(indices: Tensor, n: int) -> Tensor:
    if indices._hollow:
        return indices
    where = indices._skimp_array()
    front = counted_from_front(where, n)
    return indices if front is where else fresh(front, indices._dtype)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers; positions are int64.
Raises: IndexError or RuntimeError for a position outside of the tensor."""
