"""Histograms in several dimensions."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import general
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops import return_types
from skimp._ops.create.ranges import linspace

_NAME = "torch.histogramdd"


@general(method=False, composite=False)
def histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """Counts (or weights, or their density) of points, the last dim of `input`, in boxes; and the
    edges of the boxes in each dimension.

    Shape: (n, dims) points; counts have as many dims as a point, each as long as its bins.
    Memory: new tensors.
    """
    _check(input, weight)
    points = input._skimp_array().reshape(-1, input.shape[-1])
    n = points.shape[1]
    bins = list(bins) if isinstance(bins, (tuple, list)) else [operator.index(bins)] * n
    if len(bins) != n:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    edges = [t.detach() for t in bins] if isinstance(bins[0], Tensor) else None
    if edges is None:
        edges = _edges(points, bins, range, input._dtype)
    for d, t in enumerate(edges):
        _check_edges(t, d, input._dtype)
    arrays = [t._skimp_array() for t in edges]
    sizes = tuple([len(a) - 1 for a in arrays])
    weights = None if weight is None else weight._skimp_array().reshape(-1)
    hist = _count(points, arrays, sizes, weights).astype(points.dtype)
    if density:
        hist /= hist.sum()
        for d, a in enumerate(arrays):
            hist /= np.diff(a).reshape(-1, *[1] * (n - d - 1))
    return return_types.histogramdd(fresh(hist, input._dtype), tuple(edges))


def _check(input: Tensor, weight: Any) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"{_NAME}: input tensor should have at least 2 dimensions")
    if input._dtype not in dtypes.FLOATING:
        raise no_kernel("histogramdd", input._dtype)
    if weight is None:
        return
    if weight._dtype is not input._dtype:
        raise RuntimeError(
            f"{_NAME}: if weight tensor is provided, input tensor and weight tensor should have "
            f"the same dtype, but got input(Tensor) {input._dtype} and weight(Tensor) "
            f"{weight._dtype}"
        )
    if tuple(weight.shape) != tuple(input.shape[:-1]):
        raise RuntimeError(
            f"{_NAME}: if weight tensor is provided it should have the same shape as the input "
            f"tensor excluding its innermost dimension, but got input with shape "
            f"{list(input.shape)} and weight with shape {list(weight.shape)}"
        )


def _check_edges(t: Tensor, d: int, dtype: dtypes.dtype) -> None:
    if t._dtype is not dtype:
        raise RuntimeError(
            f"{_NAME}: input tensor and bins tensors should have the same dtype, but got input "
            f"with dtype {dtype.name} and bins for dimension {d} with dtype {t._dtype.name}"
        )
    if t.ndim != 1 or t.shape[0] < 2:
        raise RuntimeError(
            f"{_NAME}: bins tensor should have one dimension and two edges at least, but got shape "
            f"{list(t.shape)} for dimension {d}"
        )


def _edges(points: Array, bins: list[int], range: Any, dtype: dtypes.dtype) -> list[Tensor]:
    n = len(bins)
    for d, count in enumerate(bins):
        if count <= 0:
            raise RuntimeError(
                f"torch.histogram(): bins must be > 0, but got {count} for dimension {d}"
            )
    if range is not None and len(range) != 2 * n:
        raise RuntimeError(
            f"{_NAME}: for a {n}-dimensional histogram range should have {2 * n} elements, but got "
            f"{len(range)}"
        )
    found = []
    for d, count in enumerate(bins):
        if range is not None:
            low, high = range[2 * d], range[2 * d + 1]
        elif len(points):
            low, high = points[:, d].min(), points[:, d].max()
        else:
            low, high = 0.0, 1.0
        found.append(linspace(*_extent(float(low), float(high), d), count + 1, dtype=dtype))
    return found


def _extent(low: float, high: float, d: int) -> tuple[float, float]:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{_NAME}: dimension {d}'s range [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(
            f"{_NAME}: min should not exceed max, but got min {low:g} max {high:g} for dimension "
            f"{d}"
        )
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _count(
    points: Array, edges: list[Array], sizes: tuple[int, ...], weights: Array | None
) -> Array:
    """Each box takes its lower edge, the last one its upper edge too."""
    inside = np.ones(len(points), bool)
    at = np.zeros(len(points), np.int64)
    for d, a in enumerate(edges):
        column = points[:, d]
        inside &= (column >= a[0]) & (column <= a[-1])
        place = np.minimum(np.searchsorted(a, column, "right"), len(a) - 1) - 1
        at = at * sizes[d] + place
    counted = bare.bincount(
        at[inside], None if weights is None else weights[inside], minlength=math.prod(sizes)
    )
    return counted.reshape(sizes)


SAYS = """\
Dtypes: floating point.
Raises: RuntimeError or NotImplementedError for other dtypes and for bins that don't fit."""
