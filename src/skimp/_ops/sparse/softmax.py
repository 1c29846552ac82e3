"""softmax of sparse tensors, over the entries that are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export
from skimp._engine.memory.layout import normalize_dim
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import fresh
from skimp._ops.sparse.arithmetic import flattened, summed
from skimp._ops.sparse.tensor import SparseTensor


def _normalised(input: Any, dim: int, dtype: Any, log: bool) -> SparseTensor:
    """softmax along a sparse dim over the entries that are there: in steps of ordinary ops."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError("torch.sparse.softmax: expected a sparse tensor")
    whole = input.coalesce()
    held = whole._held if dtype is None else whole._held.to(dtype)
    k = whole.sparse_dim()
    dim = normalize_dim(dim, whole.ndim)
    if dim >= k:
        inner = dim - k + 1
        return whole.like(held.log_softmax(inner) if log else held.softmax(inner))
    rest = [d for d in range(k) if d != dim]
    shape = tuple([int(whole.shape[d]) for d in rest])
    at = whole._at._skimp_array()[rest]
    pools, back = np.unique(flattened(at, shape), return_inverse=True)
    n = len(pools)
    pool = fresh(back.reshape(-1).astype(np.int64), dtypes.int64)
    top = held.detach().new_full((n, *held.shape[1:]), -np.inf)
    top = top.index_reduce(0, pool, held.detach(), "amax")
    lowered = held - top.index_select(0, pool)
    raised = lowered.exp()
    total = summed(raised, pool, n).index_select(0, pool)
    return whole.like(lowered - total.log() if log else raised / total)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> SparseTensor:
    """softmax over the entries that are there.

    Dtypes: floating point.
    Raises: RuntimeError or NotImplementedError for other dtypes, IndexError for a dim that is not
    there.
    """
    return _normalised(input, dim, dtype, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> SparseTensor:
    """log_softmax over the entries that are there.

    Dtypes: floating point.
    Raises: RuntimeError or NotImplementedError for other dtypes, IndexError for a dim that is not
    there.
    """
    return _normalised(input, dim, dtype, True)


for _f in (softmax, log_softmax):
    export(_f.__name__, _f, ("sparse",), method=False)


SAYS = """\
Shape: the input's.
Memory: a new tensor."""
