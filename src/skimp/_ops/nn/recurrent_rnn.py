"""Elman's RNN over a whole sequence as one op (see `recurrent`), which keeps its result alone."""

from __future__ import annotations

from collections.abc import Callable
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
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.recurrent import (
    State,
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
from skimp._ops.reduce.softmax import contiguous_array

_NAMES = ("input", "h0", "w_ih", "w_hh", "b_ih", "b_hh")


def _in_ops(
    input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool, reverse: bool
) -> tuple[Any]:
    def step(x: Any, state: State) -> State:
        a = x.matmul(w_ih.t()) + state[0].matmul(w_hh.t())
        a = a if b_ih is None else a + b_ih + b_hh
        return (a.relu() if relu else a.tanh(),)

    return (in_ops(step, input, (h,), reverse)[0],)


def _back(
    g: Any, input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool,
    reverse: bool, result: Any, needs: Any,
) -> Any:  # fmt: skip
    if modes.state.grad or g._hollow:
        return rematerialize(
            partial(_in_ops, relu=relu, reverse=reverse),
            (input, h0, w_ih, w_hh, b_ih, b_hh, _NAMES),
            (g,),
            needs,
        )
    out = result._skimp_array()
    _held, d = blank(out.shape, input._dtype)  # counted until it goes
    dh = np.zeros(out.shape[1:], d.dtype)
    way = slice(None, None, -1 if reverse else 1)
    back = _relu_back if relu else _tanh_back
    quietly(back, d[way], dh, g._skimp_array()[way], out[way], w_hh._skimp_array())
    dw_hh = of_w_hh(d, out, h0._skimp_array(), reverse, input)
    dw_ih = of_w_ih(d, input)
    dx = input_back(d, w_ih, input, needs)
    return dx, tensor(dh, input), dw_ih, dw_hh, *of_biases(d, b_ih)


def _tanh_back(d: Array, dh: Array, g: Array, out: Array, w: Array) -> None:
    """d = the gradients before tanh of all steps; dh, of the last state, becomes that of the
    first."""
    with recurrence.product(d[0], w, dh) as times_w:
        for steps in some_steps(len(d), dh.size, True):
            slopes = d[steps]
            np.multiply(out[steps], out[steps], out=slopes)
            np.subtract(1, slopes, out=slopes)
            for t in one_by_one(steps, True):
                dh += g[t]
                into = d[t]
                into *= dh
                times_w(into)


def _relu_back(d: Array, dh: Array, g: Array, out: Array, w: Array) -> None:
    """As `_tanh_back`. All bits of a number go on, or none: 0 times infinity were no 0."""
    kind = np.dtype(f"i{d.itemsize}")
    bits, given = d.view(kind), dh.view(kind)
    with recurrence.product(d[0], w, dh) as times_w:
        for steps in some_steps(len(d), dh.size, True):
            masks = bits[steps]
            np.less_equal(out[steps], 0, out=masks)
            masks -= 1
            for t in one_by_one(steps, True):
                dh += g[t]
                np.bitwise_and(bits[t], given, out=bits[t])
                times_w(d[t])


@hidden(
    rule=Rule("RnnBackward0", {_NAMES: _back}),
    batch=batching.layers.recurrent,
    meta=shapes.rnn_layer,
)
def _rnn_layer(
    input: Any, h0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool, reverse: bool
) -> Any:
    """The results of all steps."""
    time, batch = input.shape[:2]
    result, out = blank((time, batch, h0.shape[1]), input._dtype)
    bias = None if b_ih is None else (b_ih._skimp_array() + b_hh._skimp_array())[None]
    w = [weight._skimp_array() for weight in (w_ih, w_hh)]
    given = contiguous_array(input), contiguous_array(h0)
    quietly(_steps, given, w, bias, out[:, None], relu, reverse)
    return result


def _steps(given: Any, w: Any, bias: Array | None, out: Array, relu: bool, reverse: bool) -> None:
    """The results of all steps, in whose place is first what comes from the input."""
    x, h = given
    w_ih, w_hh = w
    with (
        recurrence.activation(w_hh, 1, len(h), not relu) as step,
        recurrence.projection(w_ih, bias, 1, len(h), most(len(x), h.size)) as project,
    ):
        for some in some_steps(len(x), h.size, reverse):
            project(x[some], out[some])
            for t in one_by_one(some, reverse):
                step(h, out[t])
                h = out[t, 0]
                if relu:  # by oneDNN a NaN were 0
                    np.maximum(h, 0, out=h)


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
