"""LSTM over a whole sequence as one op (see `recurrent`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import named as called
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import recurrence
from skimp._kernels.scratch import Scratch
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.recurrent import (
    State,
    each,
    in_ops,
    input_back,
    most,
    of_biases,
    of_w_hh,
    of_w_ih,
    one_by_one,
    rematerialize,
    some_steps,
    tensor,
    times_last,
)
from skimp._ops.reduce.softmax import contiguous_array

SCALE = (0.5, 0.5, 1.0, 0.5)  # input, forget, cell, output
_NAMES = ("input", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")


def _in_ops(
    input: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any, Any]:
    def step(x: Any, state: State) -> State:
        h, c = state
        gates = x.matmul(w_ih.t()) + h.matmul(w_hh.t())
        gates = gates if b_ih is None else gates + b_ih + b_hh
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    out, (_, last) = in_ops(step, input, (h, c), reverse)
    return out, last


def _back(
    g0: Any, g1: Any, input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any,
    reverse: bool, result0: Any, result2: Any, result3: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or any([g is not None and g._hollow for g in (g0, g1)]):
        return rematerialize(
            partial(_in_ops, reverse=reverse),
            (input, h0, c0, w_ih, w_hh, b_ih, b_hh, _NAMES),
            (g0, g1),
            needs,
        )
    gates = result2._skimp_array()
    time, _, batch, n = gates.shape
    _held, d = blank((time, batch, 4 * n), input._dtype)  # counted until it goes
    dh, dc = np.zeros((batch, n), d.dtype), np.zeros((batch, n), d.dtype)
    if g1 is not None:
        dc += g1._skimp_array()
    way = slice(None, None, -1 if reverse else 1)
    kept = gates[way], result3._skimp_array()[way], c0._skimp_array()
    g = None if g0 is None else g0._skimp_array()[way]
    quietly(_steps_back, d[way], dh, dc, g, kept, w_hh._skimp_array())
    dw_hh = of_w_hh(d, result0._skimp_array(), h0._skimp_array(), reverse, input)
    dw_ih = of_w_ih(d, input)
    dx = input_back(d, w_ih, input, needs)
    ends = [tensor(a, input) for a in (dh, dc)]
    return dx, *ends, dw_ih, dw_hh, *of_biases(d, b_ih)


def _steps_back(
    d: Array, dh: Array, dc: Array, g: Array | None, kept: tuple[Array, Array, Array], w: Array
) -> None:
    """d = the gradients of the gates of all steps; dh and dc, of the last state, become those of
    the first."""
    gates = kept[0]
    time, _, batch, n = gates.shape
    by_gate = d.reshape(time, batch, 4, n).transpose(0, 2, 1, 3)
    part, many = np.empty_like(dh), most(time, gates[0].size)
    with (
        recurrence.product(d[0], w, dh) as times_w,
        Scratch((many, 5, batch, n), d.dtype) as factors,
    ):
        for steps in some_steps(time, gates[0].size, True):
            slopes = factors[: steps.stop - steps.start]
            _slopes(kept, steps, slopes)
            for t in one_by_one(steps, True):
                if g is not None:
                    dh += g[t]
                into, slope = by_gate[t], slopes[t - steps.start]
                np.multiply(dh, slope[4], out=part)
                dc += part
                np.multiply(slope[:3], dc, out=into[:3])
                np.multiply(slope[3], dh, out=into[3])
                dc *= gates[t, 1]
                times_w(d[t])


def _slopes(kept: tuple[Array, Array, Array], steps: slice, out: Array) -> None:
    """out = of some steps what of the cell's gradient reaches i, f and g, and what of the result's
    reaches o and the cell."""
    gates, cells, first = kept
    a = gates[steps]
    slopes, top = out[:, :4], out[:, 4]
    np.subtract(1, a, out=slopes)
    slopes *= a
    i, new, o = a[:, 0], a[:, 2], a[:, 3]
    slopes[:, 0] *= new
    times_last(slopes[:, 1], first, cells, steps)
    np.multiply(new, new, out=slopes[:, 2])
    np.subtract(1, slopes[:, 2], out=slopes[:, 2])
    slopes[:, 2] *= i
    np.tanh(cells[steps], out=top)
    slopes[:, 3] *= top
    np.multiply(top, top, out=top)
    np.subtract(1, top, out=top)
    top *= o


@hidden(
    nondiff=(2, 3),
    rule=Rule("LstmBackward0", {_NAMES: _back}),
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
    kept_gates, gates = blank((time, 4, batch, n), dtype)
    kept_cells, cells = blank((time, batch, n), dtype)
    scale = each(SCALE, dtype.np)
    bias = None
    if b_ih is not None:
        bias = (b_ih._skimp_array() + b_hh._skimp_array()).reshape(4, n)
    w = [weight._skimp_array() for weight in (w_ih, w_hh)]
    given = contiguous_array(input), w[0], bias, contiguous_array(h0), c0._skimp_array()
    made = gates, cells, out
    quietly(_steps, given, w[1], (scale, 1 - scale), made, reverse)
    return result, tensor(cells[0 if reverse else -1], input), kept_gates, kept_cells


def _steps(given: Any, w: Array, line: Any, made: Any, reverse: bool) -> None:
    """The gates, cells and results of all steps."""
    (x, w_ih, bias, h, c), (gates, cells, out) = given, made
    part = np.empty(h.shape, h.dtype)
    many = most(len(x), gates[0].size)
    with (
        recurrence.activation(w, 4, len(h), True, line) as step,
        recurrence.projection(w_ih, bias, 4, len(h), many) as project,
    ):
        for some in some_steps(len(x), gates[0].size, reverse):
            project(x[some], gates[some])
            for t in one_by_one(some, reverse):
                a, cell = gates[t], cells[t]
                step(h, a)
                i, f, new, o = a
                np.multiply(f, c, out=cell)
                np.multiply(i, new, out=part)
                np.add(cell, part, out=cell)
                np.tanh(cell, out=part)
                h, c = out[t], cell
                np.multiply(o, part, out=h)


@called("lstm")
def lstm_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out, last, _, _ = _lstm_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)
    return out, (out.select(0, 0 if reverse else -1), last)
