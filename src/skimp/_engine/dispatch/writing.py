"""Results of pointwise rows in memory: that of a tensor that is there already, or of a new small
one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.dispatch.alike import bound
from skimp._engine.dispatch.expressions import converted, expression
from skimp._engine.dispatch.fast_path import forgets, of_a_result, spread, strides_like
from skimp._engine.dispatch.operands import OPMATH, cast, constant, empty_dense, operand
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.eval import run
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import Kernel
from skimp._engine.eval.into import write
from skimp._engine.eval.program import steps_of
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, compiled, sharing
from skimp._kernels.halves import retyped
from skimp._kernels.threads import quietly
from skimp.config import config

if TYPE_CHECKING:
    from skimp._engine.dispatch.pointwise import Pointwise

_NUMBERS = frozenset({int, float})


def bindings(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip((*row.args, *row.params), (*args, *params), strict=True))


# -- over the first argument, where nothing has to be looked up ------------------------------------


def over(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> bool:
    """The row written over its large first argument, which fills one run of memory, and recorded;
    beside it are tensors of its type and shape on other storages, and numbers if it has floats.
    False where a call is not for it.
    """
    target = args[0]
    if type(target) not in ORDINARY or row.unwatched:
        return False
    dtype, layout = target._dtype, target._skimp_layout
    if (
        layout is None
        or dtype not in row.plain
        or (row.check is not None and dtype not in dtypes.FLOATING)
        or layouts.numel(layout.shape) < config.small_below
        or not layouts.is_non_overlapping_and_dense(layout)
    ):
        return False
    needed, alike = False, target._storage.deferred is None
    for i, a in enumerate(args):
        if type(a) not in ORDINARY:
            if dtype in dtypes.FLOATING and type(a) in _NUMBERS and i in row.numbers:
                continue
            return False
        if a._dtype is not dtype or a._skimp_marked or a._hollow:
            return False
        needed |= a._rg
        if a is not target:
            own = a._skimp_layout
            if own is None or own.shape != layout.shape or a._storage is target._storage:
                return False
            alike &= own.strides == layout.strides and a._storage.deferred is None
    if params and any([isinstance(p, Tensor) for p in params]):
        return False
    kernel: Any = row.kernels[dtype]
    kernel = bound(kernel, *params) if params else kernel
    history.before_inplace(target)
    kept = None
    recorded = needed and row.rule is not None and modes.state.grad
    anew = recorded and forgets(row) and of_a_result(target)
    if recorded and not anew:
        kept = history.prepare(target, row.rule, bindings(row, args, params))  # type: ignore[arg-type]
    if alike and _is_one_call(kernel, layout):
        _call_over(kernel, args, target)
    else:
        assign(row, kernel, args, dtype, dtype, target)
    if anew:  # after the write, as what is saved has the version that it leaves
        row.recording.record(target, *args, *params)  # type: ignore[union-attr]
    elif kept is not None:
        history.rebase(target, kept)
    return True


def _is_one_call(kernel: Kernel, layout: Layout) -> bool:
    """Whether one call of NumPy does as well as blocks, with those told who watch them."""
    if not kernel.aliases or not config.small_below or run.OBSERVERS:
        return False
    if not kernel.strided and not layouts.is_contiguous(layout):
        return False
    return run.threads_for(layouts.numel(layout.shape), steps_of(kernel)) == 1


def _call_over(kernel: Kernel, args: tuple[Any, ...], target: Tensor) -> None:
    mine = target._skimp_writable()  # first: others may be computed for it
    read: list[Any] = []
    for a in args:
        if a is target:
            read += (mine,)
        elif type(a) in ORDINARY:
            read += (a._skimp_array(),)
        else:
            read += (run.operand(constant(a, target._dtype), kernel, mine.shape),)
    if compiled.loops() is None or not sharing.ran(kernel.ufunc, read, mine, kernel.numbers):
        quietly(partial(kernel.fn, *read, out=mine))


# -- into any memory -------------------------------------------------------------------------------


def direct(
    row: Pointwise,
    kernel: Kernel,
    args: tuple[Any, ...],
    compute: dtypes.dtype,
    result: dtypes.dtype,
    shape: tuple[int, ...],
    target: Array | None = None,
) -> Array:
    """One NumPy call on whole arrays, for small results."""
    math = OPMATH.get(compute, compute) if row.opmath else compute
    arrays = [operand(a, compute, math) for a in args[len(row.masks) :]]
    if row.masks:
        arrays = [a._skimp_array() for a in args[: len(row.masks)]] + arrays
    narrow = OPMATH.get(result, result) if row.opmath else result
    if target is None or narrow is not result or target.dtype != result.np:
        if all([a.flags.c_contiguous and a.shape == shape for a in arrays if a.ndim]):
            made = np.empty(shape, narrow.np)
        else:
            laid = tuple([(a.shape, a.strides, a.itemsize) for a in arrays])
            made = empty_dense(shape, strides_like(laid, shape, row.row_major), narrow.np)
            arrays = spread(kernel, arrays, made)
        kernel.fn(*arrays, out=made)
        if narrow is not result and (target is None or target.dtype != result.np):
            # a wider `out=` takes what the result would have been, too
            made = retyped(made, result.np) if result.itemsize > 1 else cast(made, result)
        if target is None:
            return made
        copy(target, made)
        return target
    if not kernel.aliases:
        arrays = [a.copy() if bare.may_share_memory(a, target) else a for a in arrays]
    if kernel.strided or target.flags.c_contiguous:
        kernel.fn(*spread(kernel, arrays, target, False), out=target)
        return target
    made = np.empty(shape, target.dtype)
    kernel.fn(*spread(kernel, arrays, made), out=made)
    target[...] = made
    return target


def assign(
    row: Pointwise,
    kernel: Kernel,
    args: tuple[Any, ...],
    compute: dtypes.dtype,
    result: dtypes.dtype,
    out: Tensor,
) -> None:
    """Write the row's result into all of `out`, of any dtype and layout."""
    s = out._storage
    layout = out._skimp_layout
    if layout is None:
        layout = out._skimp_layout_of()
    told = out._skimp_counter is None or type(s) is Storage  # else what stands for it takes part
    if s.deferred is not None and told and _is_whole(out, layout):
        root = expression(row, kernel, args, compute, result, layout)
        root = converted(root, result, out._dtype, root.shape)
        unseen = any([isinstance(a, Tensor) and a._storage.exported for a in args])
        if not unseen and s.replace(root):  # making the expression may have materialized it
            out._skimp_bump()
            return
    if layouts.numel(layout.shape) < config.small_below:
        target = out._skimp_writable()
        direct(row, kernel, args, compute, result, layout.shape, target)
        out._skimp_written(target)
        return
    target = out._skimp_writable()
    root = expression(row, kernel, args, compute, result, layout)
    root = converted(root, result, out._dtype, root.shape)
    order = layouts.memory_order(layout)
    write(root, target.transpose(order))
    out._skimp_written(target)


def _is_whole(t: Tensor, layout: Layout) -> bool:
    s = t._storage
    expr = s.deferred
    return (
        expr is not None
        and layout.offset == 0
        and not (t._conj or t._skimp_neg)
        and layouts.numel(layout.shape) * t._dtype.itemsize == len(s)
        and layouts.is_non_overlapping_and_dense(layout)
        and expr.shape == tuple([layout.shape[d] for d in layouts.memory_order(layout)])
    )
