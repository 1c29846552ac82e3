"""Functions of rows on whole tensors by one call: small ones along a dim that is not the last, and
those that are a little larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.operands import middle_array
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.threads import quietly
from skimp._ops.reduce.small import few_columns

Block = Callable[..., None]


def small_columns(block: Block, dim: Any, *tensors: Any) -> Tensor | None:
    """A block function on small tensors of one shape along a dim that is not the last."""
    dtype = tensors[0]._dtype
    arrays = [few_columns(t, dim) if type(t) is Tensor else None for t in tensors]
    x = arrays[0]
    if x is None or any([a is None or a.shape != x.shape or a.dtype != x.dtype for a in arrays]):
        return None
    out = np.empty(x.shape, x.dtype)
    block(*arrays, out)
    return fresh(out.reshape(shape_of(tensors[0])), dtype)


def middle_rows(block: Block, dim: Any, *tensors: Any) -> Tensor | None:
    """A new tensor that block(*rows, out) fills, of tensors of one shape as rows along their last
    dim; None of other tensors or dims.
    """
    first = middle_array(tensors[0])
    if first is None or not first.size or dim not in (-1, first.ndim - 1):
        return None
    shape, dtype = first.shape, tensors[0]._dtype
    n, rows = shape[-1], [first.reshape(-1, shape[-1])]
    for t in tensors[1:]:
        a = middle_array(t)
        if a is None or a.shape != shape or t._dtype is not dtype:
            return None
        rows.append(a.reshape(-1, n))
    made, out = blank(shape, dtype)
    quietly(block, *rows, out.reshape(-1, n))
    return made
