"""BatchNorm over the batches of all ranks."""

from __future__ import annotations

from typing import Any

from skimp import distributed
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.nn.modules.batchnorm import _BatchNorm

cat: Any = ops.cat
dist: Any = distributed  # whose functions come when they are asked for


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over the batches of all ranks of a group: mean and variance are those of the whole.
    On one rank, and in eval mode, it is BatchNorm.

    Shape: (N, C, *), C num_features, and the same for the result.
    Raises: ValueError in forward for a rank below 2.
    Memory: a new tensor; the running statistics are written in place.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        if (
            not self.training
            or not dist.is_initialized()
            or dist.get_world_size(self.process_group) == 1
        ):
            return super().forward(input)
        self._check_input_dim(input)
        mean, centered, count = self._skimp_centered(input, dist.nn.functional.all_reduce)
        dims = [d for d in range(input.dim()) if d != 1]
        squares = (centered * centered).sum(dims)
        variance = dist.nn.functional.all_reduce(squares, group=self.process_group) / count
        self._skimp_keep(mean, variance, count)
        shape = [1, -1] + [1] * (input.dim() - 2)
        found = centered * (variance + self.eps).rsqrt().view(shape)
        if self.weight is None:
            return found  # type: ignore[no-any-return]
        found = found * self.weight.view(shape)
        return found if self.bias is None else found + self.bias.view(shape)  # type: ignore[no-any-return]

    def _skimp_centered(self, input: Tensor, all_reduce: Any) -> tuple[Tensor, Tensor, float]:
        """All ranks' mean, what this rank's inputs differ from it, and how many there are."""
        dims = [d for d in range(input.dim()) if d != 1]
        mine = input.numel() // input.shape[1]
        sums = cat([input.sum(dims), input.new_full((1,), float(mine))])
        sums = all_reduce(sums, group=self.process_group)
        count = float(sums[-1].item())
        mean = sums[:-1] / count
        return mean, input - mean.view([1, -1] + [1] * (input.dim() - 2)), count

    def _skimp_keep(self, mean: Tensor, variance: Tensor, count: float) -> None:
        """Move the running statistics."""
        if not self.track_running_stats:
            return
        self.num_batches_tracked.add_(1)
        factor = self.momentum
        if factor is None:
            factor = 1.0 / float(self.num_batches_tracked)
        sample = variance.detach() * (count / max(count - 1, 1))
        self.running_mean.lerp_(mean.detach(), factor)
        self.running_var.lerp_(sample, factor)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with its BatchNorms replaced by SyncBatchNorms that have their parameters."""
        made = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            if module.affine:
                made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
