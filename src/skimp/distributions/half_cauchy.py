"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions.cauchy import Cauchy
from skimp.distributions.distribution import forwarded
from skimp.distributions.folded import Folded
from skimp.distributions.transforms import AbsTransform
from skimp.nn import ops


class HalfCauchy(Folded):
    """p(x) = 2 / (pi scale (1 + (x / scale)^2)), for x >= 0; the mean is infinite.

    `scale` > 0: a number or a tensor of the batch's shape.
    """

    _skimp_expands = ()

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args
        )

    @property
    def mean(self) -> Tensor:
        return self._skimp_full(math.inf, self.scale)

    variance = forwarded("base_dist.variance")

    def log_prob(self, value: Any) -> Tensor:
        """The log density; `value` is taken in the dtype of `scale`."""
        self._skimp_check(value)
        return self._skimp_folded_log_prob(ops.as_tensor(value, dtype=self.scale.dtype))
