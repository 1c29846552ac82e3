"""Transforms of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.surface.distributions.test_distributions import (
    Ask,
    Case,
    check,
    oracle_checks,  # noqa: F401  (a fixture of every test)
)

TRANSFORMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "exp": (lambda d: d.ExpTransform(), (3,)),
    "sigmoid": (lambda d: d.SigmoidTransform(), (3,)),
    "softplus": (lambda d: d.SoftplusTransform(), (3,)),
    "tanh": (lambda d: d.TanhTransform(), (3,)),
    "affine": (lambda d: d.AffineTransform(1.0, -2.0), (3,)),
    "affine event": (lambda d: d.AffineTransform(1.0, -2.0, event_dim=1), (2, 3)),
    "stick": (lambda d: d.StickBreakingTransform(), (2, 3)),
    "softmax": (lambda d: d.SoftmaxTransform(), (2, 3)),
    "corr": (lambda d: d.CorrCholeskyTransform(), (2, 3)),
    "lower": (lambda d: d.LowerCholeskyTransform(), (2, 3, 3)),
    "definite": (lambda d: d.PositiveDefiniteTransform(), (2, 3, 3)),
    "reshape": (lambda d: d.ReshapeTransform((2, 3), (6,)), (4, 2, 3)),
    "independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), (2, 3)),
    "cat": (lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [1, 2]), (2, 3)),
    "stack": (lambda d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], -1), (3, 2)),
    "cumulative": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.0, 1.0)), (3,)),
    "composed": (
        lambda d: d.ComposeTransform([d.TanhTransform(), d.AffineTransform(0.0, 2.0)]),
        (3,),
    ),
    "power": (lambda d: d.ComposeTransform([d.ExpTransform(), d.PowerTransform(2.0)]), (3,)),
    "interval": (lambda d: d.biject_to(d.constraints.interval(-1.0, 3.0)), (3,)),
    "to simplex": (lambda d: d.transform_to(d.constraints.simplex), (2, 3)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_pytorchs(name: str) -> None:
    build, shape = TRANSFORMS[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def there(lib: Any, t: Any) -> Any:
        return build(lib.distributions)

    def moved(c: Case) -> Any:
        return c.d(c.lib.as_tensor(x))

    asked: list[Ask] = [
        moved,
        lambda c: c.d.inv(moved(c)),
        lambda c: c.d.log_abs_det_jacobian(c.lib.as_tensor(x), moved(c)),
        lambda c: c.d.inv.log_abs_det_jacobian(moved(c), c.lib.as_tensor(x)),
        lambda c: list(c.d.forward_shape(c.lib.Size(shape))),
        lambda c: list(c.d.inverse_shape(c.d.forward_shape(c.lib.Size(shape)))),
        lambda c: (repr(c.d), repr(c.d.inv), c.d.bijective),
        lambda c: (c.d.domain.event_dim, c.d.codomain.event_dim, repr(c.d.domain)),
        lambda c: c.d.sign,
        lambda c: (type(c.d.with_cache()).__name__, repr(c.d.with_cache())),
        lambda c: c.d.with_cache(1).with_cache(0).inv(moved(c)),
        lambda c: c.d.with_cache(2),
        lambda c: (c.d.inv.inv is c.d, c.d == build(c.lib.distributions)),
    ]
    for ask in asked:
        check(there, ask, refused="^NotImplementedError|cache_size must be 0 or 1")


def test_a_transform_with_a_constructor_has_to_say_how_it_is_cached() -> None:
    def scaled(lib: Any, t: Any) -> Any:
        class Scaled(lib.distributions.Transform):  # type: ignore[misc]
            def __init__(self, by: float, cache_size: int = 0) -> None:
                super().__init__(cache_size=cache_size)
                self.by = by

        class Steep(lib.distributions.AffineTransform):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(0.0, 5.0)

        return Scaled(2.0), Steep()

    check(scaled, lambda c: repr(c.d[0].with_cache(0)))
    check(scaled, lambda c: type(c.d[1].with_cache()).__name__)
    for lib in (torch, skimp):
        with pytest.raises(NotImplementedError, match="with_cache is not implemented"):
            scaled(lib, None)[0].with_cache()
