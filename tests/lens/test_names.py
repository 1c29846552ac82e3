"""Ops and holders have the names under which a program knows them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import skimp
from skimp import nn
from skimp.lens import Recording

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LSTM": (lambda: nn.LSTM(8, 16, 2), (5, 3, 8)),
    "GRU": (lambda: nn.GRU(8, 16), (5, 3, 8)),
    "RNN": (lambda: nn.RNN(8, 16), (5, 3, 8)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 16), (3, 8)),
    "GRUCell": (lambda: nn.GRUCell(8, 16), (3, 8)),
    "RNNCell": (lambda: nn.RNNCell(8, 16), (3, 8)),
    "MultiheadAttention": (lambda: nn.TransformerEncoderLayer(8, 2, 16), (5, 3, 8)),
    "Bilinear": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout()),
        (3, 8),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ops_of_layers_are_functions_of_the_library(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    with Recording() as recording:
        kept: Any = layer(skimp.ones(shape))
        report = recording.report()
    del kept
    ops = {held.place.op for held in report.peak.held if held.place.line}
    assert ops
    for op in ops:
        assert hasattr(skimp, op) or hasattr(nn.functional, op) or hasattr(skimp.Tensor, op), op


def test_what_makes_tensors_has_the_name_that_was_called() -> None:
    x = skimp.ones(2, 2)
    cases: dict[str, Callable[[], Any]] = {
        "Tensor": lambda: (
            skimp.Tensor(2, 3),
            skimp.LongTensor([1]),
            nn.Parameter(skimp.Tensor(2)),
        ),
        "UntypedStorage": lambda: skimp.UntypedStorage(8),
        "deepcopy": lambda: copy.deepcopy(x),
        "load": lambda: pickle.loads(pickle.dumps(x)),
        "Categorical": lambda: skimp.distributions.Categorical(logits=x),
        "jacrev": lambda: skimp.func.jacrev(lambda a: a)(x),
    }
    for name, make in cases.items():
        with Recording() as recording:
            kept = make()
            held = recording.report().peak.held
        del kept
        assert {one.place.op for one in held if one.role != "buffer" and one.place.line} == {name}


def test_an_optimizers_parameters_have_their_modules_names() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = skimp.optim.SGD(net.parameters(), 0.1)
    found = skimp.memory.holders(net[1].weight)
    assert any("optimizer.param_groups[0]['params'][1.weight]" in str(one) for one in found)
    losses = [skimp.ones(2, requires_grad=True)]  # of no module
    assert any("losses[0]" in str(one) for one in skimp.memory.holders(losses[0]))
    del optimizer
