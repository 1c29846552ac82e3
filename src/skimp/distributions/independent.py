"""Batch dimensions taken as parts of the event."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded
from skimp.distributions.utils import sum_rightmost

D = TypeVar("D", bound=Distribution)


class Independent(Distribution, Generic[D]):
    """A distribution whose last n batch dimensions are part of the event: log_prob sums over them.

    `base_distribution` is kept as `base_dist`; `reinterpreted_batch_ndims` is n, ValueError where
    there are fewer. Draws, moments and support are those of the base.
    """

    arg_constraints: dict[str, Any] = {}
    _skimp_expands = ("base_dist",)
    _skimp_keeps = ("reinterpreted_batch_ndims",)

    def __init__(
        self,
        base_distribution: D,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch, n = base_distribution.batch_shape, reinterpreted_batch_ndims
        if n > len(batch):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {n} vs {len(batch)}"
            )
        shape = batch + base_distribution.event_shape
        split = len(batch) - n
        self.base_dist: Any = base_distribution
        self.reinterpreted_batch_ndims = n
        super().__init__(shape[:split], shape[split:], validate_args=validate_args)

    has_rsample = forwarded("base_dist.has_rsample")

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        if self.reinterpreted_batch_ndims > 0:
            return False
        return self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        result = self.base_dist.support
        if self.reinterpreted_batch_ndims:
            result = constraints.independent(result, self.reinterpreted_batch_ndims)
        return result

    mean = forwarded("base_dist.mean")
    mode = forwarded("base_dist.mode")
    variance = forwarded("base_dist.variance")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
