"""LSTM and GRU over a whole sequence as one op: a loop over steps on arrays, nothing recorded.

Forward keeps the gates, the cells and the results of all steps. Backward turns them into factors of
the gradients, all steps at once, and goes back step by step with a few products. Sigmoids are
(1 + tanh(x / 2)) / 2: the halves ride along in scaled weights, so that one tanh does all gates.

Shapes: input (time, batch, features), gates (time, batch, k * hidden), states (batch, hidden).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from skimp._engine.autograd import calls, modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import named as called
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels.blas import multiplier, multiply
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.reduce.softmax import contiguous_array
from skimp._ops.shape.joining import cat, stack

LSTM_SCALE = (0.5, 0.5, 1.0, 0.5)  # input, forget, cell, output
GRU_SCALE = (0.5, 0.5, 1.0)  # reset, update, new


def is_plain(tensors: Any) -> bool:
    """Whether the loops take these: of one type that BLAS has, and not empty."""
    given = [t for t in tensors if t is not None]
    dtype = given[0]._dtype
    return dtype in dtypes.FLOATING and all(
        [t._dtype is dtype and t.numel() > 0 and not (t._conj or t._skimp_neg) for t in given]
    )


# -- what both have in common ---------------------------------------------------------------------


def _rows(x: Array) -> Array:
    """(time, batch, n) as (time * batch, n)."""
    return x.reshape(-1, x.shape[-1])


def _scales(scale: tuple[float, ...], gates: int, dtype: Any) -> Array:
    """The factor of each column of the gates."""
    return np.repeat(np.array(scale, dtype), gates // len(scale))


def _projected(input: Any, w: Any, bias: Array | None, scale: Array, into: Array) -> None:
    """into = (input @ w' + bias) * scale, for all steps."""
    x = contiguous_array(input)
    multiply(_rows(x), (w._skimp_array() * scale[:, None]).T, out=_rows(into))
    if bias is not None:
        into += bias * scale


def _of_w_ih(grads: Array, input: Any) -> Any:
    """The gradient of w_ih from those of the gates."""
    made, into = blank((grads.shape[-1], input.shape[-1]), input._dtype)
    multiply(_rows(grads).T, _rows(contiguous_array(input)), out=into)
    return made


def _of_w_hh(grads: Array, out: Array, h0: Array, reverse: bool, like: Any) -> Any:
    """The gradient of w_hh from those of the gates behind the hidden part."""
    first, rest, before = (-1, slice(None, -1), slice(1, None)) if reverse else (
        0, slice(1, None), slice(None, -1))  # fmt: skip
    made, into = blank((grads.shape[-1], h0.shape[-1]), like._dtype)
    multiply(grads[first].T, h0, out=into)
    if len(out) > 1:
        into += multiply(_rows(grads[rest]).T, _rows(out[before]))
    return made


def _tensor(a: Array, like: Any) -> Any:
    made, into = blank(a.shape, like._dtype)
    into[...] = a
    return made


def _of_bias(grads: Array, bias: Any) -> Any:
    return None if bias is None else _tensor(np.add.reduce(_rows(grads), axis=0), bias)


def _input_back(grads: Array, w_ih: Any, input: Any, needs: Any) -> Any:
    """The gradient of the input of all steps."""
    if "input" not in needs:
        return None
    made, into = blank(tuple(input.shape), input._dtype)
    multiply(_rows(grads), w_ih._skimp_array(), out=_rows(into))
    return made


def _rematerialize(cell: Any, given: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
    """The gradients through a graph of their own: the steps once more, in ops."""
    names = tuple(given[-1])
    values = given[:-1]
    found = [g for g in grads if g is not None]
    create = modes.state.grad
    with modes.enable_grad():
        outs = [o for o, g in zip(cell(*values), grads, strict=True) if g is not None]
    wanted = [v for n, v in zip(names, values, strict=True) if n in needs]
    made = iter(calls.grad(outs, wanted, found, create_graph=create, allow_unused=True))
    return tuple([next(made) if n in needs else None for n in names])


# -- LSTM -----------------------------------------------------------------------------------------

_LSTM_NAMES = ("input", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")


def _lstm_in_ops(
    input: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any, Any]:
    found = []
    for x in reversed(input.unbind(0)) if reverse else input.unbind(0):
        gates = x.matmul(w_ih.t()) + h.matmul(w_hh.t())
        gates = gates if b_ih is None else gates + b_ih + b_hh
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(h)

    return stack(found[::-1] if reverse else found), c


def _lstm_back(
    g0: Any, g1: Any, input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any,
    reverse: bool, result0: Any, result2: Any, result3: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or any([g is not None and g._hollow for g in (g0, g1)]):
        return _rematerialize(
            partial(_lstm_in_ops, reverse=reverse),
            (input, h0, c0, w_ih, w_hh, b_ih, b_hh, _LSTM_NAMES),
            (g0, g1),
            needs,
        )
    out, gates, cells = result0._skimp_array(), result2._skimp_array(), result3._skimp_array()
    w = w_hh._skimp_array()
    n = out.shape[-1]
    way = slice(None, None, -1 if reverse else 1)
    first = c0._skimp_array()
    # of the cell's gradient: what reaches i, f and g; of the result's: what reaches o and the cell
    a = [gates[..., k * n : (k + 1) * n] for k in range(4)]
    _held, d = blank(gates.shape, input._dtype)  # counted until it goes
    part = [d[..., k * n : (k + 1) * n] for k in range(4)]
    top = np.tanh(cells)
    for k in (0, 1, 3):
        np.subtract(1, a[k], out=part[k])
        part[k] *= a[k]
    part[0] *= a[2]
    part[1][way][1:] *= cells[way][:-1]
    part[1][way][0] *= first
    np.multiply(a[2], a[2], out=part[2])
    np.subtract(1, part[2], out=part[2])
    part[2] *= a[0]
    part[3] *= top
    np.multiply(top, top, out=top)
    np.subtract(1, top, out=top)
    top *= a[3]
    g = None if g0 is None else g0._skimp_array()[way]
    dh, dc = np.zeros(first.shape, d.dtype), np.zeros(first.shape, d.dtype)
    if g1 is not None:
        dc += g1._skimp_array()
    scratch = np.empty_like(dh)
    steps, forget, through = d[way], a[1][way], top[way]
    times_w = multiplier(steps[0], w, dh)
    for t in range(len(steps) - 1, -1, -1):
        if g is not None:
            dh += g[t]
        dc += np.multiply(dh, through[t], out=scratch)
        here = steps[t].reshape(len(dh), 4, n)
        here[:, :3] *= dc[:, None]
        here[:, 3] *= dh
        dc *= forget[t]
        times_w(steps[t])
    del top, through  # what is made from here on is as large
    dw_hh = _of_w_hh(d, out, h0._skimp_array(), reverse, input)
    dw_ih = _of_w_ih(d, input)
    dx = _input_back(d, w_ih, input, needs)
    ends = [_tensor(a, input) for a in (dh, dc)]
    db = _of_bias(d, b_ih)
    return dx, *ends, dw_ih, dw_hh, db, None if db is None else _tensor(db._skimp_array(), db)


@hidden(
    nondiff=(2, 3),
    rule=Rule("LstmBackward0", {_LSTM_NAMES: _lstm_back}),
    batch=batching.layers.recurrent,
    meta=shapes.lstm_layer,
)
def _lstm_layer(
    input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> Any:
    """(the results of all steps, the last cell, all gates, all cells)."""
    time, batch = input.shape[:2]
    n = h0.shape[1]
    dtype = input._dtype
    result, out = blank((time, batch, n), dtype)
    kept_gates, gates = blank((time, batch, 4 * n), dtype)
    kept_cells, cells = blank((time, batch, n), dtype)
    last, end = blank((batch, n), dtype)
    scale = _scales(LSTM_SCALE, 4 * n, dtype.np)
    bias = None if b_ih is None else b_ih._skimp_array() + b_hh._skimp_array()
    _projected(input, w_ih, bias, scale, gates)
    across = np.ascontiguousarray((w_hh._skimp_array() * scale[:, None]).T)
    halves = np.tile(scale, (batch, 1))  # of the gates' shape, which ufuncs take twice as soon
    shift = 1 - halves
    part, product = np.empty((batch, n), dtype.np), np.empty((batch, 4 * n), dtype.np)
    h, c = contiguous_array(h0), c0._skimp_array()
    times_across = multiplier(h, across, product)
    for t in range(time - 1, -1, -1) if reverse else range(time):
        a, cell = gates[t], cells[t]
        times_across(h)
        a += product
        np.tanh(a, out=a)
        a *= halves
        a += shift
        np.multiply(a[:, n : 2 * n], c, out=cell)
        cell += np.multiply(a[:, :n], a[:, 2 * n : 3 * n], out=part)
        np.tanh(cell, out=part)
        h, c = out[t], cell
        np.multiply(a[:, 3 * n :], part, out=h)
    end[...] = c
    return result, last, kept_gates, kept_cells


@called("lstm")
def lstm_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out, last, _, _ = _lstm_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)
    return out, (out.select(0, 0 if reverse else -1), last)


# -- one step of an LSTM ---------------------------------------------------------------------------


@cache
def _line(n: int, dtype: Any) -> tuple[Array, Array]:
    """scale and shift with which tanh(x * scale) * scale + shift is the gates' activation."""
    scale = _scales(LSTM_SCALE, 4 * n, dtype)
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


# -- GRU ------------------------------------------------------------------------------------------

_GRU_NAMES = ("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")


def _gru_in_ops(
    input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any]:
    found = []
    for x in reversed(input.unbind(0)) if reverse else input.unbind(0):
        of_x, of_h = x.matmul(w_ih.t()), h.matmul(w_hh.t())
        if b_ih is not None:
            of_x, of_h = of_x + b_ih, of_h + b_hh
        (x_r, x_z, x_n), (h_r, h_z, h_n) = of_x.chunk(3, 1), of_h.chunk(3, 1)
        new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
        h = new + (x_z + h_z).sigmoid() * (h - new)
        found.append(h)

    return (stack(found[::-1] if reverse else found),)


def _gru_back(
    g0: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool,
    result0: Any, result1: Any, result2: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or g0._hollow:
        return _rematerialize(
            partial(_gru_in_ops, reverse=reverse),
            (input, h0, w_ih, w_hh, b_ih, b_hh, _GRU_NAMES),
            (g0,),
            needs,
        )
    out, gates, hidden = result0._skimp_array(), result1._skimp_array(), result2._skimp_array()
    w = w_hh._skimp_array()
    n = out.shape[-1]
    way = slice(None, None, -1 if reverse else 1)
    first = h0._skimp_array()
    reset, update, new = [gates[..., k * n : (k + 1) * n] for k in range(3)]
    # what reaches each gate of the result's gradient; the hidden part of `new` is behind the reset
    _held, d = blank(gates.shape, input._dtype)  # counted until it goes
    to_reset, to_update, to_new = [d[..., k * n : (k + 1) * n] for k in range(3)]
    np.subtract(1, update, out=to_update)
    np.multiply(new, new, out=to_new)
    np.subtract(1, to_new, out=to_new)
    to_new *= to_update
    to_update *= update
    np.subtract(1, reset, out=to_reset)
    for factor in (reset, hidden, to_new):
        to_reset *= factor
    to_update[way][1:] *= out[way][:-1] - new[way][1:]
    to_update[way][0] *= first - new[way][0]
    g = g0._skimp_array()[way]
    dh, through = np.zeros(first.shape, d.dtype), np.empty(first.shape, d.dtype)
    steps, kept, behind = d[way], gates[way], np.empty_like(d[0])
    times_w = multiplier(behind, w, dh)
    for t in range(len(steps) - 1, -1, -1):
        dh += g[t]
        steps[t].reshape(len(dh), 3, n)[...] *= dh[:, None]
        behind[:, : 2 * n] = steps[t][:, : 2 * n]
        np.multiply(steps[t][:, 2 * n :], kept[t][:, :n], out=behind[:, 2 * n :])
        np.multiply(dh, kept[t][:, n : 2 * n], out=through)
        times_w(behind)
        dh += through
    dw_ih, of_ih = _of_w_ih(d, input), _of_bias(d, b_ih)
    dx = _input_back(d, w_ih, input, needs)
    to_new *= reset  # those behind the hidden part now
    dw_hh = _of_w_hh(d, out, first, reverse, input)
    return dx, _tensor(dh, input), dw_ih, dw_hh, of_ih, _of_bias(d, b_hh)


@hidden(
    nondiff=(1, 2),
    rule=Rule("GruBackward0", {_GRU_NAMES: _gru_back}),
    batch=batching.layers.recurrent,
    meta=shapes.gru_layer,
)
def _gru_layer(
    input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> Any:
    """(the results of all steps, all gates, the hidden part of `new` before its reset)."""
    time, batch = input.shape[:2]
    n = h0.shape[1]
    dtype = input._dtype
    result, out = blank((time, batch, n), dtype)
    kept_gates, gates = blank((time, batch, 3 * n), dtype)
    kept_hidden, hidden = blank((time, batch, n), dtype)
    scale = _scales(GRU_SCALE, 3 * n, dtype.np)
    _projected(input, w_ih, None if b_ih is None else b_ih._skimp_array(), scale, gates)
    across = np.ascontiguousarray((w_hh._skimp_array() * scale[:, None]).T)
    bias = None if b_hh is None else b_hh._skimp_array() * scale
    product, part = np.empty((batch, 3 * n), dtype.np), np.empty((batch, n), dtype.np)
    h = contiguous_array(h0)
    times_across = multiplier(h, across, product)
    for t in range(time - 1, -1, -1) if reverse else range(time):
        sides, new = gates[t][:, : 2 * n], gates[t][:, 2 * n :]
        times_across(h)
        if bias is not None:
            product += bias
        sides += product[:, : 2 * n]
        np.tanh(sides, out=sides)
        sides *= 0.5
        sides += 0.5
        hidden[t] = product[:, 2 * n :]
        new += np.multiply(sides[:, :n], hidden[t], out=part)
        np.tanh(new, out=new)
        np.subtract(h, new, out=part)
        part *= sides[:, n:]
        h = out[t]
        np.add(part, new, out=h)
    return result, kept_gates, kept_hidden


@called("gru")
def gru_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out = _gru_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)[0]
    return out, (out.select(0, 0 if reverse else -1),)
