"""Ops on masks: where and masked_fill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.alias import before_inplace
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.fast_path import spreads
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.operands import check_number, constant, middle_array
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import common
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.writing import assign
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory import layout as layouts, layout_overlap as overlap
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.pointwise import drop, select
from skimp._ops import batching
from skimp._ops.index.positions import nonzero
from skimp._ops.index.writers import in_place

# -- where, masked_fill: pointwise, so they wait --------------------------------------------------

SELECT = Kernel("where", select)


def _branches(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = common(args[1:])
    return d, d


_WHERE_RULE = Rule(
    "WhereBackward0",
    input=lambda g, condition: g.where(condition, 0),
    other=lambda g, condition: _other_back(g, condition),
)


def _other_back(g: Tensor, condition: Tensor) -> Any:
    return where(condition, 0, g)


WHERE = Pointwise(
    "where",
    SELECT,
    _branches,
    _WHERE_RULE,
    ("condition", "input", "other"),
    opmath=False,
    masks=(0,),
    also=dtypes.NARROW,
)


_LARGEST = float(np.finfo(np.float32).max)


def small_number(value: Any, dtype: dtypes.dtype | None) -> Any:
    """A Python number as a NumPy scalar of a type that holds it; None for any other."""
    kind = type(value)
    if dtype not in _WIDE or kind is bool:
        if kind not in _PYTHON:
            return None
        return (_narrow if value else _narrow.__wrapped__)(value, dtype)  # zeros have two signs
    if kind is not float and (kind is not int or not -INT64_END <= value < INT64_END):
        return None
    if dtype is dtypes.float32:
        fits = -_LARGEST <= value <= _LARGEST or value in (np.inf, -np.inf) or value != value
        return np.float32(value) if fits else None
    if dtype is dtypes.float64 and (kind is float or -(1 << 53) < value < 1 << 53):
        return np.float64(value)
    return np.int64(value) if dtype is dtypes.int64 and kind is int else None


_WIDE = frozenset({dtypes.int64, *dtypes.FLOATING})
_PYTHON = frozenset({bool, int, float})


def _small_value(value: Any, dtype: dtypes.dtype) -> Any:
    """The same, or a 0-d tensor of the type as an array."""
    if type(value) is not Tensor:
        return small_number(value, dtype)
    return value._np if value._dtype is dtype and not value.ndim else None


@lru_cache(maxsize=256, typed=True)
def _narrow(value: Any, dtype: dtypes.dtype | None) -> Any:
    """The same of bools, of other integers and of the half types."""
    if dtype is dtypes.bool:
        return np.bool_(value) if type(value) is bool else None
    if dtype is None:
        return None
    if dtype in dtypes.INTEGRAL:
        info = np.iinfo(dtype.np)
        return (
            dtype.np.type(value) if type(value) is int and info.min <= value <= info.max else None
        )
    if dtype not in dtypes.HALVES or type(value) is bool:
        return None
    fits = abs(value) <= finfo(dtype).max or (type(value) is float and not math.isfinite(value))
    return constant(value, dtype)[()] if fits else None


def _small_branch(value: Any, dtype: dtypes.dtype) -> Any:
    """A branch of `where` as NumPy takes it: of the type, row-major, or one element expanded; None
    for any other.
    """
    if type(value) is not Tensor:
        return small_number(value, dtype)
    x = value._np
    if x is None or value._dtype is not dtype:
        return None
    return x if x.flags.c_contiguous or not any(x.strides) else None


_WHOLE = {int: dtypes.int64, bool: dtypes.bool}


def _small_where(
    condition: Any, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Tensor | None:
    if type(condition) is not Tensor or condition._dtype is not dtypes.bool:
        return None
    dtype = input._dtype if type(input) is Tensor else getattr(other, "_dtype", None)
    if dtype is None and type(input) is type(other):  # two numbers
        dtype = promotion.get_default_dtype() if type(input) is float else _WHOLE.get(type(input))
    mask = condition._np
    if mask is None or dtype is None or not mask.flags.c_contiguous:
        return None
    x, y = _small_branch(input, dtype), _small_branch(other, dtype)
    if x is None or y is None:
        return None
    try:
        return fresh(bare.where(mask, x, y), dtype)
    except ValueError:  # shapes that don't fit: the general way has PyTorch's words
        return None


def _small_where_method(input: Tensor, condition: Any, other: Any) -> Tensor | None:
    return _small_where(condition, input, other)


@general("where", namespaces=(), fast=_small_where_method, fast_rule=_WHERE_RULE)
def _where_method(input: Tensor, condition: Any, other: Any) -> Any:
    """`input` where the condition holds, else `other`.

    Shape: condition, input and other broadcast; the result has their common shape.
    """
    return where(condition, input, other)


@general(method=False, fast=_small_where, fast_rule=_WHERE_RULE)
@sampled(lambda tensor: [(tensor([1, 0]).bool(), tensor([[3, 4]]), tensor([5, 6]))])
def where(
    condition: Any, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Any:
    """`input` where the condition holds, else `other`; the condition alone: the positions of its
    trues.

    >>> torch.where(torch.tensor([False, True]))
    (tensor([1]),)

    Shape: tensors (and numbers) that broadcast; the result has their common shape.
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError(
            "where() received an invalid combination of arguments - got (Tensor, Tensor)"
        )
    condition = _condition(condition)
    for branch in (input, other):
        if isinstance(branch, (int, float)):
            _check_room(branch, common((input, other)))
    if out is not None and isinstance(out, Tensor):
        kinds = [v for v in (input, other) if isinstance(v, (Tensor, int, float, complex))]
        if len(kinds) == 2 and out._dtype is not common(kinds):
            raise RuntimeError(
                f"Expected out type to be {scalar_type_name(common(kinds))} but got "
                f"{scalar_type_name(out._dtype)}"
            )
    return call(WHERE, (condition, input, other), (), out)


def _check_room(number: float, dtype: dtypes.dtype) -> None:
    """Refuse a number that the result can't hold; of small floats it becomes inf, as in PyTorch."""
    if dtype.category == dtypes.INT or dtype in (dtypes.float32, dtypes.complex64):
        check_number(number, dtype)


def _condition(condition: Any) -> Tensor:
    if not isinstance(condition, Tensor):
        raise TypeError(
            "where(): argument 'condition' (position 1) must be Tensor, not "
            f"{type(condition).__name__}"
        )
    if condition._dtype is dtypes.uint8:
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be "
            "removed in a future version of PyTorch. Use a boolean condition instead."
        )
        return condition.to(dtypes.bool)
    if condition._dtype is not dtypes.bool:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            + scalar_type_name(condition._dtype)
        )
    return condition


def _filled(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    return args[1]._dtype, args[1]._dtype


def _fill_kernel(mask: Array, x: Array, value: Array, *, out: Array) -> None:
    if value.size == 1 and not any(value.tobytes()):  # 0, as of a gradient: half of the passes
        drop(mask, x, out=out)
    else:
        select(mask, value, x, out=out)


FILL_RULE = Rule(
    "MaskedFillBackward1",
    input=lambda g, mask: g.masked_fill(mask, 0),
    value=lambda g, mask: g.where(mask, 0).sum(),
    numbers={"value": Rule("MaskedFillBackward0", input=lambda g, mask: g.masked_fill(mask, 0))},
)
FILL = Pointwise("masked_fill", Kernel("masked_fill", _fill_kernel), _filled, FILL_RULE,
                 ("mask", "input", "value"), opmath=False, masks=(0,), row_major=True)  # fmt: skip


def _small_fill(input: Tensor, mask: Any, value: Any) -> Tensor | None:
    x, number = input._np, _small_value(value, input._dtype)
    if number is None or type(mask) is not Tensor or mask._dtype is not dtypes.bool:
        return None
    if x is None:
        return None if type(value) is Tensor else _middle_fill(input, mask, number)
    holds = mask._np
    if holds is None or input._skimp_turned or mask._skimp_turned:
        return None
    try:
        found = bare.where(holds, number, x)
    except ValueError:  # shapes that don't fit: the general way has PyTorch's words
        return None
    if not found.flags.c_contiguous:
        return None
    return fresh(found, input._dtype)


def _middle_fill(input: Tensor, mask: Tensor, number: Any) -> Tensor | None:
    x = middle_array(input)
    if x is None or mask.ndim > x.ndim:  # more dims of 1: the result's shape has them too
        return None
    made, out = blank(x.shape, input._dtype)
    try:
        _fill_kernel(mask._skimp_array(), x, number, out=out)
    except ValueError:  # shapes that don't fit: the general way has PyTorch's words
        return None
    return made


@general(fast=_small_fill, fast_rule=FILL_RULE)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a 0-d tensor, where the mask holds, else the input.

    Shape: the mask broadcasts to the input's; the result's is the input's.
    """
    return call(FILL, (_check_fill(input, mask, value), input, value))


def _small_fill_in_place(input: Tensor, mask: Any, value: Any) -> Tensor | None:
    x, number = input._np, _small_value(value, input._dtype)
    if x is None or number is None or type(mask) is not Tensor or not x.flags.c_contiguous:
        return None
    holds = mask._np
    if holds is None or mask._dtype is not dtypes.bool:
        return None
    if holds.shape != x.shape and not spreads(holds.shape, x.shape):
        return None
    if mask._storage is input._storage or (input._rg and modes.state.grad):
        return None
    if type(value) is Tensor and (value._storage is input._storage or value._rg):
        return None
    before_inplace(input)
    bare.copyto(input._skimp_writable(), number, where=holds)
    return input


@general(
    namespaces=(), composite=False, fast=_small_fill_in_place, batch=batching.places.fill_masked
)
def masked_fill_(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a 0-d tensor, where the mask holds, in place.

    Shape: the mask broadcasts to the input's.
    """
    _check_fill(input, mask, value)
    shape = layouts.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    if shape != tuple(input.shape):
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(shape)}"
        )
    return _masked_fill_in_place(input, mask, value)


def as_fill(input: Tensor, indices: Any, values: Tensor) -> Tensor:
    """Convert one number of another dtype beside one mask: PyTorch calls `masked_fill_` then."""
    kinds = [i._dtype for i in indices if i is not None]
    if kinds != [dtypes.bool] or values.numel() != 1 or values._hollow:
        return values
    number = values.item()
    check_number(number, input._dtype)
    return fresh(np.asarray(number).astype(input._dtype.np), input._dtype)


def _check_fill(input: Tensor, mask: Any, value: Any) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"masked_fill(): argument 'mask' (position 2) must be Tensor, not {type(mask).__name__}"
        )
    if mask._dtype is not dtypes.bool:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{_C_NAMES.get(mask._dtype, mask._dtype)}"
        )
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        if not value._hollow:
            check_number(value.item(), input._dtype)
    elif isinstance(value, _NUMBERS):
        check_number(value, input._dtype)
    else:
        raise TypeError(
            "masked_fill() received an invalid combination of arguments - got (mask=Tensor, "
            f"value={type(value).__name__})"
        )
    return mask


_NUMBERS = (int, float, complex, np.number, np.bool_)


_C_NAMES = {
    dtypes.uint8: "unsigned char", dtypes.int8: "signed char", dtypes.int16: "short int",
    dtypes.int32: "int", dtypes.int64: "long int", dtypes.float32: "float",
    dtypes.float64: "double", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16",
    dtypes.complex64: "c10::complex<float>", dtypes.complex128: "c10::complex<double>",
}  # fmt: skip


def _masked_fill_in_place(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    kernel = FILL.kernel(input._dtype)
    outs.warn_expanded("masked_fill_", input, "tensor[mask] = scalar")

    def write() -> None:
        if overlap.has_internal_overlap(input._skimp_layout_of()) is overlap.Overlap.YES:
            number = value._skimp_array() if isinstance(value, Tensor) else value
            bare.copyto(
                input._skimp_writable(),
                constant(np.asarray(number).item(), input._dtype),
                where=mask._skimp_array(),
            )  # only what the mask holds: its places are those of others as well
            return
        if input._hollow:
            return
        assign(FILL, kernel, (mask, input, value), input._dtype, input._dtype, input)

    return in_place(input, FILL_RULE, {"input": input, "mask": mask, "value": value}, write)


SAYS = """\
Raises: RuntimeError for shapes that don't broadcast and for a mask that is no bool."""
