"""The fast path of pointwise rows on small tensors of any types, with or without numbers: what
follows from the types alone is found once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.dispatch.alike import bound
from skimp._engine.dispatch.operands import OPMATH, constant
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.eval.convert import convert
from skimp._engine.eval.expr import Kernel
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.threads import quietly

if TYPE_CHECKING:
    from skimp._engine.dispatch.pointwise import Pointwise

_PLAIN = (int, float, bool)
_default = promotion.get_default_dtype


class Typed(NamedTuple):
    """A row for arguments of certain types."""

    kernel: Kernel
    compute: dtypes.dtype
    result: dtypes.dtype


def small(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> Tensor | None:
    """The row on small tensors of one shape (or 0-d), whose elements lie in row-major order, and on
    numbers, recorded; None where a call is not for it.
    """
    found = _arrays(row, args, params)
    if found is None:
        return None
    typed, arrays, shape, needed = found
    made = np.empty(shape, typed.result.np)
    typed.kernel.fn(*arrays, out=made)
    t = fresh(made, typed.result)
    if needed and row.recording is not None and modes.state.grad:
        row.recording.record(t, *args, *params)
    return t


def small_inplace(
    row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...], target: Tensor
) -> bool:
    """The same over the first argument, which nobody differentiates; False where a call is not for
    it.
    """
    if row.unwatched or type(target) not in ORDINARY or target._np is None:
        return False
    found = _arrays(row, args, params)
    if found is None:
        return False
    typed, arrays, shape, needed = found
    if (needed and modes.state.grad) or typed.result is not target._dtype:
        return False
    mine = target._np
    if not mine.ndim or shape != mine.shape or not mine.flags.c_contiguous:
        return False
    storage = target._storage
    for a in args[1:]:
        if isinstance(a, Tensor) and a._storage is storage and a is not target:
            return False
    history.before_inplace(target)
    mine = target._skimp_writable()
    if typed.kernel.aliases:
        typed.kernel.fn(*arrays, out=mine)
    else:
        made = np.empty(shape, mine.dtype)
        typed.kernel.fn(*arrays, out=made)
        np.copyto(mine, made)
    return True


def _arrays(
    row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]
) -> tuple[Typed, list[Array], tuple[int, ...], bool] | None:
    """The row for these types, the operands in the type that it computes in, the result's shape,
    and whether an operand requires grad.
    """
    sorts: list[Any] = []
    shape: tuple[int, ...] = ()
    needed = False
    for i, a in enumerate(args):
        kind = type(a)
        if kind in ORDINARY:
            x = a._np
            if x is None or not (x.flags.c_contiguous or _in_order(x)):
                return None
            if x.ndim:
                if shape and x.shape != shape:
                    return None
                shape = x.shape
            sorts.append((a._dtype, not x.ndim))
            needed |= a._rg
        elif kind in _PLAIN and i in row.numbers:
            sorts.append(kind)
        else:
            return None
    if params and any([isinstance(p, Tensor) for p in params]):
        return None
    typed = _typed(row, tuple(sorts), _default(), args)
    if typed is None:
        return None
    if row.check is not None:
        row.check(typed.compute, args)
    masks = len(row.masks)
    arrays = [_in(a, a._dtype if i < masks else typed.compute) for i, a in enumerate(args)]
    if params:
        typed = typed._replace(kernel=bound(typed.kernel, *params))
    return typed, arrays, shape, needed


def _typed(
    row: Pointwise, sorts: tuple[Any, ...], default: dtypes.dtype, args: tuple[Any, ...]
) -> Typed | None:
    """The row for arguments of these sorts, if one kernel on whole arrays is all of it."""
    known = row.typed
    key = (sorts, default)
    if key in known:
        return known[key]
    compute, result = row.types(args)  # which looks at types alone
    kernel = row.kernels.get(compute)
    narrow = row.opmath and (compute in OPMATH or result in OPMATH)
    fits = type(kernel) is Kernel and not narrow and any([type(s) is tuple for s in sorts])
    typed = Typed(kernel, compute, result) if fits and type(kernel) is Kernel else None
    if len(known) < _MANY:
        known[key] = typed
    return typed


_MANY = 256


def _in_order(x: Array) -> bool:
    """Whether the elements lie in row-major order, with gaps: a result of them has none."""
    last = math.inf
    for n, step in zip(x.shape, x.strides, strict=True):
        if not 0 < step < last or n == 1:
            return False
        last = step
    return True


def _in(a: Any, dtype: dtypes.dtype) -> Array:
    """An operand as an array of the type."""
    if not isinstance(a, Tensor):
        return constant(a, dtype)
    x: Any = a._np
    if a._dtype is dtype:
        return x if x.flags.c_contiguous else x.copy()  # type: ignore[no-any-return]
    made = np.empty(x.shape, dtype.np)
    quietly(convert, x, made)
    return made
