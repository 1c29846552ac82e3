"""A distribution moved by transforms."""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded
from skimp.distributions.independent import Independent
from skimp.distributions.transforms import ComposeTransform, Transform
from skimp.distributions.utils import size_of, sum_rightmost


class TransformedDistribution(Distribution):
    """y = t(x), where x comes from the base: p(y) = p_base(x) / |det dt/dx|, at x = t.inv(y).

    `base_distribution`, kept as `base_dist`, expanded to the shape that the transforms take, its
    last batch dimensions taken as events where they need more; `transforms`, one `Transform` or a
    list, the first first (else ValueError). The shapes are those after the last one. With
    `cache_size=1` in each, `log_prob` of a fresh draw inverts nothing.
    """

    arg_constraints: Any = {}
    _skimp_expands: ClassVar[tuple[str, ...]] = ("base_dist",)
    _skimp_keeps = ("transforms",)

    def __init__(
        self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None
    ) -> None:
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list):
            if not all(isinstance(t, Transform) for t in transforms):
                raise ValueError("transforms must be a Transform or a list of Transforms")
            self.transforms = transforms
        else:
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dim = len(base_distribution.event_shape)
        transform = ComposeTransform(self.transforms)
        if len(shape) < transform.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{transform.domain.event_dim}, but got {shape}."
            )
        forward = transform.forward_shape(shape)
        wide = size_of(transform.inverse_shape(forward))
        if wide != shape:
            base_distribution = base_distribution.expand(wide[: len(wide) - base_dim])
        more = transform.domain.event_dim - base_dim
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist: Any = base_distribution
        event_dim = transform.codomain.event_dim + max(base_dim - transform.domain.event_dim, 0)
        cut = len(forward) - event_dim
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    def _skimp_expanded(self, name: str, batch_shape: Size) -> Any:
        if name != "base_dist":
            return super()._skimp_expanded(name, batch_shape)
        shape = ComposeTransform(self.transforms).inverse_shape(batch_shape + self._event_shape)
        return self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])

    has_rsample = forwarded("base_dist.has_rsample")

    def _skimp_through(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._skimp_through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._skimp_through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        event_dim, y, log_prob = len(self.event_shape), value, 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            log_prob = log_prob - sum_rightmost(slope, event_dim - transform.domain.event_dim)  # type: ignore[assignment]
            y = x
        inner = self.base_dist.log_prob(y)
        return log_prob + sum_rightmost(inner, event_dim - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Tensor) -> Tensor:
        """1 - value where the transforms fall."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._skimp_through(self.base_dist.icdf(self._monotonize_cdf(value)))
