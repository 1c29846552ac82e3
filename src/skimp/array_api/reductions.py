"""Many numbers to one: sums, means, extremes, truth, running sums, differences.

An axis may be one, several, all (None), or none, an empty tuple, which PyTorch takes for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import skimp as torch
from skimp import Tensor
from skimp._engine.tensor.dtypes import dtype as Dtype
from skimp.array_api.manipulation import Axes, axes_of


def all(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """Whether no element is zero."""
    return _reduced(torch.all, _truth(x), axis, keepdims)


def any(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """Whether some element is not zero."""
    return _reduced(torch.any, _truth(x), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return _reduced(torch.sum, _truth(x), axis, keepdims, torch.int64)


def max(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The largest element."""
    return _reduced(torch.amax, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    return _reduced(torch.mean, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """The smallest element."""
    return _reduced(torch.amin, x, axis, keepdims)


def prod(
    x: Tensor, /, *, axis: Axes | None = None, dtype: Dtype | None = None, keepdims: bool = False
) -> Tensor:
    """The product; of integers in int64."""
    result = x.to(_summed(x, dtype))
    for each in sorted((a % x.dim() for a in axes_of(x, axis)), reverse=True):
        result = torch.prod(result, each, keepdims)
    return result


def std(
    x: Tensor, /, *, axis: Axes | None = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation, of a population unless `correction` says otherwise."""
    return torch.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def sum(
    x: Tensor, /, *, axis: Axes | None = None, dtype: Dtype | None = None, keepdims: bool = False
) -> Tensor:
    """The sum; of integers in int64."""
    return _reduced(torch.sum, x, axis, keepdims, _summed(x, dtype))


def var(
    x: Tensor, /, *, axis: Axes | None = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance, of a population unless `correction` says otherwise."""

    def of(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        return torch.var(x, axes, correction=correction, keepdim=keepdims)

    return _reduced(of, x, axis, keepdims)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Dtype | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running sums; of integers in int64."""
    return _running(torch.cumsum, x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Dtype | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running products; of integers in int64."""
    return _running(torch.cumprod, x, axis, dtype, 1 if include_initial else None)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours, n times over."""
    return torch.diff(x, n, axis, prepend, append)


def _reduced(
    of: Callable[..., Any], x: Tensor, axis: Axes | None, keepdims: bool, dtype: Dtype | None = None
) -> Tensor:
    axes = axes_of(x, axis)
    words = {} if dtype is None else {"dtype": dtype}
    if axes or x.dim() == 0:
        result: Tensor = of(x, axes, keepdims, **words)
        return result
    # over no axis: each element is reduced alone, along a new dimension of size 1
    alone: Tensor = of(x.unsqueeze(-1), (-1,), False, **words)
    return alone


def _truth(x: Tensor) -> Tensor:
    """As bools: `torch.all` of uint8 would be uint8."""
    return x if x.dtype is torch.bool else x != 0


def _summed(x: Tensor, dtype: Dtype | None) -> Dtype:
    """The type of a sum: integers would overflow in their own."""
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64


def _running(
    of: Callable[..., Any], x: Tensor, axis: int | None, dtype: Dtype | None, first: int | None
) -> Tensor:
    if axis is None and x.dim() != 1:
        raise ValueError(f"x has {x.dim()} dimensions, not 1; give axis")
    axis = 0 if axis is None else axis
    result: Tensor = of(x, axis, dtype=_summed(x, dtype))
    if first is None:
        return result
    shape = list(x.shape)
    shape[axis] = 1
    return torch.cat([torch.full(shape, first, dtype=result.dtype, device=x.device), result], axis)
