"""How a reduction runs: dims are settled at the call, and blocks of the (perhaps deferred) source
are consumed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.eval.expr import Expr
from skimp._engine.eval.reduce import geometry, of_units, reduce
from skimp._engine.eval.reducers import Reducer
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.pending import materialize_inner
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, Tensor, empty, fresh
from skimp.config import config

_INTS: Final = frozenset({int})


def dims_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dims to reduce, in order: None and () mean all of them."""
    if dim is None:
        return tuple(range(ndim))
    if type(dim) is int or (type(dim) is tuple and _INTS.issuperset(map(type, dim))):
        return _of_ints(dim, ndim)
    return _dims_of(dim, ndim)


def _dims_of(dim: Any, ndim: int) -> tuple[int, ...]:
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(ndim))
        found = [layouts.normalize_dim(d, ndim) for d in layouts.numbers(dim)]
        for d in found:
            if found.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        return tuple(sorted(found)) if ndim else ()
    d = layouts.normalize_dim(dim, ndim)
    return (d,) if ndim else ()


_of_ints = lru_cache(maxsize=1024)(_dims_of)


@lru_cache(maxsize=1024)
def kept_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The result's shape."""
    if keepdim:
        return tuple([1 if d in dims else n for d, n in enumerate(shape)])
    return tuple([n for d, n in enumerate(shape) if d not in dims])


def source_of(t: Tensor, in_order: bool = False) -> tuple[Expr | Array, tuple[int, ...]]:
    """What holds the elements, expression or array, with its dims in memory order, and that order.

    `in_order` keeps the tensor's own order of dims, for results that depend on it (positions).
    """
    layout = t._skimp_layout_of()
    order = tuple(range(len(layout.shape))) if in_order else layouts.memory_order(layout)
    expr = t._storage.deferred and t._storage.awaited()
    if (
        expr is not None
        and expr.dtype == t._dtype.np  # else `t` shows the bytes as another type
        and not (t._conj or t._skimp_neg)
        and _covers(layout, order, expr)
    ):
        materialize_inner(expr)
        if t._storage.deferred is expr:
            return expr, order
    del expr  # whoever holds it keeps its result from taking over what it reads
    return t._skimp_array().transpose(order), order


def _covers(layout: Layout, order: tuple[int, ...], expr: Expr) -> bool:
    inner = tuple([layout.shape[d] for d in order])
    return (
        layout.offset == 0
        and inner == expr.shape
        and layouts.is_contiguous(Layout(inner, tuple([layout.strides[d] for d in order]), 0))
    )


def reduced(
    t: Tensor,
    dims: tuple[int, ...],
    keepdim: bool,
    how: Reducer,
    result: dtypes.dtype,
    acc: dtypes.dtype | None = None,
    in_order: bool = False,
) -> Tensor:
    """`how` over `dims` of `t`, accumulated in `acc`, as a fresh row-major tensor of `result`."""
    a = t._np
    if a is not None and a.size and a.flags.c_contiguous and (acc is None or acc.np == a.dtype):
        cut = geometry(a.shape, dims)
        if cut.alone and (cut.direct or not how.places):
            value = of_units(a, cut, how)
            value = value.reshape(kept_shape(a.shape, dims, keepdim))
            return fresh(value if value.dtype == result.np else value.astype(result.np), result)
    if t._hollow:
        return meta.empty(kept_shape(tuple(t.shape), dims, keepdim), result)
    shape = kept_shape(tuple(t.shape), dims, keepdim)
    kept = kept_shape(tuple(t.shape), dims, False)
    n = layouts.numel(shape)
    made: Tensor | None = None
    if n < max(1, config.small_below):
        target = np.empty(kept, result.np)
    else:
        made = empty(shape, result)
        target = np.ndarray(kept, result.np, made._storage.flat())
    # After there is room: others are computed for that, over what they alone are known to read.
    source, order = source_of(t, in_order)
    axes = tuple([i for i, d in enumerate(order) if d in dims])
    inner = [d for d in order if d not in dims]
    ranks = sorted(range(len(inner)), key=inner.__getitem__)
    into = target.transpose(np.argsort(ranks)) if ranks != sorted(ranks) else target
    reduce(source, axes, how, into, None if acc is None else acc.np)
    if made is not None:
        return made
    return fresh(target.reshape(shape), result)
