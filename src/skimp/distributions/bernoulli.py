"""The Bernoulli distribution, and what all distributions of chances or log-odds share."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.utils import lazy_property, logits_to_probs, one_of, probs_to_logits
from skimp.nn import functional as F, ops


class Chances(Distribution):
    """A distribution that is given `probs` or `logits`, and has both."""

    @lazy_property
    def _param(self) -> Tensor:
        own = self.__dict__
        value: Tensor = own["probs"] if "probs" in own else own["logits"]
        return value

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)


def from_logits(d: Any) -> Tensor:
    """The chances of a distribution of log-odds."""
    return logits_to_probs(d.logits, is_binary=True)


def from_probs(d: Any) -> Tensor:
    """The log-odds of a distribution of chances."""
    return probs_to_logits(d.probs, is_binary=True)


class Binary(Chances):
    """A distribution with the chance of a success, given as `probs` or as log-odds `logits`."""

    def _skimp_choose(
        self, probs: Any, logits: Any, validate_args: bool | None, **rest: Any
    ) -> None:
        one_of(probs, logits)
        given = {"probs": probs} if logits is None else {"logits": logits}
        self._skimp_begin(validate_args, **rest, **given)


class Bernoulli(Binary, ExponentialFamily):
    """1 with chance p, else 0: p(x) = p^x (1 - p)^(1 - x), for x in {0, 1}.

    Either `probs`, p in [0, 1], or `logits`, log(p / (1 - p)): a number or a tensor of the
    batch's shape; ValueError for none or both. `mode` is nan where p is 1/2.
    """

    probs = parameter(constraints.unit_interval, from_logits)
    logits = parameter(constraints.real, from_probs)
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._skimp_choose(probs, logits, validate_args)

    mean = forwarded("probs")

    @property
    def mode(self) -> Tensor:
        mode: Tensor = (self.probs >= 0.5).to(self.probs)
        mode[self.probs == 0.5] = float("nan")
        return mode

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return ops.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._skimp_enumerated(ops.arange(2, dtype=self._param.dtype), expand)

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (ops.logit(self.probs),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return ops.log1p(ops.exp(natural_params[0]))
