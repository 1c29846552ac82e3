"""Where an op takes a number, a tensor of one will do: its value at the call, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch as oracle
from torch.testing import assert_close

import skimp

CALLS: dict[str, Any] = {
    "softplus": lambda t, x, n: t.nn.functional.softplus(x, n(2.0), n(1.0)),
    "threshold": lambda t, x, n: t.nn.functional.threshold(x, n(0.5), n(3.0)),
    "leaky_relu": lambda t, x, n: t.nn.functional.leaky_relu(x, n(0.1)),
    "elu": lambda t, x, n: t.nn.functional.elu(x, n(2.0)),
    "cross_entropy": lambda t, x, n: t.nn.functional.cross_entropy(
        x, t.tensor([1, 0, 2]), ignore_index=n(2), label_smoothing=n(0.1)
    ),
    "nll_loss": lambda t, x, n: t.nn.functional.nll_loss(x, t.tensor([1, 0, 2]), ignore_index=n(2)),
    "tril": lambda t, x, n: t.tril(x, n(-1)),
    "triu_": lambda t, x, n: (x + 0).triu_(n(1)),
    "mvlgamma": lambda t, x, n: t.mvlgamma(x + 9, n(2)),
    "normal_": lambda t, x, n: (x + 0).normal_(n(1.5), n(0.0)),
    "hann_window": lambda t, x, n: t.hann_window(n(4)) * x.sum(),
    "combinations": lambda t, x, n: t.combinations(x[0], n(2)),
}


def _run(lib: Any, call: str, as_tensor: bool) -> list[Any]:
    x = lib.arange(9.0).reshape(3, 3).sub(4).requires_grad_()
    made = CALLS[call](lib, x, lib.tensor if as_tensor else lambda number: number)
    if made.requires_grad:
        made.sum().backward()
    return [made.tolist(), None if x.grad is None else x.grad.tolist()]


@pytest.mark.parametrize("call", CALLS)
def test_a_tensor_of_one_number_is_that_number(call: str) -> None:
    ours = _run(skimp, call, True)
    assert ours == _run(skimp, call, False)
    assert_close(oracle.tensor(ours[0]), oracle.tensor(_run(oracle, call, True)[0]))


def test_a_graph_keeps_the_number_and_not_the_tensor() -> None:
    for lib in (skimp, oracle):
        x, slope = lib.tensor([-1.0, 2.0], requires_grad=True), lib.tensor(0.5)
        made = lib.nn.functional.leaky_relu(x, slope)
        slope.fill_(7)
        made.sum().backward()
        assert x.grad.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("call", ["softplus", "threshold", "leaky_relu", "elu"])
def test_one_whose_value_nobody_can_take_is_refused_in_pytorchs_words(call: str) -> None:
    def told(lib: Any, way: str) -> str:
        def run(number: Any) -> Any:
            return CALLS[call](lib, lib.ones(3), lambda _: number)

        asked = lib.vmap(run) if way == "vmap" else run
        number = lib.ones(2) if way == "vmap" else lib.ones((), device="meta")
        with pytest.raises(RuntimeError) as caught:
            asked(number)
        return str(caught.value).partition(" on ")[0]

    for way in ("vmap", "meta"):
        assert told(skimp, way) == told(oracle, way)
