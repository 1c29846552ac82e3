"""Bags of rows of a table: their sums, means and highest elements; weights, offsets, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import bare
from skimp._kernels.order import farthest
from skimp._ops.nn.embedding import (
    INDICES,
    SAYS as SAYS,
    embedding_dense_backward,
    lookup,
    lookup_sparse,
    numbers_of,
    renorm_rows,
)


def _bags(count: int, offsets: Any, last: bool, mode: str) -> tuple[Array, int]:
    """For each index the bag that it is in, and how many bags there are."""
    starts = meta.checked(offsets).astype(np.int64).reshape(-1)
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {int(starts[0])}"
        )
    if starts.size and starts[-1] > count:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of "
            f"{int(starts[-1])}"
        )
    if (starts[1:] < starts[:-1]).any():
        if mode != "max":
            raise RuntimeError(
                "embedding_bag: each of the offsets must be at least the one before it, got "
                f"{starts.tolist() if len(starts) <= 16 else 'some that are not'}"
            )
        starts = np.sort(starts)  # as PyTorch's, which counts how many begin up to a place
        if starts[0] < 0:
            raise IndexError("index out of range in self")
    bags = len(starts) - 1 if last else len(starts)
    return starts.searchsorted(np.arange(count), side="right") - 1, bags


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of bags of the rows of `weight`: a bag is a row of `input`, or what
    `offsets` delimit.

    Shape: input (bags, n), or (n,) with offsets (bags,); weight (rows, width); the result (bags,
    width).
    Dtypes: int32 or int64 positions; a floating point weight.
    Raises: ValueError for inputs that are neither, RuntimeError for offsets that don't fit.
    Memory: a new tensor; the rows read are not written out.
    """
    if weight._dtype in INDICES and input._dtype.is_floating_point:
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`."
        )
        input, weight = weight, input
    if not weight._dtype.is_floating_point:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have one of the following scalar types: "
            f"Half, BFloat16, Float, Double; but got {weight.type().removeprefix('torch.')} "
            "instead (while checking arguments for embedding_bag)"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and tuple(per_sample_weights.shape) != tuple(input.shape):
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    include_last_offset = include_last_offset and input.ndim == 1  # rows have no last offset
    input, offsets, per_sample_weights = _flattened(input, offsets, per_sample_weights)
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{rows} through {rows - 1}, but "
            f"got {padding_idx}"
        )
    padding = -1 if padding_idx is None else padding_idx % rows
    if max_norm is not None:
        renorm_rows(weight, input, max_norm, norm_type)
    bag, bags = _bags(input.numel(), offsets, include_last_offset, mode)
    if per_sample_weights is not None and per_sample_weights._dtype is not weight._dtype:
        have, want = [t.type() for t in (weight, per_sample_weights)]
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument "
            f"#1 'per_sample_weights'; but type {have} does not equal {want} (while checking "
            "arguments for embedding_bag)"
        )
    if sparse and mode == "max":
        raise ValueError("max mode does not support sparse weights")
    return _bagged(
        weight, input, bag, bags, mode, per_sample_weights, padding, scale_grad_by_freq, sparse
    )


export("embedding_bag", embedding_bag, ("nn.functional",), method=False, composite=False)


def _flattened(input: Any, offsets: Any, weights: Any) -> tuple[Any, Any, Any]:
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                f"of fixed length sequences. However, found offsets of type {type(offsets)}"
            )
        n, width = input.shape
        offsets = fresh(np.arange(n, dtype=np.int64) * width, dtypes.int64)
        return input.reshape(-1), offsets, None if weights is None else weights.reshape(-1)
    if input.ndim != 1:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    return input, offsets, weights


def _check_bags(indices: Any, rows: int, bags: bool) -> None:
    """Refuse indices of no row, in PyTorch's words for `bags`, or for rows that are added up."""
    if indices._dtype not in INDICES:
        return
    found = indices._skimp_array().reshape(-1)
    if not found.size or farthest(found) < rows:
        return
    outside = np.flatnonzero((found < 0) | (found >= rows))
    at, bad = int(outside[0]), int(found[outside[0]])
    if bags:
        raise RuntimeError(
            f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {bad}"
        )
    raise RuntimeError(
        f"Index {at} of input takes value {bad} which is not in the valid range [0, {rows})"
    )


@shown("EmbeddingBagBackward0", "weight", "weights")
def _bagged(
    weight: Any,
    input: Any,
    bag: Array,
    bags: int,
    mode: str,
    weights: Any,
    padding: int,
    by_freq: bool,
    sparse: bool,
) -> Any:
    if weight._hollow:
        rows = (lookup_sparse if sparse else lookup)(weight, input, -1, by_freq)
        return _summed(rows, input.new_empty(bags), rows.shape[0])
    added = mode != "max" and padding < 0 and weight._dtype is not dtypes.float64
    added = added and weight.stride(1) == 1
    _check_bags(input, weight.shape[0], not added)
    numbers = numbers_of(input, weight.shape[0])
    live = numbers != padding if padding >= 0 else None
    if live is not None and not live.all():
        at = fresh(np.flatnonzero(live).astype(np.int64), dtypes.int64)
        input, bag = input.index_select(0, at), bag[live]
        weights = None if weights is None else weights.index_select(0, at)
    rows = (lookup_sparse if sparse else lookup)(weight, input, -1, by_freq)
    if weights is not None:
        rows = rows * weights.unsqueeze(-1)
    behind = len(bag) - bare.count_nonzero(bag < bags)  # the last offset
    if behind and bags and not added:  # PyTorch's last bag ends with the input
        bag = np.minimum(bag, bags - 1)
    elif behind:
        inside = bag < bags
        keep = fresh(np.flatnonzero(inside).astype(np.int64), dtypes.int64)
        rows, bag = rows.index_select(0, keep), bag[inside]
    counts = bare.bincount(bag, minlength=bags)
    if mode == "max":
        return _highest(rows, counts)
    total = _summed(rows, fresh(counts.astype(np.int64, copy=False), dtypes.int64), len(bag))
    if mode == "mean":
        if behind and bags and added:  # which are not added, but counted
            counts = counts + behind * (np.arange(bags) == bags - 1)
        total = total / fresh(
            np.maximum(counts, 1).astype(weight._dtype.np), weight._dtype
        ).unsqueeze(-1)
    return total


@hidden(
    "_bag_sum",
    rule=Rule(
        "EmbeddingBagBackward0",
        rows=lambda g, counts, n: lookup(g, _bag_of_each(counts, n), -1, False),
    ),
)
def _summed(rows: Any, counts: Any, n: int) -> Any:
    """The sum of the rows of each bag: the first `counts[0]` of the `n` rows, and so on."""
    return embedding_dense_backward(rows, _bag_of_each(counts, n), counts.shape[0], -1, False)


def _bag_of_each(counts: Any, n: int) -> Any:
    """The bag of each row, which costs less to make again than to keep for backward."""
    if counts._hollow:
        return counts.new_empty(n)
    many: Array = counts._skimp_array()
    return fresh(np.repeat(np.arange(len(many)), many), dtypes.int64)


def _highest(rows: Any, counts: Array) -> Any:
    """The largest element of each column of each bag (zeros for empty bags): gathered, so
    gradients find their rows."""
    values = rows.detach()._skimp_array()
    width = rows.shape[-1]
    at = np.zeros((len(counts), width), np.int64)
    stops = np.cumsum(counts)
    for i in np.flatnonzero(counts):
        start = stops[i] - counts[i]
        at[i] = start + np.argmax(values[start : stops[i]], axis=0)
    # of no rows at all zeros, of which the weight's gradient is made as of any
    found = rows.gather(0, fresh(at, dtypes.int64)) if len(values) else rows.sum(0).expand(at.shape)
    empty_ = fresh((counts == 0)[:, None].copy(), dtypes.bool)
    return found.masked_fill(empty_, 0)
