"""torch.nn.grad and torch.nn.common_types against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import numbers, same, twin

CASES = [
    (1, (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    (2, (2, 3, 8, 7), (4, 3, 3, 2), {}),
    (2, (1, 4, 9, 9), (4, 1, 3, 3), {"stride": (2, 3), "padding": 2, "groups": 4}),
    (2, (2, 3, 9, 9), (2, 3, 3, 3), {"dilation": (2, 1)}),
    (3, (1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"padding": (0, 1, 1)}),
]


@pytest.mark.parametrize(("nd", "size", "kernel", "how"), CASES)
def test_gradients_of_convolutions_without_a_forward(
    nd: int, size: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    x, w = numbers(size, "float32"), numbers(kernel, "float32", seed=1)
    g = numbers(getattr(torch.nn.functional, f"conv{nd}d")(x, w, **how).shape, "float32", seed=2)
    for library, of in ((torch, lambda t: t), (skimp, twin)):
        grad = library.nn.grad
        results = (
            getattr(grad, f"conv{nd}d_input")(size, of(w), of(g), **how),
            getattr(grad, f"conv{nd}d_weight")(of(x), kernel, of(g), **how),
        )
        if library is torch:
            expected = results
    same(results, expected, tolerance=1e-4)


def test_sizes_that_do_not_fit_are_refused_before_anything_is_computed() -> None:
    grad = skimp.nn.grad
    x, w, g = skimp.ones(1, 3, 8, 8), skimp.ones(4, 3, 3, 3), skimp.ones(1, 4, 6, 6)
    for call in (
        lambda: grad.conv2d_input((1, 3, 9, 8), w, g),
        lambda: grad.conv2d_input((3, 8, 8), w, g),
        lambda: grad.conv2d_input((1, 2, 8, 8), w, g),
        lambda: grad.conv2d_weight(x, (4, 3, 2, 3), g),
        lambda: grad.conv2d_weight(x, (4, 3, 3, 3), g, groups=2),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_names_for_what_layers_take() -> None:
    from torch.nn import common_types as theirs

    from skimp.nn import common_types as ours

    names = [n for n in dir(theirs) if n.endswith("_t")]
    assert len(names) > 20
    for name in names:
        mine, other = getattr(ours, name), getattr(theirs, name)
        written = str(mine).replace("skimp._engine.tensor.tensor.", "torch.")
        assert mine == other or written == str(other)
