"""What sparse tensors' arithmetic is made of: entries joined, matched and multiplied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import dtypes, formats, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops.sparse.products import _spmm

if TYPE_CHECKING:
    from skimp._ops.sparse.tensor import SparseTensor

Ints = tuple[int, ...]


def refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"skimp: {what} is not implemented for sparse tensors (PyTorch's 'SparseCPU' backend); use "
        "to_dense(), or indices() and values()"
    )


def is_sparse(t: Any) -> bool:
    return isinstance(t, Tensor) and t._skimp_sparse


def flattened(at: Array, shape: Ints) -> Array:
    """Row-major positions of indices (dims, n)."""
    flat = np.zeros(at.shape[1], np.int64)
    for row, n in zip(at, shape, strict=True):
        flat *= n
        flat += row
    return flat


def summed(values: Tensor, to: Tensor, n: int) -> Tensor:
    """The sums of values whose places agree."""
    return values.new_zeros((n, *values.shape[1:])).index_add(0, to, values)


def _same_shape(a: Tensor, b: Tensor, name: str) -> None:
    if a.shape != b.shape:
        raise RuntimeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != "
            f"{list(b.shape)}"
        )


def added(a: SparseTensor, b: Any, alpha: Any) -> Any:
    """a + alpha * b of two sparse tensors: the entries of both, coalesced if both are."""
    if not is_sparse(b):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_shape(a, b, "add")
    if a.sparse_dim() != b.sparse_dim():
        refuse("adding tensors with different sparse_dim")
    cat = NAMESPACES[""]["cat"]
    values = b._held if alpha == 1 else b._held * alpha
    joined = a.made_of(cat([a._at, b._at], 1), cat([a._held, values], 0), a._plain_shape(), False)
    return joined.coalesce() if a._sorted and b._sorted else joined


def put(dense: Tensor, b: SparseTensor, values: Tensor) -> Tensor:
    """`dense` with values added at the places of `b`; a number's entries have no indices."""
    if not b.sparse_dim():
        return dense + values.sum(0)
    return dense.index_put(tuple(b._at.unbind(0)), values, accumulate=True)


def plus_dense(dense: Tensor, b: SparseTensor, alpha: Any) -> Tensor:
    """dense + alpha * b."""
    _same_shape(dense, b, "add")
    values = b._held if alpha == 1 else b._held * alpha
    kind = promotion.result_dtype(tuple([(t._dtype, False, False) for t in (dense, values)]))
    return put(dense.to(kind), b, values.to(kind))


def add_entries(dense: Tensor, b: SparseTensor, alpha: Any) -> Tensor:
    """dense += alpha * b, in place."""
    _same_shape(dense, b, "add_")
    values = b._held if alpha == 1 else b._held * alpha
    if b.sparse_dim() == 1:
        return dense.index_add_(0, b._at[0], values)
    if not b.sparse_dim():
        whole: Tensor = dense.add_(values.sum(0))
        return whole
    return dense.index_put_(tuple(b._at.unbind(0)), values, accumulate=True)


def times(a: SparseTensor, b: Any) -> SparseTensor:
    """The products of elements; a number, or a dense or sparse tensor of the same shape."""
    if not isinstance(b, Tensor) or not b.ndim:
        return a.like(a._held * b)
    _same_shape(a, b, "mul")
    if not is_sparse(b):
        return a.like(a._held * b[tuple(a._at.unbind(0))])
    a, b = a.coalesce(), b.coalesce()
    if a.sparse_dim() != b.sparse_dim():
        refuse("multiplying tensors with different sparse_dim")
    shape = a._plain_shape()[: a.sparse_dim()]
    ours, theirs = flattened(a._at._skimp_array(), shape), flattened(b._at._skimp_array(), shape)
    _, left, right = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    i, j = (fresh(p.astype(np.int64), dtypes.int64) for p in (left, right))
    values = a._held.index_select(0, i) * b._held.index_select(0, j)
    return a.made_of(a._at.index_select(1, i), values, a._plain_shape(), True)


def check_kernel(name: str, dtype: dtypes.dtype) -> None:
    """Refuse what PyTorch's libraries for sparse products don't take: halves and integers."""
    if dtype in dtypes.HALVES or dtype not in dtypes.FLOATING_AND_COMPLEX:
        raise no_kernel(name, dtype)


def _check_product(a: Tensor, b: Tensor, both: bool) -> None:
    if a._dtype is not b._dtype:
        raise RuntimeError(
            "addmm: expected both matrices to have the same dtype, but got "
            f"{scalar_type_name(a._dtype)} and {scalar_type_name(b._dtype)}"
        )
    if both:
        check_kernel("sparse_matmul", a._dtype)
    elif (a if a._skimp_sparse else b).layout is not formats.sparse_coo:
        check_kernel("addmm_out_sparse_csr_impl_mkl", a._dtype)
    elif a._dtype is dtypes.bool:
        raise no_kernel("addmm_sparse_dense", a._dtype)
    shape, other = tuple(a.shape), tuple(b.shape)
    if len(shape) != 2 or len(other) != 2:
        raise RuntimeError(f"addmm: matrices expected, got {len(shape)}D and {len(other)}D tensors")
    if shape[1] != other[0]:
        raise RuntimeError(
            f"addmm: Argument #3 (dense): Expected dim 0 size {shape[1]}, got {other[0]}"
        )


def product(a: Any, b: Any) -> Any:
    """The matrix product where one of both is sparse; sparse if both are."""
    if b.ndim == 1:
        return product(a, b.unsqueeze(-1)).squeeze(-1)
    given = is_sparse(a), is_sparse(b)
    for t, sparse in zip((a, b), given, strict=True):
        if sparse and t.dense_dim():
            refuse("the product of a tensor with dense dimensions")
    _check_product(a, b, all(given))
    if a._dtype in dtypes.HALVES:  # summed in float32, rounded once
        return product(a.float(), b.float()).to(a._dtype)
    if not given[1]:
        to, of = a._at.unbind(0)
        return _spmm(a._held, b, to, of, int(a.shape[0]))
    if not given[0]:
        to, of = b._at.unbind(0)
        turned = _spmm(b._held, a.t(), of, to, int(b.shape[1]))
        return turned.t()
    return _both_sparse(a.coalesce(), b.coalesce())


def _both_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """Every entry of `a` with every entry of the row of `b` that its column names."""
    (rows, columns), (others, ends) = a._at._skimp_array(), b._at._skimp_array()
    low, high = np.searchsorted(others, columns), np.searchsorted(others, columns, "right")
    counts = high - low
    total = int(counts.sum())
    left = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(low - bare.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    right = first + np.arange(total)
    at = np.stack([rows[left], ends[right]]) if total else np.empty((2, 0), np.int64)
    i, j = (fresh(p.astype(np.int64), dtypes.int64) for p in (left, right))
    values = a._held.index_select(0, i) * b._held.index_select(0, j)
    shape = (int(a.shape[0]), int(b.shape[1]))
    return a.made_of(fresh(at.astype(np.int64), dtypes.int64), values, shape, False).coalesce()
