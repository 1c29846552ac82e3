"""The logarithm of a sum of exponentials, norms and distances."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import NAMESPACES, hidden, reduction
from skimp._engine.dispatch.reduction import dims_of, kept_shape, reduced
from skimp._engine.dispatch.rows import conj
from skimp._engine.eval import reducers as R
from skimp._engine.memory.layout import left_out
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import require_inexact
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops import batching
from skimp._ops.reduce import small, small_exact
from skimp._ops.reduce.reductions import opened, sum_dtype


def _logsumexp_back(g: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    made = small.logsumexp_back(g, input, result, dim)
    if made is not None:
        return made
    shape = tuple(input.shape)
    share = (input - opened(result, shape, dim, keepdim)).exp()
    found: Tensor = opened(g, shape, dim, keepdim) * conj(share)
    return found


LOGSUMEXP = Rule("LogsumexpBackward0", input=_logsumexp_back)


@reduction(
    out=True,
    fast=small.logsumexp,
    namespaces=("", "special"),
    rule=LOGSUMEXP,
    batch=batching.dims.reduces,
)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over some dims, without overflow."""
    if input._dtype.category < dtypes.FLOAT:
        input = input.to(promotion.get_default_dtype())
    if input._dtype.is_complex and input.numel():
        top = input.real.amax(dims_of(dim, input.ndim), True)
        total = (input - top).exp().sum(dims_of(dim, input.ndim), keepdim).log()
        return total + top.reshape(total.shape)
    return reduced(
        input, dims_of(dim, input.ndim), keepdim, R.LOGSUMEXP, input._dtype, sum_dtype(input._dtype)
    )


def _norm_back(
    g: Tensor, input: Tensor, result: Tensor, p: float, dim: Any, keepdim: bool
) -> Tensor | None:
    shape = tuple(input.shape)
    g, result = opened(g, shape, dim, keepdim), opened(result, shape, dim, keepdim)
    if p == 0.0:
        return None
    none = result == 0
    # the next derivative must not divide by zero
    whole = result.masked_fill(none, 1) if modes.state.grad and p > 1.0 else result
    if p == 2.0:
        return (input * (g / whole)).masked_fill(none, 0)
    sign = input.sgn()
    if p == 1.0:
        return sign * g
    size = input.abs()
    if math.isinf(p):
        mask = (size == result) | (size.isnan() & result.isnan())
        share = g / mask.sum(None if dim is None else dim, True)
        return sign * mask * share
    if p < 2.0:
        size = size.masked_fill(input == 0, 1) if modes.state.grad else size
        return (sign * size.pow(p - 1) * (g * whole.pow(1 - p))).masked_fill(input == 0, 0)
    return (input * size.pow(p - 2) * (g / whole.pow(p - 1))).masked_fill(none, 0)


VECTOR_NORM = Rule("LinalgVectorNormBackward0", input=_norm_back)
_RECORDED = recording(VECTOR_NORM, ("input", "p", "dim", "keepdim"))


def small_vector_norm(
    input: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    if dtype is not None or type(ord) not in (int, float) or ord not in _SUMS:
        return None
    if ord in _EXTREMES:
        made: Tensor | None = _small_extreme(input, ord, () if dim is None else dim, keepdim)
    elif dim is None and keepdim is False and ord == 2:
        made = small.norm(input)
    else:
        made = small.norms(input, dim, keepdim) if ord == 2 else None
        if made is None:
            made = small.blocked(input, None if left_out(dim) else dim, keepdim, _SUMS[ord])
    if made is not None and input._rg and modes.state.grad:
        _RECORDED.record(made, input, float(ord), dim, keepdim)
    return made


def _small_extreme(input: Any, ord: float, dim: Any, keepdim: Any) -> Tensor | None:
    x = small.floats(input)
    if x is None:
        return None
    found: Tensor | None = _EXTREMES[ord](fresh(np.abs(x), input._dtype), dim, keepdim)
    return found


_EXTREMES: Final = {
    math.inf: small_exact.extreme(np.maximum, R.AMAX),
    -math.inf: small_exact.extreme(np.minimum, R.AMIN),
}
_SUMS: Final = {1: R.SUM_ABS, 2: R.NORM, math.inf: R.AMAX, -math.inf: R.AMIN}


def _small_norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    order = 2 if type(p) is str and p == "fro" else p
    return small_vector_norm(input, order, dim, keepdim, dtype=dtype)


@reduction(method=False, namespaces=("linalg",), out="own", fast=small_vector_norm)
def vector_norm(
    input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The ord-norm of the elements as one vector, or along some dims.

    Dtypes: floating point and complex numbers.
    """
    if isinstance(ord, Tensor):
        ord = ord.item()
    require_inexact("linalg.vector_norm", input)
    if dtype is not None:
        dtype = dtypes.asked(dtype)
        if dtype.category < dtypes.FLOAT:
            raise RuntimeError(
                "linalg.vector_norm: dtype should be floating point or complex, but got "
                f"{promotion.scalar_type_name(dtype)}"
            )
        if input._dtype.is_complex and not dtype.is_complex:
            raise RuntimeError(
                "linalg.vector_norm: dtype should be complex for complex inputs, but got "
                f"{promotion.scalar_type_name(dtype)}"
            )
        input = input.to(dtype)
    return _vector_norm(input, float(ord), None if left_out(dim) else dim, keepdim)


@hidden(kind="reduction", rule=VECTOR_NORM, batch=batching.dims.reduces)
def _vector_norm(input: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    if p < 0 or p == math.inf:
        _check_identity(input, p, dim)
    dims = dims_of(dim, input.ndim)
    real = input._dtype.to_real()
    if math.isinf(p):
        if input.numel() == 0:
            return fresh(np.zeros(kept_shape(tuple(input.shape), dims, keepdim), real.np), real)
        how = R.AMAX if p > 0 else R.AMIN
        return reduced(input.abs(), dims, keepdim, how, real)
    if p == 0.0:
        n = reduced(input, dims, keepdim, R.COUNT_NONZERO, dtypes.int64, input._dtype)
        return n.to(real)
    if p == 2.0:
        return reduced(input, dims, keepdim, R.NORM, real, sum_dtype(input._dtype))
    if p == 1.0:
        return reduced(input, dims, keepdim, R.SUM_ABS, real, sum_dtype(input._dtype))
    total = reduced(input, dims, keepdim, R.power_sum(p), real, sum_dtype(input._dtype))
    return total.pow_(1.0 / p)


def _check_identity(input: Tensor, p: float, dim: Any) -> None:
    """Refuse norms of nothing that no number stands for."""
    if input.numel():
        return
    where, reason = "an empty tensor ", "the operation"
    if dim is not None:
        dims = (dim,) if isinstance(dim, int) else dim
        empty = next((d for d in dims if not input.size(d)), None)
        if empty is None:
            return
        where, reason = f"the dimension {empty}", "this dimension is empty and the operation"
    raise RuntimeError(
        f"linalg.vector_norm cannot compute the {p:g} norm on {where}because {reason} does not "
        "have an identity"
    )


@reduction(out="own", fast=_small_norm)
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The p-norm of the elements ("fro": the 2-norm), of all of them or along some dims.

    Dtypes: floating point and complex numbers.
    """
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    if p == "nuc":
        both = (dim or (-2, -1)) if input.ndim == 2 or dim is not None else (0, 1)
        nuclear = NAMESPACES["linalg"]["matrix_norm"]
        return nuclear(input, "nuc", both, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    return vector_norm(input, 2.0 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@reduction()
@shown("DistBackward0", "input", "other")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other.

    Shape: tensors that broadcast; one number.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for shapes that don't broadcast and for integers.
    """
    return norm(input - other, p)
