"""A sparse matrix made of its diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare
from skimp._ops.sparse.tensor import SparseTensor, made

_LAYOUTS = (None, formats.sparse_coo, formats.sparse_csc, formats.sparse_csr)


def _check(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any) -> None:
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if len(diagonals) != offsets.numel():
        raise RuntimeError(
            f"Number of diagonals ({len(diagonals)}) does not match the number of offsets "
            f"({offsets.numel()})"
        )
    if offsets._dtype is not dtypes.int64:
        raise RuntimeError(
            f"Offset Tensor must have dtype Long but got {scalar_type_name(offsets._dtype)}"
        )
    if len(set(offsets.reshape(-1).tolist())) < offsets.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in _LAYOUTS:
        raise RuntimeError(
            "Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got "
            f"{str(layout).removeprefix('torch.').capitalize()}"
        )


@sampled(lambda tensor: [(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([0, 1]).long(), (2, 2))])
def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> SparseTensor:
    """A sparse matrix with the rows of `diagonals` on the diagonals that `offsets` names.

    Shape: diagonals (k, n) and offsets (k,), or (n,) and one offset.
    Dtypes: bool, integers, floating point and complex numbers; offsets are int64.
    Raises: RuntimeError for other numbers of offsets or one that is there twice, offsets of another
    dtype, a shape that is no matrix's, and layouts other than COO, CSR and CSC.
    Memory: a new tensor.
    """
    given = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    _check(given, offsets, shape, layout)
    rows, columns = (int(n) for n in shape)
    width = int(given.shape[1])
    at, chosen = [], []
    for i, offset in enumerate(offsets.reshape(-1).tolist()):
        column = np.arange(max(0, offset), min(columns, rows + offset, width))
        at.append(np.stack([column - offset, column]))
        chosen.append(i * width + column)
    where = bare.concatenate(at, 1).astype(np.int64)
    picked = fresh(bare.concatenate(chosen).astype(np.int64), dtypes.int64)
    values = given.reshape(-1).index_select(0, picked)
    coo = made(fresh(where, dtypes.int64), values, (rows, columns), False)
    return coo if layout in (None, formats.sparse_coo) else coo.to_sparse(layout=layout)


export("spdiags", spdiags, ("sparse",), method=False)
