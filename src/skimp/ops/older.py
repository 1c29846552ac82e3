"""Names that PyTorch keeps beside others: older forms, and functions that call Python for each
element.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._tensor import Tensor
from skimp.autograd import alias as history
from skimp.ops.creation import arange, full
from skimp.ops.forms import export
from skimp.promotion import get_default_dtype

_BEGIN = {"sum": 0.0, "mean": 0.0, "max": -float("inf"), "min": float("inf"), "prod": 1.0}
_SCATTERED = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one number over the main diagonal; `wrap` goes on below it in tall matrices."""
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    strides, offset = self.stride(), self.storage_offset()
    n = min(self.shape)
    if self.ndim == 2 and wrap and self.shape[0] > self.shape[1] + 1 and n:
        period = self.shape[1] + 1
        for start in range(0, self.shape[0], period):
            rows = self[start : start + period - 1]
            rows.diagonal().fill_(fill_value)
        return self
    self.as_strided((n,), (sum(strides),), offset).fill_(fill_value)
    return self


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it: slow, and not differentiable."""
    return _by_element("apply_", self, (), callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its partner in `tensor`."""
    return _by_element("map_", self, (tensor,), callable)


def _by_element(
    name: str, target: Tensor, others: tuple[Tensor, ...], function: Callable[..., Any]
) -> Tensor:
    if any([t.requires_grad for t in (target, *others)]):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. "
            f"Use var.detach().{name}() instead."
        )
    columns = [t.expand(target.shape).reshape(-1).tolist() for t in (target, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    history.before_inplace(target)
    array = target.writable()
    array[...] = np.array(values, array.dtype).reshape(array.shape)
    target.written(array)
    return target


def range_(start: Any, end: Any = None, step: Any = 1, **words: Any) -> Tensor:
    """Numbers from start to end, both included: PyTorch's first form of arange."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    n = int((end - start) / step) + 1
    numbers = arange(n, dtype=words.pop("dtype", None) or get_default_dtype(), **words)
    result: Tensor = numbers * step + start
    return result


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """One result for each run of rows: `lengths` says how long the runs are, or `offsets` where
    they begin and end.
    """
    if reduce not in _BEGIN:
        raise RuntimeError(f"unsupported reduction given! {reduce}")
    if indices is not None or (lengths is None) is (offsets is None):
        raise RuntimeError("segment_reduce(): give lengths or offsets; indices are not supported")
    if axis != 0:
        raise RuntimeError(f"Currently only dim=0 supported! {axis}")
    if lengths is None:
        assert offsets is not None
        lengths = offsets[1:] - offsets[:-1]
    count = lengths.numel()
    if lengths.ndim != 1:
        raise RuntimeError("segment_reduce(): lengths must have one dimension")
    if not unsafe and (int(lengths.sum().item()) != data.shape[0] or bool((lengths < 0).any())):
        raise RuntimeError("lengths must be non-negative and sum to the size of data's dimension 0")
    shape = (count, *data.shape[1:])
    rows = arange(count).repeat_interleave(lengths)
    rows = rows.view(-1, *[1] * (data.ndim - 1)).expand(data.shape)
    begin = _BEGIN[reduce] if initial is None else initial
    found: Tensor = full(shape, begin, dtype=data.dtype).scatter_reduce(
        0, rows, data, _SCATTERED[reduce]
    )
    if reduce != "mean":
        return found
    size: Tensor = lengths.view(-1, *[1] * (data.ndim - 1)).to(data.dtype)
    mean: Tensor = found / size  # nan where there is nothing
    return mean if initial is None else found.where(size == 0, mean)


for _f in (fill_diagonal_, apply_, map_):
    export(_f.__name__, _f, namespaces=())
export("range", range_, method=False)
export("segment_reduce", segment_reduce, method=False)
