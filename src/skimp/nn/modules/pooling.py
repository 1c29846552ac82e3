"""The pooling family.

Numbers stand for one per dimension or for all. Unless a class says otherwise:

Shape: (N, C, spatial...) or (C, spatial...); each spatial length L becomes
floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, or the ceiling with
`ceil_mode` (windows that would begin in the padding on the right are left out).
Dtypes: floating point; the result's is the input's. Indices are int64, into the flat plane of a
channel.
Raises: RuntimeError in forward for other ranks, for padding above half a kernel, and where no
window fits.
Memory: a new tensor.
"""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.options import InitVar, options, own_init
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F
from skimp.nn.modules.module import Module
from skimp.nn.modules.utils import ntuple, single


@options
class _MaxPoolNd(Module):
    _shows = "kernel_size=, stride=, padding=, dilation=, ceil_mode="
    _function: ClassVar[str]
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    return_indices: bool = False
    ceil_mode: bool = False

    def _set_up(self) -> None:
        self.stride = self.stride if self.stride is not None else self.kernel_size

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window, and where it was with `return_indices`; NaN wins.

    Shape: (N, C, L) or (C, L).
    """

    _function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window, and where it was with `return_indices`; NaN wins.

    Padding is minus infinity, never a maximum:

    >>> x = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]]])
    >>> torch.nn.MaxPool2d(2, stride=2, padding=1)(x)
    tensor([[[-1., -2.],
             [-3., -4.]]])

    Shape: (N, C, H, W) or (C, H, W).
    """

    _function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window, and where it was with `return_indices`; NaN wins.

    Shape: (N, C, D, H, W) or (C, D, H, W).
    """

    _function = "max_pool3d"


@options
class _MaxUnpoolNd(Module):
    _shows = "kernel_size=, stride=, padding="
    _dims: ClassVar[int]
    _function: ClassVar[str]
    kernel_size: Any
    stride: Any = None
    padding: Any = 0

    def _set_up(self) -> None:
        size = ntuple(self._dims)
        self.stride = size(self.stride if self.stride is not None else self.kernel_size)
        self.kernel_size, self.padding = size(self.kernel_size), size(self.padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        f = getattr(F, self._function)
        return f(input, indices, self.kernel_size, self.stride, self.padding, output_size)  # type: ignore[no-any-return]


@own_init
class MaxUnpool1d(_MaxUnpoolNd):
    """Maxima back where MaxPool1d's indices say they were, zeros elsewhere.

    Shape: (N, C, L) or (C, L), indices the same; `output_size` chooses among the lengths that pool
    to the input's.
    Raises: ValueError in forward for an `output_size` that cannot be; RuntimeError for indices
    outside it.
    """

    _dims, _function = 1, "max_unpool1d"


@own_init
class MaxUnpool2d(_MaxUnpoolNd):
    """Maxima back where MaxPool2d's indices say they were, zeros elsewhere.

    Shape: (N, C, H, W) or (C, H, W), indices the same; `output_size` chooses among the sizes that
    pool to the input's.
    Raises: ValueError in forward for an `output_size` that cannot be; RuntimeError for indices
    outside it.
    """

    _dims, _function = 2, "max_unpool2d"


@own_init
class MaxUnpool3d(_MaxUnpoolNd):
    """Maxima back where MaxPool3d's indices say they were, zeros elsewhere.

    Shape: (N, C, D, H, W) or (C, D, H, W), indices the same.
    Raises: ValueError in forward for an `output_size` that cannot be; RuntimeError for indices
    outside it.
    """

    _dims, _function = 3, "max_unpool3d"


@options
class AvgPool1d(Module):
    """The mean of each window; padding counts as zeros, unless `count_include_pad` is False.

    Shape: (N, C, L) or (C, L).
    """

    _shows = "kernel_size=, stride=, padding="
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True

    def _set_up(self) -> None:
        self.stride = single(self.stride if self.stride is not None else self.kernel_size)
        self.kernel_size, self.padding = single(self.kernel_size), single(self.padding)

    def forward(self, input: Tensor) -> Tensor:
        sizes = (self.kernel_size, self.stride, self.padding)
        return F.avg_pool1d(input, *sizes, self.ceil_mode, self.count_include_pad)  # type: ignore[no-any-return]


@options
class _AvgPool(Module):
    _shows = "kernel_size=, stride=, padding="
    _function: ClassVar[str]
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    def _set_up(self) -> None:
        self.stride = self.stride if self.stride is not None else self.kernel_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(  # type: ignore[no-any-return]
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


@own_init
class AvgPool2d(_AvgPool):
    """The mean of each window: the sum over its size, over what of it is no padding
    (`count_include_pad=False`), or over `divisor_override`.

    Shape: (N, C, H, W) or (C, H, W).
    Raises: RuntimeError in forward if `divisor_override` is 0.
    """

    _function = "avg_pool2d"


@own_init
class AvgPool3d(_AvgPool):
    """The mean of each window: the sum over its size, over what of it is no padding
    (`count_include_pad=False`), or over `divisor_override`.

    Shape: (N, C, D, H, W) or (C, D, H, W).
    Raises: RuntimeError in forward if `divisor_override` is 0.
    """

    _function = "avg_pool3d"


@options
class _FractionalMaxPool(Module):
    _dims: ClassVar[int]
    _function: ClassVar[str]
    kernel_size: Any
    output_size: Any = None
    output_ratio: Any = None
    return_indices: bool = False
    _random_samples: InitVar[Tensor | None] = None

    def _set_up(self, samples: Tensor | None) -> None:
        size, sizes, ratios = ntuple(self._dims), self.output_size, self.output_ratio
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

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


@own_init
class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum of windows that begin at random steps, as many as `output_size` or
    `output_ratio` asks for.

    Shape: (N, C, H, W) or (C, H, W) to the same with `output_size`.
    Raises: ValueError unless exactly one of size and ratio is given, ratios within (0, 1).
    Source: Graham 2014, Fractional max-pooling.
    """

    _dims, _function = 2, "fractional_max_pool2d"


@own_init
class FractionalMaxPool3d(_FractionalMaxPool):
    """The maximum of windows that begin at random steps, in three dimensions.

    Shape: (N, C, D, H, W) or (C, D, H, W) to the same with `output_size`.
    Raises: ValueError unless exactly one of size and ratio is given, ratios within (0, 1).
    Source: Graham 2014, Fractional max-pooling.
    """

    _dims, _function = 3, "fractional_max_pool3d"


@options
class _LPPoolNd(Module):
    _shows = "norm_type=, kernel_size=, stride=, ceil_mode="
    _function: ClassVar[str]
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False

    def forward(self, input: Tensor) -> Tensor:
        f = getattr(F, self._function)
        return f(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)  # type: ignore[no-any-return]


class LPPool1d(_LPPoolNd):
    """The sum of the p-th powers of each window, its p-th root; p is `norm_type`.

    Shape: (N, C, L) or (C, L).
    """

    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """The sum of the p-th powers of each window, its p-th root; p is `norm_type`.

    Shape: (N, C, H, W) or (C, H, W).
    """

    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """The sum of the p-th powers of each window, its p-th root; p is `norm_type`.

    Shape: (N, C, D, H, W) or (C, D, H, W).
    """

    _function = "lp_pool3d"


@options
class _AdaptiveAvgPoolNd(Module):
    _shows = "output_size="
    _function: ClassVar[str]
    output_size: Any

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.output_size)  # type: ignore[no-any-return]


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of as many windows as asked for; they overlap where the length is no multiple.

    Shape: (N, C, L) or (C, L) to the same with `output_size`.
    """

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of as many windows as asked for; None leaves a dimension as it is.

    Shape: (N, C, H, W) or (C, H, W) to the same with `output_size`.
    """

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of as many windows as asked for; None leaves a dimension as it is.

    Shape: (N, C, D, H, W) or (C, D, H, W) to the same with `output_size`.
    """

    _function = "adaptive_avg_pool3d"


@options
class _AdaptiveMaxPoolNd(Module):
    _shows = "output_size="
    _function: ClassVar[str]
    output_size: Any
    return_indices: bool = False

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of as many windows as asked for, and where they were with `return_indices`.

    Shape: (N, C, L) or (C, L) to the same with `output_size`.
    """

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of as many windows as asked for, and where they were with `return_indices`.

    Shape: (N, C, H, W) or (C, H, W) to the same with `output_size`.
    """

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of as many windows as asked for, and where they were with `return_indices`.

    Shape: (N, C, D, H, W) or (C, D, H, W) to the same with `output_size`.
    """

    _function = "adaptive_max_pool3d"
