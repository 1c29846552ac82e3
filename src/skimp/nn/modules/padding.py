"""The padding family.

`padding` is one number for all sides, or two for each dimension, the last dimension first: (left,
right, top, bottom, front, back). Negative padding cuts off.
"""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.checks import require_ndim
from skimp._engine.tensor.options import options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F
from skimp.nn.modules.by_rank import ByRank
from skimp.nn.modules.calling import calling
from skimp.nn.modules.utils import ntuple

SAYS = """\
Dtypes: any; the result's is the input's.
Raises: RuntimeError or NotImplementedError in forward for other ranks; RuntimeError where a
reflection is longer than the input.
Memory: a new tensor."""


@options
class _PadNd(ByRank):
    """Padding around the last `_skimp_dims` dimensions."""

    _skimp_owns_init = True
    _skimp_shows = "padding"
    _skimp_mode: ClassVar[str]
    padding: Any

    def _skimp_set_up(self) -> None:
        self.padding = ntuple(2 * self._skimp_dims)(self.padding)

    forward = calling("pad", "input", "padding, _skimp_mode")


class _CircularPadNd(_PadNd):
    _skimp_about = """Padded with the other end.

    Shape: {input}.
    Raises: ValueError for other ranks.
    """
    _skimp_mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        require_ndim(input, self._skimp_dims + 1, self._skimp_dims + 2)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)  # type: ignore[no-any-return]


class CircularPad1d(_CircularPadNd, dims=1):
    pass


class CircularPad2d(_CircularPadNd, dims=2):
    pass


class CircularPad3d(_CircularPadNd, dims=3):
    pass


@options
class _ConstantPadNd(_PadNd):
    _skimp_shows = "padding=, value="
    value: float

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)  # type: ignore[no-any-return]


class ConstantPad1d(_ConstantPadNd, dims=1):
    """Padded with one value.

    Shape: any of at least one dimension; the last grows.
    """


class ConstantPad2d(_ConstantPadNd, dims=2):
    """Padded with one value.

    Shape: any of at least two dimensions; the last two grow.
    """


class ConstantPad3d(_ConstantPadNd, dims=3):
    """Padded with one value.

    Shape: any of at least three dimensions; the last three grow.
    """


class ZeroPad1d(ConstantPad1d):
    """Padded with zeros."""

    _skimp_shows = "padding"

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class ZeroPad2d(ConstantPad2d):
    """Padded with zeros.

    The order of four paddings is left, right, top, bottom:

    >>> torch.nn.ZeroPad2d((1, 0, 0, 2))(torch.ones(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 3])
    """

    _skimp_shows = "padding"

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class ZeroPad3d(ConstantPad3d):
    """Padded with zeros."""

    _skimp_shows = "padding"

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class _ReflectionPadNd(_PadNd):
    _skimp_mode = "reflect"
    _skimp_about = """Padded with what the edges mirror, the edge itself once.

    Shape: {input}.
    """


class ReflectionPad1d(_ReflectionPadNd, dims=1):
    pass


class ReflectionPad2d(_ReflectionPadNd, dims=2):
    pass


class ReflectionPad3d(_ReflectionPadNd, dims=3):
    pass


class _ReplicationPadNd(_PadNd):
    _skimp_mode = "replicate"
    _skimp_about = """Padded with the edges.

    Shape: {input}.
    """


class ReplicationPad1d(_ReplicationPadNd, dims=1):
    pass


class ReplicationPad2d(_ReplicationPadNd, dims=2):
    pass


class ReplicationPad3d(_ReplicationPadNd, dims=3):
    pass
