"""The von Mises distribution on the circle."""

from __future__ import annotations

import math
from typing import Any

from skimp import special
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.dtypes import bool as boolean, float64
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.utils import lazy_property, size_of
from skimp.nn import ops


class VonMises(Distribution):
    """Angles in [-pi, pi): p(x) = exp(c cos(x - loc)) / (2 pi I0(c)).

    `loc` in radians and `concentration`, c > 0, the inverse of a variance: numbers or tensors that
    broadcast to the batch's shape. `variance` is circular: 1 - I1(c) / I0(c). Values are taken at
    any turn. Drawn in float64, by rejection from a wrapped Cauchy distribution.

    Source: Best and Fisher, Efficient simulation of the von Mises distribution, 1979.
    """

    loc = parameter(constraints.real)
    concentration = parameter(constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, loc=loc, concentration=concentration)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        if type(self).__init__ is VonMises.__init__:
            return super().expand(batch_shape)
        # a subclass with a constructor of its own is made by it
        batch_shape = size_of(batch_shape)
        loc, concentration = self.loc.expand(batch_shape), self.concentration.expand(batch_shape)
        checked = self.__dict__.get("_validate_args")
        return type(self)(loc, concentration, validate_args=checked)

    mean = forwarded("loc")
    mode = forwarded("loc")

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance."""
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        kappa = self.concentration.to(float64)
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        r = (1 + rho**2) / (2 * rho)
        series = 1 / kappa + kappa  # where rho has no digits left
        return ops.where(kappa < 1e-5, series, r)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            kappa = self.concentration.to(float64).expand(shape)
            r = self._proposal_r.expand(shape)
            x = ops.empty(shape, dtype=float64)
            done = ops.zeros(shape, dtype=boolean)
            while True:
                if done.all():
                    break
                u1, u2, u3 = ops.rand((3, *shape), dtype=float64).unbind()
                z = ops.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = kappa * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                x = ops.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                done = done | accept
            wrapped = (x + math.pi + self.loc.to(float64)) % (2 * math.pi) - math.pi
            return wrapped.to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        log_i0 = special.i0e(self.concentration).log() + self.concentration
        return self.concentration * ops.cos(value - self.loc) - math.log(2 * math.pi) - log_i0
