"""Tensors from shapes, numbers and other arrays, under the standard's names and arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

import skimp as torch
from skimp import Tensor
from skimp._engine.tensor.dtypes import dtype as Dtype
from skimp.array_api.types import isdtype

FRACTIONS = ("real floating", "complex floating")  # what may have gradients
Shape = int | tuple[int, ...]


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
) -> Tensor:
    """Numbers from `start` to before `stop`; none where `step` leads away from `stop`."""
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step < 0:
        stop = start
    return torch.arange(start, stop, step, dtype=dtype, device=device)


def asarray(
    obj: Any, /, *, dtype: Dtype | None = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """A tensor of what `obj` holds; on the same bytes where that is possible and allowed.

    A buffer is read as the type that it says it has, which PyTorch does not ask for.
    """
    grad = False
    if isinstance(obj, Tensor):
        grad = obj.requires_grad and (dtype is None or isdtype(dtype, FRACTIONS))
    elif not hasattr(obj, "__dlpack__") and not isinstance(obj, np.generic) and _is_buffer(obj):
        obj = np.asarray(obj)
    return torch.asarray(obj, dtype=dtype, device=device, copy=copy, requires_grad=grad)


def empty(shape: Shape, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor whose values nobody has set."""
    return torch.empty(_shape(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of the shape of `x` whose values nobody has set."""
    return torch.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Dtype | None = None,
    device: Any = None,
) -> Tensor:
    """A matrix with ones on its k-th diagonal."""
    n_cols = n_rows if n_cols is None else n_cols
    matrix = torch.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        matrix.diagonal(k).fill_(1)
    return matrix


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the bytes of another library's array."""
    return torch.from_dlpack(x, device=device, copy=copy)


def full(
    shape: Shape, fill_value: complex, *, dtype: Dtype | None = None, device: Any = None
) -> Tensor:
    """A tensor of one number."""
    return torch.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: complex, *, dtype: Dtype | None = None, device: Any = None
) -> Tensor:
    """A tensor of the shape of `x` and of one number."""
    return torch.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances; the last is `stop`, or one step before it."""
    points = torch.linspace(start, stop, num + (not endpoint), dtype=dtype, device=device)
    return points[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid: views, one for each vector."""
    return list(torch.meshgrid(*arrays, indexing=indexing))


def ones(shape: Shape, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return torch.ones(_shape(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of the shape of `x`, of ones."""
    return torch.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros above the k-th diagonal."""
    return torch.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros below the k-th diagonal."""
    return torch.triu(x, k)


def zeros(shape: Shape, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return torch.zeros(_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of the shape of `x`, of zeros."""
    return torch.zeros_like(x, dtype=dtype, device=device)


def _is_buffer(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
