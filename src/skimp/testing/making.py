"""make_tensor: tensors of random elements for tests, PyTorch's from the same seed."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.finfo import finfo, iinfo
from skimp._engine.tensor.tensor import Tensor


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of elements drawn evenly from [low, high).

    By default from -9 to 9, for whole numbers up to 9, without the negative ones where they are
    unsigned, and 0 or 1 for bool. `exclude_zero` puts the smallest normal number (1) for 0.
    `noncontiguous` leaves gaps between the elements.

    Shape: `shape`, numbers or one list of them.
    Dtypes: any.
    Raises: ValueError for bounds in the wrong order, `requires_grad` of integers, and
    `noncontiguous` beside a memory format; RuntimeError for bounds beyond the type.
    Memory: a new tensor.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}"
        )
    inexact = dtype.category >= dtypes.FLOAT
    if requires_grad and not inexact:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"dtype={dtype}"
        )
    start, end = _bounds(dtype, low, high)
    make = NAMESPACES[""]
    made: Tensor
    spread = noncontiguous and math.prod(shape) > 1
    whole = (*shape[:-1], 2 * shape[-1]) if spread else tuple(shape)
    if inexact:
        made = make["empty"](whole, dtype=dtype)
        parts = make["view_as_real"](made) if dtype.is_complex else made
        parts.uniform_(start, end)
    else:
        made = make["randint"](int(start), int(end), whole, dtype=dtype)
    if spread:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = finfo(dtype).tiny if inexact else 1
    if requires_grad:
        made.requires_grad_()
    return made


def _bounds(dtype: dtypes.dtype, low: float | None, high: float | None) -> tuple[Any, Any]:
    """The range to draw from, within what the dtype holds."""
    if dtype is dtypes.bool:
        lowest, highest, usual = 0.0, 2.0, (0, 2)
    elif dtype.category < dtypes.FLOAT:
        info = iinfo(dtype)
        lowest, highest = info.min, info.max + (info.max < (1 << 63) - 1)
        usual = (0 if dtype is dtypes.uint8 else -9, 10)
    else:
        real = finfo(dtype)
        lowest, highest, usual = real.min, real.max, (-9, 9)
    if any([isinstance(v, float) and math.isnan(v) for v in (low, high)]):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    start = usual[0] if low is None else low
    end = usual[1] if high is None else high
    if start >= end:
        raise ValueError(f"`low` must be less than `high`, but got {start} >= {end}")
    start, end = min(max(start, lowest), highest), min(max(end, lowest), highest)
    if dtype.category < dtypes.FLOAT:
        return math.floor(start), math.ceil(end)
    return start, end
