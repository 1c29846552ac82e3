"""What batch_norm refuses of its arguments."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

from skimp._engine.autograd import errors, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.tensor import dtypes
from skimp._ops.nn.normalization import refuse_mixed
from skimp._ops.reduce.softmax import floating

Ints = tuple[int, ...]
_NAMES: Final = ("running_mean", "running_var", "weight", "bias")
STATISTICS: Final = 2  # of them, the first

Like = tuple[Ints, dtypes.dtype] | None  # shape and type of a tensor, if there is one


def check_batch(
    input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool
) -> None:
    """Refuse statistics, weights and biases of other lengths and types."""
    likes: list[Like] = []
    for t in (input, running_mean, running_var, weight, bias):
        if t is None:
            likes.append(None)
        else:
            own = t._np
            likes.append((shape_of(t) if own is None else own.shape, t._dtype))
    if not _of_one_type(training, *likes):
        floating("batch_norm", input)
        refuse_mixed(input, running_mean, running_var, weight, bias)


@lru_cache(512)
def _of_one_type(training: bool, input: Like, *given: Like) -> bool:
    """Whether all are of one floating type; refuses other lengths."""
    assert input is not None
    shape, dtype = input
    channels = shape[1] if len(shape) > 1 else 0
    for number, like in enumerate(given):
        if like is not None:
            count = math.prod(like[0])
            if count != channels:
                name = _NAMES[number]
                raise RuntimeError(f"{name} should contain {channels} elements not {count}")
        elif not training and number < STATISTICS:
            raise RuntimeError(f"{_NAMES[number]} must be defined in evaluation mode")
    if training and (given[0] is None) is not (given[1] is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    if len(shape) < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
    return dtype in dtypes.FLOATING and all([like is None or like[1] is dtype for like in given])


def refuse_followed(running_mean: Any, running_var: Any) -> None:
    """Refuse running statistics that a gradient is asked for."""
    for name, t in (("running_mean", running_mean), ("running_var", running_var)):
        if t is not None and t.requires_grad and modes.state.grad:
            raise errors.not_differentiable("native_batch_norm", name)


def refuse_one(input: Any) -> None:
    """Refuse one value per channel."""
    shape = shape_of(input)
    if math.prod(shape[2:]) * shape[0] == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
