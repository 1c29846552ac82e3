"""LSTM over a whole sequence as one op, and a step of its cell (see `recurrent`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.last_reader import in_place_of, is_last_reader
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import named as called
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, compiled, recurrence
from skimp._kernels.blas import multiply
from skimp._kernels.recurrence import Step
from skimp._kernels.scratch import Scratch
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.linalg.matmul_add import addmm
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.recurrent import (
    Cell,
    State,
    added,
    arrays,
    bias_of,
    in_ops,
    input_back,
    line,
    most,
    of_biases,
    of_side,
    of_w_hh,
    of_w_ih,
    one_by_one,
    place_of,
    rematerialize,
    some_steps,
    tensor,
    times_last,
)

_SCALE = (0.5, 0.5, 1.0, 0.5)  # input, forget, cell, output
Kept = tuple[Array, Array, Array]  # gates, cells, the cell before the first
_NAMES = ("input", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")


def lstm_in_ops(weights: Sequence[Any]) -> tuple[Any, Cell]:
    """The cell, of any tensors, and what is added to the input's product before it."""
    _, w, b_ih, b_hh = weights
    across = w.t()

    def cell(x: Any, state: State) -> State:
        h, c = state
        i, f, g, o = addmm(x, h, across).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    return added(b_ih, b_hh), cell


def _in_ops(
    input: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any, Any]:
    out, (_, last) = in_ops(lstm_in_ops, input, (h, c), (w_ih, w_hh, b_ih, b_hh), reverse)
    return out, last


def _back(
    g0: Any, g1: Any, input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any,
    reverse: bool, result2: Any, needs: Any,
) -> Any:  # fmt: skip
    given = input, h0, c0, w_ih, w_hh, b_ih, b_hh
    if modes.state.grad or (g0 is not None and g0._hollow) or (g1 is not None and g1._hollow):
        cell = partial(_in_ops, reverse=reverse)
        return rematerialize(cell, (*given, _NAMES), (g0, g1), needs)
    d, place = place_of(result2) if is_last_reader(result2) else None, in_place_of(g0)
    return _gradients(given, (g0, g1), result2, reverse, needs, d, place)


def _step_back(
    g0: Any, g1: Any, input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any,
    result1: Any, result2: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or (g0 is not None and g0._hollow) or (g1 is not None and g1._hollow):
        given = input, h0, c0, w_ih, w_hh, b_ih, b_hh
        cell = partial(_in_ops, reverse=False)
        return rematerialize(cell, (*given, _NAMES), (g0, g1), needs)
    g, dc, gates, cell, x, h, before, w, w_hh = arrays(
        (g0, g1, result2, result1, input, h0, c0, w_ih, w_hh)
    )
    batch, n = cell.shape
    _held, d = blank((batch, 4 * n), input._dtype)  # counted until it goes
    dc0, into = blank((batch, n), input._dtype)
    quietly(_gates_back, d, g, dc, (gates, cell, before), into)
    dx, dw_ih = of_side(d, np.ascontiguousarray(x), w, ("input", "w_ih"), input, needs)
    dh0, dw_hh = of_side(d, h, w_hh, ("h0", "w_hh"), input, needs)
    return dx, dh0, dc0, dw_ih, dw_hh, *of_biases(d, input, needs)


def _gates_back(d: Array, dh: Array | None, dc: Array | None, kept: Kept, into: Array) -> None:
    """d = the gradients of a cell's gates, into = that of the cell before it, by those of the
    result and the cell, of which None is 0."""
    gates, cell, before = kept
    factors, (batch, n) = np.empty((1, 5, *cell.shape), d.dtype), cell.shape
    if dh is None or dc is None:
        zeros = np.zeros(cell.shape, d.dtype)
        dh, dc = zeros if dh is None else dh, zeros if dc is None else dc
    if (loops := compiled.taking(d, dh, dc, gates, before, into)) is not None:
        loops.lstm_back(gates, before, bare.tanh(cell), dh, dc, factors[0, :4], d, into)
        return
    bare.tanh(cell, out=factors[0, 4])
    _slopes((gates[None], cell[None], before), slice(0, 1), factors)
    by_gate = d.reshape(batch, 4, n).transpose(1, 0, 2)
    _go_through(dh, dc, gates[1], factors[0], by_gate, bare.empty_like(into), into)


def _gradients(
    given: Any, grads: tuple[Any, Any], gates: Any, reverse: bool, needs: Any, d: Array | None,
    place: Tensor | None,
) -> Any:  # fmt: skip
    """`d`: where the gradients of the gates go, if they take the gates' place, and `place`: that of
    the input, if it takes the place of the result's. Each tensor lends its array for as long as
    that is read, so that within a budget it may go before and after."""
    (input, h0, c0, w_ih, w_hh, _, _), (g, g1) = given, grads
    time, _, batch, n = shape_of(gates)
    if d is None:
        _held, d = blank((time, batch, 4 * n), input._dtype)  # counted until it goes
    kept, again = blank((time, batch, n), input._dtype)
    dh, dc = np.zeros((batch, n), d.dtype), np.zeros((batch, n), d.dtype)
    before = dh if h0.shape[1] == n else np.empty(tuple(h0.shape), d.dtype)  # if it is projected
    if g1 is not None:
        dc += g1._skimp_array()
    way = slice(None, None, -1 if reverse else 1)
    dc = quietly(
        _steps_back, d[way], dh, before, dc, None if g is None else g._skimp_array()[way],
        (gates._skimp_array()[way], again[way], c0._skimp_array()),
        w_hh._skimp_array(),
    )  # fmt: skip
    dw_hh = of_w_hh(d, again, h0._skimp_array(), reverse, input, needs)
    if place is None:
        place = kept
    del again, kept
    dw_ih = of_w_ih(d, input, needs)
    dx = input_back(d, w_ih, input, needs, place)
    ends = [tensor(a, input) for a in (before, dc)]
    return dx, *ends, dw_ih, dw_hh, *of_biases(d, input, needs)


def _steps_back(
    d: Array, dh: Array, before: Array, dc: Array, g: Array | None,
    kept: Kept, w: Array,
) -> Array:  # fmt: skip
    """d = the gradients of the gates of all steps, maybe in the place of the gates; dh, of the last
    state, becomes that of the first, and what dc becomes is returned. `before`, where dh goes, is
    dh if there are more steps than one. Where the cells are to be, they are made again, and then
    the results."""
    time, gates, batch, n = kept[0].shape
    _carry_on(*kept)
    if time == 1:
        factors = np.empty((1, 6, batch, n), d.dtype)
        return _go_back(d, dh, dc, g, kept, partial(multiply, b=w, out=before), factors)
    with (
        recurrence.product(d[0], w, before) as times_w,
        Scratch((most(time, gates * dh.size), 6, batch, n), d.dtype) as factors,
    ):
        return _go_back(d, dh, dc, g, kept, times_w, factors)


def _go_back(
    d: Array, dh: Array, dc: Array, g: Array | None, kept: Kept, times_w: Any, factors: Array
) -> Array:
    gates, cells, first = kept
    time, _, batch, n = gates.shape
    by_gate, part = d.reshape(time, batch, 4, n).transpose(0, 2, 1, 3), bare.empty_like(dh)
    loops = compiled.taking(d[0], dh, gates[0], cells[0], first)
    for steps in some_steps(time, gates[0].size, True):
        slopes = factors[: steps.stop - steps.start]
        bare.tanh(cells[steps], out=slopes[:, 4])
        bare.multiply(gates[steps, 3], slopes[:, 4], out=slopes[:, 5])
        if loops is None:
            _slopes(kept, steps, slopes)
        for t in one_by_one(steps, True):
            if g is not None:
                dh += g[t]
            slope = slopes[t - steps.start]
            if loops is None:
                _go_through(dh, dc, gates[t, 1], slope, by_gate[t], dc, part)
            else:
                before = cells[t - 1] if t else first
                loops.lstm_back(gates[t], before, slope[4], dh, dc, slopes[0, :4], d[t], part)
            dc, part = part, dc
            times_w(d[t])
        cells[steps] = slopes[:, 5]
    return dc


def _go_through(
    dh: Array, dc: Array, forget: Array, slope: Array, into: Array, whole: Array, before: Array
) -> None:
    """into = the gradients of a step's gates, in whose memory `forget` may be, before = that of the
    cell before it; whole, which may be dc, that of the cell."""
    bare.multiply(dh, slope[4], out=before)
    bare.add(dc, before, out=whole)
    bare.multiply(whole, forget, out=before)  # before the step's gates are written over
    bare.multiply(slope[:3], whole, out=into[:3])
    bare.multiply(slope[3], dh, out=into[3])


def _slopes(kept: Kept, steps: slice, out: Array) -> None:
    """out = of some steps what of the cell's gradient reaches i, f and g, and what of the result's
    reaches o and the cell, whose tanh is there."""
    gates, cells, first = kept
    a = gates[steps]
    slopes, top = out[:, :4], out[:, 4]
    bare.subtract(1, a, out=slopes)
    slopes *= a
    i, new, o = a[:, 0], a[:, 2], a[:, 3]
    slopes[:, 0] *= new
    times_last(slopes[:, 1], first, cells, steps)
    bare.multiply(new, new, out=slopes[:, 2])
    bare.subtract(1, slopes[:, 2], out=slopes[:, 2])
    slopes[:, 2] *= i
    slopes[:, 3] *= top
    bare.multiply(top, top, out=top)
    bare.subtract(1, top, out=top)
    top *= o


@hidden(
    nondiff=(2,),
    rule=Rule("LstmBackward0", {_NAMES: _back}, releases_early=True, at_once=True),
    batch=batching.layers.recurrent,
    meta=shapes.lstm_layer,
)
def _lstm_layer(
    input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> Any:
    """(the results of all steps, the last cell, all gates, of which cells and results are made
    again)."""
    x, h, c, w_ih, w_hh, b_ih, b_hh = arrays((input, h0, c0, w_ih, w_hh, b_ih, b_hh))
    dtype, time, (batch, n) = input._dtype, len(x), c.shape
    result, out = blank((time, batch, n), dtype)
    kept_gates, gates = blank((time, 4, batch, n), dtype)
    cells = np.empty((2, batch, n), dtype.np)
    given = np.ascontiguousarray(x), w_ih, bias_of(b_ih, b_hh, 4), np.ascontiguousarray(h), c
    quietly(_steps, given, w_hh, line(_SCALE, dtype.np), (gates, cells, out), reverse)
    return result, tensor(cells[0 if reverse else (time - 1) & 1], input), kept_gates


def _shown_again(result1: Any, result2: Any) -> Any:
    made, h = blank(tuple(result1.shape), result1._dtype)
    quietly(_show, result1._skimp_array(), result2._skimp_array(), h)
    return made


def _carried_again(c0: Any, result2: Any) -> Any:
    made, new = blank(tuple(c0.shape), c0._dtype)
    quietly(_carry, c0._skimp_array(), result2._skimp_array(), new, bare.empty_like(new))
    return made


@hidden(
    nondiff=(2,),
    rule=Rule("ThnnFusedLstmCellBackward0", {_NAMES: _step_back}, at_once=True),
    batch=batching.layers.recurrent,
    meta=shapes.lstm_step,
    apart={1: _carried_again, 0: _shown_again},
)
def _lstm_step(input: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """(the new h, the new c, its gates)."""
    x, h, c, w_ih, w_hh, b_ih, b_hh = arrays((input, h0, c0, w_ih, w_hh, b_ih, b_hh))
    dtype = input._dtype
    result, out = blank(c.shape, dtype)
    kept_gates, gates = blank((4, *c.shape), dtype)
    kept_cell, cell = blank(c.shape, dtype)
    given = np.ascontiguousarray(x), w_ih, bias_of(b_ih, b_hh, 4), np.ascontiguousarray(h), c
    quietly(_step, given, w_hh, line(_SCALE, dtype.np), (gates, cell, out))
    return result, kept_cell, kept_gates


def _step(given: Any, w: Array, bend: Any, made: Any) -> None:
    """The gates, the cell and the result of a step."""
    (x, w_ih, bias, h, c), (gates, cell, out) = given, made
    recurrence.project(x, w_ih, bias, gates)
    recurrence.activate(w, True, bend, h, gates)
    _carry(c, gates, cell, bare.empty_like(cell))
    _show(cell, gates, out)


def _steps(given: Any, w: Array, bend: Any, made: Any, reverse: bool) -> None:
    """The gates and results of all steps; cells take turns in two places."""
    x, w_ih, bias, h, c = given
    if len(x) == 1:
        _step((x[0], w_ih, bias, h, c), w, bend, [a[0] for a in made])
        return
    with (
        recurrence.activation(w, 4, len(h), True, bend) as step,
        recurrence.projection(w_ih, bias, 4, len(h), most(len(x), 4 * c.size)) as project,
    ):
        _go(project, step, x, h, c, made, reverse)


def _go(project: Step, step: Step, x: Array, h: Array, c: Array, made: Any, reverse: bool) -> None:
    gates, cells, out = made
    part = np.empty(c.shape, c.dtype)
    for some in some_steps(len(x), gates[0].size, reverse):
        project(x[some], gates[some])
        for t in one_by_one(some, reverse):
            a, cell = gates[t], cells[t & 1]
            step(h, a)
            _carry(c, a, cell, part)
            h, c = out[t], cell
            _show(c, a, h)


def _carry(c: Array, gates: Array, into: Array, part: Array) -> None:
    """into = f * c + i * g"""
    if (loops := compiled.taking(gates, c, into)) is not None:
        loops.lstm_carried(gates, c, into)
        return
    bare.multiply(gates[1], c, out=into)
    bare.multiply(gates[0], gates[2], out=part)
    bare.add(into, part, out=into)


def _carry_on(gates: Array, cells: Array, c: Array) -> None:
    """The cells of all steps, by their gates and the cell before the first."""
    part = np.empty(c.shape, c.dtype)
    for a, cell in zip(gates, cells, strict=True):
        _carry(c, a, cell, part)
        c = cell


def _show(cell: Array, gates: Array, into: Array) -> None:
    """into = o * tanh(cell)"""
    bare.tanh(cell, out=into)
    bare.multiply(gates[3], into, out=into)


@called("lstm")
def lstm_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out, last, _ = _lstm_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)
    return out, (out.select(0, 0 if reverse else -1), last)


@called("lstm_cell")
def lstm_step(input: Tensor, state: tuple[Tensor, ...], weights: Any) -> tuple[Tensor, Tensor]:
    """The next state of a cell."""
    h, c, _ = _lstm_step(input, *state, *weights)
    return h, c
