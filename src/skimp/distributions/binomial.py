"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary
from skimp.nn import whole


class Binomial(Binary):
    """The number of successes among `total_count` trials."""

    parameters = ("total_count", "probs", "logits")
    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._choose(probs, logits, validate_args, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    def _begin(self, validate_args: bool | None, **values: Any) -> None:
        param = values.get("probs", values.get("logits"))
        if not isinstance(param, Tensor):  # a number given the count's dtype would be cut
            values = {
                k: whole.tensor(float(v)) if k != "total_count" else v for k, v in values.items()
            }
            super()._begin(validate_args, **values)
            return
        super()._begin(validate_args, **values)

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
            return whole.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        n, logits = self.total_count, self.logits
        log_choices = whole.lgamma(n + 1) - whole.lgamma(value + 1) - whole.lgamma(n - value + 1)
        # log(1 + exp(logits)) without overflow
        log_rest = logits.clamp(min=0) + whole.log1p(whole.exp(-whole.abs(logits)))
        return value * logits - n * log_rest + log_choices

    def entropy(self) -> Tensor:
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(whole.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        values = whole.arange(1 + total, dtype=self._param.dtype)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values
