"""GRU over a whole sequence as one op, and a step of its cell (see `recurrent`)."""

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
from skimp._kernels.scratch import Scratch
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.linear import linear
from skimp._ops.nn.recurrent import (
    Cell,
    State,
    arrays,
    in_ops,
    input_back,
    line,
    most,
    of_bias,
    of_side,
    of_w_hh,
    of_w_ih,
    one_by_one,
    place_of,
    rematerialize,
    some_steps,
    tensor,
)

_SCALE = (0.5, 0.5)  # reset, update
Kept = tuple[Array, Array, Array | None, Array]  # gates, hidden parts, results, the first state
_NAMES = ("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")


def gru_in_ops(weights: Sequence[Any]) -> tuple[Any, Cell]:
    """The cell, of any tensors, and what is added to the input's product before it."""
    _, w, b_ih, b_hh = weights

    def cell(x: Any, state: State) -> State:
        h = state[0]
        x_r, x_z, x_n = x.chunk(3, 1)
        h_r, h_z, h_n = linear(h, w, b_hh).chunk(3, 1)
        n = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
        return (n + (x_z + h_z).sigmoid() * (h - n),)

    return b_ih, cell


def _in_ops(
    input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> tuple[Any]:
    return (in_ops(gru_in_ops, input, (h,), (w_ih, w_hh, b_ih, b_hh), reverse)[0],)


def _back(
    g0: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool,
    result1: Any, result2: Any, needs: Any,
) -> Any:  # fmt: skip
    given = input, h0, w_ih, w_hh, b_ih, b_hh
    if modes.state.grad or g0._hollow:
        return rematerialize(partial(_in_ops, reverse=reverse), (*given, _NAMES), (g0,), needs)
    d, resets, place = None, None, in_place_of(g0)
    if is_last_reader(result1) and is_last_reader(result2):
        d, resets = place_of(result1), result2._skimp_writable()
    return _gradients(given, g0, (result1, result2), reverse, needs, (d, resets, place))


def _step_back(
    g0: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, result1: Any,
    result2: Any, needs: Any,
) -> Any:  # fmt: skip
    given = input, h0, w_ih, w_hh, b_ih, b_hh
    if modes.state.grad or g0._hollow:
        return rematerialize(partial(_in_ops, reverse=False), (*given, _NAMES), (g0,), needs)
    dh, gates, hidden, x, before, w, w_hh = arrays((g0, result1, result2, input, h0, w_ih, w_hh))
    (batch, n), dtype = hidden.shape, input._dtype
    _held, d = blank((batch, 3 * n), dtype)  # counted until they go
    _held_too, behind = blank((batch, 3 * n), dtype)
    quietly(_gates_back, d, behind, dh, (gates, hidden, None, before))
    dx, dw_ih = of_side(d, np.ascontiguousarray(x), w, ("input", "w_ih"), input, needs)
    dh0, dw_hh = of_side(behind, before, w_hh, ("h0", "w_hh"), input, needs)
    if dh0 is not None:
        quietly(_add_product, dh, gates[1], dh0._skimp_array())
    of_ih, of_hh = of_bias(d, "b_ih", input, needs), of_bias(behind, "b_hh", input, needs)
    return dx, dh0, dw_ih, dw_hh, of_ih, of_hh


def _gates_back(d: Array, behind: Array, dh: Array, kept: Kept) -> None:
    """d = the gradients of a cell's gates, and of those behind its hidden part."""
    gates, hidden, _, before = kept
    slopes, (batch, n) = np.empty((1, 3, *hidden.shape), d.dtype), hidden.shape
    if (loops := compiled.taking(d, behind, dh, gates, hidden, before)) is not None:
        one, other, rest = slopes[0]
        loops.gru_back(gates, hidden, before, dh, one, d, behind, other, rest)
        return
    _slopes((gates[None], hidden[None], None, before), slice(0, 1), slopes)
    by_gate, to_behind = [a.reshape(batch, 3, n).transpose(1, 0, 2) for a in (d, behind)]
    _go_through(dh, gates[0], slopes[0], by_gate, to_behind)


def _add_product(a: Array, b: Array, into: Array) -> None:
    into += a * b


def _gradients(
    given: Any, g: Any, made: tuple[Any, Any], reverse: bool, needs: Any,
    places: tuple[Array | None, Array | None, Tensor | None],
) -> Any:  # fmt: skip
    """`places`: where the gradients of the gates go, if they take the gates' place; then the resets
    go to that of the hidden parts; and where the input's go, if that is the place of the result's.
    Each tensor lends its array for as long as that is read, so that within a budget it may go
    before and after."""
    (input, h0, w_ih, w_hh, _, _), (gates, hidden), (d, resets, place) = given, made, places
    time, _, batch, n = shape_of(gates)
    if d is None:
        _held, d = blank((time, batch, 3 * n), input._dtype)  # counted until it goes
    kept, out = blank((time, batch, n), input._dtype)
    dh = np.zeros((batch, n), d.dtype)
    way = slice(None, None, -1 if reverse else 1)
    first = h0._skimp_array()
    quietly(
        _steps_back, d[way], dh, g._skimp_array()[way],
        (gates._skimp_array()[way], hidden._skimp_array()[way], out[way], first),
        None if resets is None else resets[way], w_hh._skimp_array(),
    )  # fmt: skip
    if resets is None:
        _held_so, resets = blank((time, batch, n), input._dtype)
        resets[...] = gates._skimp_array()[:, 0]
    new = d[..., 2 * n :]
    _to_behind(new, resets)
    dw_hh = of_w_hh(d, out, first, reverse, input, needs)
    of_hh = of_bias(d, "b_hh", input, needs)
    del kept, out
    new[...] = resets
    dw_ih, of_ih = of_w_ih(d, input, needs), of_bias(d, "b_ih", input, needs)
    dx = input_back(d, w_ih, input, needs, place)
    return dx, tensor(dh, input), dw_ih, dw_hh, of_ih, of_hh


def _to_behind(new: Array, resets: Array) -> None:
    """new = the gradients of the new gate behind its hidden part, and what it was in the place of
    the resets."""
    for some in some_steps(len(new), new[0].size, False):
        before = new[some].copy()
        new[some] *= resets[some]
        resets[some] = before


def _steps_back(d: Array, dh: Array, g: Array, kept: Kept, resets: Array | None, w: Array) -> None:
    """d = the gradients of the gates of all steps, maybe in the place of the gates, and then the
    resets in that of the hidden parts; dh, of the last state, becomes that of the first. The hidden
    part of `new` is behind the reset. Where the results are to be, they are made again."""
    gates, _, results, first = kept
    assert results is not None
    for a, into in zip(gates, results, strict=True):
        _mix(first, a, into)
        first = into
    time, _, batch, n = gates.shape
    behind, many = np.empty((batch, 3 * n), d.dtype), most(time, gates[0].size)
    if time == 1:
        times_w: Any = partial(multiply, b=w, out=dh)
        one = np.empty((1, 3, batch, n), d.dtype)
        _go_back(d, dh, g, kept, resets, behind, times_w, one)
        return
    with (
        recurrence.product(behind, w, dh) as times_w,
        Scratch((many, 3, batch, n), d.dtype) as factors,
    ):
        _go_back(d, dh, g, kept, resets, behind, times_w, factors)


def _go_back(
    d: Array, dh: Array, g: Array, kept: Kept, resets: Array | None, behind: Array,
    times_w: Any, factors: Array,
) -> None:  # fmt: skip
    gates, hidden, results, first = kept
    time, _, batch, n = gates.shape
    by_gate = d.reshape(time, batch, 3, n).transpose(0, 2, 1, 3)
    to_behind, through = behind.reshape(batch, 3, n).transpose(1, 0, 2), bare.empty_like(dh)
    loops = compiled.taking(d[0], dh, gates[0], hidden[0], first)
    for steps in some_steps(time, gates[0].size, True):
        slopes = factors[: steps.stop - steps.start]
        if loops is None:
            _slopes(kept, steps, slopes)
            if resets is not None:
                resets[steps] = gates[steps, 0]
        for t in one_by_one(steps, True):
            dh += g[t]
            slope = slopes[t - steps.start]
            if loops is None:
                reset = gates[t, 0] if resets is None else resets[t]
                bare.multiply(dh, gates[t, 1], out=through)  # before the gates are written over
                _go_through(dh, reset, slope, by_gate[t], to_behind)
            else:
                before = results[t - 1] if t and results is not None else first
                to = slope[1] if resets is None else resets[t]
                seen = gates[t], hidden[t], before
                loops.gru_back(*seen, dh, slope[0], d[t], behind, to, through)
            times_w(behind)
            dh += through


def _go_through(dh: Array, reset: Array, slope: Array, into: Array, behind: Array) -> None:
    """into = the gradients of a step's gates; those behind its hidden part."""
    bare.multiply(slope, dh, out=into)
    bare.multiply(slope[:2], dh, out=behind[:2])
    slope[2] *= dh
    bare.multiply(slope[2], reset, out=behind[2])


def _slopes(kept: Kept, steps: slice, out: Array) -> None:
    """out = what of the result's gradient reaches each gate, of some steps."""
    gates, hidden_part, results, first = kept
    a = gates[steps]
    reset, update, new = a[:, 0], a[:, 1], a[:, 2]
    to_reset, to_update, to_new = out[:, 0], out[:, 1], out[:, 2]
    bare.subtract(1, a, out=out)
    bare.multiply(new, new, out=to_new)
    bare.subtract(1, to_new, out=to_new)
    to_new *= to_update
    for factor in (reset, hidden_part[steps], to_new):
        to_reset *= factor
    to_update *= update
    for t, slope in enumerate(to_update, steps.start):
        before = results[t - 1] if t and results is not None else first
        slope *= before - gates[t, 2]


@hidden(
    nondiff=(1, 2),
    rule=Rule("GruBackward0", {_NAMES: _back}, releases_early=True, at_once=True),
    batch=batching.layers.recurrent,
    meta=shapes.gru_layer,
)
def _gru_layer(
    input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool
) -> Any:
    """(the results of all steps, all gates, the hidden part of `new` before its reset)."""
    return _forward((input, h0, w_ih, w_hh, b_ih, b_hh), reverse)


@hidden(
    nondiff=(1, 2),
    rule=Rule("ThnnFusedGruCellBackward0", {_NAMES: _step_back}, at_once=True),
    batch=batching.layers.recurrent,
    meta=shapes.gru_layer,
)
def _gru_step(input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """(the new h, its gates, the hidden part of `new` before its reset)."""
    x, h, w_ih, w_hh, b_ih, b_hh = arrays((input, h0, w_ih, w_hh, b_ih, b_hh))
    dtype = input._dtype
    result, out = blank(h.shape, dtype)
    kept_gates, gates = blank((3, *h.shape), dtype)
    kept_hidden, hidden = blank(h.shape, dtype)
    given = np.ascontiguousarray(x), w_ih, _begin(hidden, b_ih, b_hh), np.ascontiguousarray(h)
    quietly(_step, given, w_hh, line(_SCALE, dtype.np), (gates, hidden, out))
    return result, kept_gates, kept_hidden


def _forward(tensors: Any, reverse: bool) -> Any:
    """Of a sequence."""
    x, h, w_ih, w_hh, b_ih, b_hh = arrays(tensors)
    dtype, time, (batch, n) = tensors[0]._dtype, len(x), h.shape
    result, out = blank((time, batch, n), dtype)
    kept_gates, gates = blank((time, 3, batch, n), dtype)
    kept_hidden, hidden = blank((time, batch, n), dtype)
    given = np.ascontiguousarray(x), w_ih, _begin(hidden, b_ih, b_hh), np.ascontiguousarray(h)
    quietly(_steps, given, w_hh, line(_SCALE, dtype.np), (gates, hidden, out), reverse)
    return result, kept_gates, kept_hidden


def _begin(hidden: Array, b_ih: Array | None, b_hh: Array | None) -> Array | None:
    """hidden = the bias of the hidden part of `new`; the others, a row for each gate."""
    bias = None if b_ih is None else b_ih.reshape(3, -1)
    if b_hh is None:
        hidden.fill(0)
        return bias
    of_h = b_hh.reshape(3, -1)
    hidden[...] = of_h[2]
    bias = np.zeros(of_h.shape, of_h.dtype) if bias is None else bias.copy()
    bias[:2] += of_h[:2]
    return bias


def _step(given: Any, w: Array, bend: Any, made: Any) -> None:
    """The gates, the hidden part of `new`, in whose place is its bias, and the result of a step."""
    (x, w_ih, bias, h), (gates, hidden, out), sides = given, made, 2 * made[2].shape[1]
    recurrence.project(x, w_ih, bias, gates)
    recurrence.activate(w[:sides], True, bend, h, gates[:2])
    recurrence.activate(w[sides:], False, None, h, hidden[None])
    _show(h, gates, hidden, out)


def _steps(given: Any, w: Array, bend: Any, made: Any, reverse: bool) -> None:
    """The gates, the hidden part of `new`, in whose place is its bias, and results of all
    steps."""
    x, w_ih, bias, h = given
    if len(x) == 1:
        _step((x[0], w_ih, bias, h), w, bend, [a[0] for a in made])
        return
    sides = 2 * h.shape[1]
    with (
        recurrence.activation(w[:sides], 2, len(h), True, bend) as to_sides,
        recurrence.activation(w[sides:], 1, len(h), False) as to_hidden,
        recurrence.projection(w_ih, bias, 3, len(h), most(len(x), 3 * h.size)) as project,
    ):
        _go((project, to_sides, to_hidden), x, h, made, reverse)


def _go(steps: Any, x: Array, h: Array, made: Any, reverse: bool) -> None:
    (project, to_sides, to_hidden), (gates, hidden, out) = steps, made
    for some in some_steps(len(x), gates[0].size, reverse):
        project(x[some], gates[some])
        for t in one_by_one(some, reverse):
            a, beside = gates[t], hidden[t]
            to_sides(h, a[:2])
            to_hidden(h, beside[None])
            _show(h, a, beside, out[t])
            h = out[t]


def _show(h: Array, gates: Array, hidden: Array, into: Array) -> None:
    """The new gate, and into = what it is together with h."""
    reset, _, new = gates
    bare.multiply(reset, hidden, out=into)
    bare.add(new, into, out=new)
    bare.tanh(new, out=new)
    _mix(h, gates, into)


def _mix(h: Array, gates: Array, into: Array) -> None:
    """into = (h - new) * update + new"""
    if (loops := compiled.taking(gates, h, into)) is not None:
        loops.gru_shown(gates, h, into)
        return
    new = gates[2]
    bare.subtract(h, new, out=into)
    bare.multiply(into, gates[1], out=into)
    bare.add(into, new, out=into)


@called("gru")
def gru_layer(
    input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
) -> tuple[Tensor, tuple[Tensor]]:
    """One direction of one layer: (the results of all steps, the last state)."""
    w_ih, w_hh, b_ih, b_hh, _ = weights
    out = _gru_layer(input, *state, w_ih, w_hh, b_ih, b_hh, reverse)[0]
    return out, (out.select(0, 0 if reverse else -1),)


@called("gru_cell")
def gru_step(input: Tensor, state: tuple[Tensor, ...], weights: Any) -> tuple[Tensor]:
    """The next state of a cell."""
    return (_gru_step(input, *state, *weights)[0],)
