"""Every layer class has PyTorch's parameters under the same seed, bit for bit, its state_dict keys
and its repr.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from nn_rows import ROWS


def both(name: str) -> tuple[Any, Any]:
    skimp.manual_seed(3)
    oracle.manual_seed(3)
    return ROWS[name](skimp.nn), ROWS[name](oracle.nn)


@pytest.mark.parametrize("name", ROWS)
def test_state_dict(name: str) -> None:
    ours, theirs = both(name)
    mine, wanted = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(wanted)
    for key, value in wanted.items():
        if isinstance(value, oracle.nn.parameter.UninitializedTensorMixin):
            assert skimp.nn.parameter.is_lazy(mine[key])
            continue
        assert str(mine[key].dtype) == str(value.dtype)
        assert mine[key].numpy().tobytes() == value.numpy().tobytes(), key
    assert [(n, p.requires_grad) for n, p in ours.named_parameters()] == [
        (n, p.requires_grad) for n, p in theirs.named_parameters()
    ]
    assert {k: dict(v) for k, v in mine._metadata.items()} == {
        k: dict(v) for k, v in wanted._metadata.items()
    }


@pytest.mark.parametrize("name", ROWS)
def test_repr(name: str) -> None:
    ours, theirs = both(name)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", ROWS)
def test_attributes(name: str) -> None:
    """What programs read from a layer: hyperparameters under PyTorch's names with PyTorch's
    values.
    """
    ours, theirs = both(name)
    simple = (bool, int, float, str, tuple, list, type(None))
    wanted = {
        k: v for k, v in vars(theirs).items() if isinstance(v, simple) and not k.startswith("_")
    }
    mine = vars(ours)
    assert {k: mine.get(k, "missing") for k in wanted} == wanted


@pytest.mark.parametrize("name", ROWS)
def test_loads_what_torch_saved(name: str) -> None:
    ours, theirs = both(name)
    if name.startswith("Lazy"):
        return
    saved = {k: skimp.tensor(np.asarray(v) + 1) for k, v in theirs.state_dict().items()}
    assert repr(ours.load_state_dict(saved)) == "<All keys matched successfully>"
    for key, value in theirs.state_dict().items():
        assert np.array_equal(ours.state_dict()[key].numpy(), value.numpy() + 1)
