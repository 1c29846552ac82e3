"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.categorical import Categorical
from skimp.distributions.distribution import Distribution
from skimp.distributions.utils import size_of
from skimp.nn import whole


class MixtureSameFamily(Distribution):
    """Draws a component, the last batch dimension of one distribution, and then from it."""

    arg_constraints: dict[str, Any] = {}
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

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = size_of(batch_shape)
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        wide = (*batch_shape, self._num_component)
        new._component_distribution = self._component_distribution.expand(wide)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        return self._component_distribution

    def _over_parts(self, values: Tensor) -> Tensor:
        """The mean over the components, weighted by their chances."""
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return (probs * values).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._over_parts(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        away = self.component_distribution.mean - self._pad(self.mean)
        return self._over_parts(self.component_distribution.variance) + self._over_parts(
            away.pow(2.0)
        )

    def cdf(self, value: Tensor) -> Tensor:
        parts = self.component_distribution.cdf(self._pad(value))
        return (parts * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        parts = self.component_distribution.log_prob(self._pad(value))
        weights = whole.log_softmax(self.mixture_distribution.logits, dim=-1)
        return whole.logsumexp(parts + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            first = len(size_of(sample_shape)) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            parts = self.component_distribution.sample(sample_shape)
            ones = [1] * (len(self.event_shape) + 1)
            index = chosen.reshape((*chosen.shape, *ones))
            index = index.expand((*chosen.shape, 1, *self.event_shape))
            return whole.gather(parts, first, index).squeeze(first)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Tensor) -> Tensor:
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        shape = x.shape
        return x.reshape((*shape[:-1], *[1] * missing, *shape[-1:], *[1] * self._event_ndims))

    def __repr__(self) -> str:
        mixed, parts = self.mixture_distribution, self.component_distribution
        return f"{type(self).__name__}(\n  {mixed},\n  {parts})"
