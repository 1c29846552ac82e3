"""What recurrent layers compute: cells, a layer over a padded or a packed sequence, layers on top
of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import refuse_cast
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn import recurrent
from skimp._ops.nn.recurrent_gru import gru_in_ops, gru_layer, gru_step
from skimp._ops.nn.recurrent_lstm import lstm_in_ops, lstm_layer, lstm_step
from skimp._ops.nn.recurrent_rnn import rnn_in_ops, rnn_layer, rnn_step
from skimp.amp.state import state as autocast
from skimp.nn import functional as F, ops

State = tuple[Tensor, ...]  # (h,) or (h, c)
Cell = recurrent.Cell
Weights = Sequence[Any]  # weight_ih, weight_hh, bias_ih or None, bias_hh or None, weight_hr or None


# the cell in ops, which any tensors go through, and as one op
_IN_OPS: dict[str, recurrent.Build] = {
    "RNN_TANH": rnn_in_ops("tanh"),
    "RNN_RELU": rnn_in_ops("relu"),
    "LSTM": lstm_in_ops,
    "GRU": gru_in_ops,
}
_STEPS: dict[str, Callable[..., State]] = {
    "RNN_TANH": rnn_step("tanh"),
    "RNN_RELU": rnn_step("relu"),
    "LSTM": lstm_step,
    "GRU": gru_step,
}
_GATES = {"LSTM": 4, "GRU": 3}  # of others 1
# an unpacked sequence as one op, where nothing is projected
_WHOLE: dict[str, Callable[..., tuple[Tensor, State]]] = {
    "RNN_TANH": rnn_layer("tanh"),
    "RNN_RELU": rnn_layer("relu"),
    "LSTM": lstm_layer,
    "GRU": gru_layer,
}


def once(mode: str, input: Tensor, state: State, weights: Weights) -> State:
    """One step of a cell."""
    gates = _GATES.get(mode, 1)
    if not autocast.enabled["cpu"] and recurrent.makes_step(input, state, weights, gates):
        return _STEPS[mode](input, state, weights)
    bias, cell = _IN_OPS[mode](weights)
    x = F.linear(input, weights[0], bias)
    if mode in ("LSTM", "GRU"):  # whose gates PyTorch writes over the product
        refuse_cast(dtypes.float32, x._dtype)
    return cell(x, state)


def _cell(mode: str, weights: Weights, plain: bool) -> tuple[Any, Cell]:
    """What is added to the input's product, and the cell after it."""
    bias, cell = _IN_OPS[mode](weights[:4])
    if plain:
        step, rest = _STEPS[mode], (None, weights[1], None, weights[3] if mode == "GRU" else None)
        cell = lambda x, state: step(x, state, rest)  # noqa: E731
    if weights[4] is None:
        return bias, cell
    whole, down = cell, weights[4].t()

    def projected(x: Tensor, state: State) -> State:
        h, c = whole(x, state)
        return ops.mm(h, down), c

    return bias, projected


def _packed(
    cell: Cell, xs: Tensor, state: State, reverse: bool, sizes: list[int]
) -> tuple[Tensor, State]:
    """Over the rows of a packed sequence: as many as there are sequences that are still going
    on.
    """
    steps = xs.split(sizes)
    return (
        _packed_back(cell, steps, state, sizes)
        if reverse
        else _packed_on(cell, steps, state, sizes)
    )


def _packed_on(
    cell: Cell, steps: Sequence[Tensor], state: State, sizes: list[int]
) -> tuple[Tensor, State]:
    found: list[Tensor] = []
    ended: list[State] = []
    for x, size in zip(steps, sizes, strict=True):
        if size < state[0].size(0):
            ended.append(tuple([s[size:] for s in state]))
            state = tuple([s[:size] for s in state])
        state = cell(x, state)
        found.append(state[0])
    ended.append(state)
    return ops.cat(found), _rows(ended[::-1])


def _packed_back(
    cell: Cell, steps: Sequence[Tensor], state: State, sizes: list[int]
) -> tuple[Tensor, State]:
    found: list[Tensor] = []
    going = tuple([s[: sizes[-1]] for s in state])
    for x, size in zip(reversed(steps), reversed(sizes), strict=True):
        have = going[0].size(0)
        if size > have:
            going = _rows([going, tuple([s[have:size] for s in state])])
        going = cell(x, going)
        found.append(going[0])
    return ops.cat(found[::-1]), going


def _rows(states: list[State]) -> State:
    return (
        states[0]
        if len(states) == 1
        else tuple([ops.cat(parts) for parts in zip(*states, strict=True)])
    )


def _direction(
    mode: str, input: Tensor, start: State, weights: Weights, reverse: bool, sizes: list[int] | None
) -> tuple[Tensor, State]:
    """One direction of one layer."""
    plain = not autocast.enabled["cpu"] and recurrent.is_plain((input, *start, *weights))
    if plain and sizes is None and weights[4] is None:
        return _WHOLE[mode](input, start, weights, reverse)
    bias, cell = _cell(mode, weights, plain)
    xs = F.linear(input, weights[0], bias)
    if sizes is None:
        return recurrent.padded(cell, xs, start, reverse)
    return _packed(cell, xs, start, reverse, sizes)


def run(
    mode: str,
    input: Tensor,
    hidden: State,
    weights: list[Weights],
    sizes: list[int] | None,
    directions: int,
    dropout: float,
) -> tuple[Tensor, State]:
    """All layers over (time, batch, features), or over packed rows; `weights` of each layer and
    direction in turn.
    """
    ends: list[State] = []
    layers = len(weights) // directions
    for layer in range(layers):
        outs = []
        for direction in range(directions):
            index = layer * directions + direction
            start = tuple([h[index] for h in hidden])
            out, end = _direction(mode, input, start, weights[index], direction == 1, sizes)
            outs.append(out)
            ends.append(end)
        input = outs[0] if directions == 1 else ops.cat(outs, -1)
        if dropout > 0 and layer < layers - 1:
            input = F.dropout(input, dropout, True)
    return input, tuple([ops.stack(parts) for parts in zip(*ends, strict=True)])
