"""Which transform leads from the real numbers into a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Any]


class ConstraintRegistry:
    """From classes of constraints to the makers of their transforms."""

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Say which transform a class (or the class of an instance) has; also a decorator.

        Raises: TypeError for what is no constraint.
        """
        if factory is None:
            return lambda made: self.register(constraint, made)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform whose codomain is `constraint`.

        Raises: NotImplementedError for a constraint without a transform.
        """
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _to(constraint: Any, *registries: ConstraintRegistry) -> Callable[[Factory], Factory]:
    def declare(factory: Factory) -> Factory:
        for registry in registries:
            registry.register(constraint, factory)
        return factory

    return declare


@_to(constraints.real, biject_to, transform_to)
def _real(constraint: Any) -> Any:
    return transforms.identity_transform


@_to(constraints.greater_than, biject_to, transform_to)
@_to(constraints.greater_than_eq, biject_to, transform_to)
def _greater(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@_to(constraints.less_than, biject_to, transform_to)
def _less(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_to(constraints.interval, biject_to, transform_to)
@_to(constraints.half_open_interval, biject_to, transform_to)
def _interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, float | int) and low == 0 and isinstance(high, float | int) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


@_to(constraints.simplex, biject_to)
def _biject_simplex(constraint: Any) -> Any:
    return transforms.StickBreakingTransform()


@_to(constraints.simplex, transform_to)
def _transform_simplex(constraint: Any) -> Any:
    return transforms.SoftmaxTransform()


@_to(constraints.lower_cholesky, biject_to, transform_to)
def _lower_cholesky(constraint: Any) -> Any:
    return transforms.LowerCholeskyTransform()


@_to(constraints.positive_definite, biject_to, transform_to)
@_to(constraints.positive_semidefinite, biject_to, transform_to)
def _positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()


@_to(constraints.corr_cholesky, biject_to, transform_to)
def _corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


def _register_composed(registry: ConstraintRegistry) -> None:
    """Constraints made of others, whose transforms are made of theirs."""

    @_to(constraints.independent, registry)
    def independent(constraint: Any) -> Any:
        inner = registry(constraint.base_constraint)
        return transforms.IndependentTransform(inner, constraint.reinterpreted_batch_ndims)

    @_to(constraints.cat, registry)
    def cat(constraint: Any) -> Any:
        parts = [registry(part) for part in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    @_to(constraints.stack, registry)
    def stack(constraint: Any) -> Any:
        return transforms.StackTransform(
            [registry(part) for part in constraint.cseq], constraint.dim
        )


_register_composed(biject_to)
_register_composed(transform_to)
