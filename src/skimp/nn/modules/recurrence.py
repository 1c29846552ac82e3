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
from skimp._ops.nn.recurrent_gru import gru_layer
from skimp._ops.nn.recurrent_lstm import lstm_layer
from skimp._ops.nn.recurrent_rnn import rnn_layer
from skimp._ops.nn.recurrent_step import lstm_step
from skimp.amp.state import is_autocast_enabled
from skimp.nn import functional as F, ops

State = tuple[Tensor, ...]  # (h,) or (h, c)
Cell = Callable[
    [Tensor, State], State
]  # the step's share of the input projection, the state -> the new state
Weights = Sequence[Any]  # weight_ih, weight_hh, bias_ih or None, bias_hh or None, weight_hr or None


def _simple(activation: Callable[[Tensor], Tensor]) -> Callable[[Weights], tuple[Any, Cell]]:
    def build(weights: Weights) -> tuple[Any, Cell]:
        _, w, b_ih, b_hh, _ = weights
        across = w.t()

        def cell(x: Tensor, state: State) -> State:
            return (activation(ops.addmm(x, state[0], across)),)

        return _sum(b_ih, b_hh), cell

    return build


def _lstm(weights: Weights) -> tuple[Any, Cell]:
    _, w, b_ih, b_hh, w_hr = weights
    across = w.t()
    down = None if w_hr is None else w_hr.t()

    def cell(x: Tensor, state: State) -> State:
        gates, c = ops.addmm(x, state[0], across), state[1]
        if recurrent.is_plain((gates, c)) and gates.shape[:-1] == c.shape[:-1]:
            h, c = lstm_step(gates, c)
        else:
            i, f, g, o = gates.chunk(4, 1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
        return h if down is None else ops.mm(h, down), c

    return _sum(b_ih, b_hh), cell


def _gru(weights: Weights) -> tuple[Any, Cell]:
    _, w, b_ih, b_hh, _ = weights

    def cell(x: Tensor, state: State) -> State:
        h = state[0]
        x_r, x_z, x_n = x.chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, w, b_hh).chunk(3, 1)
        n = ops.tanh(x_n + ops.sigmoid(x_r + h_r) * h_n)
        return (n + ops.sigmoid(x_z + h_z) * (h - n),)

    return b_ih, cell


def _sum(a: Any, b: Any) -> Any:
    return None if a is None else a + b


CELLS: dict[str, Callable[[Weights], tuple[Any, Cell]]] = {
    "RNN_TANH": _simple(lambda t: ops.tanh(t)),
    "RNN_RELU": _simple(lambda t: ops.relu(t)),
    "LSTM": _lstm,
    "GRU": _gru,
}

# an unpacked sequence as one op, where nothing is projected
_WHOLE: dict[str, Callable[..., tuple[Tensor, State]]] = {
    "RNN_TANH": rnn_layer("tanh"),
    "RNN_RELU": rnn_layer("relu"),
    "LSTM": lstm_layer,
    "GRU": gru_layer,
}


def once(mode: str, input: Tensor, state: State, weights: Weights) -> State:
    """One step of a cell."""
    bias, cell = CELLS[mode](weights)
    x = F.linear(input, weights[0], bias)
    if mode in ("LSTM", "GRU"):  # whose gates PyTorch writes over the product
        refuse_cast(dtypes.float32, x._dtype)
    return cell(x, state)


def _padded(cell: Cell, xs: Tensor, state: State, reverse: bool) -> tuple[Tensor, State]:
    """Over (time, batch, features)."""
    steps = xs.unbind(0)
    found: list[Tensor] = []
    for x in reversed(steps) if reverse else steps:
        state = cell(x, state)
        found.append(state[0])
    if reverse:
        found.reverse()
    return ops.stack(found), state


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
    if (
        sizes is None
        and weights[4] is None
        and not is_autocast_enabled("cpu")
        and recurrent.is_plain((input, *start, *weights))
    ):
        return _WHOLE[mode](input, start, weights, reverse)
    bias, cell = CELLS[mode](weights)
    xs = F.linear(input, weights[0], bias)
    if sizes is None:
        return _padded(cell, xs, start, reverse)
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
