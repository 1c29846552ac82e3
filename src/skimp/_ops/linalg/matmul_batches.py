"""Products of the matrices of two small batches, pair by pair, from their arrays: those of `@`, of
`bmm` and of their gradients.
"""

from __future__ import annotations

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import products
from skimp._kernels.blas import multiply
from skimp._kernels.products import FIRST, NEITHER, SECOND, has_unit_stride
from skimp._ops.linalg.matmul_vector import tell
from skimp.config import config


def small_batches(input: Tensor, other: Tensor, name: str = "matmul") -> Tensor | None:
    """Batches of matrices with the very same batch dims."""
    x, y, dtype = input._np, other._np, input._dtype
    if x is None or y is None:
        return None
    if x.ndim > 2:
        made = products.times(x, y, NEITHER, config.small_below)
        if made is not None:
            return fresh(made, dtype)
    if (
        dtype is not other._dtype
        or dtype not in dtypes.FLOATING_AND_COMPLEX
        or not _are_small(x, y)
    ):
        return None
    if not has_unit_stride(x):
        tell(name, input, x)
        x = x.copy()
    if not has_unit_stride(y):
        tell(name, other, y)
        y = y.copy()
    return fresh(multiply(x, y), dtype)  # row-major, in whichever order the batches lie


def small_back(name: str, g: Tensor, other: Tensor, first: bool) -> Tensor | None:
    """The gradient of the first or second factor, of small batches: no tensor is made of their
    transposes, nor of complex numbers' conjugates.
    """
    x, y, dtype = g._np, other._np, g._dtype
    if x is None or y is None or modes.state.grad:
        return None
    if y.ndim > 2 and any(x.strides) and not dtype.is_complex:
        one, two, flipped = (x, y, SECOND) if first else (y, x, FIRST)
        made = products.times(one, two, flipped, config.small_below)
        if made is not None:
            return fresh(made, dtype)
    if (
        dtype is not other._dtype
        or dtype not in dtypes.FLOATING_AND_COMPLEX
        or not x.ndim == y.ndim > 2
    ):
        return None
    y = y.swapaxes(-1, -2)
    if not (_are_small(x, y) if first else _are_small(y, x)):
        return None
    unit = has_unit_stride(y)
    if not unit:
        tell(name, other, y)
    if dtype.is_complex:
        y = np.conjugate(y, order="K" if unit else "C")
    elif not unit:
        y = y.copy()
    if not has_unit_stride(x):  # one element, expanded: the gradient of a sum
        tell(name, g, x)
        x = x.copy()
    return fresh(multiply(x, y) if first else multiply(y, x), dtype)


def _are_small(x: Array, y: Array) -> bool:
    """Whether these are matrices of the very same batch dims, whose product is small."""
    return bool(
        x.ndim == y.ndim > 2
        and x.shape[:-2] == y.shape[:-2]
        and x.shape[-1] == y.shape[-2]
        and x.size
        and y.size
        and x.size // x.shape[-1] * y.shape[-1] < config.small_below
    )
