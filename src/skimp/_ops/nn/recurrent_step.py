"""One step of an LSTM after its products, as cells and packed sequences take it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import named as called
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.recurrent_lstm import SCALE
from skimp._ops.shape.joining import cat


@cache
def _line(n: int, dtype: Any) -> tuple[Array, Array]:
    """scale and shift with which tanh(x * scale) * scale + shift is the gates' activation."""
    scale = np.repeat(np.array(SCALE, dtype), n)
    return scale, 1 - scale


def _step_back(g0: Any, g1: Any, g2: Any, c: Any, result1: Any, result2: Any) -> Any:
    """Of the activations, not of what they were made of: their gradient (g2), in second
    derivatives, is one more term.
    """
    if modes.state.grad or any([g is not None and g._hollow for g in (g0, g1, g2)]):
        return _step_back_in_ops(g0, g1, g2, c, result1, result2)
    return quietly(_stepped_back, g0, g1, g2, c, result1, result2)


def _stepped_back(g0: Any, g1: Any, g2: Any, c: Any, result1: Any, result2: Any) -> Any:
    acts = result2._skimp_array()
    n = acts.shape[-1] // 4
    i, f, new, o = [acts[..., k * n : (k + 1) * n] for k in range(4)]
    made, d = blank(acts.shape, c._dtype)
    before, to_c = blank(tuple(c.shape), c._dtype)
    to_i, to_f, to_new, to_o = [d[..., k * n : (k + 1) * n] for k in range(4)]
    np.tanh(result1._skimp_array(), out=to_c)
    g = 0 if g0 is None else g0._skimp_array()
    np.multiply(to_c, g, out=to_o)
    np.multiply(to_c, to_c, out=to_c)
    np.subtract(1, to_c, out=to_c)
    to_c *= o
    to_c *= g
    if g1 is not None:
        to_c += g1._skimp_array()
    np.multiply(to_c, new, out=to_i)
    np.multiply(to_c, c._skimp_array(), out=to_f)
    np.multiply(to_c, i, out=to_new)
    if g2 is not None:
        d += g2._skimp_array()
    slope = np.subtract(1, acts)
    slope *= acts
    by_new = slope[..., 2 * n : 3 * n]
    np.multiply(new, new, out=by_new)
    np.subtract(1, by_new, out=by_new)
    d *= slope
    to_c *= f
    return made, before


def _step_back_in_ops(g0: Any, g1: Any, g2: Any, c: Any, result1: Any, result2: Any) -> Any:
    i, f, new, o = result2.chunk(4, -1)
    top = result1.tanh()
    g = top.new_zeros(()) if g0 is None else g0
    to_c = g * o * (1 - top * top)
    to_c = to_c if g1 is None else to_c + g1
    parts = (to_c * new, to_c * c, to_c * i, (g * top).expand(o.shape))
    if g2 is not None:
        parts = tuple([p + g for p, g in zip(parts, g2.chunk(4, -1), strict=True)])
    slopes = (i * (1 - i), f * (1 - f), 1 - new * new, o * (1 - o))
    return cat([p * s for p, s in zip(parts, slopes, strict=True)], -1), to_c * f


def _shown(cell: Array, acts: Array, into: Array) -> None:
    """into = o * tanh(cell)"""
    np.tanh(cell, out=into)
    np.multiply(into, acts[..., 3 * cell.shape[-1] :], out=into)


def _carried(c: Array, acts: Array, into: Array, part: Array) -> None:
    """into = f * c + i * g"""
    n = c.shape[-1]
    np.multiply(acts[..., :n], acts[..., 2 * n : 3 * n], out=part)
    np.multiply(acts[..., n : 2 * n], c, out=into)
    np.add(into, part, out=into)


def _shown_again(result1: Any, result2: Any) -> Any:
    made, h = blank(tuple(result1.shape), result1._dtype)
    quietly(_shown, result1._skimp_array(), result2._skimp_array(), h)
    return made


def _carried_again(c: Any, result2: Any) -> Any:
    made, new = blank(tuple(c.shape), c._dtype)
    quietly(_carried, c._skimp_array(), result2._skimp_array(), new, np.empty_like(new))
    return made


@hidden(
    batch=batching.dims.leading(0),
    rule=Rule("ThnnFusedLstmCellBackward0", {("gates", "c"): _step_back}),
    meta=shapes.lstm_step,
    apart={1: _carried_again, 0: _shown_again},
)
def _lstm_step(gates: Any, c: Any) -> Any:
    """(the new h, the new c, the gates' activations): a step of an LSTM after its products.

    Shape: gates (..., 4 n), c (..., n).
    """
    return quietly(_stepped, gates, c)


@called("lstm_cell")
def lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """(the new h, the new c): a step of an LSTM after its products."""
    h, new, _ = _lstm_step(gates, c)
    return h, new


def _stepped(gates: Any, c: Any) -> Any:
    shape = tuple(c.shape)
    n = shape[-1]
    dtype = c._dtype
    kept, acts = blank((*shape[:-1], 4 * n), dtype)
    cell, new = blank(shape, dtype)
    result, h = blank(shape, dtype)
    scale, shift = _line(n, dtype.np)
    np.multiply(gates._skimp_array(), scale, out=acts)
    np.tanh(acts, out=acts)
    np.multiply(acts, scale, out=acts)
    np.add(acts, shift, out=acts)
    _carried(c._skimp_array(), acts, new, h)
    _shown(new, acts, h)
    return result, cell, kept
