"""Slices along one dim, chosen by a vector of positions (index_select and its writers), and take,
which sees one vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.operands import check_number, constant
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.view_forms import held_array, small_array
from skimp._engine.eval.positions import bits, counted_from_front, first_outside, take_slices
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._kernels.rows import add_rows, add_slices, are_distinct
from skimp._ops import batching
from skimp._ops.index.along import is_half, read_along, write_along
from skimp._ops.index.masks import small_number
from skimp._ops.index.scatter import UFUNCS
from skimp._ops.index.scatter_reduce import REDUCE_BACK, divided, identity
from skimp._ops.index.writers import writer
from skimp.config import config

_WIDE = 1 << 12  # elements of a slice above which it is copied by itself


def _vector(index: Tensor, message: str) -> Array:
    if index.ndim > 1:
        raise IndexError(message)
    return meta.checked(index).reshape(-1)


def _need_int(name: str, index: Tensor) -> None:
    if index._dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}: Expected dtype int32 or int64 for index")


def _at(dim: int, where: Array) -> Any:
    """The NumPy index of slices along `dim`."""
    return (*[slice(None)] * dim, where)


def _along(dim: int, index: Array, shape: tuple[int, ...]) -> Array:
    """The vector `index` as the index of a gather along `dim` of a result of this shape (nothing
    is written).
    """
    return shaping.broadcast(
        index.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape
    )


# -- index_select ---------------------------------------------------------------------------------


def _small_rows(x: Array, dim: Any, index: Any, turns: int = 0) -> tuple[int, Array] | None:
    """A dim of the small `x` counted from the front, and small positions along it; None where
    something about them is unusual, or wrong. `turns`: how often positions may count from the end.
    """
    if type(index) is not Tensor or index._dtype is not dtypes.int64 or type(dim) is not int:
        return None
    where = small_array(index)
    if where is None or where.ndim != 1 or not where.size or not -x.ndim <= dim < x.ndim:
        return None
    dim %= x.ndim
    listed = where.tolist() if where.size < _LISTED else (where.min(), where.max())
    n = x.shape[dim]
    return (dim, where) if min(listed) >= -turns * n and max(listed) < n else None


def _small_select(input: Tensor, dim: int, index: Tensor) -> Tensor | None:
    x = held_array(input)
    found = None if x is None or not x.flags.c_contiguous else _small_rows(x, dim, index)
    if found is None or not _are_few(x, *found):
        return None
    return fresh(x.take(found[1], found[0]), input._dtype)


def _are_few(x: Array, dim: int, where: Array) -> bool:
    """Whether so many slices along a dim are a small tensor, or are of one."""
    most = config.small_below
    return x.size < most or x.size // x.shape[dim] * where.size < most


def _small_slices(x: Array, dim: int, where: Array, source: Any) -> Array | None:
    """The array of a small `source` that has these slices of `x`, in its type."""
    values = small_array(source) if type(source) is Tensor else None
    if values is None or values.dtype != x.dtype or bare.may_share_memory(values, x):
        return None
    fits = values.shape == (*x.shape[:dim], where.size, *x.shape[dim + 1 :])
    return values if fits and values.size else None


def _small_copy(x: Array, dim: int, index: Tensor, source: Any) -> bool:
    found = _small_rows(x, dim, index)
    values = None if found is None else _small_slices(x, *found, source)
    if found is None or values is None:
        return False
    x[_at(*found)] = values
    return True


def _small_add(x: Array, dim: int, index: Tensor, source: Any, *, alpha: Any = 1) -> bool:
    found = _small_rows(x, dim, index)
    values = None if found is None or alpha != 1 else _small_slices(x, *found, source)
    if found is None or values is None or x.dtype.kind not in "fi":
        return False
    where = found[1]
    if are_distinct(where):
        x[_at(*found)] += values
    elif is_half(x):
        return False
    elif found[0] == 0:
        add_rows(x, where, values)
    else:
        add_slices(x, *found, values)
    return True


def _small_fill(x: Array, dim: int, index: Tensor, value: Any) -> bool:
    number = small_number(value, dtypes.FROM_NUMPY.get(x.dtype))
    found = None if number is None else _small_rows(x, dim, index, 1)
    if found is None or not _are_few(x, *found):
        return False
    x[_at(*found)] = number
    return True


_LISTED = 64  # positions below which Python's min and max are faster than NumPy's


@general(
    out="same",
    fast=_small_select,
    rule=Rule(
        "IndexSelectBackward0",
        input=lambda g, input_shape, dim, index: g.new_zeros(tuple(input_shape)).index_add(
            dim, index, g
        ),
    ),
    batch=batching.places.select,
    copies="selected",
)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along `dim` at the positions in a vector."""
    dim = layouts.normalize_dim(dim, input.ndim)
    where = _vector(index, "index_select(): Index is supposed to be a vector")
    _need_int("index_select()", index)
    if input.ndim == 0:
        if where.size != 1:
            raise RuntimeError(
                f"index_select(): Index to scalar can have only 1 value, got {where.size} value(s)"
            )
        _check_in_self(where, 1)
        return input.clone()
    shape = tuple(input.shape)
    if where.size and not shape[dim] and len(shape) > 1:
        raise RuntimeError("index_select(): self indexing axis dim should be positive")
    if dim == 1 and (bad := first_outside(where, 0, shape[1])) is not None:
        raise RuntimeError(f"INDICES element is out of DATA bounds, id={bad} axis_dim={shape[1]}")
    _check_in_self(where, shape[dim])
    found = (*shape[:dim], where.size, *shape[dim + 1 :])
    if input._hollow:
        return meta.empty(found, input._dtype)
    result, target = blank(found, input._dtype, None, (input,))
    if target.size:
        source = bits(input._skimp_array())
        if not take_slices(bits(target), source, dim, where):
            read_along(bits(target), source, dim, _along(dim, where, target.shape))
    return result


def _check_in_self(index: Array, n: int) -> None:
    if first_outside(index, 0, n) is not None:
        raise IndexError("index out of range in self")


# -- index_add, index_copy, index_fill ------------------------------------------------------------


def _check_source(
    name: str, input: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[int, Array]:
    """Checks of index_add and index_reduce, in PyTorch's order: the dim, and the positions."""
    dim = layouts.normalize_dim(dim, input.ndim)
    where = _vector(
        index,
        f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: "
        f"{scalar_type_name(index._dtype)} and size: {list(index.shape)}",
    )
    if index._dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            f"{name}(): Expected dtype int32/int64 for index but got: "
            f"{scalar_type_name(index._dtype)}"
        )
    if input._dtype is not source._dtype:
        raise RuntimeError(
            f"{name}(): self ({scalar_type_name(input._dtype)}) and source "
            f"({scalar_type_name(source._dtype)}) must have the same scalar type"
        )
    if dim and dim >= source.ndim:
        raise RuntimeError(
            f"{name}(): Indexing dim {dim} is out of bounds of the source tensor with dim "
            f"{source.ndim}"
        )
    count = source.shape[dim] if source.ndim else 1
    if where.size != count:
        layouts.need_dims(dim, source.ndim)
        raise RuntimeError(
            f"{name}(): Number of indices ({where.size}) should be equal to source.size(dim): "
            f"({count}), for dim: {dim}"
        )
    if _beside(input, source, dim) != _beside(source, input, dim):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(input.shape)} source.shape = {list(source.shape)}"
        )
    return dim, where


def _beside(t: Tensor, other: Tensor, dim: int) -> list[int]:
    """The sizes of `t` but that of `dim`, which a number and what stands beside it don't have."""
    return [n for d, n in enumerate(t.shape) if d != dim or not other.ndim]


def _add_back(g: Tensor, dim: int, index: Tensor, source_shape: Any, alpha: Any) -> Tensor:
    found = g.index_select(dim, index)
    if alpha != 1:
        found = found * alpha
    return found.reshape(tuple(source_shape))


@writer(
    fast=_small_add,
    rule=Rule(
        "IndexAddBackward0",
        input=lambda g: g,
        source=lambda g, dim, index, source_shape, alpha: _add_back(
            g, dim, index, source_shape, alpha
        ),
    ),
    batch=batching.places.write_slices,
)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> None:
    """Add alpha times the slices of `source` to those of the input at the positions in a vector."""
    dim, where = _check_source("index_add_", input, dim, index, source)
    if isinstance(alpha, (float, complex)) and input._dtype is dtypes.bool:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    outs.check_no_overlap(input, (index, source))
    if input._hollow:
        return
    values = source._skimp_array()
    if alpha != 1:
        values = (
            (source * (int(alpha) if input._dtype.category <= dtypes.INT else alpha))
            .to(input._dtype)
            ._skimp_array()
        )
    target = input._skimp_writable()
    _merge(target, dim, where, values, np.add)


def _merge(target: Array, dim: int, where: Array, values: Array, ufunc: Any) -> None:
    """Merge slices into the target, one after the other; long ones as slices, short ones element
    by element. Of half precision each sum or product is rounded once.
    """
    n = target.shape[dim] if target.ndim else 1
    if not values.size or (not target.size and target.ndim > 1):
        return
    bad = first_outside(where, 0, n)
    if bad is not None:
        if target.ndim <= 1 and ufunc is np.add:
            raise IndexError("index out of range in self")
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {n}")
    if target.ndim == 0:
        target, values = target.reshape(1), values.reshape(-1)
    values = values.reshape(
        tuple([where.size if d == dim else m for d, m in enumerate(target.shape)])
    )
    if is_half(target) and where.size > 1:
        wide = target.astype(np.float32)
        _merge(wide, dim, where, values, ufunc)
        target[...] = wide
        return
    if values.size // max(1, where.size) >= _WIDE:
        rows, slices = shaping.dim_first(target, dim), shaping.dim_first(values, dim)
        for k, i in enumerate(where):
            ufunc(rows[i], slices[k], out=rows[i])
        return
    write_along(target, dim, _along(dim, where, values.shape), values, ufunc)


def _unselected(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return g.index_fill(dim, index.long(), 0)


@writer(
    autocast="widest",
    fast=_small_copy,
    rule=Rule(
        "IndexCopyBackward0",
        input=lambda g, dim, index: _unselected(g, dim, index),
        source=lambda g, dim, index, source_shape: g.index_select(dim, index).reshape(
            tuple(source_shape)
        ),
    ),
    batch=batching.places.write_slices,
)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """Write the slices of `source` over those of the input at the positions in a vector."""
    dim = layouts.normalize_dim(dim, input.ndim)
    where = _vector(index, f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    if not source.ndim and where.size != 1:
        raise IndexError(
            "index_copy_(): When source is scalar, index should have one element (got "
            f"{where.size})"
        )
    if source.ndim != input.ndim and source.ndim and input.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({input.ndim})"
        )
    if index._dtype is not dtypes.int64:
        raise RuntimeError(
            "index_copy_(): Expected a long tensor for index, but got "
            f"{scalar_type_name(index._dtype)}"
        )
    if input._dtype is not source._dtype:
        raise RuntimeError(
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{scalar_type_name(input._dtype)} and (source) {scalar_type_name(source._dtype)}"
        )
    own, theirs = ([n for d, n in enumerate(t.shape) if d != dim] for t in (input, source))
    if own != theirs:
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes except at "
            f"dimension {dim} Destination slice shape: {own} and source slice shape: {theirs}."
        )
    if source.ndim and where.size != source.shape[dim]:
        raise IndexError(
            f"index_copy_(): Number of indices ({where.size}) should be equal to source.size(dim) "
            f"({source.shape[dim]})"
        )
    n = input.shape[dim] if input.ndim else 1
    bad = first_outside(where, 0, n)
    if bad is not None:
        raise IndexError(
            f"index_copy_(): index {bad} is out of bounds for dimension {dim} with size {n}"
        )
    outs.check_no_overlap(input, (index, source))
    if input._hollow:
        return
    values = source._skimp_array()
    target = input._skimp_writable()
    if not values.size:
        return
    if target.ndim == 0:
        target[...] = values.reshape(())
    else:
        rows = bits(target)
        rows[_at(dim, where)] = bits(values)


def _need_place(input: Tensor, dim: int, index: Tensor) -> tuple[int, Array]:
    dim = layouts.normalize_dim(dim, input.ndim)
    if index._dtype is not dtypes.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    where = _vector(index, "")
    n = input.shape[dim] if input.ndim else 1
    bad = first_outside(where, -n, n)
    if bad is not None:
        raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {n}")
    return dim, where


@writer(batch=batching.places.write_slices, out=False, row_major=False, fast=_small_fill,
        rule=Rule("IndexFillBackward1",
    input=lambda g, dim, index: _unselected(g, dim, index),
    value=lambda g, dim, index: g.index_select(dim, _front(g, dim, index).unique()).sum(),
    numbers={"value": Rule("IndexFillBackward0",
        input=lambda g, dim, index: _unselected(g, dim, index))},
))  # fmt: skip
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> None:
    """Write one value over the slices at the positions in a vector."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        value = 0 if value._hollow else value.item()
    if isinstance(value, complex) and not input._dtype.is_complex:
        raise RuntimeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
        )
    check_number(value, input._dtype)
    dim, where = _need_place(input, dim, index)
    outs.warn_expanded("index_fill_", input, "tensor[mask] = scalar")
    if input._hollow:
        return
    target = input._skimp_writable()
    number = constant(value, input._dtype)
    if target.ndim == 0:
        if where.size:
            target[...] = number
        return
    target[_at(dim, where)] = number


def _front(g: Tensor, dim: int, index: Tensor) -> Tensor:
    if index._hollow:
        return index
    n = g.shape[dim] if g.ndim else 1
    return fresh(counted_from_front(index._skimp_array().astype(np.int64), n), dtypes.int64)


# -- index_reduce ---------------------------------------------------------------------------------


class _Slices:
    """What the derivatives of scatter_reduce ask for, for slices."""

    def __init__(self, dim: int, index: Tensor, include_self: bool) -> None:
        self.dim, self.index, self.include_self = dim, index, include_self

    def read(self, t: Any) -> Any:
        return t.index_select(self.dim, self.index)

    def add(self, t: Any, src: Any) -> Any:
        return t.index_add(self.dim, self.index, src)

    def part(self, src: Any) -> Any:
        return src

    def reduced(self, t: Any, src: Any, reduce: str) -> Any:
        return t.index_reduce(self.dim, self.index, src, reduce, include_self=self.include_self)


def _reduce_back(
    g: Tensor,
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    include_self: bool,
    result: Tensor,
) -> tuple[Tensor, Tensor]:
    own, other = REDUCE_BACK[reduce](_Slices(dim, index, include_self), g, input, source, result)
    return own if include_self else _unselected(own, dim, index), other


@writer(rule=Rule("IndexReduceBackward0", {("input", "source"): _reduce_back}))
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> None:
    """Reduce slices of `source` into those at the positions in a vector; `include_self`: their own
    values count too.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    dim, where = _check_source("index_reduce_", input, dim, index, source)
    _check_in_self(where, input.shape[dim] if input.ndim else 1)
    outs.check_no_overlap(input, (index, source))
    if input._storage is source._storage and input.ndim > 1 and where.size:
        outs.check_overlap(input.select(dim, 0), (source.select(dim, 0),))  # PyTorch asks of these
    if input._hollow:
        return
    values = source._skimp_array()
    target = input._skimp_writable()
    rows = target.reshape(1) if target.ndim == 0 else target
    if not include_self and where.size:
        rows[_at(dim, where)] = identity(reduce, input._dtype)
    _merge(rows, dim, where, values, UFUNCS[reduce])
    if reduce == "mean":
        counts = bare.bincount(where, minlength=rows.shape[dim]) + int(include_self)
        divided(
            rows, bare.maximum(counts, 1).reshape([-1 if d == dim else 1 for d in range(rows.ndim)])
        )


SAYS = """\
Shape: any; the result's is the input's (`index_select`: as many along `dim` as `index` has).
Dtypes: bool, integers, floating point and complex numbers; `index` is int64 or int32.
Raises: IndexError or RuntimeError for an index or a dim that is not there; RuntimeError for dtypes
that differ."""
