"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.categorical import Categorical
from skimp.distributions.distribution import Distribution, forwarded
from skimp.distributions.utils import size_of
from skimp.nn import ops


class MixtureSameFamily(Distribution):
    """p(x) = sum over k of P(k) p_k(x): a component is drawn, and a value from it.

    `mixture_distribution`, a `Categorical` of k; `component_distribution`, whose last batch
    dimension is k and whose other ones are the batch. ValueError for other classes, other numbers
    of components, or batches that don't broadcast.
    """

    arg_constraints: dict[str, Any] = {}
    _skimp_expands = ("_component_distribution", "_mixture_distribution")
    _skimp_keeps = ("_num_component", "_event_ndims")
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an "
                " instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an "
                "instance of torch.distributions.Distribution"
            )
        mixed, parts = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixed), reversed(parts), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                    f"`component_distribution.batch_shape`({parts})"
                )
        km = mixture_distribution.logits.shape[-1]
        kc = component_distribution.batch_shape[-1]
        if km != kc:
            raise ValueError(
                f"`mixture_distribution component` ({km}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({kc})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = km
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(parts, event_shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = forwarded("_mixture_distribution")
    component_distribution = forwarded("_component_distribution")

    def _skimp_over_parts(self, values: Tensor) -> Tensor:
        """The mean over the components, weighted by their chances."""
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return (probs * values).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._skimp_over_parts(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        away = self.component_distribution.mean - self._pad(self.mean)
        return self._skimp_over_parts(
            self.component_distribution.variance
        ) + self._skimp_over_parts(away.pow(2.0))

    def cdf(self, x: Tensor) -> Tensor:
        parts = self.component_distribution.cdf(self._pad(x))
        return (parts * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        self._skimp_check(x)
        parts = self.component_distribution.log_prob(self._pad(x))
        weights = ops.log_softmax(self.mixture_distribution.logits, dim=-1)
        return ops.logsumexp(parts + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            first = len(size_of(sample_shape)) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            parts = self.component_distribution.sample(sample_shape)
            ones = [1] * (len(self.event_shape) + 1)
            index = chosen.reshape((*chosen.shape, *ones))
            index = index.expand((*chosen.shape, 1, *self.event_shape))
            return ops.gather(parts, first, index).squeeze(first)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Tensor) -> Tensor:
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        shape = x.shape
        return x.reshape((*shape[:-1], *[1] * missing, *shape[-1:], *[1] * self._event_ndims))

    def __repr__(self) -> str:
        mixed, parts = self.mixture_distribution, self.component_distribution
        return f"MixtureSameFamily(\n  {mixed},\n  {parts})"
