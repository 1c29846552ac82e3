"""The one-hot categorical distribution, relaxed to points inside the simplex."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.categorical import Categorical, OfCategorical
from skimp.distributions.distribution import forwarded
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import ExpTransform
from skimp.distributions.utils import clamp_probs
from skimp.nn import ops


class ExpRelaxedCategorical(OfCategorical):
    """Logarithms of a relaxed one-hot vector: log softmax((log p + Gumbel noise) / t).

    `temperature`, t > 0, a tensor; either `probs` or `logits`, as a `Categorical` takes them, whose
    last dimension is the event.

    Source: Maddison, Mnih and Teh, The concrete distribution, 2017; Jang, Gu and Poole, Categorical
    reparameterization with Gumbel-softmax, 2017.
    """

    support = constraints.real_vector
    has_rsample = True
    _skimp_expands = ("_categorical",)
    _skimp_keeps = ("temperature",)

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._skimp_hold(Categorical(probs, logits), validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        uniforms = clamp_probs(ops.rand(shape, dtype=self.logits.dtype))
        gumbels = -((-(uniforms.log())).log())
        scores = (self.logits + gumbels) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._categorical._num_events
        self._skimp_check(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        temperature = ops.as_tensor(self.temperature, dtype=logits.dtype)
        constant = ops.lgamma(ops.full_like(temperature, float(k))) + temperature.log() * (k - 1)
        score = logits - value.mul(self.temperature)
        score = (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1)
        return score + constant


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex, nearer to its corners the lower t: exp of the class above.

    p(x) = (n - 1)! t^(n - 1) prod(p_i x_i^(-t - 1)) / sum(p_i x_i^-t)^n. `temperature`, `probs`
    and `logits` are those of `ExpRelaxedCategorical`.
    """

    temperature = forwarded("base_dist.temperature")
    probs = forwarded("base_dist.probs", constraints.simplex)
    logits = forwarded("base_dist.logits", constraints.real_vector)
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
