"""local_response_norm and normalize: over powers and norms of neighbours."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.tensor import dtypes
from skimp._ops.nn.padding import constant_pad
from skimp._ops.nn.pooling import refuse_averages


def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """input over a power of the mean square of its neighbours across channels.

    Shape: (n, channels, ...); the result has the input's.
    Dtypes: floating point (four dims and more: float32 and float64) and int64.
    Raises: ValueError for fewer than three dims, NotImplementedError for another dtype.
    Source: Krizhevsky, Sutskever and Hinton, 2012.
    """
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if input.numel() == 0:
        return input
    if size < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got kH: {size} kW: 1")

    refuse_averages(2 if input.ndim == 3 else 3, input)
    return across_channels(input, size, alpha, beta, k)


def across_channels(input: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    """The formula of `local_response_norm`, for any dtype."""
    trailing = [0, 0] * (input.ndim - 2)
    square = constant_pad(input * input, [*trailing, size // 2, (size - 1) // 2], 0)
    around = square.unfold(1, size, 1)
    around = around.mean(-1) if input._dtype.category >= dtypes.FLOAT else around.sum(-1) // size
    return input / (around * alpha + k) ** beta


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """input over its p-norm along `dim`, which is taken to be at least eps.

    Shape: any; the result's is the input's.
    Dtypes: floating point and complex.
    Raises: IndexError for a dim that is not there.
    """
    size = input.norm(p, dim, True).clamp_min(eps).expand(tuple(input.shape))
    return input / size if out is None else input.div(size, out=out)


export("local_response_norm", local_response_norm, ("nn.functional",), method=False)
export("normalize", normalize, ("nn.functional",), method=False)
