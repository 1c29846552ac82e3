"""Single steps of recurrent layers: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import init, whole
from skimp.nn.modules import recurrence
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter


class RNNCellBase(Module):
    """The weights of a cell."""

    _mode: str
    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(whole.empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(whole.empty((gates, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(whole.empty(gates, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, input: Tensor, hx: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """One step; a batch dimension is added for the computation where there is none."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, h in enumerate(hx):
            if h is not None and h.dim() not in (1, 2):
                which = "hidden" if len(hx) == 1 else f"hx[{i}]"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {h.dim()}D instead")
        batched = input.dim() == 2
        rows = input if batched else input.unsqueeze(0)
        state = tuple([self._state(h, rows, batched) for h in hx])
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None)
        new = recurrence.once(self._mode, rows, state, weights)
        return new if batched else tuple([s.squeeze(0) for s in new])

    def _state(self, h: Tensor | None, rows: Tensor, batched: bool) -> Tensor:
        if h is None:
            return whole.zeros(rows.size(0), self.hidden_size, dtype=rows.dtype)
        return h if batched else h.unsqueeze(0)


class RNNCell(RNNCellBase):
    """A step of an Elman RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    @property
    def _mode(self) -> str:  # type: ignore[override]
        return f"RNN_{self.nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(input, (hx,))[0]


class LSTMCell(RNNCellBase):
    """A step of an LSTM."""

    _mode = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, ...]:
        return self._step(input, (None, None) if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """A step of a GRU."""

    _mode = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, (hx,))[0]
