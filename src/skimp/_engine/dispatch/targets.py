"""Where an op that is not pointwise writes: a fresh dense tensor, from the pool if it is large, or
a checked `out=`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from skimp._engine.dispatch import outs
from skimp._engine.dispatch.expressions import converted, node_of
from skimp._engine.dispatch.operands import empty_dense
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import Expr, Kernel, Leaf, Whole, later
from skimp._engine.eval.into import write
from skimp._engine.memory import layout as layouts, storage as storages
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, empty, fresh, wrap
from skimp.config import config

Ints = tuple[int, ...]


def blank(
    shape: Ints, dtype: dtypes.dtype, strides: Ints | None = None, reads: Iterable[Tensor] = ()
) -> tuple[Tensor, Array]:
    """An uninitialised dense tensor, row-major unless told otherwise, and the array to fill it
    through. `reads`: what is looked at as arrays. It is there before there is room for the result,
    beside which what it is made of may have none, and does not go for that.
    """
    nbytes = layouts.numel(shape) * dtype.itemsize
    if nbytes < POOLED:
        if strides is None or strides == layouts.contiguous_strides(shape):
            array = np.empty(shape, dtype.np)
            return fresh(array, dtype), array
        layout = Layout(shape, strides, 0)
        if layouts.is_non_overlapping_and_dense(layout):
            array = empty_dense(shape, strides, dtype.np)
            turned = as_it_lies(array, dtype)
            turned._skimp_layout = layout
            return turned, array
    _held = [t._storage.flat() for t in reads]
    if strides is None:
        s = storages.empty(nbytes)
        flat = s._flat
        array = np.ndarray(shape, dtype.np, s.flat() if flat is None else flat)
        made = wrap(s, layouts.contiguous(shape), dtype)
        if flat is not None and array.size < config.small_below:  # and no budget takes the bytes
            made._np = array
        return made, array
    made = empty(shape, dtype, strides)
    return made, made._storage.view(made._skimp_layout_of(), dtype.np)


def whole(
    kernel: Kernel,
    leaves: Sequence[Leaf],
    shape: Ints,
    dtype: dtypes.dtype,
    keeps: tuple[object, ...] = (),
) -> Tensor:
    """A row-major tensor that a kernel computes of whole arrays, when somebody reads it; nobody
    waits for it or knows it."""
    expr = Whole(kernel, tuple(leaves), shape, dtype.np, keeps)
    return wrap(storages.defer(expr, waits=False), layouts.contiguous(shape), dtype)


def leaf_of(t: Tensor) -> Leaf:
    """A leaf on a tensor, whose bytes are asked for when somebody reads it."""
    return later(t._storage, partial(_seen, layout=t._skimp_layout_of(), dtype=t._dtype.np))


def _seen(s: Any, layout: Layout, dtype: np.dtype[Any]) -> Array:
    array: Array = s.view(layout, dtype)
    return array


_C_NAMES = {
    dtypes.bool: "bool", dtypes.uint8: "unsigned char", dtypes.int8: "signed char",
    dtypes.int16: "short int", dtypes.int32: "int", dtypes.int64: "long int",
    dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16", dtypes.float32: "float",
    dtypes.float64: "double", dtypes.complex64: "c10::complex<float>",
    dtypes.complex128: "c10::complex<double>",
}  # fmt: skip


def c_name(dtype: dtypes.dtype) -> str:
    """What PyTorch's C++ calls an element type, as its messages do."""
    return _C_NAMES[dtype]


def check_out(out: Any, dtype: dtypes.dtype, shape: Ints, name: str) -> None:
    """`out=` of an op that converts nothing has the result's type, and takes its shape."""
    check_type(out, dtype, name)
    outs.resize_out(name, out, shape)
    outs.check_overlap(out, ())


def check_type(out: Any, dtype: dtypes.dtype, name: str) -> None:
    """Refuse an `out=` of another type than the result's."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if out._dtype is not dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {c_name(dtype)}, but got {c_name(out._dtype)} "
            "instead"
        )


def target(
    name: str,
    out: Tensor | None,
    shape: Ints,
    dtype: dtypes.dtype,
    inputs: Sequence[Tensor],
    strides: Ints | None = None,
) -> tuple[Tensor, Any]:
    """`out` in the result's shape, or a blank tensor, with its array; `out` must share no byte with
    an input. No array: nobody wants the elements.
    """
    if out is None:
        if inputs and inputs[0]._hollow:
            return meta.empty(shape, dtype, strides), None
        return blank(shape, dtype, strides, (t for t in inputs if not _is_poured(t)))
    was_empty = 0 in out.shape
    outs.resize_out(name, out, shape)
    if was_empty and strides is not None:
        outs.resize(out, shape, strides)
    outs.check_no_overlap(out, inputs)
    if out._hollow:
        out._skimp_bump()
        return out, None
    return out, out._skimp_writable()


def _is_poured(t: Tensor) -> bool:
    """Whether a tensor is an expression, and all of it, so that it need never be an array."""
    if t._storage.deferred is None:
        return False
    layout = t._skimp_layout_of()
    return layouts.numel(layout.shape) * t._dtype.itemsize == len(t._storage)


def pour(source: Tensor, into: Array) -> None:
    """Write all of `source`, converted, into an array of its shape; an expression is computed
    straight into its place.
    """
    expr = source._storage.deferred and source._storage.awaited()
    layout = source._skimp_layout_of()
    if expr is None or layout.offset or not layouts.is_non_overlapping_and_dense(layout):
        copy(into, source._skimp_array())
        return
    if (place := _unfolded(source, expr, layout, into)) is not None:
        _compute(expr, source._dtype, place)
        return
    order = layouts.memory_order(layout)
    inner = tuple([layout.shape[d] for d in order])
    node = node_of(source, layout, order, inner)
    if isinstance(node, Expr):
        _compute(node, source._dtype, into.transpose(order))
    else:
        copy(into, source._skimp_array())


def _compute(expr: Expr, have: dtypes.dtype, into: Array) -> None:
    write(converted(expr, have, dtypes.FROM_NUMPY[into.dtype], expr.shape), into)


def _unfolded(source: Tensor, expr: Expr, layout: Layout, into: Array) -> Array | None:
    """`into` in the shape of the expression that `source` sees in another one, as heads side by
    side; None where it is no other, or `into` has no view of that shape.
    """
    if (
        expr.shape == layout.shape
        or source._conj
        or source._skimp_neg
        or expr.dtype != source._dtype.np
        or not layouts.is_contiguous(layout)
        or prod(expr.shape) != into.size
    ):
        return None
    try:
        return into.reshape(expr.shape, copy=False)
    except ValueError:
        return None
