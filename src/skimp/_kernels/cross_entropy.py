"""Losses of rows at their classes, and the gradients, by compiled loops where they are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, sharing
from skimp._kernels.order import farthest
from skimp._kernels.scratch import starts
from skimp._kernels.softmax import dense_exp_rows

Array = np.ndarray[Any, Any]

_COST: Final = 0.6e-9  # seconds that a loop takes for each element


def losses(x: Array, classes: Array, loss: Array, lse: Array) -> bool:
    """loss = minus the logarithm of each row's softmax at its class, lse = the logarithm of its sum
    of exponentials. Whether it is done: of rows (a, n) of float32, of which each class is one."""
    if x.ndim != 2 or loss.dtype.char != "f" or (loops := compiled.loops()) is None:
        return False
    at = np.ascontiguousarray(classes, np.int64).reshape(-1)
    given = _flat(x), at, x.shape[1], loss.reshape(-1), lse.reshape(-1)
    done: bool
    if x.size < sharing.FROM:
        done = loops.class_losses(*given, 1)
    else:
        done = sharing.call(loops.class_losses, x.size, _COST, *given)
    return done


def small_losses(x: Array, classes: Array) -> tuple[Array, Array] | None:
    """`losses` and logsumexps of rows without gaps; None where a class is none."""
    loss, lse = np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
    if losses(x, classes, loss, lse):
        return loss, lse
    if farthest(classes) >= x.shape[1]:  # negative ones, ignore_index among them, are large here
        return None
    _, sums, shift = dense_exp_rows(x)  # as of blocks: the same bits
    log = np.log(sums, lse)
    own = x.ravel().take(classes + starts(*x.shape))
    np.subtract(log, own if shift is None else own - shift, out=loss)
    if shift is not None:
        log += shift
    return loss, log


def gradients(x: Array, classes: Array, lse: Array, whole: Array, own: Array, out: Array) -> bool:
    """out = exp(x - lse) * whole, less `own` at the classes. Whether it is done, as above."""
    if x.ndim != 2 or out.dtype.char != "f" or (loops := compiled.loops()) is None:
        return False
    at = np.ascontiguousarray(classes, np.int64).reshape(-1)
    rows = lse.reshape(-1), whole.reshape(-1), own.reshape(-1)
    given = _flat(x), at, *rows, x.shape[1], out.reshape(-1)
    done: bool
    if x.size < sharing.FROM:
        done = loops.class_gradients(*given, 1)
    else:
        done = sharing.call(loops.class_gradients, x.size, _COST, *given)
    return done


def _flat(x: Array) -> Array:
    return np.ascontiguousarray(x, np.float32).reshape(-1)
