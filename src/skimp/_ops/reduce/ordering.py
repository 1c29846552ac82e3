"""Ops that order: sort, argsort, topk, and order statistics (kthvalue, median, mode)."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, hidden, rowwise
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval import ranks
from skimp._engine.eval.positions import bits
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import refuse
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching, return_types
from skimp._ops.reduce import small, small_order, small_search

Pair = tuple[Tensor, Tensor]


def _placed(g: Tensor, shape: Any, dim: int, indices: Tensor) -> Tensor:
    """Zeros with the gradients where the values were taken from."""
    return g.new_zeros(tuple(shape)).scatter(dim, indices, g)


def _placed_reduced(g: Tensor, shape: Any, dim: int, indices: Tensor, keepdim: bool) -> Tensor:
    if not keepdim and shape:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return _placed(g, shape, dim, indices)


def _rows(a: Array) -> Array:
    """A block as (rows, n)."""
    return a.reshape(-1, a.shape[-1])


# -- sort -----------------------------------------------------------------------------------------


def sort(
    input: Tensor,
    dim: Any = -1,
    descending: bool = False,
    *,
    stable: bool = False,
    out: Any = None,
    axis: Any = None,
) -> Pair:
    """The values in order along a dim and where they were; ties keep their order; NaN counts as
    the largest.

    >>> torch.tensor([2.0, float("nan"), 1.0]).sort().values
    tensor([1., 2., nan])

    Shape: the input's, both.
    Dtypes: bool, integers and floating point.
    """
    if not isinstance(descending, bool):
        raise TypeError(f"sort(): 'descending' must be bool, not {type(descending).__name__}")
    if isinstance(dim, bool):  # sort(x, descending)
        dim, descending = -1, dim
    return _sort(input, dim if axis is None else axis, bool(descending), out=out)


SORT = Rule(
    "SortBackward0",
    input=lambda g, input_shape, dim, result1: _placed(g, input_shape, dim, result1),
)


@hidden(
    kind="row-wise", out="same", overlap="aligned", rule=SORT, batch=batching.dims.by_dims("dim")
)
def _sort(input: Tensor, dim: int, descending: bool) -> Pair:
    dim = layouts.normalize_dim(dim, input.ndim)
    if input._dtype.is_complex:
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    shape = tuple(input.shape)
    strides = layouts.empty_like_strides(input._skimp_layout_of())
    if input._hollow:
        return return_types.sort(  # type: ignore[no-any-return]
            meta.empty(shape, input._dtype, strides), meta.empty(shape, dtypes.int64, strides)
        )
    values, into = blank(shape, input._dtype, strides, (input,))
    indices, at = blank(shape, dtypes.int64, strides)
    if into.size:
        _sort_into(input._skimp_array(), dim, descending, into, at)
    return return_types.sort(values, indices)  # type: ignore[no-any-return]


def _sort_into(source: Array, dim: int, descending: bool, values: Array, indices: Array) -> None:
    source, values, indices = (shaping.dim_last(a, dim) for a in (source, values, indices))
    moved = bits(values)

    def work(box: Any) -> None:
        block = _rows(source[box])
        target = indices[box]
        where = (
            target.reshape(block.shape)
            if target.flags.c_contiguous
            else np.empty(block.shape, np.int64)
        )
        ranks.order(block, descending, where)
        if not target.flags.c_contiguous:
            target[...] = where.reshape(target.shape)
        moved[box] = ranks.taken(block, where).reshape(target.shape)

    ranks.by_rows(source.shape[:-1], source.shape[-1], work)


def _small_sort(
    input: Any, dim: Any = -1, descending: Any = False, *, stable: Any = False, axis: Any = None
) -> Pair | None:
    if type(descending) is not bool or axis is not None or input._np is None:
        return None
    shape = input._np.shape
    if type(dim) is not int or not -len(shape) <= dim < len(shape):
        return None
    if 1 in shape and _lies_otherwise(input, shape):
        return None
    x = small.floats(input, small_order.ORDERED)
    found = small_order.in_order(x, input._dtype, dim, descending, shape[dim])
    return None if found is None else return_types.sort._of(found)


def _lies_otherwise(input: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether dims of size 1 have strides that a new array would not give the result."""
    return input._skimp_layout_of().strides != layouts.contiguous_strides(shape)


_sorted = export("sort", sort, fast=_small_sort, fast_rule=SORT)


def argsort(
    input: Tensor,
    dim: Any = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    axis: Any = None,
) -> Tensor:
    """Where the values in order along a dim come from.

    Shape: the input's.
    Dtypes: bool, integers and floating point.
    """
    return sort(input.detach(), dim, descending, axis=axis)[1]


def _small_argsort(
    input: Any, dim: Any = -1, descending: Any = False, stable: Any = False, *, axis: Any = None
) -> Tensor | None:
    x = input._np
    if type(descending) is not bool or axis is not None or x is None or not x.ndim:
        return None
    if 1 in x.shape and _lies_otherwise(input, x.shape):
        return None
    found = small_order.places_in_order(x, input._dtype, dim, descending)
    return None if found is None else fresh(found, dtypes.int64)


export("argsort", argsort, fast=_small_argsort)


def _small_msort(input: Any) -> Tensor | None:
    if input._np is None or not input._np.ndim or (input._rg and modes.state.grad):
        return None
    if 1 in input._np.shape and _lies_otherwise(input, input._np.shape):
        return None
    found = small_search.values_in_order(small.floats(input, small_order.ORDERED), 0)
    return None if found is None else fresh(found, input._dtype)


@rowwise(out="same", overlap="aligned", fast=_small_msort)
def msort(input: Tensor) -> Tensor:
    """The values in order along the first dim.

    Shape: the input's.
    Dtypes: bool, integers and floating point.
    """
    return _sorted(input, 0)[0]  # type: ignore[no-any-return]


# -- topk, kthvalue -------------------------------------------------------------------------------


def _small_topk(
    input: Any, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True
) -> Pair | None:
    if type(k) is not int or type(largest) is not bool:
        return None
    found = small_order.topped(input._np, k, dim, largest)
    if found is None:
        x = small.row_major(input, small_order.ORDERED)
        found = small_order.in_order(x, input._dtype, dim, largest, k)
    return None if found is None else return_types.topk._of(found)


@rowwise(
    out="same",
    overlap="aligned",
    fast=_small_topk,
    rule=Rule(
        "TopkBackward0",
        input=lambda g, input_shape, dim, result1: _placed(g, input_shape, dim, result1),
    ),
    batch=batching.dims.by_dims("dim"),
)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The k largest (or smallest) values along a dim, in order, and where they are.

    Shape: the input's, with `k` along the dim, both.
    Dtypes: integers and floating point.
    """
    dim = layouts.normalize_dim(dim, input.ndim)
    shape = tuple(input.shape)
    if not 0 <= k <= (shape[dim] if shape else 1):
        raise RuntimeError("selected index k out of range")
    if not shape:  # one number is there whatever is asked for
        k = 1
    if input._dtype.is_complex or input._dtype is dtypes.bool:
        kind = "bool" if input._dtype is dtypes.bool else "complex"
        raise RuntimeError(
            f"{'' if kind == 'bool' else ' '}topk does not support {kind} dtypes on CPU"
        )
    kept = (*shape[:dim], k, *shape[dim + 1 :]) if shape else ()
    if input._hollow:
        return return_types.topk(  # type: ignore[no-any-return]
            meta.empty(kept, input._dtype), meta.empty(kept, dtypes.int64)
        )
    values, into = blank(kept, input._dtype, None, (input,))
    indices, at = blank(kept, dtypes.int64)
    if into.size:
        _pick(input._skimp_array(), dim, into, at, lambda block: ranks.best(block, k, largest))
    return return_types.topk(values, indices)  # type: ignore[no-any-return]


def _pick(source: Array, dim: int, values: Array, indices: Array, choose: Any) -> None:
    """`choose(rows)` gives positions (rows, k), for blocks of rows along `dim`."""
    source, values, indices = (shaping.dim_last(a, dim) for a in (source, values, indices))
    moved = bits(values)

    def work(box: Any) -> None:
        block = _rows(source[box])
        found = choose(block)
        shape = indices[box].shape
        indices[box] = found.reshape(shape)
        moved[box] = ranks.taken(block, found).reshape(shape)

    ranks.by_rows(source.shape[:-1], source.shape[-1], work)


def _chosen(name: str, input: Tensor, dim: int, keepdim: bool, choose: Any) -> Pair:
    """One value and its position for each row along `dim`."""
    dim = layouts.normalize_dim(dim, input.ndim)
    shape = tuple(input.shape)
    if shape and shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")
    kept = tuple([1 if d == dim else n for d, n in enumerate(shape)])
    if input._hollow:
        kept = kept if keepdim or not shape else (*shape[:dim], *shape[dim + 1 :])
        return meta.empty(kept, input._dtype), meta.empty(kept, dtypes.int64)
    values, into = blank(kept, input._dtype, None, (input,))
    indices, at = blank(kept, dtypes.int64)
    if into.size:
        _pick(input._skimp_array(), dim, into, at, choose)
    if not keepdim and shape:
        values, indices = values.squeeze(dim), indices.squeeze(dim)
        values._base = indices._base = None
    return values, indices


def _refuse(name: str, input: Tensor, bools: bool = False) -> None:
    if input._dtype.is_complex or (bools and input._dtype is dtypes.bool):
        raise no_kernel(name, input._dtype)
    refuse(name, input._dtype, dtypes.NARROW)


_REDUCED = {
    "input": lambda g, input_shape, dim, keepdim, result1: _placed_reduced(
        g, input_shape, dim, result1, keepdim
    )
}


def _small_kth(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Pair | None:
    found = small_order.ranked(input, dim, keepdim, k - 1) if type(k) is int else None
    return None if found is None else return_types.kthvalue._of(found)


@rowwise(
    out="same",
    fast=_small_kth,
    rule=Rule("KthvalueBackward0", _REDUCED),
    batch=batching.dims.by_dims("dim"),
)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th smallest value along a dim, counted from 1, and where it is.

    Shape: the input's less `dim`, which `keepdim` leaves with size 1.
    Dtypes: integers and floating point.
    """
    dim = layouts.normalize_dim(dim, input.ndim)
    n = input.shape[dim] if input.ndim else 1
    if n and not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    _refuse("kthvalue_cpu", input, bools=True)
    found = _chosen("kthvalue", input, dim, keepdim, lambda block: ranks.kth(block, k - 1)[:, None])
    return return_types.kthvalue(*found)  # type: ignore[no-any-return]


# -- median ---------------------------------------------------------------------------------------


def _nan(block: Array) -> Array | None:
    """Which elements are NaN; None where none is."""
    if block.dtype.kind in "biu":
        return None
    found = block != block
    return found if bare.count_nonzero(found) else None


def _median_at(block: Array) -> Array:
    """The position of the lower median of each row; of its first NaN where it has one."""
    at = ranks.kth(block, (block.shape[1] - 1) // 2)
    nan = _nan(block)
    if nan is not None:
        at = bare.where(nan.any(axis=1), nan.argmax(axis=1), at)
    return at[:, None]


def _nanmedian_at(block: Array) -> Array:
    """The same among the elements that are not NaN; the first NaN where all are."""
    nan = _nan(block)
    if nan is None:
        return ranks.kth(block, (block.shape[1] - 1) // 2)[:, None]
    order = np.empty(block.shape, np.int64)
    ranks.order(block, False, order)
    count = block.shape[1] - nan.sum(axis=1)
    return shaping.along(order, np.maximum(count - 1, 0)[:, None] // 2, 1)


def _shared(g: Tensor, input: Tensor, result: Tensor) -> Tensor:
    """The gradient of one value, shared evenly by the elements equal to it (a NaN by all NaN)."""
    equal: Any = input.isnan() if bool(result.isnan()) else input == result
    count = int(equal.sum().item())
    return equal.to(g._dtype) * (g / count)  # type: ignore[no-any-return]


def _medians(name: str, label: str, at: Any, doc: str) -> None:
    def small_of_all(input: Tensor) -> Tensor | None:
        x = small.row_major(input, small_order.ORDERED)
        found = small_search.values_in_order(x)
        return None if found is None else fresh(found[(found.size - 1) // 2], input._dtype)

    @hidden(
        f"_{name}_all",
        kind="row-wise",
        fast=small_of_all,
        rule=Rule(f"{label}0", input=_shared),
        batch=batching.dims.middle,
    )
    def of_all(input: Tensor) -> Tensor:
        _refuse("median_cpu", input, bools=True)
        if not input.numel():
            value = np.nan if input._dtype.is_floating_point else np.iinfo(input._dtype.np).min
            return fresh(np.asarray(value, input._dtype.np), input._dtype)
        return _chosen(name, input.reshape(-1), 0, False, at)[0]

    def small_along(input: Tensor, dim: int = -1, keepdim: bool = False) -> Pair | None:
        shape = () if input._np is None else input._np.shape
        if type(dim) is not int or not -len(shape) <= dim < len(shape):
            return None
        found = small_order.ranked(input, dim, keepdim, (shape[dim] - 1) // 2)
        return None if found is None else getattr(return_types, name)._of(found)

    @hidden(
        f"_{name}_dim",
        kind="row-wise",
        fast=small_along,
        out="same",
        rule=Rule(f"{label}1", _REDUCED),
        batch=batching.dims.by_dims("dim"),
    )
    def along(input: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
        _refuse("median_out", input, bools=True)
        return getattr(return_types, name)(*_chosen(name, input, dim, keepdim, at))  # type: ignore[no-any-return]

    def f(
        input: Tensor,
        dim: Any = None,
        keepdim: bool = False,
        *,
        out: Any = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Any:
        dim = axis if dim is None else dim
        return of_all(input) if dim is None else along(input, dim, keepdim or keepdims, out=out)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    export(name, f, quick=True)


_medians(
    "median",
    "MedianBackward",
    _median_at,
    """The lower median, of all elements or along a dim with its position; NaN where there is one.

    Of an even count it is the lower of the two in the middle, not their mean:

    >>> torch.tensor([4.0, 1.0, 3.0, 2.0]).median()
    tensor(2.)

    Dtypes: integers and floating point.
    """,
)
_medians(
    "nanmedian",
    "NanmedianBackward",
    _nanmedian_at,
    """The lower median of the elements that are not NaN, of all or along a dim with its position.

    Dtypes: integers and floating point.
    """,
)


# -- mode -----------------------------------------------------------------------------------------


def _mode_at(block: Array) -> Array:
    """The last position of the most frequent value of each row; of the smallest such value."""
    n = block.shape[1]
    order = np.empty(block.shape, np.int64)
    ranks.order(block, False, order)
    values = shaping.along(block, order, 1)
    start = np.zeros(block.shape, np.int64)
    np.multiply(values[:, 1:] != values[:, :-1], np.arange(1, n), out=start[:, 1:])
    np.maximum.accumulate(start, axis=1, out=start)
    last = np.argmax(np.arange(n) - start, axis=1)
    return shaping.along(order, last[:, None], 1)


@rowwise(out="same", rule=Rule("ModeBackward0", _REDUCED), batch=batching.dims.by_dims("dim"))
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent value along a dim (the smallest of several) and the last of its
    positions.

    Dtypes: bool, integers and floating point.
    """
    _refuse("mode", input)
    return return_types.mode(*_chosen("mode", input, dim, keepdim, _mode_at))  # type: ignore[no-any-return]


SAYS = """\
Shape: without a dim one number; along one the input's less `dim`, which `keepdim` leaves with size
1.
Raises: IndexError for a dim that is not there; RuntimeError or NotImplementedError for complex
numbers.
Memory: new tensors."""
