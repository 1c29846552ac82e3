"""The padding family."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F
from skimp.nn.modules.module import Module
from skimp.nn.modules.utils import ntuple


class _PadNd(Module):
    """Padding around the last `_dims` dimensions."""

    _dims: int
    _mode: str
    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        low, high = self._dims + 1, self._dims + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")  # type: ignore[no-any-return]


class CircularPad1d(_CircularPadNd):
    """Padded with the other end."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Padded with the other end."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Padded with the other end."""

    _dims = 3


class _ConstantPadNd(_PadNd):
    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Padded with one value."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Padded with one value."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Padded with one value."""

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """Padded with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Padded with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Padded with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_PadNd):
    """Padded with what the edge mirrors."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Padded with what the edge mirrors."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Padded with what the edge mirrors."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """Padded with the edge."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """Padded with the edge."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """Padded with the edge."""

    _dims, _mode = 3, "replicate"
