"""Rows of a table by number, and bags of them; the gradient adds rows up after sorting their
numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.order import farthest
from skimp._kernels.rows import add_rows
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.sparse.tensor import made
from skimp.config import config

INDICES: Final = frozenset({dtypes.int64, dtypes.int32})


def _check_dtype(indices: Any, place: int, name: str) -> None:
    if indices._dtype not in INDICES:
        raise RuntimeError(
            f"Expected tensor for argument #{place} 'indices' to have one of the following scalar "
            f"types: Long, Int; but got torch.{promotion.scalar_type_name(indices._dtype)}Tensor "
            f"instead (while checking arguments for {name})"
        )


def numbers_of(indices: Any, rows: int) -> Array:
    _check_dtype(indices, 1, "embedding")
    found: Array = meta.checked(indices).reshape(-1)
    if found.size and farthest(found) >= rows:
        raise IndexError("index out of range in self")
    return found


# -- the gradient of a table ----------------------------------------------------------------------


def _table_back(g: Any, indices: Any, rows: int, padding_idx: int, by_freq: bool) -> Any:
    return embedding_dense_backward(g, indices, rows, padding_idx, by_freq)


def _small_table_back(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """The gradient of a small table of float32 or float64, whose rows nothing scales."""
    rows, numbers, dtype = grad_output._np, indices._np, grad_output._dtype
    if rows is None or numbers is None or dtype not in dtypes.FLOATING or scale_grad_by_freq:
        return None
    if indices._dtype not in INDICES:
        return None
    width = rows.shape[-1]
    if not numbers.size or num_weights * width >= config.small_below:
        return None
    total = np.zeros((num_weights, width), dtype.np)
    numbers, rows = numbers.reshape(-1), rows.reshape(numbers.size, width)
    if padding_idx >= 0:
        numbers, rows = _without(padding_idx, numbers, rows)
    if numbers.size == 1:
        total[numbers.item()] += rows[0]
    else:
        quietly(add_rows, total, numbers, rows)
    return fresh(total, dtype)


def _without(padding_idx: int, numbers: Array, rows: Array) -> tuple[Array, Array]:
    keep = numbers != padding_idx
    return (numbers, rows) if keep.all() else (numbers[keep], rows[keep])


@general(
    method=False,
    fast=_small_table_back,
    rule=Rule(
        "EmbeddingDenseBackwardBackward0",
        grad_output=lambda g, indices, padding_idx, scale_grad_by_freq: _rows_back(
            g, indices, padding_idx, scale_grad_by_freq
        ),
    ),
    batch=batching.places.embedding_back,
    meta=shapes.table,
)
def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """The gradient of the table: for each of its rows the sum of what arrived at its places.

    Shape: the indices' and the gradient's last dim; the result is (num_weights, dim).
    Dtypes: floating point; indices are int32 or int64.
    """
    _check_dtype(indices, 2, "embedding_backward")
    width = grad_output.shape[-1]
    numbers = indices._skimp_array().reshape(-1)
    source, _ = source_of(grad_output, in_order=True)
    rows = (source if isinstance(source, np.ndarray) else grad_output._skimp_array()).reshape(
        numbers.size, width
    )
    if scale_grad_by_freq and numbers.size:
        rows = rows / bare.bincount(numbers, minlength=num_weights)[numbers][:, None].astype(
            rows.dtype
        )
    if padding_idx >= 0 and numbers.size:
        numbers, rows = _without(padding_idx, numbers, rows)
    acc = dtypes.accumulator(grad_output._dtype)
    if acc is not grad_output._dtype:
        total = np.zeros((num_weights, width), acc.np)
        quietly(add_rows, total, numbers, rows)
        return fresh(total.astype(grad_output._dtype.np), grad_output._dtype)
    result, target = blank((num_weights, width), grad_output._dtype)
    target[...] = 0
    quietly(add_rows, target, numbers, rows)
    return result


def _rows_back(g: Any, indices: Any, padding_idx: int, by_freq: bool) -> Any:
    """Second derivatives: the same rows again, without those that never had a gradient."""
    found = lookup(g, indices, -1, False)
    numbers = indices._skimp_array()
    scale = np.ones(numbers.shape, g._dtype.np)
    if by_freq and numbers.size:
        scale = (1.0 / bare.bincount(numbers.reshape(-1))[numbers]).astype(g._dtype.np)
    if padding_idx >= 0:
        scale = bare.where(numbers == padding_idx, scale.dtype.type(0), scale)
    return found * fresh(scale, g._dtype).unsqueeze(-1)


# -- embedding ------------------------------------------------------------------------------------


def _small_lookup(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    table, numbers = weight._np, indices._np
    if table is None or numbers is None or indices._dtype not in INDICES or not numbers.size:
        return None
    if not table.flags.c_contiguous or not table.size:
        return None
    if farthest(numbers) >= len(table):
        return None
    return fresh(table.take(numbers, 0, None, "clip"), weight._dtype)


@hidden(
    "_embedding",
    fast=_small_lookup,
    rule=Rule(
        "EmbeddingBackward0",
        weight=lambda g, weight_shape, indices, padding_idx, scale_grad_by_freq: _table_back(
            g, indices, weight_shape[0], padding_idx, scale_grad_by_freq
        ),
    ),
    batch=batching.places.embedding,
)
def lookup(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    numbers = numbers_of(indices, weight.shape[0])
    if weight._hollow:
        return meta.empty((*indices.shape, *weight.shape[1:]), weight._dtype)
    result, target = blank((*indices.shape, *weight.shape[1:]), weight._dtype, None, (weight,))
    if target.size:
        np.take(
            weight._skimp_array(),
            numbers,
            axis=0,
            out=target.reshape(len(numbers), *weight.shape[1:]),
            mode="clip",
        )
    return result


def _sparse_back(g: Any, indices: Any, shape: Any, padding_idx: int, by_freq: bool) -> Any:
    """The gradient as the rows that were read, each as often as it was."""
    numbers = numbers_of(indices, shape[0])
    rows = g.reshape((numbers.size, *shape[1:]))
    if by_freq and numbers.size:
        counts = bare.bincount(numbers.reshape(-1))[numbers.reshape(-1)]
        rows = rows / fresh(counts.astype(g._dtype.np), g._dtype).unsqueeze(-1)
    kept = numbers.reshape(-1).astype(np.int64)
    if padding_idx >= 0 and (kept == padding_idx).any():
        live = np.flatnonzero(kept != padding_idx)
        rows, kept = rows.index_select(0, fresh(live.astype(np.int64), dtypes.int64)), kept[live]
    return made(fresh(kept[None], dtypes.int64), rows, tuple(shape), False)


@hidden(
    "_embedding_sparse",
    rule=Rule(
        "EmbeddingBackward0",
        weight=lambda g, weight_shape, indices, padding_idx, scale_grad_by_freq: _sparse_back(
            g, indices, weight_shape, padding_idx, scale_grad_by_freq
        ),
    ),
)
def lookup_sparse(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    return lookup(weight, indices, padding_idx, scale_grad_by_freq)


def row_of_padding(padding_idx: int, rows: int) -> int:
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def renorm_rows(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are about to be read down to a norm of `max_norm`, in place."""
    numbers = np.unique(numbers_of(indices, weight.shape[0]))
    if not numbers.size:
        return
    with modes.no_grad():
        at = fresh(numbers.astype(np.int64), dtypes.int64)
        rows = weight.detach().index_select(0, at)
        norms = rows.norm(norm_type, 1, True)
        scale = (max_norm / (norms + 1e-7)).masked_fill(norms <= max_norm, 1.0)
        weight.index_copy_(0, at, rows * scale)


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rows of `weight` that `input` names; with `sparse` its gradient is a sparse tensor of the
    rows that were read.

    Shape: input any, weight (rows, width); the result (*input, width).
    Dtypes: int32 or int64 positions; any weight.
    Raises: IndexError for a position out of range, RuntimeError for other dtypes.
    Memory: a new tensor; with `max_norm` rows of the weight are written in place.
    """
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    padding = -1 if padding_idx is None else row_of_padding(padding_idx, weight.shape[0])
    if max_norm is not None:
        renorm_rows(weight, input, max_norm, norm_type)
    find = lookup_sparse if sparse else lookup
    try:
        return find(weight, input, padding, bool(scale_grad_by_freq))
    except AttributeError:
        if isinstance(input, Tensor):
            raise
        raise TypeError(
            "embedding(): argument 'indices' (position 2) must be Tensor, not "
            f"{type(input).__name__}"
        ) from None


export("embedding", embedding, ("nn.functional",), method=False, quick=True)


@general("embedding", method=False)
def _torch_embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """nn.functional.embedding with the table first.

    Shape: the index's and a row's.
    Dtypes: bool, integers, floating point and complex numbers.
    Memory: a new tensor.
    """
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    find = lookup_sparse if sparse else lookup
    return find(weight, indices, padding_idx, scale_grad_by_freq)


@sampled(lambda tensor: [(tensor([[3.0, 4.0], [0.5, 0.5]]), tensor([0, 1]).long(), 1.0, 2.0)])
def embedding_renorm_(input: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    """Scale the rows that `indices` names down to a norm of `max_norm`.

    Shape: a table (rows, dim); indices of any shape.
    Dtypes: floating point and complex numbers.
    """
    if input.ndim != 2:
        raise RuntimeError(
            f"Expected 2-dimensional tensor, but got {input.ndim}-dimensional tensor for argument "
            "#1 'self' (while checking arguments for embedding_renorm_)"
        )
    renorm_rows(input, indices, max_norm, norm_type)
    return input


export("embedding_renorm_", embedding_renorm_, method=False)


SAYS = """\
Raises: IndexError for a row that is not there, RuntimeError for an index of another dtype."""
