"""The geometric distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary, from_logits, from_probs
from skimp.distributions.distribution import parameter
from skimp.nn import functional as F, ops


class Geometric(Binary):
    """Failures before the first success: P(k) = (1 - p)^k p, for k = 0, 1, 2, ...

    Either `probs`, p in (0, 1], or `logits`, log(p / (1 - p)): a number or a tensor of the batch's
    shape. ValueError for none or both, or for a chance of 0.

    >>> torch.distributions.Geometric(0.5).mean  # failures, not trials
    tensor(1.)
    """

    probs = parameter(constraints.unit_interval, from_logits)
    logits = parameter(constraints.real, from_probs)
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._skimp_choose(probs, logits, validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            if not (value > 0).all():
                raise ValueError(
                    f"Expected parameter probs ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to be positive "
                    f"but found invalid values:\n{value}"
                )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            u = self.probs.new_empty(self._extended_shape(sample_shape))
            u.uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        value, probs = ops.broadcast_tensors(value, self.probs)
        probs = probs.clone()
        probs[(probs == 1) & (value == 0)] = 0
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        cross = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return cross / self.probs
