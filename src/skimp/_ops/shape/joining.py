"""Tensors joined: cat and stack, which write each input straight into its place, and block_diag."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Choice, Rule
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank, leaf_of, pour, target, whole
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import Kernel, Leaf, Whole
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor, alias, fresh
from skimp._kernels import bare, copies
from skimp._ops import batching
from skimp._ops.sparse import rules as sparse
from skimp.config import config

Ints = tuple[int, ...]

_MANY: Final = 1 << 12  # elements of a part from which it pays to place it


def tensor_list(name: str, values: Any, word: str = "tensors") -> list[Tensor]:
    """The tensors of a list argument, with PyTorch's TypeErrors for anything else."""
    if isinstance(values, Tensor) or not isinstance(values, (list, tuple)):
        what = type(values).__name__
        raise TypeError(
            f"{name}(): argument '{word}' (position 1) must be tuple of Tensors, not {what}"
        )
    for i, t in enumerate(values):
        check_element(i, t)
    return list(values)


def check_element(i: int, t: Any) -> None:
    """Refuse what is no tensor among the tensors of an argument."""
    if not isinstance(t, Tensor):
        raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")


def varargs(values: Any) -> list[Tensor]:
    """`f(a, b)` and `f([a, b])` alike."""
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = values[0]
    return list(values)


# -- cat and stack --------------------------------------------------------------------------------


def _skipped(shape: Ints) -> bool:
    """Empty 1-d tensors fit anything: what an empty tensor was before tensors had shapes like (0,
    3).
    """
    return shape == (0,)


def _cat_back(g: Tensor, tensors_shape: Any, dim: int, edges: Any) -> list[Tensor | None]:
    grads: list[Tensor | None] = []
    start = 0
    for to, shape in zip(edges[::2], tensors_shape, strict=True):
        if _skipped(tuple(shape)):
            grads.append(None if to is None else g.new_zeros((0,)))
            continue
        grads.append(None if to is None else g.narrow(dim, start, shape[dim]))
        start += shape[dim]
    return grads


def _joined_again(tensors_noted: list[Any], tensors_shape: Any, dim: int, result: Tensor) -> Any:
    """The result as it was, put together when somebody reads it, of what is kept or made again
    anyway, of other parts that are there still, which then are kept in its place, and of copies of
    those that are gone, at most half of it."""
    shape, dtype = shape_of(result), result._dtype
    if dtype.is_complex or None in tensors_noted:
        return None
    if any([len(s) != len(shape) for s in tensors_shape]):
        return None
    found = [_whole_or_free(*note.kept()) for note in tensors_noted]
    gone = [math.prod(s) for s, (t, _) in zip(tensors_shape, found, strict=True) if t is None]
    most = math.prod(shape) // 2 if host.budget is None else 0  # which has no recipe of a copy
    if sum(gone) > most or any([t is not None and t._dtype is not dtype for t, _ in found]):
        return None
    dim %= len(shape)
    source = result._skimp_array()
    leaves: list[Leaf] = []
    keeps: list[object] = []
    start, lead = 0, (slice(None),) * dim
    for part, (t, free) in zip(tensors_shape, found, strict=True):
        stop = start + part[dim]
        again = None if t is None else _parts(t, dim)
        if again is not None:
            leaves += again.args
            keeps += again.keeps
        else:
            if t is None:
                t, into = blank(tuple(part), dtype)
                copies.put(source[(*lead, slice(start, stop))], into)
            if not free:
                t._storage.saved = True
                keeps.append(t._storage)
            leaves.append(leaf_of(t))
        start = stop
    return whole(_joint(dim), leaves, shape, dtype, tuple(keeps))


def _whole_or_free(t: Tensor | None, free: bool) -> tuple[Tensor | None, bool]:
    """Without a part of a larger storage, all of which would be kept for it."""
    if t is None or free:
        return t, free
    every = math.prod(shape_of(t)) * t._dtype.itemsize
    return (t if len(t._storage) == every else None), False


def _parts(t: Tensor, dim: int) -> Whole | None:
    """What makes a tensor that is joined again along the same dim, if all of it is."""
    expr = t._storage.deferred
    if type(expr) is not Whole or expr.kernel is not _joint(dim):
        return None
    return expr if t._skimp_layout_of() == layouts.contiguous(expr.shape) else None


@lru_cache(maxsize=16)
def _joint(dim: int) -> Kernel:
    def join(*arrays: Array, out: Array) -> None:
        _put(list(arrays), out, dim, copies.put)

    return Kernel("cat", join)


_CAT = Rule("CatBackward0", tensors=_cat_back)
_CAT_AGAIN = Rule("CatBackward0", tensors=_cat_back, rematerialize=_joined_again)  # of large ones


def _chosen(tensors: Any) -> Rule:
    size = sum([math.prod(shape_of(t)) for t in tensors])
    return _CAT if size < max(config.rematerialize_from, config.defer_from) else _CAT_AGAIN


def arrays_of(tensors: Any) -> tuple[list[Array], bool, bool] | None:
    """The arrays of tensors of one type, each of them small, whose joint is row-major; whether a
    tensor of all their bytes keeps NumPy's array; and whether some are empty, though not all.
    """
    if type(tensors) not in (list, tuple) or not tensors or type(tensors[0]) not in ORDINARY:
        return None
    dtype, arrays, nbytes, empty = tensors[0]._dtype, [], 0, False
    for t in tensors:
        a = t._np if type(t) in ORDINARY else None
        if a is None or t._dtype is not dtype:
            return None
        if not (n := a.nbytes):
            empty = True
        arrays.append(a)
        nbytes += n
    first = arrays[0]
    if not nbytes or (first.ndim in (4, 5) and _is_channels_last(tensors, first)):
        return None
    return arrays, nbytes < POOLED or nbytes < host.kept_below, empty


def _is_channels_last(tensors: Any, first: Array) -> bool:
    """Whether all are: not where channels of the first are further apart than what is beside each
    other in the last dim."""
    layout = tensors[0]._skimp_layout
    strides = first.strides if layout is None else layout.strides
    return strides[1] <= strides[-1] and _all_channels_last(tensors)


def _small_cat(tensors: Any, dim: int = 0, *, out: Any = None) -> Tensor | None:
    found = arrays_of(tensors)
    if found is None or type(dim) is not int:
        return None
    arrays = found[0]
    if found[2]:
        arrays = [a for a in arrays if not _skipped(a.shape)]
    if not found[1]:
        return _large_cat(arrays, dim, tensors[0]._dtype)
    try:
        made = _in_places(arrays, dim) if arrays[0].ndim > 2 else None
        if made is None:
            made = bare.concatenate(arrays, dim)
    except ValueError:  # sizes or a dim that don't fit: the general way has PyTorch's words
        return None
    if not made.flags.c_contiguous:  # as turned ones are joined
        made = np.ascontiguousarray(made)
    return fresh(made, tensors[0]._dtype)


def _in_places(arrays: list[Array], dim: int) -> Array | None:
    """Arrays joined where their rows are short and not one after another, as halves of heads are,
    which NumPy's `concatenate` takes two to three times as long for; None for others.
    """
    first = arrays[0]
    if first.size < _MANY or first.flags.c_contiguous:
        return None
    shape = _shape_of_all(arrays, dim)
    if shape is None:
        return None
    made = np.empty(shape, first.dtype)
    _put(arrays, made, dim, copies.put)
    return made


def _large_cat(arrays: list[Array], dim: int, dtype: dtypes.dtype) -> Tensor | None:
    """Small arrays, such as the gradients of heads, joined to what is large."""
    shape = _shape_of_all(arrays, dim)
    if shape is None:
        return None
    made, into = blank(shape, dtype)
    in_runs = all([a.strides[-1] == a.itemsize for a in arrays])
    _put(arrays, into, dim, copies.put if in_runs else lambda a, place: copy(place, a))
    return made


def _shape_of_all(arrays: list[Array], dim: int) -> Ints | None:
    """The shape of arrays end to end along a dim; None where they don't fit."""
    first = arrays[0]
    if not -first.ndim <= dim < first.ndim:
        return None
    dim %= first.ndim
    before, after = first.shape[:dim], first.shape[dim + 1 :]
    if any([a.shape[:dim] != before or a.shape[dim + 1 :] != after for a in arrays]):
        return None
    return (*before, sum([a.shape[dim] for a in arrays]), *after)


def _put(arrays: list[Array], into: Array, dim: int, put: Callable[[Array, Array], None]) -> None:
    """Each array to its place."""
    start, lead = 0, (slice(None),) * (dim % into.ndim)
    for a in arrays:
        stop = start + a.shape[dim]
        put(a, into[(*lead, slice(start, stop))])
        start = stop


@general(
    method=False,
    aliases=("concat", "concatenate"),
    rule=Choice(_chosen, ("tensors",), _CAT),
    autocast="widest",
    fast=_small_cat,
    batch=batching.places.join,
    sparse=sparse.joined,
    copies="joined",
)
def cat(tensors: Any, dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors one after the other along a dimension, in their promoted type.

    Shape: alike but for `dim`; the result is as long there as all together.
    """
    given = tensor_list("cat", tensors)
    if not given:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    shape, dim = _joined_shape(given, dim)
    dtype = _promoted(given, out)
    made, into = target("cat", out, shape, dtype, given, _format_strides(given, shape))
    _write(given, into, dim)
    return made


def _write(tensors: Sequence[Tensor], into: Array | None, dim: int) -> None:
    if into is None:
        return
    start = 0
    lead = (slice(None),) * dim
    for t in tensors:
        shape = tuple(t.shape)
        if _skipped(shape):
            continue
        stop = start + shape[dim]
        pour(t, into[(*lead, slice(start, stop))])
        start = stop


def _promoted(tensors: Sequence[Tensor], out: Tensor | None = None) -> dtypes.dtype:
    """The type that all promote to, which `out` must be able to hold."""
    dtype = reduce(promotion.promote_types, [t._dtype for t in tensors])
    if out is not None and not promotion.can_cast(dtype, out._dtype):
        name = promotion.scalar_type_name(out._dtype)
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {name}")
    return dtype


def _joined_shape(tensors: Sequence[Tensor], dim: int) -> tuple[Ints, int]:
    """The shape of the whole and the dimension, counted from the front."""
    shapes = [tuple(t.shape) for t in tensors]
    for i, shape in enumerate(shapes):
        if not shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    real = [(i, shape) for i, shape in enumerate(shapes) if not _skipped(shape)]
    if not real:
        return (0,), 0  # whatever `dim` is
    first = real[0][1]
    dim = layouts.normalize_dim(dim, len(first))
    total = 0
    for i, shape in real:
        if len(shape) != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}"
            )
        for d, (a, b) in enumerate(zip(first, shape, strict=True)):
            if a != b and d != dim:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {a} but "
                    f"got size {b} for tensor number {i} in the list."
                )
        total += shape[dim]
    return (*first[:dim], total, *first[dim + 1 :]), dim


def _format_strides(tensors: Sequence[Tensor], shape: Ints) -> Ints | None:
    """channels_last where every input suggests it (None: row-major)."""
    if len(shape) not in (4, 5) or 0 in shape or not _all_channels_last(tensors):
        return None
    return layouts.channels_last_strides(shape)


def _all_channels_last(tensors: Sequence[Tensor]) -> bool:
    return all([layouts.suggests_channels_last(t._skimp_layout_of()) for t in tensors])


def _small_stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Tensor | None:
    found = arrays_of(tensors)
    if found is None or type(dim) is not int or not found[1]:
        return None
    arrays = found[0]
    try:
        made = bare.stack(arrays, dim) if dim or arrays[0].ndim else np.array(arrays)
    except ValueError:  # shapes or a dim that don't fit: the general way has PyTorch's words
        return None
    return fresh(made if made.flags.c_contiguous else np.ascontiguousarray(made), tensors[0]._dtype)


@general(
    method=False,
    rule=Rule(
        "StackBackward0",
        tensors=lambda g, tensors_shape, dim: [g.select(dim, i) for i in range(len(tensors_shape))],
    ),
    autocast="widest",
    fast=_small_stack,
    batch=batching.places.join,
    copies="stacked",
)
def stack(tensors: Any, dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors side by side along a new dimension, in their promoted type.

    Shape: alike; the result has one dim more.
    """
    given = tensor_list("stack", tensors)
    if not given:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tuple(given[0].shape)
    dim = layouts.normalize_dim(dim, len(first) + 1)
    for i, t in enumerate(given):
        if tuple(t.shape) != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(t.shape)} at entry {i}"
            )
    dtype = _promoted(given, out)
    shape = (*first[:dim], len(given), *first[dim:])
    made, into = target("stack", out, shape, dtype, given, _stacked_strides(given, shape, dim))
    if into is None:
        return made
    lead = (slice(None),) * dim
    for i, t in enumerate(given):
        place: Any = (*lead, i, ...)
        pour(t, into[place])  # the dots: an array where NumPy would give a scalar
    return made


def _stacked_strides(tensors: Sequence[Tensor], shape: Ints, dim: int) -> Ints | None:
    """PyTorch stacks by cat along an existing dim, seen as two: so channels_last inputs leave their
    order.
    """
    if dim == len(shape) - 1:
        return None
    size = shape[dim + 1]
    strides = _format_strides(tensors, (*shape[:dim], shape[dim] * size, *shape[dim + 2 :]))
    return strides and (*strides[:dim], strides[dim] * size, *strides[dim:])


# -- blocks and products --------------------------------------------------------------------------


def _block_diag_back(g: Tensor, tensors_shape: Any) -> list[Tensor]:
    grads, row, column = [], 0, 0
    for shape in tensors_shape:
        rows, columns = (1,) * (2 - len(shape)) + tuple(shape)
        part = g.narrow(0, row, rows).narrow(1, column, columns)
        grads.append(part.reshape(tuple(shape)))
        row, column = row + rows, column + columns
    return grads


@hidden(rule=Rule("BlockDiagBackward0", tensors=_block_diag_back))
def _block_diag(tensors: Any) -> Tensor:
    sizes = [(1,) * (2 - t.ndim) + tuple(t.shape) for t in tensors]
    shape = sum([s[0] for s in sizes]), sum([s[1] for s in sizes])
    dtype = promotion.result_dtype(tuple([(t._dtype, not t.ndim, False) for t in tensors]))
    if tensors[0]._hollow:
        return meta.empty(shape, dtype)
    made, into = blank(shape, dtype)
    row = column = 0
    for t, (rows, columns) in zip(tensors, sizes, strict=True):
        band = into[row : row + rows]
        band[:, :column] = 0
        band[:, column + columns :] = 0
        pour(
            alias(t, _two_dims(t._skimp_layout_of())) if t.ndim < 2 else t,
            band[:, column : column + columns],
        )
        row, column = row + rows, column + columns
    return made


def _two_dims(layout: Layout) -> Layout:
    lead = 2 - len(layout.shape)
    return Layout((1,) * lead + layout.shape, (1,) * lead + layout.strides, layout.offset)


@general(method=False)
def block_diag(*tensors: Any) -> Tensor:
    """The tensors, as matrices, along the diagonal of a matrix of zeros.

    Shape: matrices, or vectors and numbers as rows; the result has the sums of rows and columns.
    """
    given = varargs(tensors)
    for i, t in enumerate(given):
        check_element(i, t)
        if t.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                f"{t.ndim} dimensions"
            )
    if not given:
        return blank((1, 0), promotion.get_default_dtype())[0]
    return _block_diag(given)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers; the result has the type that all
promote to.
Raises: RuntimeError for sizes that differ elsewhere, IndexError for a dim that is not there."""
