"""Softmax of blocks of rows, its logarithm and their gradients.

A block has shape (a, n) or (a, n, c): a row runs along axis 1. Rows of float32 that lie so are done
by compiled loops where these are, in whatever way they come: a row's bits are up to it alone then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, compiled, sharing, softmax_onednn
from skimp._kernels.bare import einsum
from skimp._kernels.scratch import (
    RUN,
    Scratch,
    beside_rows,
    dense_row_sums,
    dense_row_tops,
    less_column,
    over_column,
    row_sum,
    row_sums,
    row_tops,
)

Array = np.ndarray[Any, Any]
Block = Callable[..., None]

# sums of exponentials between which nothing was subtracted in vain: no exponential is infinite, and
# what vanishes would be less than 1e-29 of its row
_LEAST: Final = 2.0**-29
_MOST: Final = 2.0**100
# seconds that a loop takes for each element
_COSTS: Final = {
    "softmaxes": 0.3e-9, "softmaxes_back": 0.2e-9, "log_softmaxes": 0.4e-9,
    "log_softmaxes_back": 0.3e-9,
}  # fmt: skip


def in_wide(fn: Block) -> Block:
    """A block function of arrays of one type, where half precision is converted first and rounded
    once."""

    def run(*arrays: Array) -> None:
        last = arrays[-1]
        if last.dtype.itemsize > 2:
            fn(*arrays)
            return
        with Scratch(last.shape, np.float32) as result:
            fn(*[a.astype(np.float32) for a in arrays[:-1]], result)
            last[...] = result

    return run


def by_loop(name: str, *arrays: Array) -> bool:
    """Whether the loop of that name has done it, for rows (a, n), which a team shares: the result's
    are the last."""
    out = arrays[-1]
    if out.ndim != 2 or out.dtype.char != "f" or (loops := compiled.loops()) is None:
        return False
    made = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays[:-1]]
    rest = out.shape[1], made.reshape(-1)
    sharing.call(getattr(loops, name), made.size, _COSTS[name], *flat, *rest)
    if made is not out:
        out[...] = made
    return True


def exp_rows(x: Array, y: Array) -> tuple[Array, Array | None]:
    """y = exp(x - shift); the sums of its rows, and the shift: the largest of a row where one must
    be taken off, 0 of others, None where none must.
    """
    bare.exp(x, out=y)
    sums = row_sums(y)
    return (sums, None) if _are_moderate(sums) else _exp_below(x, y, sums)


def dense_exp_rows(x: Array) -> tuple[Array, Array, Array | None]:
    """`exp_rows` of float32 or float64 rows without gaps: a new array, and numbers in runs."""
    y: Array = bare.exp(x)
    sums = einsum("ij->i", y) if x.shape[1] <= RUN else dense_row_sums(y).ravel()
    if _are_moderate(sums):
        return y, sums, None
    column, shift = _exp_below(x, y, sums[:, None])
    return y, column.ravel(), shift.ravel()


def _are_moderate(sums: Array) -> bool:  # places are found sooner than sums are reduced
    return bool(sums.item(sums.argmin()) > _LEAST and sums.item(sums.argmax()) < _MOST)


def _exp_below(x: Array, y: Array, sums: Array) -> tuple[Array, Array]:
    """`exp_rows` where some sums are not moderate: a row's bits don't depend on other rows."""
    moderate = np.greater(sums, _LEAST) & np.less(sums, _MOST)
    shift = bare.where(moderate, x.dtype.type(0), row_tops(x))
    bare.exp(np.subtract(x, shift, out=y), out=y)
    return row_sums(y), shift


@in_wide
def softmax(x: Array, y: Array) -> None:
    """y = the softmax of rows."""
    x = x.copy() if bare.may_share_memory(x, y) else x
    if by_loop("softmaxes", x, y):
        return
    sums, _ = exp_rows(x, y)
    np.divide(y, sums, out=y)


@in_wide
def log_softmax(x: Array, y: Array) -> None:
    """y = its logarithm."""
    if by_loop("log_softmaxes", x, y):
        return
    np.subtract(x, row_tops(x), out=y)
    with Scratch(y.shape, y.dtype) as e:
        bare.exp(y, out=e)
        np.subtract(y, np.log(row_sums(e)), out=y)


def _by_onednn(dtype: np.dtype[Any], size: int, n: int) -> bool:
    """Whether oneDNN makes the gradient of so many, in rows of n: where there is no loop; and one
    row is NumPy's, however many dims it has."""
    return compiled.loops() is None and size > n and softmax_onednn.takes(dtype, size)


def softmax_back(g: Array, y: Array, d: Array, size: int) -> None:
    """d = the gradient of softmax, whose result is y, of a tensor of `size` elements."""
    if d.ndim == 2 and _by_onednn(d.dtype, size, d.shape[1]):
        softmax_onednn.backward(g, y, d)
    else:
        softmax_back_steps(g, y, d)


def softmax_back_rows(g: Array, y: Array, d: Array) -> None:
    """Of a whole tensor, which may be small: within a budget those lend no arrays."""
    softmax_back(g, y, d, d.size)


@in_wide
def softmax_back_steps(g: Array, y: Array, d: Array) -> None:
    """`softmax_back` of few elements."""
    if by_loop("softmaxes_back", g, y, d):
        return
    with Scratch(d.shape, d.dtype) as p:
        np.multiply(g, y, out=p)
        np.subtract(g, row_sums(p), out=d)
    np.multiply(d, y, out=d)


@in_wide
def log_softmax_back(g: Array, y: Array, d: Array) -> None:
    """d = the gradient of `log_softmax`, whose result is y."""
    if by_loop("log_softmaxes_back", g, y, d):
        return
    total = row_sums(g)
    bare.exp(y, out=d)
    np.multiply(d, total, out=d)
    np.subtract(g, d, out=d)


# -- small tensors: rows of float32 or float64, (n,) or (a, n), without gaps -----------------------


def small_softmax(x: Array, shape: tuple[int, ...]) -> Array:
    """`softmax`, as a new array of this shape."""
    if x.dtype.char == "f" and (loops := compiled.loops()) is not None:
        made = np.empty(shape, x.dtype)
        given = x.reshape(-1), x.shape[-1], made.reshape(-1)
        if x.size < sharing.FROM:
            loops.softmaxes(*given, 1)
        else:
            sharing.call(loops.softmaxes, x.size, _COSTS["softmaxes"], *given)
        return made
    if x.ndim > 1:
        y, sums, _ = dense_exp_rows(x)
        over_column(y, sums[:, None], y)
        return y.reshape(shape)
    y = bare.exp(x)
    if x.size <= RUN:
        total = np.empty((), y.dtype)
        einsum("i->", y, out=total)
    else:
        total = np.asarray(row_sum(y))
    if not _LEAST < float(total) < _MOST:
        rows = y.reshape(1, -1)
        total = _exp_below(x.reshape(1, -1), rows, total.reshape(1, 1))[0].reshape(())
    return (np.divide(y, total, y) if y.size > 1 else y / total).reshape(shape)


def small_log_softmax(x: Array, shape: tuple[int, ...]) -> Array:
    """`log_softmax`."""
    if x.dtype.char == "f" and (loops := compiled.loops()) is not None:
        made = np.empty(shape, x.dtype)
        given = x.reshape(-1), x.shape[-1], made.reshape(-1)
        if x.size < sharing.FROM:
            loops.log_softmaxes(*given, 1)
        else:
            sharing.call(loops.log_softmaxes, x.size, _COSTS["log_softmaxes"], *given)
        return made
    if x.ndim > 1:
        y = less_column(x, dense_row_tops(x))
        e = bare.exp(y)
        return less_column(y, np.log(dense_row_sums(e)), e).reshape(shape)
    y = np.subtract(x, x[x.argmax(), ...])
    total = np.asarray(row_sum(bare.exp(y)))
    np.subtract(y, np.log(total, total), y)
    return y.reshape(shape)


def small_softmax_back(g: Array, y: Array, shape: tuple[int, ...]) -> Array:
    """`softmax_back`."""
    if _by_onednn(g.dtype, g.size, g.shape[-1]):
        d = np.empty(g.shape, g.dtype)
        softmax_onednn.backward(g, y, d)
        return d.reshape(shape)
    if g.dtype.char == "f" and (loops := compiled.loops()) is not None:
        made = np.empty(shape, g.dtype)
        given = g.reshape(-1), y.reshape(-1), g.shape[-1], made.reshape(-1)
        if g.size < sharing.FROM:
            loops.softmaxes_back(*given, 1)
        else:
            sharing.call(loops.softmaxes_back, g.size, _COSTS["softmaxes_back"], *given)
        return made
    d = np.multiply(g, y)
    if g.ndim == 1:
        total = einsum("i->", d) if d.size <= RUN else row_sum(d)
        np.multiply(np.subtract(g, np.asarray(total), d), y, d)
    else:
        np.multiply(less_column(g, dense_row_sums(d), d), y, out=d)
    return d.reshape(shape)


def small_log_softmax_back(g: Array, y: Array, shape: tuple[int, ...]) -> Array:
    """`log_softmax_back`."""
    if g.dtype.char == "f" and (loops := compiled.loops()) is not None:
        made = np.empty(shape, g.dtype)
        given = g.reshape(-1), y.reshape(-1), g.shape[-1], made.reshape(-1)
        if g.size < sharing.FROM:
            loops.log_softmaxes_back(*given, 1)
        else:
            sharing.call(loops.log_softmaxes_back, g.size, _COSTS["log_softmaxes_back"], *given)
        return made
    d = bare.exp(y)
    total = np.asarray(row_sum(g)) if g.ndim == 1 else beside_rows(dense_row_sums(g))
    np.multiply(d, total, out=d)
    np.subtract(g, d, out=d)
    return d.reshape(shape)
