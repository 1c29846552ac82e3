"""Comparing whole tensors: equal, isclose, allclose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import common
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.meta import NO_DATA
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.meta import NO_ITEM
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare
from skimp._ops import batching
from skimp._ops.index.masked_select import Mask


def _small_equal(input: Tensor, other: Tensor) -> bool | None:
    if type(other) is not Tensor or input._dtype is not other._dtype:
        return None
    x, y = input._np, other._np
    if x is None or y is None:
        return None
    return x.shape == y.shape and bool(bare.count_nonzero(x == y) == x.size)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and equal elements (NaN equals nothing).

    Memory: no tensor is made.
    """
    require_tensor("equal", "other", other, 2)
    if tuple(input.shape) != tuple(other.shape):
        return False
    if input._skimp_meta is not None:
        raise NotImplementedError(NO_DATA)
    return _all(input.detach() == other.detach())


def _all(mask: Any) -> bool:
    """Whether all are true; a comparison that waits is computed run by run and never written."""
    if mask._skimp_meta is not None:
        raise RuntimeError(NO_ITEM)
    size: int = layouts.numel(tuple(mask.shape))
    return bool(Mask(mask).count == size)


def _close(a: Array, b: Array, rtol: Array, atol: Array, equal_nan: Array, *, out: Array) -> None:
    bare.equal(a, b, out=out)
    if equal_nan:
        out |= (a != a) & (b != b)
    if rtol == 0 and atol == 0:
        return
    away = bare.absolute(a - b)
    out |= (away <= atol + bare.absolute(rtol * b)) & bare.isfinite(away)


def _compared(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    """Integers are compared as float64, which holds the tolerances too."""
    d = common(args)
    return (d if d.category >= dtypes.FLOAT else dtypes.float64), dtypes.bool


CLOSE = Pointwise(
    "isclose",
    Kernel("isclose", _close),
    _compared,
    None,
    ("input", "other"),
    ("rtol", "atol", "equal_nan"),
)


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, element by element."""
    require_tensor("isclose", "other", other, 2)
    require_tensor("isclose", "input", input)
    if input._dtype is not other._dtype:
        raise RuntimeError(
            f"{scalar_type_name(input._dtype)} did not match {scalar_type_name(other._dtype)}"
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value:g}")
    return call(CLOSE, (input, other), (float(rtol), float(atol), bool(equal_nan)))


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close.

    Memory: no tensor is made.
    """
    return _all(isclose(input, other, rtol, atol, equal_nan))


export("equal", equal, composite=False, batch=batching.places.no_truth, fast=_small_equal)
export("isclose", isclose)
export("allclose", allclose, composite=False, batch=batching.places.no_closeness)


SAYS = """\
Shape: tensors that broadcast; `equal` says no to two shapes.
Dtypes: bool, integers, floating point and complex numbers; two of the same.
Raises: RuntimeError for two dtypes or shapes that don't broadcast."""
