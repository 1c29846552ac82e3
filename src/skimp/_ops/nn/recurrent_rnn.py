"""Elman's RNN over a whole sequence, or one step, as one op (see `recurrent`), which keeps its
result alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.last_reader import in_place_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import named as called
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, recurrence
from skimp._kernels.blas import multiply
from skimp._kernels.recurrence import Step
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.linalg.matmul_add import addmm
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.recurrent import (
    Build,
    Cell,
    State,
    added,
    arrays,
    bias_of,
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
)

_NAMES = ("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")


def rnn_in_ops(activation: str) -> Build:
    """The cell by tanh or relu, of any tensors, and what is added to the input's product."""

    def build(weights: Sequence[Any]) -> tuple[Any, Cell]:
        _, w, b_ih, b_hh = weights
        across = w.t()

        def cell(x: Any, state: State) -> State:
            a = addmm(x, state[0], across)
            return (a.relu() if activation == "relu" else a.tanh(),)

        return added(b_ih, b_hh), cell

    return build


_BUILDS = tuple([rnn_in_ops(activation) for activation in ("tanh", "relu")])


def _in_ops(
    input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool, reverse: bool
) -> tuple[Any]:
    weights = w_ih, w_hh, b_ih, b_hh
    return (in_ops(_BUILDS[relu], input, (h,), weights, reverse)[0],)


def _back(
    g: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool,
    reverse: bool, result: Any, needs: Any,
) -> Any:  # fmt: skip
    given = input, h0, w_ih, w_hh, b_ih, b_hh
    if modes.state.grad or g._hollow:
        cell = partial(_in_ops, relu=relu, reverse=reverse)
        return rematerialize(cell, (*given, _NAMES), (g,), needs)
    place = in_place_of(g)
    first = h0._skimp_array()
    out, g = [t._skimp_array().reshape(-1, *first.shape) for t in (result, g)]
    _held, d = blank(out.shape, input._dtype)  # counted until it goes
    dh = np.zeros(out.shape[1:], d.dtype)
    way = slice(None, None, -1 if reverse else 1)
    quietly(_steps_back, d[way], dh, g[way], out[way], w_hh._skimp_array(), relu)
    del out, g  # within a budget they may go
    dw_hh = of_w_hh(d, result._skimp_array(), first, reverse, input, needs)
    dw_ih = of_w_ih(d, input, needs)
    dx = input_back(d, w_ih, input, needs, place)
    return dx, tensor(dh, input), dw_ih, dw_hh, *of_biases(d, input, needs)


def _steps_back(d: Array, dh: Array, g: Array, out: Array, w: Array, relu: bool) -> None:
    """d = the gradients before tanh or relu of all steps; dh, of the last state, becomes that of
    the first."""
    back = _relu_back if relu else _tanh_back
    if len(d) == 1:
        back(d, dh, g, out, partial(multiply, b=w, out=dh))
        return
    with recurrence.product(d[0], w, dh) as times_w:
        back(d, dh, g, out, times_w)


def _tanh_back(d: Array, dh: Array, g: Array, out: Array, times_w: Any) -> None:
    for steps in some_steps(len(d), dh.size, True):
        slopes = d[steps]
        bare.multiply(out[steps], out[steps], out=slopes)
        bare.subtract(1, slopes, out=slopes)
        for t in one_by_one(steps, True):
            dh += g[t]
            into = d[t]
            into *= dh
            times_w(into)


def _relu_back(d: Array, dh: Array, g: Array, out: Array, times_w: Any) -> None:
    """All bits of a number go on, or none: 0 times infinity were no 0."""
    kind = np.dtype(f"i{d.itemsize}")
    bits, given = d.view(kind), dh.view(kind)
    for steps in some_steps(len(d), dh.size, True):
        masks = bits[steps]
        bare.less_equal(out[steps], 0, out=masks)
        masks -= 1
        for t in one_by_one(steps, True):
            dh += g[t]
            bare.bitwise_and(bits[t], given, out=bits[t])
            times_w(d[t])


@hidden(
    rule=Rule("RnnBackward0", {_NAMES: _back}, at_once=True),
    batch=batching.layers.recurrent,
    meta=shapes.rnn_layer,
)
def _rnn_layer(
    input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool, reverse: bool
) -> Any:
    """The results of all steps, or of a cell's input."""
    x, h, w_ih, w_hh, b_ih, b_hh = arrays((input, h0, w_ih, w_hh, b_ih, b_hh))
    x, h = np.ascontiguousarray(x), np.ascontiguousarray(h)
    result, out = blank((*x.shape[:-2], *h.shape), input._dtype)
    out = out.reshape(-1, 1, *h.shape)
    given = x.reshape(len(out), len(h), -1), h
    quietly(_steps, given, (w_ih, w_hh), bias_of(b_ih, b_hh, 1), out, relu, reverse)
    return result


def _steps(given: Any, w: Any, bias: Array | None, out: Array, relu: bool, reverse: bool) -> None:
    """The results of all steps, in whose place is first what comes from the input."""
    x, h = given
    w_ih, w_hh = w
    if len(x) == 1:
        recurrence.project(x[0], w_ih, bias, out[0])
        _go(partial(recurrence.activate, w_hh, not relu, None), h, out[0], relu)
        return
    with (
        recurrence.activation(w_hh, 1, len(h), not relu) as step,
        recurrence.projection(w_ih, bias, 1, len(h), most(len(x), h.size)) as project,
    ):
        for some in some_steps(len(x), h.size, reverse):
            project(x[some], out[some])
            for t in one_by_one(some, reverse):
                h = _go(step, h, out[t], relu)


def _go(step: Step, h: Array, into: Array, relu: bool) -> Array:
    """The next state, in whose place is what comes from the input."""
    step(h, into)
    if relu:  # by oneDNN a NaN were 0
        bare.maximum(into, 0, out=into)
    new: Array = into[0]
    return new


def rnn_layer(activation: str) -> Callable[..., tuple[Tensor, tuple[Tensor]]]:
    """The RNN by tanh or relu."""
    relu = activation == "relu"

    @called(f"rnn_{activation}")
    def layer(
        input: Tensor, state: tuple[Tensor, ...], weights: Any, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor]]:
        """One direction of one layer: (the results of all steps, the last state)."""
        w_ih, w_hh, b_ih, b_hh, _ = weights
        out = _rnn_layer(input, *state, w_ih, w_hh, b_ih, b_hh, relu, reverse)
        return out, (out.select(0, 0 if reverse else -1),)

    return layer


def rnn_step(activation: str) -> Callable[..., tuple[Tensor]]:
    """A step of the cell by tanh or relu."""
    relu = activation == "relu"

    @called(f"rnn_{activation}_cell")
    def step(input: Tensor, state: tuple[Tensor, ...], weights: Any) -> tuple[Tensor]:
        """The next state of a cell."""
        return (_rnn_layer(input, *state, *weights, relu, False),)

    return step
