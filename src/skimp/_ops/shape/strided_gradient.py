"""The gradient of as_strided: every element of the view gives to the place that it shows, several
to one perhaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, fresh


def gather_strided_gradient(g: Tensor, input_layout: Layout, found_layout: Layout) -> Tensor:
    """The gradient of a tensor of `input_layout` from that of a view of `found_layout` on its
    storage.

    Places of the storage that the input shows several times share what they get, as in PyTorch
    (as_strided_backward): each is counted as one variable.
    """
    spans = [s for s in map(layouts.storage_span, (input_layout, found_layout)) if s is not None]
    if not spans or g.numel() == 0:
        return g.new_zeros(input_layout.shape)
    base = min(low for low, _ in spans)
    n = max(high for _, high in spans) - base
    memory: Any = g.new_zeros((n,)).index_add(0, _places(found_layout, base), g.reshape(-1))
    own = Layout(input_layout.shape, input_layout.strides, input_layout.offset - base)
    if not layouts.is_non_overlapping_and_dense(input_layout):
        at = _places(input_layout, base)
        shown = memory.new_zeros((n,)).index_add(0, at, memory.new_ones((at.numel(),)))
        memory = memory / shown.clamp(min=1)
    return memory.index_select(0, _places(own, 0)).view(input_layout.shape)  # type: ignore[no-any-return]


def _places(layout: Layout, base: int) -> Tensor:
    """Where the elements lie, counted from `base`, in row-major order."""
    at = np.full(layout.shape, layout.offset - base, np.int64)
    last = len(layout.shape) - 1
    for dim, (size, step) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        at += (np.arange(size) * step).reshape(-1, *[1] * (last - dim))
    return fresh(at.reshape(-1), dtypes.int64)
