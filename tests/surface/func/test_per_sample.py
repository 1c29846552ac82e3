"""`call_for_per_sample_grads` beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads as theirs

import skimp
from skimp.nn.utils._per_sample_grad import call_for_per_sample_grads as ours
from tests.support.samples import array

CALLS = {torch: theirs, skimp: ours}


def net(t: Any, kind: str) -> tuple[Any, Any]:
    """A module with numbers that are the same on both, and its input."""
    nn = t.nn
    made, x = {
        "linear": lambda: (
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
            t.arange(15.0).view(5, 3).cos(),
        ),
        "images": lambda: (
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 2)),
            t.arange(96.0).view(3, 2, 4, 4).cos(),
        ),
        "words": lambda: (
            nn.Sequential(nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
            t.tensor([[0, 1, 1], [5, 2, 0]]),
        ),
    }[kind]()
    with t.no_grad():
        for p in made.parameters():
            p.copy_(t.arange(float(p.numel())).view(p.shape).sin() + 0.5)
    return made, x


def samples(t: Any, kind: str, reduction: str, **words: Any) -> list[Any]:
    made, x = net(t, kind)
    out = CALLS[t](made, loss_reduction=reduction, **words)(x)
    loss = (out.reshape(len(x), -1) ** 2).sum(1)
    getattr(loss, reduction)().backward()
    assert all(p.grad is None for p in made.parameters())
    return [array(out), *[array(p.grad_sample) for p in made.parameters()]]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("kind", ["linear", "images", "words"])
def test_gradients_of_each_sample(kind: str, reduction: str) -> None:
    for mine, others in zip(
        samples(skimp, kind, reduction), samples(torch, kind, reduction), strict=True
    ):
        assert mine.shape == others.shape
        assert abs(mine - others).max() < 2e-4 * max(1, abs(others).max())


def test_what_needs_no_gradient_gets_none() -> None:
    for t in (torch, skimp):
        made, x = net(t, "linear")
        made[0].weight.requires_grad_(False)
        CALLS[t](made, batch_size=5)(x).sum().backward()
        assert not hasattr(made[0].weight, "grad_sample")
        assert made[2].weight.grad_sample.shape == (5, 2, 4)


REFUSED: dict[str, Any] = {
    "reduction": lambda call, m, x: call(m, loss_reduction="none"),
    "no module": lambda call, m, x: call(x),
    "size": lambda call, m, x: call(m, batch_size=0),
    "kind of size": lambda call, m, x: call(m, batch_size="a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_pytorchs(case: str) -> None:
    words = []
    for t in (torch, skimp):
        with pytest.raises(RuntimeError) as error:
            REFUSED[case](CALLS[t], *net(t, "linear"))
        words.append(str(error.value))
    assert words[0] == words[1]


def test_what_has_no_one_batch_size_is_refused() -> None:
    for t in (torch, skimp):
        made, x = net(t, "linear")
        for given in ((x, x[:2]), (3,)):
            with pytest.raises(RuntimeError, match="batch size"):
                CALLS[t](made)(*given)


def test_a_second_call_must_clear_first() -> None:
    for t in (torch, skimp):
        made, x = net(t, "linear")
        CALLS[t](made)(x).sum().backward()
        with pytest.raises(RuntimeError, match="grad_sample"):
            CALLS[t](made)


def test_recurrent_layers_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="recurrent"):
        ours(skimp.nn.LSTM(2, 2))
