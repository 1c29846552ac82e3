"""How types go through a pointwise op: the type that it computes in, and the result's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor

# operands -> (computed in, result)
Types = Callable[[Sequence[Any]], tuple[dtypes.dtype, dtypes.dtype]]


def common(args: Sequence[Any]) -> dtypes.dtype:
    """PyTorch's result_type of tensors and Python numbers."""
    first = args[0]
    if len(args) == 1 and isinstance(first, Tensor):
        return first._dtype
    tensors = [a._dtype for a in args if isinstance(a, Tensor)]
    if len(tensors) == len(args) and tensors.count(tensors[0]) == len(tensors):
        return tensors[0]
    return promotion.result_dtype(tuple([operand_kind(a) for a in args]))


def operand_kind(a: Any) -> tuple[dtypes.dtype, bool, bool]:
    if isinstance(a, Tensor):
        return a._dtype, a.ndim == 0, False
    return promotion.scalar_dtype(a), True, True


def same(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    """Computed and returned in the promoted type."""
    d = common(args)
    return d, d


def floating(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    """Integers and bools become the default float type first."""
    d = promotion.to_float(common(args))
    return d, d


def predicate(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    """Compared in the promoted type; the result is bool."""
    return common(args), dtypes.bool


def real_valued(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    """Complex input, real result."""
    d = common(args)
    return d, d.to_real()
