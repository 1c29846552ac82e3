"""Recurrent layers: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import warnings
import weakref
from typing import Any

from skimp._engine.tensor.checks import (
    require,
    require_ndim,
    require_not_negative,
    require_one_of,
    require_positive,
    require_size,
    require_type,
)
from skimp._engine.tensor.options import InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.amp.casting import lowered
from skimp.amp.state import state as autocast
from skimp.nn import init, ops
from skimp.nn.modules import recurrence
from skimp.nn.modules.module import Module
from skimp.nn.utils.rnn import PackedSequence

SAYS = """\
Dtypes: floating point, input, state and weights alike.
Raises: TypeError and ValueError for options of wrong types or out of range; in forward, ValueError
for other ranks and dtypes, RuntimeError for widths and states that don't fit.
Memory: new tensors; with `batch_first` the output is a transposed view of one. Backward keeps what
each step computed."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


@options
class RNNBase(Module):
    """Weights and the forward of recurrent layers.

    Shape: as RNN, LSTM and GRU say.
    """

    _skimp_shows = (
        "input_size, hidden_size, proj_size?, num_layers?, bias?, batch_first?, dropout?, "
        "bidirectional?"
    )
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    bidirectional: bool = False
    proj_size: int = 0
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, device: Any, dtype: Any) -> None:
        dropout, num_layers = self.dropout, self.num_layers
        self.dropout = float(_fraction(dropout))
        _check(self)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                "dropout expects num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=4,
            )
        gates = _GATES[self.mode] * self.hidden_size
        out = self.proj_size or self.hidden_size
        directions = 2 if self.bidirectional else 1
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih_l{layer}{suffix}": (
                        gates,
                        self.input_size if layer == 0 else out * directions,
                    ),
                    f"weight_hh_l{layer}{suffix}": (gates, out),
                }
                if self.bias:
                    shapes |= {
                        f"bias_ih_l{layer}{suffix}": (gates,),
                        f"bias_hh_l{layer}{suffix}": (gates,),
                    }
                if self.proj_size > 0:
                    projection = (self.proj_size, self.hidden_size)
                    shapes[f"weight_hr_l{layer}{suffix}"] = projection
                self._skimp_new_parameters(device, dtype, **shapes)
                self._flat_weights_names += shapes
                self._all_weights.append(list(shapes))
        self._init_flat_weights()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: there is no cuDNN here that wants the weights in one block."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    # -- the weights as one list, which programs replace (weight drop) -----------------------------

    def _init_flat_weights(self) -> None:
        """List the weights anew, and note which they are."""
        named: list[Any] = [getattr(self, name, None) for name in self._flat_weights_names]
        self._flat_weights = named
        self._listed = [w if w is None else weakref.ref(w) for w in named]

    def _skimp_listed_anew(self) -> list[Any]:
        """`_flat_weights`, listed anew if an attribute has become another tensor since."""
        for name, noted in zip(self._flat_weights_names, self._listed, strict=True):
            weight = getattr(self, name, None)
            if weight is not None and noted is not None and noted() is not weight:
                self._init_flat_weights()
                break
        return self._flat_weights

    def __setattr__(self, name: str, value: Any) -> None:
        names = self.__dict__.get("_flat_weights_names", ())
        if name in names and "_flat_weights" in self.__dict__:
            self._flat_weights[names.index(name)] = value
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_listed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._init_flat_weights()

    def _skimp_weights(self) -> list[recurrence.Weights]:
        """The weights of each layer and direction as recurrence.run takes them."""
        flat = iter(self._skimp_listed_anew())
        found: list[recurrence.Weights] = []
        for names in self._all_weights:
            weights = [next(flat) for _ in names]
            biases = weights[2:4] if self.bias else [None, None]
            found.append([*weights[:2], *biases, weights[-1] if self.proj_size > 0 else None])
        return found

    # -- checks -----------------------------------------------------------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Refuse an input of the wrong dtype, rank or width."""
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not autocast.enabled["cpu"]:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                "Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        dims = 2 if batch_sizes is not None else 3
        says = f"input must have {dims} dimensions, got {{got}}"
        require_ndim(input, dims, says=says, error=RuntimeError)
        says = "input.size(-1) must be equal to input_size. Expected {wanted}, got {got}"
        require_size(input, -1, self.input_size, says, RuntimeError)

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the hidden state for this input."""
        return self._skimp_state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the cell state for this input."""
        return self._skimp_state_size(input, batch_sizes, self.hidden_size)

    def _skimp_state_size(
        self, input: Tensor, batch_sizes: Tensor | None, width: int
    ) -> tuple[int, int, int]:
        batch = (
            int(batch_sizes[0])
            if batch_sizes is not None
            else input.size(0 if self.batch_first else 1)
        )
        return self.num_layers * (2 if self.bidirectional else 1), batch, width

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Refuse a state of another shape."""
        if tuple(hx.size()) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuse an input or a state of another shape. Subclasses have forms of their own."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state of sequences in another order."""
        return hx if permutation is None else hx.index_select(1, permutation)

    # -- forward ----------------------------------------------------------------------------------

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._skimp_forward_packed(input, hx)
        name = self.mode.partition("_")[0]
        if input.dim() not in (2, 3):
            kind = "D tensor instead" if name == "RNN" else "D instead"
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}{kind}")
        batched = input.dim() == 3
        hidden = self._skimp_given(hx, batched)
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        hidden = self._skimp_checked_hidden(hidden, input, None)
        rows = input.transpose(0, 1) if self.batch_first else input
        output, state = self._skimp_run(rows, hidden, None)
        if self.batch_first:
            output = output.transpose(0, 1)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            state = tuple([s.squeeze(1) for s in state])
        return output, self._skimp_returned(state)

    def _skimp_forward_packed(self, input: PackedSequence, hx: Any) -> Any:
        data, sizes, order, back = input
        hidden = self._skimp_given(hx, True)
        if hidden is not None and order is not None:
            hidden = self._skimp_given(self.permute_hidden(hx, order), True)
        hidden = self._skimp_checked_hidden(hidden, data, sizes)
        output, state = self._skimp_run(data, hidden, sizes.tolist())
        state = self.permute_hidden(self._skimp_returned(state), back)
        return PackedSequence(output, sizes, order, back), state

    def _skimp_run(
        self, rows: Tensor, hidden: Any, sizes: Any
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        directions = 2 if self.bidirectional else 1
        dropout = self.dropout if self.training else 0.0
        weights = self._skimp_weights()
        if (
            self.mode == "LSTM" and autocast.enabled["cpu"]
        ):  # PyTorch's is one op, which is on the list
            rows, hidden, weights = lowered((rows, hidden, weights))
        return recurrence.run(self.mode, rows, hidden, weights, sizes, directions, dropout)

    def _skimp_given(self, hx: Any, batched: bool) -> tuple[Tensor, ...] | None:
        """The state that the caller gave, as a tuple with a batch dimension."""
        if hx is None:
            return None
        if hx.dim() != (3 if batched else 2):
            what = "batched 3-D" if batched else "unbatched 2-D"
            dims = 3 if batched else 2
            raise RuntimeError(
                f"For {what} input, hx should also be {dims}-D but got {hx.dim()}-D tensor"
            )
        return (hx if batched else hx.unsqueeze(1),)

    def _skimp_returned(self, state: tuple[Tensor, ...]) -> Any:
        return state[0]

    def _skimp_checked_hidden(
        self, hidden: Any, input: Tensor, sizes: Tensor | None
    ) -> tuple[Tensor, ...]:
        if hidden is None:
            shape = self.get_expected_hidden_size(input, sizes)
            hidden = (ops.zeros(shape, dtype=input.dtype, device=input.device),)
        self.check_forward_args(input, hidden[0], sizes)
        return hidden  # type: ignore[no-any-return]


def _fraction(dropout: Any) -> float:
    if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element "
            "being zeroed"
        )
    return dropout


def _check(rnn: RNNBase) -> None:
    kinds = {"bias": bool, "batch_first": bool, "input_size": int, "hidden_size": int}
    for name, kind in kinds.items():
        says = f"{name} should be of type {{wanted}}, got: {{got}}"
        require_type(getattr(rnn, name), kind, says)
    for name in ("input_size", "hidden_size", "num_layers"):
        require_positive(getattr(rnn, name), f"{name} must be greater than zero")
    says = "proj_size should be a positive integer or zero to disable projections"
    require_not_negative(rnn.proj_size, says)
    smaller = rnn.proj_size < rnn.hidden_size
    require(smaller, "proj_size has to be smaller than hidden_size")
    require_one_of(rnn.mode, _GATES, f"Unrecognized RNN mode: {rnn.mode}")


class RNN(RNNBase):
    """Elman's: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or ReLU with `nonlinearity="relu"`.

    Shape: input (L, N, input_size), (N, L, input_size) with `batch_first`, or (L, input_size), or a
    PackedSequence; hx (layers * directions, N, hidden_size), without N where the input
    has none, zeros if not given. The result is the output (L, N, directions * hidden_size), laid
    out as the input, and the last state.
    Source: Elman 1990, Finding structure in time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity, args = args[3], args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(modes[nonlinearity], *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory; gates in the order input, forget, cell, output.

    With `proj_size` the hidden state is W_hr h, of that width; the cell's stays hidden_size.

    Shape: input (L, N, input_size), (N, L, input_size) with `batch_first`, or (L, input_size), or a
    PackedSequence; (h, c), each (layers * directions, N, hidden_size), without N where the input
    has none, zeros if not given. The result is the output (L, N, directions * hidden_size), laid
    out as the input, and the last (h, c).
    Source: Hochreiter and Schmidhuber 1997; projections: Sak et al. 2014.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _skimp_given(self, hx: Any, batched: bool) -> tuple[Tensor, ...] | None:
        if hx is None:
            return None
        dims = 3 if batched else 2
        if hx[0].dim() != dims or hx[1].dim() != dims:
            what = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(
                f"For {what} input, hx and cx should also be {dims}-D but got ({hx[0].dim()}-D, "
                f"{hx[1].dim()}-D) tensors"
            )
        return tuple(hx) if batched else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _skimp_returned(self, state: tuple[Tensor, ...]) -> Any:
        return state

    def _skimp_checked_hidden(
        self, hidden: Any, input: Tensor, sizes: Tensor | None
    ) -> tuple[Tensor, ...]:
        if hidden is None:
            like: dict[str, Any] = {"dtype": input.dtype, "device": input.device}
            shape = self.get_expected_hidden_size(input, sizes)
            cells = self.get_expected_cell_size(input, sizes)
            hidden = ops.zeros(shape, **like), ops.zeros(cells, **like)
        self.check_forward_args(input, hidden, sizes)
        return hidden  # type: ignore[no-any-return]

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        shape = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], shape, "Expected hidden[0] size {}, got {}")
        cells = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], cells, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return hx[0].index_select(1, permutation), hx[1].index_select(1, permutation)


class GRU(RNNBase):
    """Gated recurrent unit; gates in the order reset, update, new.

    The reset gate multiplies W_hn h + b_hn after the product (cuDNN's form), not h before it.

    Shape: input (L, N, input_size), (N, L, input_size) with `batch_first`, or (L, input_size), or a
    PackedSequence; hx (layers * directions, N, hidden_size), without N where the input
    has none, zeros if not given. The result is the output (L, N, directions * hidden_size), laid
    out as the input, and the last state.
    Source: Cho et al. 2014, Learning phrase representations using RNN encoder-decoder.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)
