"""The Bernoulli distribution, relaxed to numbers between 0 and 1."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary, from_logits, from_probs
from skimp.distributions.distribution import forwarded, parameter
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import SigmoidTransform
from skimp.distributions.utils import clamp_probs
from skimp.nn import ops


class LogitRelaxedBernoulli(Binary):
    """The log-odds of a relaxed Bernoulli number: (log(p / (1 - p)) + logistic noise) / t.

    `temperature`, t > 0, a tensor; either `probs`, p, or `logits`, its log-odds: a number or a
    tensor of the batch's shape.

    Source: Maddison, Mnih and Teh, The concrete distribution, 2017; Jang, Gu and Poole, Categorical
    reparameterization with Gumbel-softmax, 2017.
    """

    probs = parameter(constraints.unit_interval, from_logits)
    logits = parameter(constraints.real, from_probs)
    support = constraints.real
    _skimp_keeps = ("temperature",)

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._skimp_choose(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        uniforms = clamp_probs(ops.rand(shape, dtype=probs.dtype))
        return (
            uniforms.log() - (-uniforms).log1p() + probs.log() - (-probs).log1p()
        ) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        away = logits - value.mul(self.temperature)
        return self.temperature.log() + away - 2 * away.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1), nearer to 0 and 1 the lower the temperature: sigmoid of the class above.

    p(x) = t a x^(-t - 1) (1 - x)^(-t - 1) / (a x^-t + (1 - x)^-t)^2, where a = p / (1 - p).
    `temperature`, `probs` and `logits` are those of `LogitRelaxedBernoulli`.
    """

    temperature = forwarded("base_dist.temperature")
    probs = forwarded("base_dist.probs", constraints.unit_interval)
    logits = forwarded("base_dist.logits", constraints.real)
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)
