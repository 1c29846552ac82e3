"""The categorical distribution, and what distributions made of one share."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.dtypes import int64
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Chances
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.utils import logits_to_probs, one_of, probs_to_logits, size_of
from skimp.nn import ops


class Categorical(Chances):
    """p(x = i) = probs[..., i], for whole numbers i from 0.

    Either `probs`, weights that needn't sum to 1, or `logits`, their logarithms, of the batch's
    shape and one dimension of categories; both are kept normalised. ValueError for none or both,
    or a tensor without dimensions. Draws are int64. `mean` and `variance` are nan.

    >>> torch.distributions.Categorical(torch.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])

    Dtypes: floating point chances; draws are int64.
    Memory: `probs` or `logits` is normalised into a new tensor; draws are new tensors without a
    gradient.
    """

    probs = parameter(constraints.simplex, lambda d: logits_to_probs(d.logits))
    logits = parameter(constraints.real_vector, lambda d: probs_to_logits(d.probs))
    has_enumerate_support = True
    _skimp_keeps = ("_num_events",)

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        shape = self._param.shape
        self._num_events = shape[-1]
        super().__init__(shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._skimp_full(float("nan"), self.probs)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self._skimp_full(float("nan"), self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = size_of(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = ops.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        value, logits = value.long().unsqueeze(-1), self.logits
        if value.shape[:-1] != logits.shape[:-1]:
            value, logits = ops.broadcast_tensors(value, logits)
            value = value[..., :1]
        return logits.gather(-1, value).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = ops.clamp(self.logits, min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._skimp_enumerated(ops.arange(self._num_events, dtype=int64), expand)


class OfCategorical(Distribution):
    """A distribution of vectors, with an element for each category of `_categorical`."""

    probs = forwarded("_categorical.probs", constraints.simplex)
    logits = forwarded("_categorical.logits", constraints.real_vector)
    param_shape = forwarded("_categorical.param_shape")
    _param = forwarded("_categorical._param")
    _new = forwarded("_categorical._new")

    def _skimp_hold(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        shape = categorical.param_shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)
