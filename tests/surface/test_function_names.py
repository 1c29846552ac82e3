"""Functions and methods say who they are as PyTorch's do: their names and modules."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional

import skimp
import skimp.nn.functional
from skimp._engine.dispatch.row import FORMS, NAMESPACES

# behind which PyTorch has a function of another name or place
OTHERS = ("logsigmoid", "threshold", "avg_pool2d", "avg_pool3d", "from_dlpack", "pca_lowrank",
          "svd_lowrank")  # fmt: skip
SPACES = ("", "nn.functional", "linalg", "fft", "special")


def _owner(library: Any, space: str) -> Any:
    return functools.reduce(getattr, space.split("."), library) if space else library


def _names(f: Any) -> tuple[str, str, str]:
    return f.__name__, f.__qualname__, str(f.__module__).replace("skimp", "torch")


@pytest.mark.parametrize("space", SPACES)
def test_functions(space: str) -> None:
    theirs, ours = _owner(torch, space), _owner(skimp, space)
    wrong, count = {}, 0
    for name in dir(theirs):
        a, b = getattr(theirs, name), getattr(ours, name, None)
        if name[0] == "_" or isinstance(a, type) or not callable(a) or b not in FORMS:
            continue
        count += 1
        if "<locals>" not in a.__qualname__ and name not in OTHERS and _names(a) != _names(b):
            wrong[name] = _names(a), _names(b)
    assert count > 20
    assert wrong == {}


def test_methods() -> None:
    """Methods are functions here: their module is where pickle finds them."""
    wrong, shared = {}, {f for functions in NAMESPACES.values() for f in functions.values()}
    for name, theirs in vars(torch._C.TensorBase).items():
        f = vars(skimp.Tensor).get(name)
        if name[0] == "_" or not callable(theirs) or f not in FORMS:
            continue
        if f in shared:  # functions in Python there, which bind
            continue
        if (f.__name__, f.__qualname__) != (theirs.__name__, theirs.__qualname__):
            wrong[name] = f.__qualname__
        assert pickle.loads(pickle.dumps(f)) is f
    assert wrong == {}
