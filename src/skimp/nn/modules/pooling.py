"""The pooling family.

Numbers stand for one per dimension or for all. Unless a class says otherwise, `SAYS` holds.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.options import InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F
from skimp.nn.modules.by_rank import ByRank
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module
from skimp.nn.modules.utils import ntuple, single

SAYS = """\
Dtypes: floating point; the result's is the input's. Indices are int64, into the flat plane of a
channel.
Raises: RuntimeError in forward for other ranks, for padding above half a kernel, and where no
window fits.
Memory: a new tensor."""


@options
class _MaxPoolNd(ByRank):
    _skimp_family = "max_pool"
    _skimp_about = """The maximum of each window, and where it was with `return_indices`; NaN wins.

    Shape: {input}.
    """
    _skimp_shows = "kernel_size=, stride=, padding=, dilation=, ceil_mode="
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    return_indices: bool = False
    ceil_mode: bool = False

    def _skimp_set_up(self) -> None:
        self.stride = self.stride if self.stride is not None else self.kernel_size

    forward = calling(
        "", "input", "kernel_size, stride, padding, dilation, ceil_mode=, return_indices="
    )


class MaxPool1d(_MaxPoolNd, dims=1):
    pass


class MaxPool2d(_MaxPoolNd, dims=2):
    """The maximum of each window, and where it was with `return_indices`; NaN wins.

    Padding is minus infinity, never a maximum:

    >>> x = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]]])
    >>> torch.nn.MaxPool2d(2, stride=2, padding=1)(x)
    tensor([[[-1., -2.],
             [-3., -4.]]])

    Shape: (N, C, H, W) or (C, H, W).
    """


class MaxPool3d(_MaxPoolNd, dims=3):
    pass


@options
class _MaxUnpoolNd(ByRank):
    _skimp_owns_init = True
    _skimp_family = "max_unpool"
    _skimp_about = """Maxima back where MaxPool{dims}d's indices say they were, zeros elsewhere.

    Shape: {input}, indices the same; `output_size` chooses among the sizes that pool to the
    input's.
    Raises: ValueError in forward for an `output_size` that cannot be; RuntimeError for indices
    outside it.
    """
    _skimp_shows = "kernel_size=, stride=, padding="
    kernel_size: Any
    stride: Any = None
    padding: Any = 0

    def _skimp_set_up(self) -> None:
        size = ntuple(self._skimp_dims)
        self.stride = size(self.stride if self.stride is not None else self.kernel_size)
        self.kernel_size, self.padding = size(self.kernel_size), size(self.padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        f = getattr(F, self._skimp_function)
        return f(input, indices, self.kernel_size, self.stride, self.padding, output_size)  # type: ignore[no-any-return]


class MaxUnpool1d(_MaxUnpoolNd, dims=1):
    pass


class MaxUnpool2d(_MaxUnpoolNd, dims=2):
    pass


class MaxUnpool3d(_MaxUnpoolNd, dims=3):
    pass


@options
class AvgPool1d(Module):
    """The mean of each window; padding counts as zeros, unless `count_include_pad` is False.

    Shape: (N, C, L) or (C, L).
    """

    _skimp_shows = "kernel_size=, stride=, padding="
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True

    def _skimp_set_up(self) -> None:
        self.stride = single(self.stride if self.stride is not None else self.kernel_size)
        self.kernel_size, self.padding = single(self.kernel_size), single(self.padding)

    def forward(self, input: Tensor) -> Tensor:
        sizes = (self.kernel_size, self.stride, self.padding)
        return F.avg_pool1d(input, *sizes, self.ceil_mode, self.count_include_pad)  # type: ignore[no-any-return]


@options
class _AvgPool(ByRank):
    _skimp_owns_init = True
    _skimp_family = "avg_pool"
    _skimp_about = """The mean of each window: the sum over its size, over what of it is no padding
    (`count_include_pad=False`), or over `divisor_override`.

    Shape: {input}.
    Raises: RuntimeError in forward if `divisor_override` is 0.
    """
    _skimp_shows = "kernel_size=, stride=, padding="
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    def _skimp_set_up(self) -> None:
        self.stride = self.stride if self.stride is not None else self.kernel_size

    forward = calling(
        "", "input", "kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override"
    )


class AvgPool2d(_AvgPool, dims=2):
    pass


class AvgPool3d(_AvgPool, dims=3):
    pass


@options
class _FractionalMaxPool(ByRank):
    _skimp_owns_init = True
    _skimp_family = "fractional_max_pool"
    kernel_size: Any
    output_size: Any = None
    output_ratio: Any = None
    return_indices: bool = False
    _random_samples: InitVar[Tensor | None] = None

    def _skimp_set_up(self, samples: Tensor | None) -> None:
        size, sizes, ratios = ntuple(self._skimp_dims), self.output_size, self.output_ratio
        require(
            sizes is not None or ratios is not None,
            f"{type(self).__name__} requires specifying either an output size, or a pooling ratio",
        )
        require(
            sizes is None or ratios is None,
            "only one of output_size and output_ratio may be specified",
        )
        self.register_buffer("_random_samples", samples)
        self.kernel_size = size(self.kernel_size)
        self.output_size = None if sizes is None else size(sizes)
        self.output_ratio = None if ratios is None else size(ratios)
        within = self.output_ratio is None or all(0 < r < 1 for r in self.output_ratio)
        require(within, f"output_ratio must be between 0 and 1 (got {ratios})")

    forward = calling(
        "", "input", "kernel_size, output_size, output_ratio, return_indices, _random_samples="
    )


class FractionalMaxPool2d(_FractionalMaxPool, dims=2):
    """The maximum of windows that begin at random steps, as many as `output_size` or
    `output_ratio` asks for.

    Shape: (N, C, H, W) or (C, H, W) to the same with `output_size`.
    Raises: ValueError unless exactly one of size and ratio is given, ratios within (0, 1).
    Source: Graham 2014, Fractional max-pooling.
    """


class FractionalMaxPool3d(_FractionalMaxPool, dims=3):
    """The maximum of windows that begin at random steps, in three dimensions.

    Shape: (N, C, D, H, W) or (C, D, H, W) to the same with `output_size`.
    Raises: ValueError unless exactly one of size and ratio is given, ratios within (0, 1).
    Source: Graham 2014, Fractional max-pooling.
    """


@options
class _LPPoolNd(ByRank):
    _skimp_family = "lp_pool"
    _skimp_about = """The sum of the p-th powers of each window, its p-th root; p is `norm_type`.

    Shape: {input}.
    """
    _skimp_shows = "norm_type=, kernel_size=, stride=, ceil_mode="
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False

    def forward(self, input: Tensor) -> Tensor:
        f = getattr(F, self._skimp_function)
        return f(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)  # type: ignore[no-any-return]


class LPPool1d(_LPPoolNd, dims=1):
    pass


class LPPool2d(_LPPoolNd, dims=2):
    pass


class LPPool3d(_LPPoolNd, dims=3):
    pass


@options
class _AdaptiveAvgPoolNd(ByRank):
    _skimp_family = "adaptive_avg_pool"
    _skimp_about = """Means of as many windows as asked for; None leaves a dimension as it is.

    Shape: {input} to the same with `output_size`.
    """
    _skimp_shows = "output_size="
    output_size: Any

    forward = calling("", "input", "output_size")


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, dims=1):
    """Means of as many windows as asked for; they overlap where the length is no multiple.

    Shape: (N, C, L) or (C, L) to the same with `output_size`.
    """


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, dims=2):
    pass


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, dims=3):
    pass


@options
class _AdaptiveMaxPoolNd(ByRank):
    _skimp_family = "adaptive_max_pool"
    _skimp_about = """Maxima of as many windows as asked for; `return_indices`: and where they were.

    Shape: {input} to the same with `output_size`.
    """
    _skimp_shows = "output_size="
    output_size: Any
    return_indices: bool = False

    forward = calling("", "input", "output_size, return_indices")


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, dims=1):
    pass


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, dims=2):
    pass


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, dims=3):
    pass
