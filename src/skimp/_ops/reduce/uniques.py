"""The distinct values of a tensor, or the distinct slices along a dim: unique,
unique_consecutive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.eval import ranks
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import refuse
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching
from skimp._ops.reduce import small_search


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    """The distinct values in order (NaN equals nothing), where each element went, and how often
    each value occurs.

    >>> torch.unique(torch.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return _distinct(input, "unique", return_inverse, return_counts, dim)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """`unique` of neighbours only: runs of equal values become one."""
    return _distinct(input, "unique_consecutive", return_inverse, return_counts, dim)


export(
    "unique", unique, composite=False, fast=small_search.distinct, batch=batching.places.no_shape
)
export("unique_consecutive", unique_consecutive, composite=False, batch=batching.places.no_shape)


def _refusing(node: str, name: str) -> Rule:
    def refuse_gradient(g: Tensor) -> Tensor:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return Rule(node, input=refuse_gradient)


_RULES = {
    ("unique", False): _refusing("Unique2Backward0", "_unique2"),
    ("unique", True): _refusing("UniqueDimBackward0", "unique_dim"),
}
_RUNS = _refusing("UniqueConsecutiveBackward0", "unique_consecutive")


def _rule(given: dict[str, Any]) -> Rule:
    return _RULES.get((given["name"], given["dim"] is not None), _RUNS)


@hidden(rule=_rule, nondiff=(1, 2))
def _distinct(input: Tensor, name: str, inverse: bool, counts: bool, dim: Any) -> Any:
    if input._dtype.is_complex:
        raise no_kernel(name, input._dtype)
    refuse(name, input._dtype, dtypes.FLOAT8)
    array = input._skimp_array()
    if dim is None:
        rows, back = array.reshape(-1, 1), tuple(array.shape)
    else:
        dim = layouts.normalize_dim(dim, input.ndim)
        rows, back = _slices(array, dim)
    at = None
    if name == "unique":
        at = _whole_order(rows) if dim is None else _slice_order(rows)
    ordered = rows if at is None else rows[at]
    first = np.ones(len(ordered), np.bool_)
    if len(ordered) > 1:
        np.any(ordered[1:] != ordered[:-1], axis=1, out=first[1:])
    found: list[Array] = [_back(ordered[first], array, dim)]
    if inverse:
        found.append(_inverse(first, at).reshape(back))
    if counts:
        found.append(np.diff(np.append(np.flatnonzero(first), len(first))))
    kinds = [input._dtype, dtypes.int64, dtypes.int64]
    made = tuple([fresh(a, kinds[i > 0]) for i, a in enumerate(found)])
    return made if inverse or counts else made[0]


def _slices(array: Array, dim: int) -> tuple[Array, tuple[int, ...]]:
    """The slices along `dim` as rows, and the shape of the inverse."""
    if array.ndim == 0:
        return array.reshape(1, 1), (1,)
    n = array.shape[dim]
    if array.size == 0 and any(m == 0 for d, m in enumerate(array.shape) if d != dim):
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    moved = shaping.dim_first(array, dim)
    return moved.reshape(n, -1) if array.size else np.empty((0, 1), array.dtype), (n,)


def _back(rows: Array, array: Array, dim: Any) -> Array:
    if dim is None:
        return rows.reshape(-1)
    if array.ndim == 0:
        return rows.reshape(-1)
    rest = [n for d, n in enumerate(array.shape) if d != dim]
    if array.size == 0:
        return np.empty([0 if d == dim else n for d, n in enumerate(array.shape)], array.dtype)
    return np.moveaxis(rows.reshape(len(rows), *rest), 0, dim)


def _inverse(first: Array, at: Array | None) -> Array:
    number = np.cumsum(first) - 1
    if at is None:
        return number
    inverse = np.empty(len(at), np.int64)
    inverse[at] = number
    return inverse


def _whole_order(rows: Array) -> Array:
    order = np.empty((1, len(rows)), np.int64)
    if len(rows):
        ranks.order(rows.reshape(1, -1), False, order)
    found: Array = order[0]
    return found


def _slice_order(rows: Array) -> Array:
    """Rows compared element after element; equal ones stay in their order."""
    keys = (
        rows.astype(np.float32) if rows.dtype.kind == "V" or rows.dtype.name == "bfloat16" else rows
    )
    return bare.lexsort(keys.T[::-1]) if rows.shape[1] else np.arange(len(rows))


SAYS = """\
Shape: (n,) distinct values, or n slices along `dim`; `inverse` has the input's shape, counts (n,).
Dtypes: bool, integers and floating point.
Raises: NotImplementedError for complex numbers, IndexError for a dim that is not there.
Memory: new tensors."""
