"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from skimp import special
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.binomial import Binomial
from skimp.distributions.categorical import Categorical, OfCategorical
from skimp.distributions.utils import size_of
from skimp.nn import ops


class Multinomial(OfCategorical):
    """How often each category comes among n draws: p(x) = n! prod(p_i^x_i / x_i!), sum(x) = n.

    `total_count` is n, an int (else NotImplementedError); either `probs` or `logits`, as a
    `Categorical` takes them, whose last dimension is the event. `log_prob` takes counts of
    another sum than n as well, up to which the support reaches.
    """

    _skimp_expands = ("_categorical", "_binomial")
    _skimp_keeps = ("total_count",)

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=categorical.probs)
        self._skimp_hold(categorical, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = size_of(sample_shape)
        drawn = self._categorical.sample(Size((self.total_count,)) + sample_shape)
        drawn = drawn.permute(*range(1, drawn.dim()), 0)
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        counts.scatter_add_(-1, drawn, ops.ones_like(drawn))
        return counts.type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        logits = logits.clone()
        logits[(value == 0) & (logits == -float("inf"))] = 0
        choices = ops.lgamma(value.sum(-1) + 1) - ops.lgamma(value + 1).sum(-1)
        return choices + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = ops.tensor(self.total_count)
        support = self._binomial.enumerate_support(expand=False)[1:]
        chance = ops.exp(self._binomial.log_prob(support))
        rest = (chance * ops.lgamma(support + 1)).sum((0, -1))
        return self.total_count * special.entr(self.probs).sum(-1) - ops.lgamma(n + 1) + rest
