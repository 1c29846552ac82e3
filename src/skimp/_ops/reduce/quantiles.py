"""Quantiles: sorted positions, interpolated."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import reduction
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.view_forms import small_array
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.pointwise import lerp
from skimp._ops.reduce.small_sums import all_finite

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


def _checked(name: str, input: Tensor, q: Any, interpolation: str) -> Tensor:
    if input._dtype not in dtypes.FLOATING:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    ranks: Tensor
    if isinstance(q, Tensor):
        ranks = q
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        ranks = meta.beside(np.asarray(q, input._dtype.np), input._dtype, input)
    if ranks.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if ranks._dtype is not input._dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    values = meta.checked(ranks)
    if values.size and not bool(((values >= 0) & (values <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return ranks


def _quantile(
    input: Tensor, q: Tensor, dim: int | None, keepdim: bool, how: str, skip_nan: bool
) -> Tensor:
    """Along the last dim of the sorted values, q first in the result (and innermost in memory)."""
    ndim = input.ndim
    at = -1 if dim is None else layouts.normalize_dim(dim, ndim)
    rows = input.reshape(-1) if dim is None or ndim == 0 else input.movedim(at, -1)
    made = _small(rows, q) if how == "linear" else None
    result = _interpolated(rows, q.reshape(-1), how, skip_nan) if made is None else made
    if keepdim:
        shape = (
            [1] * ndim if dim is None else [1 if d == at else s for d, s in enumerate(input.shape)]
        )
        result = result.reshape(*shape, -1)
    return result.movedim(-1, 0) if q.ndim else result.squeeze(-1)


def _interpolated(rows: Tensor, ranks: Tensor, how: str, skip_nan: bool) -> Tensor:
    ordered = rows.sort(-1)[0]
    n = ordered.shape[-1]
    if skip_nan:
        last = rows.isnan().logical_not().sum(-1, keepdim=True) - 1
        ranks = (ranks * last).clamp(min=0)
    else:
        missing = ordered.detach().narrow(-1, n - 1, 1).isnan()  # they come last
        ranks = (ranks * (n - 1)).expand((*ordered.shape[:-1], -1)).masked_fill(missing, n - 1)
    return _at(ordered, ranks, how)


def _small(rows: Tensor, q: Tensor) -> Tensor | None:
    """The same of small tensors that are not recorded, and of finite numbers."""
    if type(rows) is not Tensor or type(q) is not Tensor:
        return None
    x, shares = small_array(rows), small_array(q)
    if x is None or shares is None or (modes.state.grad and (rows._rg or q._rg)):
        return None
    if not all_finite(x) or not shares.size:
        return None
    ordered = np.sort(x, -1)
    ranks = shares.reshape(-1) * x.dtype.type(x.shape[-1] - 1)
    below = np.floor(ranks)
    low, high = [ordered.take(at.astype(np.int64), -1) for at in (below, np.ceil(ranks))]
    made = np.empty(low.shape, low.dtype)
    lerp(low, high, np.subtract(ranks, below), out=made)
    return fresh(made, rows._dtype)


def _at(ordered: Tensor, ranks: Tensor, how: str) -> Tensor:
    """The values at fractional ranks along the last dim."""
    if how == "lower":
        ranks = ranks.floor()
    elif how == "higher":
        ranks = ranks.ceil()
    elif how == "nearest":
        ranks = ranks.round()
    below = ranks.floor()
    low = ordered.gather(-1, below.long())
    if how in ("lower", "higher", "nearest"):
        return low
    high = ordered.gather(-1, ranks.ceil().long())
    weight = (ranks - below) if how == "linear" else (ranks - below).sign() * 0.5
    return low.lerp(high, weight.to(ordered._dtype))


def _declare(name: str, skips: bool, doc: str) -> None:
    @shown("SqueezeBackward4")
    def f(
        input: Tensor,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        q = _checked(name, input, q, interpolation)
        return _quantile(input, q, dim, keepdim, interpolation, skips)

    reduction(out="own", autocast="float32")(named(f, name, doc))


_declare(
    "quantile",
    False,
    "The values below which the fractions q of the elements lie; nan where some element is.",
)
_declare("nanquantile", True, "`quantile` of the elements that are not nan.")


SAYS = """\
Dtypes: floating point.
Raises: RuntimeError for other dtypes and for shares outside of 0 to 1; IndexError for a dim that
is not there."""
