"""Running statistics of a batch norm: what they take of a batch's, and how they are written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare
from skimp._kernels.threads import quietly
from skimp._ops.index.writers import in_place


@lru_cache(256)
def _of_sample(n: int) -> Array:
    """What makes the biased variance beside the mean that of a sample of n."""
    return np.array([[1.0], [n / max(1, n - 1)]])


@lru_cache(256)
def kept(momentum: float, dtype: Any) -> tuple[Array, Array]:
    """What running statistics take of new ones, and of themselves."""
    return np.array(momentum, dtype), np.array(1 - momentum, dtype)


def steps(moments: Array, momentum: float, n: int, dtype: Any) -> Array:
    """What is added to running statistics, of which 1 - momentum is kept, rounded as PyTorch's."""
    new: Array = (moments * _of_sample(n)).astype(dtype)
    new *= kept(momentum, new.dtype)[0]
    return new


def to_move(running: Any, dtype: Any) -> Array | None:
    """Running statistics of this type that can be written right away; None for any other. Nobody
    asks for the line of a write that leaves the version."""
    own: Array | None = running._np
    if own is None or own.dtype != dtype or not own.flags.c_contiguous:
        return None
    if running._rg or running._skimp_inference:
        return None
    running._storage.will_write()
    return own.reshape(-1)


def move(running: Any, step: Array, momentum: float) -> None:
    """running = (1 - momentum) * running + step, in place.

    The version stays: backward saves the tensor and does not read it after training, and a net may
    be called several times before backward.
    """
    counter = running._storage if running._skimp_counter is None else running._skimp_counter
    version = counter.version

    def write() -> None:
        target = running._skimp_writable()
        own = target.astype(bare.result_type(target.dtype, step.dtype), copy=False)
        target[...] = own * (1 - momentum) + step.reshape(target.shape)

    with modes.no_grad():
        in_place(running, None, {}, lambda: quietly(write))
    counter.version = version
