"""Indexing by tensors: gathers copy, scatters write, with PyTorch's order of the resulting
dimensions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.transforms import active
from skimp._engine.eval.positions import (
    Joint,
    bits,
    boxes,
    counted_from_front,
    first_outside,
    in_boxes,
    span,
    steps,
    take_slices,
)
from skimp._engine.memory import layout as layouts, layout_views
from skimp._engine.memory.call_site import warn
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, fresh
from skimp._kernels import shaping
from skimp._kernels.rows import add_rows
from skimp._ops import batching
from skimp._ops.create.creation import as_tensor, infer
from skimp._ops.index.masked_select import selected
from skimp._ops.index.masks import as_fill, masked_fill_
from skimp._ops.index.small_places import SEQUENCES, index_arrays, small_list, small_put
from skimp._ops.index.writers import writer
from skimp.config import config

Ints = tuple[int, ...]

MASKS = (dtypes.bool, dtypes.uint8)
INDICES = (dtypes.int64, dtypes.int32, dtypes.bool, dtypes.uint8)
_SMALL = 1 << 12  # elements below which NumPy's own indexing is the shortest way
_ALL = slice(None)
_MANY = 1 << 11  # elements whose copy takes longer than NumPy's own indexing


def as_index(i: Any) -> Tensor:
    """An index item as a tensor: lists become int64 or bools, as PyTorch reads them."""
    if isinstance(i, Tensor):
        if i._dtype not in INDICES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        return i
    if isinstance(i, np.ndarray):
        return as_index(as_tensor(i))

    array = infer(i)
    if array.dtype.kind == "b":
        return fresh(array, dtypes.bool)
    return fresh(array.astype(np.int64), dtypes.int64)


# -- a plan of the index -------------------------------------------------------------------------


class Where:
    """Checked index arrays for some dims of a tensor, and where the dims they make go in the
    result.
    """

    def __init__(self, shape: tuple[int, ...], indices: Any) -> None:
        self.dims: list[int] = []
        found: list[Array] = []
        dim = 0
        for one in indices:
            if one is None:
                dim += 1
            elif one._dtype in MASKS:
                found += _of_mask(one, shape, dim)
                self.dims += range(dim, dim + one.ndim)
                dim += one.ndim
            else:
                if dim >= len(shape):
                    raise IndexError(
                        f"too many indices for tensor of dimension {len(shape)} (got "
                        f"{len(indices)})"
                    )
                found.append(meta.checked(one))
                self.dims.append(dim)
                dim += 1
        if dim > len(shape):
            raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {dim})")
        self.shape = _broadcast(found)
        self.arrays = [_checked(a, shape, d) for a, d in zip(found, self.dims, strict=True)]
        self.rest = [d for d in range(len(shape)) if d not in self.dims]
        adjacent = (
            self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
            if self.dims
            else True
        )
        self.at = self.dims[0] if adjacent and self.dims else 0
        rest = [shape[d] for d in self.rest]
        self.result = (*rest[: self.at], *self.shape, *rest[self.at :])

    def front(self) -> list[int]:
        """The order of the indexed tensor's dims with the indexed ones first."""
        return [*self.dims, *self.rest]

    def result_front(self) -> list[int]:
        """The order of the result's dims with the index's own first."""
        width = len(self.shape)
        own = list(range(self.at, self.at + width))
        return [*own, *[d for d in range(len(self.result)) if d not in own]]

    def strides(self, layout: Layout) -> tuple[int, ...]:
        """The strides of a fresh result: PyTorch's, which iterates over the indexed tensor and the
        indices together.
        """
        rest = [layout.strides[d] for d in self.rest]
        own = (*rest[: self.at], *[0] * len(self.shape), *rest[self.at :])
        sources = [Layout(self.result, own, 0)]
        shape = (*(1,) * self.at, *self.shape, *(1,) * (len(rest) - self.at))
        for a in self.arrays:
            wide = Layout(self.shape, steps(shaping.broadcast(a, self.shape)), 0)
            sources.append(layout_views.view(wide, shape) or layouts.contiguous(shape))
        return layouts.dense_strides_like(sources, self.result)


def _of_mask(mask: Tensor, shape: tuple[int, ...], dim: int) -> list[Array]:
    """A mask as the positions of its trues, one array for each of its dims."""
    if mask._dtype is dtypes.uint8:
        warn(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
            "instead.",
            UserWarning,
        )
    if dim + mask.ndim > len(shape):
        raise IndexError(
            f"too many indices for tensor of dimension {len(shape)} (got {dim + mask.ndim})"
        )
    _check_mask(mask, shape, dim)
    array = mask._skimp_array()
    if mask.ndim == 0:
        raise IndexError("a 0-d mask is no index of a dimension")
    return list(np.nonzero(array))


def _check_mask(mask: Tensor, shape: tuple[int, ...], dim: int) -> None:
    for k, n in enumerate(mask.shape):
        if n != shape[dim + k]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {k} does not match the shape "
                f"of the indexed tensor {list(shape)} at index {dim + k}"
            )


def _broadcast(found: list[Array]) -> tuple[int, ...]:
    shapes_ = [a.shape for a in found]
    try:
        return layouts.broadcast_shapes(*shapes_)
    except RuntimeError:
        shapes = ", ".join(str(list(a.shape)) for a in found)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None


def _checked(index: Array, shape: tuple[int, ...], dim: int) -> Array:
    n = shape[dim]
    bad = first_outside(index, -n, n)
    if bad is None:
        return index
    if n == 0:
        raise IndexError("index is out of bounds for dimension with size 0")
    raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {n}")


def _only_mask(indices: Any, ndim: int, kinds: Any = (dtypes.bool,)) -> Tensor | None:
    """The mask, if the index is one mask of all the tensor's dims."""
    if (
        len(indices) == 1
        and indices[0] is not None
        and indices[0]._dtype in kinds
        and indices[0].ndim == ndim
    ):
        mask: Tensor = indices[0]
        return mask
    return None


# -- reading -------------------------------------------------------------------------------------


def _picked_back(g: Tensor, input_shape: Ints, indices: Any) -> Tensor:
    """Zeros to which the gradient is added at its places."""
    y = g._np
    if y is not None and type(g) is Tensor and g._dtype in dtypes.FLOATING:
        small = math.prod(input_shape) < config.small_below and not (modes.state.grad or active)
        if small and small_put(made := np.zeros(input_shape, y.dtype), indices, g, True):
            return fresh(made, g._dtype)
    return index_put(g.new_zeros(tuple(input_shape)), indices, g, True)  # type: ignore[no-any-return]


_RULE = Rule("IndexBackward0", input=_picked_back)
_RECORDING = recording(_RULE, ("input", "indices"))


def picked(input: Tensor, x: Array, index: Any) -> Tensor | None:
    """`input[index]` by NumPy, where `x` is the small array of `input`, and the index one tensor of
    positions, maybe after some `:`, or, of an array in row-major order, a mask of the first dims or
    a tensor for each of the first dims or of those after some `:`; else None.
    """
    if x.size and type(index) in SEQUENCES:
        index = small_list(index)
    elif x.size and type(index) is tuple and not SEQUENCES.isdisjoint(map(type, index)):
        index = tuple([small_list(i) if type(i) in SEQUENCES else i for i in index])
    indices = (index,) if type(index) is Tensor else index
    if type(indices) is not tuple:
        return None
    ordered = x.flags.c_contiguous or _is_in_order(x)
    if not ordered and 1 in x.shape:
        return None
    lead = 0
    while len(indices) > lead and type(i := indices[lead]) is slice:
        if not i.start is i.stop is i.step is None:
            return None
        lead += 1
    if lead and len(indices) == lead + 1 and type(i) is Tensor and i._dtype is dtypes.bool:
        return _masked(input, x, lead, i) if ordered else None
    arrays = index_arrays(indices[lead:] if lead else indices, x)
    if arrays is None:
        return None
    positions = arrays[0].dtype == np.int64
    if not (ordered or (positions and len(arrays) == 1 and lead < x.ndim)):
        return None
    if lead:
        if not positions or lead + len(arrays) > x.ndim:
            return None
        indices = (*(None,) * lead, *indices[lead:])
    try:
        if len(arrays) == 1 and positions:
            whole = lead or x.size < _MANY or x.flags.c_contiguous
            found = x.take(arrays[0], lead) if whole else _rows_of(x, arrays[0])
        else:
            found = x[(_ALL,) * lead + arrays] if lead else x[arrays]
    except IndexError:  # the general way has PyTorch's words
        return None
    if 1 in found.shape and _has_own_steps(x):
        return None
    if not ordered:
        found = _laid_out(found, x, lead, arrays[0])
    elif not found.flags.c_contiguous:
        return None
    made = as_it_lies(found, input._dtype)
    if input._rg and modes.state.grad:
        _RECORDING.record(made, input, indices)
    return made


def _masked(input: Tensor, x: Array, dim: int, mask: Tensor) -> Tensor | None:
    """What a mask of one dim leaves of it, where nothing is recorded."""
    a = mask._np
    if a is None or a.ndim != 1 or dim >= x.ndim or len(a) != x.shape[dim]:
        return None
    if (input._rg and modes.state.grad) or (1 in x.shape and _has_own_steps(x)):
        return None
    return fresh(x.take(a.nonzero()[0], dim), input._dtype)


def _has_own_steps(x: Array) -> bool:
    """Whether a dim of size 1 may have a stride of its own, by which PyTorch orders the dims."""
    return steps(x) != layouts.contiguous_strides(x.shape)


def _rows_of(x: Array, places: Array) -> Array:
    """What has gaps at places of its first dim: `take` would copy all of it first."""
    found = x[places]
    return found if found.flags.c_contiguous else found.copy()


def _laid_out(found: Array, x: Array, dim: int, places: Array) -> Array:
    """The slices at places of a dim, in the order in which PyTorch lays them out."""
    strides = _strides_at(x.shape, steps(x), dim, places.shape, steps(places))
    if strides == layouts.contiguous_strides(found.shape):
        return found
    order = sorted(range(found.ndim), key=lambda d: -strides[d])
    made = np.empty([found.shape[d] for d in order], found.dtype).transpose(np.argsort(order))
    made[...] = found
    return made


@lru_cache(1024)
def _strides_at(shape: Ints, strides: Ints, dim: int, places: Ints, place_strides: Ints) -> Ints:
    result = (*shape[:dim], *places, *shape[dim + 1 :])
    own = (*strides[:dim], *[0] * len(places), *strides[dim + 1 :])
    before, after = (0,) * dim, (0,) * (len(shape) - dim - 1)
    ones = (*(1,) * len(before), *places, *(1,) * len(after))
    beside = Layout(ones, (*before, *place_strides, *after), 0)
    return layouts.dense_strides_like([Layout(result, own, 0), beside], result)


def _is_in_order(x: Array) -> bool:
    """Whether the elements lie in row-major order, with gaps: what is taken of them has none."""
    last = math.inf
    for n, step in zip(x.shape, x.strides, strict=True):
        if not 0 < step < last or n == 1:
            return False
        last = step
    return True


@hidden("_gather_at", rule=_RULE, batch=batching.places.gather_at)
def gather_at(input: Tensor, indices: Any) -> Tensor:
    """`input[indices]`; `indices` has a tensor, or None, for each of the first dims."""
    shape = tuple(input.shape)
    mask = _only_mask(indices, len(shape))
    if mask is not None and shape:
        _check_mask(mask, shape, 0)
        return selected(input, mask)
    where = Where(shape, indices)
    if not where.dims:
        return input.clone()
    strides = where.strides(input._skimp_layout_of())
    if input._hollow:
        return meta.empty(where.result, input._dtype, strides)
    result, target = blank(where.result, input._dtype, strides, (input,))
    if target.size:
        _read(bits(target), bits(input._skimp_array()), where)
    return result


def _read(target: Array, source: Array, where: Where) -> None:
    front = target.transpose(where.result_front())
    if target.size < _SMALL:
        front[...] = source.transpose(where.front())[tuple(where.arrays)]
        return
    if len(where.dims) == 1 and where.arrays[0].ndim == 1:
        index = counted_from_front(where.arrays[0], source.shape[where.dims[0]])
        if take_slices(target, source, where.dims[0], index):
            return
    places = _joint(source, where)
    memory = span(source)

    def work(box: Any) -> None:
        front[box] = memory[places(box)]

    in_boxes(front.shape, work)


def _joint(array: Array, where: Where) -> Joint:
    own = steps(array)
    indices = [
        shaping.broadcast(counted_from_front(a, array.shape[d]), where.shape)
        for a, d in zip(where.arrays, where.dims, strict=True)
    ]
    rest = tuple([(array.shape[d], own[d]) for d in where.rest])
    return Joint(tuple([own[d] for d in where.dims]), indices, rest)


# -- writing -------------------------------------------------------------------------------------


@writer(
    batch=batching.places.put_at,
    out=False,
    row_major=False,
    fast=small_put,
    rule=Rule(
        "IndexPutBackward0",
        input=lambda g, indices, accumulate: (
            g if accumulate else index_put(g, indices, g.new_zeros(()), False)
        ),
        values=lambda g, indices, values_shape: _put_values_back(g, indices, values_shape),
    ),
)
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> None:
    """Write `values` (`accumulate`: add them, every repetition of a place) where the index tensors
    point.

    >>> x, twice = torch.zeros(2), torch.tensor([0, 0])
    >>> x.index_put((twice,), torch.ones(2))  # written twice, not added
    tensor([1., 0.])
    >>> x.index_put((twice,), torch.ones(2), accumulate=True)
    tensor([2., 0.])

    Shape: any; the result's is the input's.
    Raises: IndexError for a place that is not there and for indices that are no integers or bools;
    RuntimeError for values of another dtype or that don't broadcast.
    """
    indices = tuple([None if i is None else as_index(i) for i in indices])
    shape = tuple(input.shape)
    outs.warn_expanded("index_put_", input, "tensor[indices] = tensor")
    if values._dtype is not input._dtype and not accumulate:
        values = as_fill(input, indices, values)
    mask = _only_mask(indices, len(shape), MASKS)
    if mask is not None and shape and not accumulate and values.numel() == 1:
        _check_mask(mask, shape, 0)
        _check_dtype(input, values)
        if input._hollow:
            return
        value = values._skimp_array().reshape(())
        masked_fill_(input.detach(), mask, fresh(value, values._dtype))
        return
    outs.check_apart(input, (values, *[i for i in indices if i is not None]))
    if input._hollow and any([i is not None and i._dtype in MASKS for i in indices]):
        _check_dtype(input, values)
        return
    where = Where(shape, indices)
    source = meta.checked(values)
    _check_values(where.result, source.shape)
    _check_dtype(input, values)
    if input._hollow:
        return
    source = shaping.broadcast(source, where.result)
    target = input._skimp_writable()
    if source.size:
        _write(target, source.transpose(where.result_front()), where, accumulate)


def _check_dtype(input: Tensor, values: Tensor) -> None:
    if values._dtype is not input._dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{scalar_type_name(input._dtype)} for the destination and "
            f"{scalar_type_name(values._dtype)} for the source."
        )


def _check_values(result: tuple[int, ...], values: tuple[int, ...]) -> None:
    fits = len(values) <= len(result) and all(
        n in (1, m) for n, m in zip(values[::-1], result[::-1], strict=False)
    )
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values)} cannot be broadcast to indexing "
            f"result of shape {list(result)}"
        )


def _write(target: Array, source: Array, where: Where, accumulate: bool) -> None:
    """`source` has the index's own dims first."""
    if not where.dims:
        target[...] = target + source if accumulate else source
        return
    if not accumulate and (source.size < _SMALL or not source.ndim):
        laid = np.ascontiguousarray(source).reshape(source.shape)  # NumPy gives it a dim
        bits(target).transpose(where.front())[tuple(where.arrays)] = bits(laid)
        return
    if accumulate and _adds_rows(target, source, where):
        add_rows(target, counted_from_front(where.arrays[0], len(target)).reshape(-1), source)
        return
    places = _joint(target, where)
    memory = span(target)
    for box in boxes(places.shape):
        at = np.reshape(places(box), -1)
        if accumulate:
            np.add.at(memory, at, np.reshape(source[box], -1))
        else:
            memory[at] = np.reshape(source[box], -1)


def _adds_rows(target: Array, source: Array, where: Where) -> bool:
    """Whether one index tells rows, and both arrays lie row by row."""
    return (
        tuple(where.dims) == (0,)
        and target.flags.c_contiguous
        and source.flags.c_contiguous
        and source.dtype == target.dtype
        and source.shape == (*where.arrays[0].shape, *target.shape[1:])
        and bool(source.size)
    )


def _put_values_back(g: Tensor, indices: Any, shape: Any) -> Tensor:
    x = g._np
    found = None if x is None or active else picked(g, x, tuple(indices))
    if found is None:
        found = gather_at(g, tuple([None if i is None else as_index(i) for i in indices]))
    extra = len(shape) - found.ndim
    return found.reshape((1,) * extra + tuple(found.shape)) if extra > 0 else found


@general(method=False, namespaces=("",), name="_unsafe_index")
def _unsafe_index(input: Tensor, indices: Any) -> Tensor:
    return gather_at(input, tuple(indices))
