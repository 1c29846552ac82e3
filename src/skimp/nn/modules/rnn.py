"""Recurrent layers: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import warnings
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.amp.casting import lowered
from skimp.amp.state import state as autocast
from skimp.nn import init, whole
from skimp.nn.modules import recurrence
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter
from skimp.nn.utils.rnn import PackedSequence

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """Weights and the forward of recurrent layers."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(_fraction(dropout))
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        _check(self)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                "dropout expects num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        gates = _GATES[mode] * hidden_size
        out = proj_size if proj_size > 0 else hidden_size
        directions = 2 if bidirectional else 1
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih_l{layer}{suffix}": (
                        gates,
                        input_size if layer == 0 else out * directions,
                    ),
                    f"weight_hh_l{layer}{suffix}": (gates, out),
                }
                if bias:
                    shapes |= {
                        f"bias_ih_l{layer}{suffix}": (gates,),
                        f"bias_hh_l{layer}{suffix}": (gates,),
                    }
                if proj_size > 0:
                    shapes[f"weight_hr_l{layer}{suffix}"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name, Parameter(whole.empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names += shapes
                self._all_weights.append(list(shapes))
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

    def __getstate__(self) -> dict[str, Any]:
        """With the list of weights that PyTorch's layers keep."""
        return {**super().__getstate__(), "_flat_weights": self._flat_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({k: v for k, v in state.items() if k != "_flat_weights"})

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def _weights(self) -> list[recurrence.Weights]:
        """The weights of each layer and direction as recurrence.run takes them."""
        found: list[recurrence.Weights] = []
        for weights in self.all_weights:
            biases = weights[2:4] if self.bias else [None, None]
            found.append([*weights[:2], *biases, weights[-1] if self.proj_size > 0 else None])
        return found

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.proj_size != 0:
            parts.append(f"proj_size={self.proj_size}")
        if self.num_layers != 1:
            parts.append(f"num_layers={self.num_layers}")
        if self.bias is not True:
            parts.append(f"bias={self.bias}")
        if self.batch_first is not False:
            parts.append(f"batch_first={self.batch_first}")
        if self.dropout != 0:
            parts.append(f"dropout={self.dropout}")
        if self.bidirectional is not False:
            parts.append(f"bidirectional={self.bidirectional}")
        return ", ".join(parts)

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
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.size(-1)}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the hidden state for this input."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the cell state for this input."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def _state_size(
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
        expected: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Refuse a state of another shape."""
        if tuple(hx.size()) != expected:
            raise RuntimeError(msg.format(expected, list(hx.size())))

    # -- forward ----------------------------------------------------------------------------------

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        name = self.mode.partition("_")[0]
        if input.dim() not in (2, 3):
            kind = "D tensor instead" if name == "RNN" else "D instead"
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}{kind}")
        batched = input.dim() == 3
        hidden = self._given(hx, batched)
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        self.check_input(input, None)
        hidden = self._checked_hidden(hidden, input, None)
        rows = input.transpose(0, 1) if self.batch_first else input
        output, state = self._run(rows, hidden, None)
        if self.batch_first:
            output = output.transpose(0, 1)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            state = tuple([s.squeeze(1) for s in state])
        return output, self._returned(state)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> Any:
        data, sizes, order, back = input
        hidden = self._given(hx, True)
        self.check_input(data, sizes)
        if hidden is not None and order is not None:
            hidden = tuple([h.index_select(1, order) for h in hidden])
        hidden = self._checked_hidden(hidden, data, sizes)
        output, state = self._run(data, hidden, sizes.tolist())
        if back is not None:
            state = tuple([s.index_select(1, back) for s in state])
        return PackedSequence(output, sizes, order, back), self._returned(state)

    def _run(self, rows: Tensor, hidden: Any, sizes: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        directions = 2 if self.bidirectional else 1
        dropout = self.dropout if self.training else 0.0
        weights = self._weights()
        if (
            self.mode == "LSTM" and autocast.enabled["cpu"]
        ):  # PyTorch's is one op, which is on the list
            rows, hidden, weights = lowered((rows, hidden, weights))
        return recurrence.run(self.mode, rows, hidden, weights, sizes, directions, dropout)

    def _given(self, hx: Any, batched: bool) -> tuple[Tensor, ...] | None:
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

    def _returned(self, state: tuple[Tensor, ...]) -> Any:
        return state[0]

    def _checked_hidden(
        self, hidden: Any, input: Tensor, sizes: Tensor | None
    ) -> tuple[Tensor, ...]:
        shape = self.get_expected_hidden_size(input, sizes)
        if hidden is None:
            return (whole.zeros(shape, dtype=input.dtype),)
        self.check_hidden_size(hidden[0], shape)
        return hidden  # type: ignore[no-any-return]


def _fraction(dropout: Any) -> float:
    if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element "
            "being zeroed"
        )
    return dropout


def _check(rnn: RNNBase) -> None:
    for name, kind in (
        ("bias", bool),
        ("batch_first", bool),
        ("input_size", int),
        ("hidden_size", int),
    ):
        value = getattr(rnn, name)
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
            )
    for name in ("input_size", "hidden_size", "num_layers"):
        if getattr(rnn, name) <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if rnn.proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if rnn.proj_size >= rnn.hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if rnn.mode not in _GATES:
        raise ValueError("Unrecognized RNN mode: " + rnn.mode)


class RNN(RNNBase):
    """An Elman RNN with tanh or ReLU."""

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
    """Long short-term memory: Hochreiter and Schmidhuber 1997."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _given(self, hx: Any, batched: bool) -> tuple[Tensor, ...] | None:
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

    def _returned(self, state: tuple[Tensor, ...]) -> Any:
        return state

    def _checked_hidden(
        self, hidden: Any, input: Tensor, sizes: Tensor | None
    ) -> tuple[Tensor, ...]:
        shapes = (
            self.get_expected_hidden_size(input, sizes),
            self.get_expected_cell_size(input, sizes),
        )
        if hidden is None:
            return tuple([whole.zeros(shape, dtype=input.dtype) for shape in shapes])
        self.check_hidden_size(hidden[0], shapes[0], "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], shapes[1], "Expected hidden[1] size {}, got {}")
        return hidden  # type: ignore[no-any-return]


class GRU(RNNBase):
    """Gated recurrent unit: Cho et al. 2014."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)
