"""Normalisation over a batch (BatchNorm) and over each channel of an example (InstanceNorm), with
running statistics.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import require_ndim
from skimp._engine.tensor.options import KW_ONLY, InitVar, options, own_init
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, init, ops
from skimp.nn.modules.by_rank import ByRank
from skimp.nn.modules.lazy import LazyModuleMixin
from skimp.nn.modules.tree import held
from skimp.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

SAYS = """\
Dtypes: floating point; the result's is the input's.
Raises: ValueError in forward for other ranks.
Memory: a new tensor; running statistics are written in place in training."""

_HELD = ("weight", "bias", "running_mean", "running_var")
_COUNTED = (*_HELD, "num_batches_tracked")


@options
class _NormBase(ByRank):
    """Scale, shift and running statistics of channels."""

    _version = 2
    _skimp_shows = "num_features, eps=, momentum=, affine=, bias=, track_running_stats="
    num_features: int
    eps: float = 1e-5
    momentum: float | None = 0.1
    affine: bool = True
    track_running_stats: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None
    _: KW_ONLY
    bias: InitVar[bool] = True

    def _skimp_set_up(self, device: Any, dtype: Any, bias: bool) -> None:
        weight = self.num_features if self.affine else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        self._skimp_register_statistics(device, dtype)
        self.reset_parameters()

    def _skimp_register_statistics(self, device: Any, dtype: Any) -> None:
        if not self.track_running_stats:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
            return
        n, place = self.num_features, {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", ops.zeros(n, **place))
        self.register_buffer("running_var", ops.ones(n, **place))
        count = ops.tensor(0, dtype=dtypes.int64, device=device)
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, statistics forgotten."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        """Checkpoints older than `num_batches_tracked` keep the module's own."""
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            state_dict[key] = own if own is not None else ops.tensor(0, dtype=dtypes.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


@own_init
class _BatchNorm(_NormBase):
    """Mean 0 and variance 1 over the batch: Ioffe and Szegedy 2015."""

    _skimp_inputs: ClassVar = {
        1: "(N, C) or (N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)",
    }  # fmt: skip
    _skimp_about = """Mean 0 and variance 1 of each channel over the batch, then scale and shift.

    Shape: {input}, C num_features, and the same for the result.
    Raises: ValueError in forward for other ranks, and in training for one value per channel.
    Memory: a new tensor; the running statistics are written in place.
    Source: Ioffe and Szegedy 2015, Batch normalization.
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum, training = self.momentum, self.training
        factor = 0.0 if momentum is None else momentum
        if training and self.track_running_stats:
            weight, bias, mean, var, count = held(self, _COUNTED)
            if count is not None:
                count.add_(1)
                if momentum is None:  # a cumulative average
                    factor = 1.0 / float(count)
        else:
            weight, bias, mean, var = held(self, _HELD)
            if training:
                mean = var = None
        by_batch = training or (mean is None and var is None)
        rest = (weight, bias, by_batch, factor, self.eps)
        return F.batch_norm(input, mean, var, *rest)  # type: ignore[no-any-return]


class BatchNorm1d(_BatchNorm, dims=1):
    """Mean 0 and variance 1 of each channel over the batch, then scale and shift.

    In training, the running statistics move by `momentum` towards the batch's (None: their mean
    over all batches), with the variance of a sample (n - 1); the output uses that of a population.
    A batch with one value per channel is refused in training:

    >>> torch.nn.BatchNorm1d(2)(torch.ones(1, 2))
    Traceback (most recent call last):
    ValueError: Expected more than 1 value per channel when training, got input size ...

    Shape: (N, C) or (N, C, L), C num_features, and the same for the result.
    Raises: ValueError in forward for other ranks, and in training for one value per channel.
    Memory: a new tensor; the running statistics are written in place.
    Source: Ioffe and Szegedy 2015, Batch normalization.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        require_ndim(input, 2, 3)


class BatchNorm2d(_BatchNorm, dims=2):
    def _check_input_dim(self, input: Tensor) -> None:
        require_ndim(input, 4)


class BatchNorm3d(_BatchNorm, dims=3):
    def _check_input_dim(self, input: Tensor) -> None:
        require_ndim(input, 5)


@options
class _InstanceNorm(_NormBase):
    """Mean 0 and variance 1 over each channel of each example: Ulyanov et al. 2016."""

    _skimp_about = """Mean 0 and variance 1 over each channel of each example, then scale and shift.

    Shape: {input}, and the same for the result.
    Raises: ValueError in forward for other ranks, and with `affine` for other channels (without,
    these warn).
    Source: Ulyanov et al. 2016, Instance normalization.
    """
    num_features: int
    eps: float = 1e-5
    momentum: float | None = 0.1
    affine: bool = False
    track_running_stats: bool = False

    def _get_no_batch_dim(self) -> int:
        return self._skimp_dims + 1

    def _check_input_dim(self, input: Tensor) -> None:
        require_ndim(input, self._skimp_dims + 1, self._skimp_dims + 2)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        feature_dim = input.dim() - self._get_no_batch_dim()
        if input.size(feature_dim) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={feature_dim} to match num_features "
                    f"({self.num_features}), but got: {input.size(feature_dim)}."
                )
            warnings.warn(
                f"input's size at dim={feature_dim} does not match num_features. You can silence "
                "this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=2,
            )
        if input.dim() == self._get_no_batch_dim():
            return self._skimp_normed(input.unsqueeze(0)).squeeze(0)
        return self._skimp_normed(input)

    def _skimp_normed(self, input: Tensor) -> Tensor:
        by_example = self.training or not self.track_running_stats
        factor = self.momentum if self.momentum is not None else 0.0
        kept = (self.running_mean, self.running_var, self.weight, self.bias)
        return F.instance_norm(input, *kept, by_example, factor, self.eps)  # type: ignore[no-any-return]


class InstanceNorm1d(_InstanceNorm, dims=1):
    pass


class InstanceNorm2d(_InstanceNorm, dims=2):
    pass


class InstanceNorm3d(_InstanceNorm, dims=3):
    pass


# -- num_features from the first input ------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Beside a normalisation: parameters and buffers wait for the first input."""

    _skimp_about = """A normalisation whose num_features the first input tells; then it is one.

    Shape: {input}, C any at the first call.
    """

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = ops.tensor(0, dtype=dtypes.int64)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels from the first input."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for t in (self.weight, self.bias, self.running_mean, self.running_var):
            if t is not None and is_lazy(t):
                t.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d, dims=1):
    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d, dims=2):
    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d, dims=3):
    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d, dims=1):
    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d, dims=2):
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d, dims=3):
    cls_to_become = InstanceNorm3d
