"""GRU over a whole sequence as one op (see `recurrent`)."""

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
    of_bias,
    of_w_hh,
    of_w_ih,
    one_by_one,
    rematerialize,
    some_steps,
    tensor,
)
from skimp._ops.reduce.softmax import contiguous_array

_SCALE = (0.5, 0.5)  # reset, update
_NAMES = ("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")


def _in_ops(
    input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any]:
    def step(x: Any, state: State) -> State:
        (h,) = state
        of_x, of_h = x.matmul(w_ih.t()), h.matmul(w_hh.t())
        if b_ih is not None:
            of_x, of_h = of_x + b_ih, of_h + b_hh
        (x_r, x_z, x_n), (h_r, h_z, h_n) = of_x.chunk(3, 1), of_h.chunk(3, 1)
        new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
        return (new + (x_z + h_z).sigmoid() * (h - new),)

    return (in_ops(step, input, (h,), reverse)[0],)


def _back(
    g0: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool,
    result0: Any, result1: Any, result2: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or g0._hollow:
        return rematerialize(
            partial(_in_ops, reverse=reverse),
            (input, h0, w_ih, w_hh, b_ih, b_hh, _NAMES),
            (g0,),
            needs,
        )
    out, gates = result0._skimp_array(), result1._skimp_array()
    time, _, batch, n = gates.shape
    _held, d = blank((time, batch, 3 * n), input._dtype)  # counted until it goes
    dh = np.zeros((batch, n), d.dtype)
    way = slice(None, None, -1 if reverse else 1)
    first = h0._skimp_array()
    kept = gates[way], result2._skimp_array()[way], out[way], first
    quietly(_steps_back, d[way], dh, g0._skimp_array()[way], kept, w_hh._skimp_array())
    dw_ih, of_ih = of_w_ih(d, input), of_bias(d, b_ih)
    dx = input_back(d, w_ih, input, needs)
    d[..., 2 * n :] *= gates[:, 0]  # those behind the hidden part now
    dw_hh = of_w_hh(d, out, first, reverse, input)
    return dx, tensor(dh, input), dw_ih, dw_hh, of_ih, of_bias(d, b_hh)


def _steps_back(
    d: Array, dh: Array, g: Array, kept: tuple[Array, Array, Array, Array], w: Array
) -> None:
    """d = the gradients of the gates of all steps; dh, of the last state, becomes that of the
    first. The hidden part of `new` is behind the reset."""
    gates = kept[0]
    time, _, batch, n = gates.shape
    by_gate = d.reshape(time, batch, 3, n).transpose(0, 2, 1, 3)
    behind, through = np.empty((batch, 3 * n), d.dtype), np.empty_like(dh)
    to_behind = behind.reshape(batch, 3, n).transpose(1, 0, 2)
    many = most(time, gates[0].size)
    with (
        recurrence.product(behind, w, dh) as times_w,
        Scratch((many, 3, batch, n), d.dtype) as factors,
    ):
        for steps in some_steps(time, gates[0].size, True):
            slopes = factors[: steps.stop - steps.start]
            _slopes(kept, steps, slopes)
            for t in one_by_one(steps, True):
                dh += g[t]
                slope, (reset, update, _) = slopes[t - steps.start], gates[t]
                np.multiply(slope, dh, out=by_gate[t])
                np.multiply(slope[:2], dh, out=to_behind[:2])
                slope[2] *= dh
                np.multiply(slope[2], reset, out=to_behind[2])
                np.multiply(dh, update, out=through)
                times_w(behind)
                dh += through


def _slopes(kept: tuple[Array, Array, Array, Array], steps: slice, out: Array) -> None:
    """out = what of the result's gradient reaches each gate, of some steps."""
    gates, hidden_part, results, first = kept
    a = gates[steps]
    reset, update, new = a[:, 0], a[:, 1], a[:, 2]
    to_reset, to_update, to_new = out[:, 0], out[:, 1], out[:, 2]
    np.subtract(1, a, out=out)
    np.multiply(new, new, out=to_new)
    np.subtract(1, to_new, out=to_new)
    to_new *= to_update
    for factor in (reset, hidden_part[steps], to_new):
        to_reset *= factor
    to_update *= update
    for t, slope in enumerate(to_update, steps.start):
        slope *= (results[t - 1] if t else first) - gates[t, 2]


@hidden(
    nondiff=(1, 2),
    rule=Rule("GruBackward0", {_NAMES: _back}),
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
    kept_gates, gates = blank((time, 3, batch, n), dtype)
    kept_hidden, hidden = blank((time, batch, n), dtype)
    scale = each(_SCALE, dtype.np)
    bias = None
    hidden[...] = 0
    if b_ih is not None:
        bias, of_h = [b._skimp_array().reshape(3, n) for b in (b_ih, b_hh)]
        bias = np.concatenate((bias[:2] + of_h[:2], bias[2:]))
        hidden[...] = of_h[2]
    w = [weight._skimp_array() for weight in (w_ih, w_hh)]
    given = contiguous_array(input), w[0], bias, contiguous_array(h0)
    made = gates, hidden, out
    quietly(_steps, given, w[1], (scale, 1 - scale), made, reverse)
    return result, kept_gates, kept_hidden


def _steps(given: Any, w: Array, line: Any, made: Any, reverse: bool) -> None:
    """The gates, the hidden part of `new`, in whose place is its bias, and results of all
    steps."""
    (x, w_ih, bias, h), (gates, hidden, out) = given, made
    part, sides = np.empty(h.shape, h.dtype), 2 * h.shape[1]
    with (
        recurrence.activation(w[:sides], 2, len(h), True, line) as to_sides,
        recurrence.activation(w[sides:], 1, len(h), False) as to_hidden,
        recurrence.projection(w_ih, bias, 3, len(h), most(len(x), gates[0].size)) as project,
    ):
        for some in some_steps(len(x), gates[0].size, reverse):
            project(x[some], gates[some])
            for t in one_by_one(some, reverse):
                a, beside = gates[t], hidden[t]
                to_sides(h, a[:2])
                to_hidden(h, beside[None])
                reset, update, new = a
                np.multiply(reset, beside, out=part)
                np.add(new, part, out=new)
                np.tanh(new, out=new)
                np.subtract(h, new, out=part)
                np.multiply(part, update, out=part)
                h = out[t]
                np.add(part, new, out=h)


@called("gru")
def gru_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out = _gru_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)[0]
    return out, (out.select(0, 0 if reverse else -1),)
