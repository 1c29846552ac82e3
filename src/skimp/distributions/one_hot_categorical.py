"""The categorical distribution as one-hot vectors."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.categorical import Categorical, OfCategorical
from skimp.distributions.distribution import forwarded
from skimp.distributions.utils import size_of
from skimp.nn import functional as F, ops


class OneHotCategorical(OfCategorical):
    """One-hot vectors: p(x) = probs[..., i], where x[i] is 1.

    Either `probs` or `logits`, as a `Categorical` takes them; the last dimension is the event.
    Draws have the dtype of `probs`.
    """

    support = constraints.one_hot
    has_enumerate_support = True
    _skimp_expands = ("_categorical",)

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._skimp_hold(Categorical(probs, logits), validate_args)

    mean = forwarded("probs")

    @property
    def mode(self) -> Tensor:
        best = self.probs.argmax(dim=-1)
        return F.one_hot(best, num_classes=self.probs.shape[-1]).to(self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        indices = self._categorical.sample(size_of(sample_shape))
        return F.one_hot(indices, self._categorical._num_events).to(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = ops.eye(self.event_shape[0], dtype=self._param.dtype)
        return self._skimp_enumerated(values, expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, whose draws pass their gradient to `probs` as if they were these (or to `logits`).

    Source: Bengio, Leonard and Courville, Estimating or propagating gradients through stochastic
    neurons for conditional computation, 2013.
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        samples = self.sample(sample_shape)
        return samples + (self.probs - self.probs.detach())
