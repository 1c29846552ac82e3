"""Every layer class has PyTorch's parameters under the same seed, bit for bit, and state_dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support.nn_rows import ROWS


def both(name: str) -> tuple[Any, Any]:
    skimp.manual_seed(3)
    oracle.manual_seed(3)
    return ROWS[name](skimp.nn), ROWS[name](oracle.nn)


def trainable(module: Any) -> list[tuple[str, bool]]:
    return [(n, p.requires_grad) for n, p in module.named_parameters()]


def same_state(ours: Any, theirs: Any) -> None:
    mine, wanted = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(wanted)
    for key, value in wanted.items():
        if isinstance(value, oracle.nn.parameter.UninitializedTensorMixin):
            assert skimp.nn.parameter.is_lazy(mine[key])
            continue
        assert str(mine[key].dtype) == str(value.dtype)
        assert mine[key].numpy().tobytes() == value.numpy().tobytes(), key
    assert trainable(ours) == trainable(theirs)
    assert {k: dict(v) for k, v in mine._metadata.items()} == dict(wanted._metadata)


def same_attributes(ours: Any, theirs: Any) -> None:
    """What programs read from a layer: hyperparameters under PyTorch's names and values."""
    simple = (bool, int, float, str, tuple, list, type(None))
    wanted = {k: v for k, v in vars(theirs).items() if isinstance(v, simple) and k[0] != "_"}
    mine = vars(ours)
    assert {k: mine.get(k, "missing") for k in wanted} == wanted


def loads(ours: Any, theirs: Any) -> None:
    saved = {k: skimp.tensor(np.asarray(v) + 1) for k, v in theirs.state_dict().items()}
    assert repr(ours.load_state_dict(saved)) == "<All keys matched successfully>"
    for key, value in theirs.state_dict().items():
        assert np.array_equal(ours.state_dict()[key].numpy(), value.numpy() + 1)


@pytest.mark.parametrize("name", ROWS)
def test_layer(name: str) -> None:
    ours, theirs = both(name)
    assert repr(ours) == repr(theirs)
    same_state(ours, theirs)
    same_attributes(ours, theirs)
    if not name.startswith("Lazy"):
        loads(ours, theirs)


def test_converted_parameters_count_their_own_writes() -> None:
    found = []
    for t in (oracle, skimp):
        held: list[Any] = []

        def converted(p: Any, held: list[Any] = held) -> Any:
            held.append(p.double())
            return held[-1]

        plain, shared = t.nn.Linear(2, 3).double(), t.nn.Linear(2, 3)._apply(converted)
        said = []
        for module, other in ((plain, None), (shared, held[0])):
            x = t.ones(4, 2, dtype=t.float64, requires_grad=True)
            before = module.weight._version
            loss = (module(x) ** 2).sum()
            if other is not None:
                with t.no_grad():
                    other.mul_(1)  # of another version
                loss.backward(retain_graph=True)
            with t.no_grad():
                module.weight.mul_(1)
            said.append(module.weight._version - before)
            try:
                loss.backward()
                said.append("went back")
            except RuntimeError as error:
                said.append("modified by an inplace operation" in str(error))
        found.append(said)
    assert found[0] == found[1] == [1, True, 1, True]
