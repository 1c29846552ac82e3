"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary, from_logits, from_probs
from skimp.distributions.distribution import parameter
from skimp.nn import ops


class Binomial(Binary):
    """The successes among n trials: p(k) = n! / (k! (n - k)!) p^k (1 - p)^(n - k), k = 0 to n.

    `total_count` is n; either `probs`, p in [0, 1], or `logits`, log(p / (1 - p)). Numbers or
    tensors that broadcast to the batch's shape; ValueError for both or none of the last two.
    `entropy` and `enumerate_support` raise NotImplementedError where n differs in the batch.
    """

    total_count = parameter(constraints.nonnegative_integer)
    probs = parameter(constraints.unit_interval, from_logits)
    logits = parameter(constraints.real, from_probs)
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._skimp_choose(probs, logits, validate_args, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    def _skimp_begin(self, validate_args: bool | None, **values: Any) -> None:
        param = values.get("probs", values.get("logits"))
        if not isinstance(param, Tensor):  # a number given the count's dtype would be cut
            values = {
                k: ops.tensor(float(v)) if k != "total_count" else v for k, v in values.items()
            }
        super()._skimp_begin(validate_args, **values)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return ops.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        n, logits = self.total_count, self.logits
        log_choices = ops.lgamma(n + 1) - ops.lgamma(value + 1) - ops.lgamma(n - value + 1)
        # log(1 + exp(logits)) without overflow
        log_rest = logits.clamp(min=0) + ops.log1p(ops.exp(-ops.abs(logits)))
        return value * logits - n * log_rest + log_choices

    def _skimp_one_count(self, asked: str) -> int:
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{asked}`.")
        return total

    def entropy(self) -> Tensor:
        self._skimp_one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(ops.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        total = self._skimp_one_count("enumerate_support")
        return self._skimp_enumerated(ops.arange(1 + total, dtype=self._param.dtype), expand)
