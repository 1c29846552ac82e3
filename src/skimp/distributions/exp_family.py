"""Exponential families: the entropy from the log-normaliser's gradient."""

from __future__ import annotations

from skimp import autograd
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions.distribution import Distribution
from skimp.distributions.utils import sum_rightmost


class ExponentialFamily(Distribution):
    """p(x) = exp(<t(x), theta> - F(theta) + k(x)), with theta `_natural_params`."""

    @property
    def _mean_carrier_measure(self) -> float:
        """E k(x), where it is known."""
        raise NotImplementedError

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """F(theta) - <theta, grad F(theta)> - E k(x), by autograd."""
        theta = [p.detach().requires_grad_() for p in self._natural_params]
        normaliser = self._log_normalizer(*theta)
        slopes = autograd.grad(normaliser.sum(), theta, create_graph=True)
        result = -self._mean_carrier_measure + normaliser
        for p, slope in zip(theta, slopes, strict=True):
            result = result - sum_rightmost(p * slope, p.dim() - len(self._batch_shape))
        return result
