"""Where bytes are copied: clone, contiguous, copy_, fill_. Each copy is told to the ledger with
its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.expressions import cast_kernel, node_of
from skimp._engine.dispatch.fast_path import spreads, to_write
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.operands import check_number, constant, empty_dense
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.rows import zeros
from skimp._engine.dispatch.writing import assign
from skimp._engine.eval.convert import convert
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import COPY, Expr
from skimp._engine.memory import (
    copies as told,
    layout as layouts,
    layout_views,
    storage as storages,
)
from skimp._engine.memory.allocator import clear
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.memory.ledger import host
from skimp._engine.memory.meta import NO_DATA
from skimp._engine.tensor import dtypes, formats, meta
from skimp._engine.tensor.tensor import Tensor, as_it_lies, empty, fresh, wrap
from skimp._kernels import copies
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp.config import config

IDENTITY = Rule("CloneBackward0", input=lambda g: g)


def copied(
    t: Tensor, strides: tuple[int, ...], dtype: dtypes.dtype, name: str, why: Callable[[], str]
) -> Tensor:
    """A tensor with `t`'s elements as `dtype`, on a storage of its own: deferred where `t` is
    large.
    """
    a = t._np
    if (
        a is not None
        and a.flags.c_contiguous
        and strides == contiguous_strides(a.shape)
        and _casts_as_numpy(t._dtype, dtype)
    ):
        told.told(a.size * dtype.itemsize, name, why, t)
        return fresh(a.astype(dtype.np), dtype)
    shape = tuple(t.shape)
    if t._hollow:
        return meta.empty(shape, dtype, strides)
    told.told(layouts.numel(shape) * dtype.itemsize, name, why, t)
    layout = Layout(shape, strides, 0)
    dense = layouts.is_non_overlapping_and_dense(layout)
    if dense and layouts.numel(shape) >= config.defer_from and not t._storage.exported and shape:
        order = layouts.memory_order(layout)
        inner = tuple([shape[d] for d in order])
        kernel = COPY if t._dtype is dtype else cast_kernel(t._dtype, dtype)
        return wrap(
            storages.defer(Expr(kernel, (node_of(t, layout, order, inner),), inner, dtype.np)),
            layout,
            dtype,
        )
    if layouts.numel(shape) < config.small_below and dense:
        source = t._skimp_array()
        made = empty_dense(shape, strides, dtype.np)
        copy(made, source)
        new = as_it_lies(made, dtype)
        new._skimp_layout = layout
        return new
    new = empty(shape, dtype, strides)
    copy(new._storage.view(layout, dtype.np), t._skimp_array())
    return new


def _casts_as_numpy(have: dtypes.dtype, want: dtypes.dtype) -> bool:
    if want not in dtypes.FLOATING:
        return have is want
    return have in dtypes.FLOATING or have in dtypes.INTEGRAL or have is dtypes.bool


def describe(t: Tensor) -> str:
    return f"a tensor with strides {tuple(t._skimp_layout_of().strides)}"


def _small_clone(input: Tensor, *, memory_format: Any = None) -> Tensor | None:
    x = input._np
    if x is None or memory_format not in _ROW_MAJOR:
        return None
    dense = x.flags.c_contiguous
    if not dense and memory_format is not formats.contiguous_format:
        return None
    told.told(x.nbytes, "clone", lambda: f"clone of {describe(input)}", input)
    return fresh(x.copy() if dense else copies.dense(x), input._dtype)


_ROW_MAJOR = (None, formats.preserve_format, formats.contiguous_format)


@general(rule=IDENTITY, batch=batching.dims.ELEMENTWISE, fast=_small_clone, foreach=1)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy on a storage of its own; strides as the input's where those are dense
    (preserve_format).

    Raises: RuntimeError for a memory format that the rank does not allow.
    """
    strides = formats.strides_for(input, memory_format)
    return copied(input, strides, input._dtype, "clone", lambda: f"clone of {describe(input)}")


def _small_contiguous(
    input: Tensor, *, memory_format: Any = formats.contiguous_format
) -> Tensor | None:
    x = input._np
    if x is None or memory_format is not formats.contiguous_format:
        return None
    if x.flags.c_contiguous:
        return input
    told.told(x.nbytes, "contiguous", lambda: f"contiguous of {describe(input)}", input)
    made = fresh(copies.dense(x), input._dtype)
    if input._rg and modes.state.grad:
        record(IDENTITY, {"input": input}, made)
    return made


@general(namespaces=(), composite=False, batch=batching.dims.ELEMENTWISE, fast=_small_contiguous)
def contiguous(input: Tensor, *, memory_format: Any = formats.contiguous_format) -> Tensor:
    """The tensor itself where it is contiguous in the format already, else a copy that is.

    Raises: RuntimeError for a memory format that the rank does not allow.
    Memory: the input itself where it lies so already, else a new tensor.
    """
    if formats.is_format(input, memory_format):
        return input
    if memory_format is formats.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return _laid_out(input, memory_format=memory_format)


@hidden(rule=IDENTITY, batch=batching.dims.ELEMENTWISE)
def _laid_out(input: Tensor, *, memory_format: Any) -> Tensor:
    strides = formats.strides_for(input, memory_format)
    return copied(
        input, strides, input._dtype, "contiguous", lambda: f"contiguous of {describe(input)}"
    )


COPY_ROWS = {
    d: Pointwise(
        "copy",
        COPY,
        lambda args: (args[0]._dtype, args[0]._dtype),
        None,
        ("src",),
        opmath=False,
        also=dtypes.NARROW,
    )
    for d in (*dtypes.ALL, *dtypes.NARROW)
}
_COPY_BACK: dict[Any, Any] = {
    "input": lambda g: zeros(g),  # it has an edge in PyTorch, before the source's
    "other": lambda g, other_dtype: g.to(other_dtype),
}
COPIED = Rule("CopyBackwards", _COPY_BACK)
FILLED_FROM = Rule("FillBackward3", _COPY_BACK)


def _small_target(input: Tensor) -> Any:
    """The row-major array of a small tensor whose writes nobody records; None for any other."""
    x = input._np
    if x is None or not x.flags.c_contiguous or (input._rg and modes.state.grad):
        return None
    return x


def _are_apart(x: Any) -> bool:
    """Whether elements lie in row-major order with gaps, no two in one place."""
    span = x.itemsize
    for n, step in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if step < span:
            return False
        span = n * step
    return True


def _small_copy(input: Tensor, other: Any, non_blocking: bool = False) -> Tensor | None:
    if type(other) not in ORDINARY or type(non_blocking) is not bool:
        return None  # the general way refuses some
    if other._dtype is not input._dtype and not _PLAIN.issuperset((other._dtype, input._dtype)):
        return None
    x, y = input._np, other._np
    if x is None or y is None or not (y.shape == x.shape or spreads(y.shape, x.shape)):
        return None
    if not (x.flags.c_contiguous or _are_apart(x)):
        return None
    if other._storage is input._storage:
        return None
    if (input._rg or other._rg) and modes.state.grad:
        write_small(input, other, y)
        return input
    history.before_inplace(input)
    if host.watched:
        told.written(x.nbytes, other)
    if y.dtype is x.dtype:
        input._skimp_writable()[...] = y
    else:
        quietly(convert, y, input._skimp_writable())
    return input


_PLAIN = dtypes.FLOATING | dtypes.INTEGRAL | {dtypes.bool, *dtypes.HALVES}


def write_small(target: Tensor, other: Tensor, y: Any) -> None:
    """Write a small tensor, whose array is `y`, over all of another, and record it."""
    history.before_inplace(target)
    kept = history.prepare(target, COPIED, {"input": target, "other": other})
    if host.watched:
        told.written(layouts.numel(target.shape) * target._dtype.itemsize, other)
    out = target._skimp_writable()
    if y.dtype is out.dtype:
        out[...] = y
    else:
        quietly(convert, y, out)
    history.rebase(target, kept)


@general(namespaces=(), composite=False, batch=batching.dims.copy_rule, fast=_small_copy)
def copy_(input: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Write `other` (a number too), broadcast and converted, over the elements.

    >>> torch.zeros(2, 3).copy_(torch.arange(3))  # broadcast and converted
    tensor([[0., 1., 2.],
            [0., 1., 2.]])
    """
    if not isinstance(other, Tensor):
        if isinstance(other, (bool, int, float, complex)):
            real = not input._dtype.is_complex and isinstance(other, complex)
            return fill_(input, other.real if real else other)
        raise TypeError(
            f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}"
        )
    if not isinstance(non_blocking, (bool, np.bool_)):
        found = type(non_blocking).__name__
        raise TypeError(f"copy_(): argument 'non_blocking' (position 2) must be bool, not {found}")
    if other._skimp_meta is not None and input._skimp_meta is None:
        raise NotImplementedError(NO_DATA)
    if other is input:
        history.before_inplace(input)
        input._skimp_bump()
        return input
    if input.shape != other.shape:
        history.before_inplace(input)
        sizes = zip(reversed(input.shape), reversed(other.shape), strict=False)
        if other.ndim > input.ndim or not all([m in (1, n) for n, m in sizes]):
            outs.check_overlap(input, ())
            shape = layouts.broadcast_shapes(tuple(input.shape), tuple(other.shape))
            raise RuntimeError(
                f"output with shape {list(input.shape)} doesn't match the broadcast shape "
                f"{list(shape)}"
            )
    write(input, other)
    return input


def write(target: Tensor, src: Tensor, rule: Rule = COPIED) -> None:
    """`target[...] = src`, recorded: broadcast, converted, in place."""
    if target.shape != src.shape:  # raises where the shapes don't fit
        layout_views.expand(src._skimp_layout_of(), tuple(target.shape), src._dtype)
    tracked = modes.state.grad and (target._rg or src._rg)
    history.before_inplace(target)
    kept = history.prepare(target, rule, {"input": target, "other": src}) if tracked else None
    if not _is_same(target, src):
        outs.check_overlap(target, (src,))
    if _shares(target, src):
        src = copied(
            src,
            layouts.empty_like_strides(src._skimp_layout_of()),
            src._dtype,
            "copy_",
            lambda: "source and target share bytes",
        )
    told.written(layouts.numel(target.shape) * target._dtype.itemsize, src)
    place(target, src)
    if kept is not None:
        history.rebase(target, kept)


def _is_same(target: Tensor, src: Tensor) -> bool:
    """Whether the source is what is written: PyTorch's test, strides of dims of size 1 included."""
    return (
        target._storage is src._storage
        and target._dtype is src._dtype
        and target._skimp_layout_of() == src._skimp_layout_of()
    )


def _shares(target: Tensor, src: Tensor) -> bool:
    return target._storage is src._storage and target._skimp_layout_of() != src._skimp_layout_of()


def place(target: Tensor, src: Tensor) -> None:
    """Move `src`'s elements to `target`, unrecorded; a large deferred source is computed straight
    into its place.
    """
    if target._hollow:
        target._skimp_bump()
        return
    if src._storage.deferred is not None and _overwritten(target, src):
        target._skimp_bump()
        return
    assign(
        COPY_ROWS[src._dtype],
        COPY_ROWS[src._dtype].kernel(src._dtype),
        (src,),
        src._dtype,
        src._dtype,
        target,
    )


def _overwritten(target: Tensor, src: Tensor) -> bool:
    """Whether the deferred source was computed over the target, without a block of its own."""
    mine, its = target._skimp_layout_of(), src._skimp_layout_of()
    if (
        mine.shape != its.shape
        or mine.strides != its.strides
        or its.offset
        or target._dtype is not src._dtype
        or target._conj is not src._conj
        or target._skimp_neg is not src._skimp_neg
        or target._storage.deferred is not None
        or not layouts.is_non_overlapping_and_dense(its)
    ):
        return False
    array = target._storage.view(mine, target._dtype.np).transpose(layouts.memory_order(mine))
    return target._storage.overwrite(src._storage, array)


_LARGE = 1 << 16  # elements from which zeros are worth a look
ZERO = Rule("ZeroBackward0", {})
FILL = Rule("FillBackward2", {})


def fill(target: Tensor, value: Any) -> None:
    """Write one number over all elements, unrecorded (that some are one place in memory does not
    matter here).
    """
    number = constant(value, target._dtype)
    if target._hollow:
        target._skimp_bump()
        return
    array = target._skimp_writable()
    if array.size >= _LARGE and array.flags.c_contiguous and not any(number.tobytes()):
        clear(array)
    else:
        array[...] = number
    target._skimp_written(array)


def _small_zero(input: Tensor) -> Tensor | None:
    if _small_target(input) is None:
        return None
    to_write(input).fill(0)
    return input


def _small_fill(input: Tensor, value: Any) -> Tensor | None:
    if _small_target(input) is None:
        return None
    if type(value) is Tensor and not value._rg and value._np is not None and not value._np.ndim:
        value = value._np.item()
    if input._dtype in dtypes.FLOATING:
        if type(value) not in (int, float) or not -_EXACT <= value <= _EXACT:
            return None
    elif input._dtype is not dtypes.int64 or type(value) is not int or abs(value) > _EXACT:
        return None
    to_write(input).fill(value)
    return input


_EXACT = 1 << 53  # numbers up to here go through Python's float, and into float32


@general(composite=False, batch=batching.dims.fill, fast=_small_fill)
def fill_(input: Tensor, value: Any) -> Tensor:
    """Write one value, a number or a 0-d tensor, over all elements."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
                f"dimensions."
            )
        if value._rg or input._rg or value._dtype.is_complex:
            write(input, value, FILLED_FROM)
            return input
        history.before_inplace(input)
        outs.check_overlap(input, ())
        value = 0 if input._hollow else value._skimp_array()[()].item()
    elif not (isinstance(value, (bool, int, float, complex)) or hasattr(value, "item")):
        raise TypeError(
            "fill_() received an invalid combination of arguments - got "
            f"({type(value).__name__}), but expected a number or a Tensor"
        )
    check_number(value, input._dtype)
    return _filled(input, value)


@general("fill", method=False)
@shown(lambda value, **_: f"FillBackward{int(isinstance(value, Tensor))}", "input")
def filled(input: Tensor, value: Any) -> Tensor:
    """A tensor of one value, shaped as the input.

    Raises: RuntimeError for a value of several elements and for one that the dtype can't hold.
    """
    return fill_(clone(input), value)


@general(namespaces=("",), composite=False, batch=batching.dims.ELEMENTWISE, fast=_small_zero)
def zero_(input: Tensor) -> Tensor:
    """Write zeros over all elements."""
    return _filled(input, 0, ZERO)


def _filled(input: Tensor, value: Any, rule: Rule = FILL) -> Tensor:
    tracked = modes.state.grad and input._rg
    history.before_inplace(input)
    if input._conj or input._skimp_neg:  # PyTorch writes these by a copy
        outs.check_overlap(input, ())
    kept = history.prepare(input, rule, {"input": input}) if tracked else None
    fill(input, value)
    if kept is not None:
        history.rebase(input, kept)
    return input


SAYS = """\
Shape: any; the result's is the input's."""
