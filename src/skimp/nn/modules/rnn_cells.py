"""Single steps of recurrent layers: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.checks import require_ndim
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import init, ops
from skimp.nn.modules import recurrence
from skimp.nn.modules.module import Module
from skimp.nn.modules.tree import held

SAYS = """\
Dtypes: floating point, input, state and weights alike.
Raises: ValueError in forward for other ranks, RuntimeError for other widths and dtypes.
Memory: new tensors."""

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RNNCellBase(Module):
    """The weights of a cell.

    Shape: as RNNCell, LSTMCell and GRUCell say.
    """

    _skimp_mode: str
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
        self._skimp_new_parameters(
            device,
            dtype,
            weight_ih=(gates, input_size),
            weight_hh=(gates, hidden_size),
            bias_ih=gates if bias else None,
            bias_hh=gates if bias else None,
        )
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

    def _skimp_refuse(self, which: str, t: Tensor) -> None:
        says = f"{type(self).__name__}: Expected {which} to be {{wanted}}, got {{got}}D instead"
        require_ndim(t, 1, 2, says=says)

    def _skimp_step(self, input: Tensor, hx: tuple[Any, ...]) -> tuple[Tensor, ...]:
        for t in (input, *hx):
            if type(t) is not Tensor or t._np is None or t._np.ndim != 2:
                return self._skimp_any_step(input, hx)
        return recurrence.once(self._skimp_mode, input, hx, held(self, _WEIGHTS))

    def _skimp_any_step(self, input: Tensor, hx: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """A batch dimension is added for the computation where there is none."""
        if input.dim() not in (1, 2):
            self._skimp_refuse("input", input)
        for i, h in enumerate(hx):
            if h is not None and h.dim() not in (1, 2):
                self._skimp_refuse("hidden" if len(hx) == 1 else f"hx[{i}]", h)
        batched = input.dim() == 2
        rows = input if batched else input.unsqueeze(0)
        state = tuple([self._skimp_state(h, rows, batched) for h in hx])
        new = recurrence.once(self._skimp_mode, rows, state, held(self, _WEIGHTS))
        return new if batched else tuple([s.squeeze(0) for s in new])

    def _skimp_state(self, h: Tensor | None, rows: Tensor, batched: bool) -> Tensor:
        if h is None:
            size = rows.size(0), self.hidden_size
            return ops.zeros(size, dtype=rows.dtype, device=rows.device)
        return h if batched else h.unsqueeze(0)


class RNNCell(RNNCellBase):
    """A step of an Elman RNN: tanh(W_ih x + b_ih + W_hh h + b_hh), or ReLU.

    Shape: input (N, input_size) or (input_size,); hx (N, hidden_size) or (hidden_size,), zeros
    if not given; the result like the state.
    Source: Elman 1990, Finding structure in time.
    """

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
    def _skimp_mode(self) -> str:  # type: ignore[override]
        return f"RNN_{self.nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._skimp_step(input, (hx,))[0]


class LSTMCell(RNNCellBase):
    """A step of an LSTM: from (h, c) to the next (h, c).

    Shape: input (N, input_size) or (input_size,); h and c (N, hidden_size) or (hidden_size,), zeros
    if not given; the result like the state.
    Source: Hochreiter and Schmidhuber 1997.
    """

    _skimp_mode = "LSTM"

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
        return self._skimp_step(input, (None, None) if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """A step of a GRU; the reset gate multiplies after the product, as in cuDNN.

    Shape: input (N, input_size) or (input_size,); hx (N, hidden_size) or (hidden_size,), zeros
    if not given; the result like the state.
    Source: Cho et al. 2014.
    """

    _skimp_mode = "GRU"

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
        return self._skimp_step(input, (hx,))[0]
