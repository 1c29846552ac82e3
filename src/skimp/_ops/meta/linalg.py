"""Factors and solutions: row-major where PyTorch's are, else column-major, as LAPACK writes."""

from __future__ import annotations

from typing import Any

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.meta import empty
from skimp._engine.tensor.tensor import Tensor

Ints = tuple[int, ...]


def columns(shape: Ints, dtype: dtypes.dtype) -> Tensor:
    """Matrices that are column-major each."""
    turned = (*shape[:-2], shape[-1], shape[-2])
    strides = contiguous_strides(turned)
    return empty(shape, dtype, (*strides[:-2], strides[-1], strides[-2]))


def _parts(t: Tensor) -> tuple[Ints, int, int]:
    m, n = t.shape[-2:]
    return tuple(t.shape[:-2]), m, n


def svd(input: Tensor, full_matrices: bool) -> Any:
    batch, m, n = _parts(input)
    k, d = min(m, n), input._dtype
    u = columns((*batch, m, m if full_matrices else k), d)
    vh = columns((*batch, n if full_matrices else k, n), d)
    return u, empty((*batch, k), d.to_real()), vh


def eigh(input: Tensor, UPLO: Any) -> Any:
    batch, n, _ = _parts(input)
    return empty((*batch, n), input._dtype.to_real()), columns((*batch, n, n), input._dtype)


def eig(input: Tensor) -> Any:
    batch, n, _ = _parts(input)
    d = input._dtype.to_complex()
    return empty((*batch, n), d), empty((*batch, n, n), d)


def pinv(input: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    batch, m, n = _parts(input)
    return empty((*batch, n, m), input._dtype)


def qr(input: Tensor, mode: str) -> Any:
    batch, m, n = _parts(input)
    k = m if mode == "complete" else min(m, n)
    return columns((*batch, m, k), input._dtype), columns((*batch, k, n), input._dtype)


def geqrf(input: Tensor) -> Any:
    batch, m, n = _parts(input)
    return columns((*batch, m, n), input._dtype), empty((*batch, min(m, n)), input._dtype)


def factor(input: Tensor, upper: bool) -> Any:
    """Of Cholesky's decomposition, and where it stopped."""
    return columns(tuple(input.shape), input._dtype), empty(input.shape[:-2], dtypes.int32)


def inverse(A: Tensor) -> Any:
    return columns(tuple(A.shape), A._dtype), empty(A.shape[:-2], dtypes.int32)


def square(input: Tensor, *_: Any) -> Tensor:
    """Matrices of the input's shape, column-major."""
    return columns(tuple(input.shape), input._dtype)


def solution(A: Tensor, B: Tensor) -> Any:
    batch = layouts.broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2]))
    return columns((*batch, *B.shape[-2:]), A._dtype), empty(A.shape[:-2], dtypes.int32)


def triangular(input: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> Tensor:
    batch = layouts.broadcast_shapes(tuple(input.shape[:-2]), tuple(B.shape[:-2]))
    return columns((*batch, *B.shape[-2:]), input._dtype)


def determinant(A: Tensor) -> Tensor:
    return empty(A.shape[:-2], A._dtype)


def slogdet(A: Tensor) -> Any:
    batch = tuple(A.shape[:-2])
    return empty(batch, A._dtype), empty(batch, A._dtype.to_real())


def lu(input: Tensor, pivot: bool) -> Any:
    batch, m, n = _parts(input)
    k, d = min(m, n), input._dtype
    return (
        empty((*batch, m, m), d),
        empty((*batch, m, k), d),
        empty((*batch, k, n), d),
        empty((*batch, k), dtypes.int32),
    )


def square_rows(input: Tensor, *_: Any) -> Tensor:
    """Matrices of the input's shape, row-major."""
    return empty(input.shape, input._dtype)
