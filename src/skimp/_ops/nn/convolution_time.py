"""conv_tbc: convolution of sequences whose channels come last."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._ops.nn.convolution import convolve


@sampled(lambda tensor: [(tensor([[[1, 2]], [[3, 4]]]), tensor([[[1], [2]]]), tensor([5]))])
def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """Convolution of (time, batch, channels) by (kernel, ci, co).

    Shape: (time, n, ci), weight (kernel, ci, co), bias (co,); the result (time', n, co).
    Dtypes: floating point, alike.
    Raises: RuntimeError for shapes that don't fit.
    """
    moved = convolve(1, input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return moved.permute(2, 0, 1)


export("conv_tbc", conv_tbc, ("", "nn.functional"), method=False, autocast="lower")
