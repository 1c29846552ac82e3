"""Every layer with inputs of each kind of element type: taken or refused as PyTorch's are, with the
same class of error, and results of the same types and shapes.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.nn_rows import ROWS
from tests.support.schemas import Refused
from tests.surface.nn.test_modules_forward import INPUTS, flat

# docs/differences.md: derivatives that PyTorch lacks
UNDERIVED = "does not support automatic differentiation for outputs with complex dtype"
KINDS = ("bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64")


def _end(torch: Any, name: str, kind: str, whole: bool, training: bool) -> Any:
    """What a layer gives for inputs of this kind, its parameters converted or as they are."""
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    try:
        module = ROWS[name](torch.nn).train(training)
        if whole:
            module = module.to(dtype)
        given = [x.to(dtype) if x.is_floating_point() else x for x in INPUTS[name](torch)]
        made = flat(module(*given))
    except Exception as error:
        return UNDERIVED if UNDERIVED in str(error) else Refused(error).kind
    return [(str(t.dtype), tuple(t.shape)) for t in made if hasattr(t, "dtype")]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_take_what_pytorchs_take(kind: str) -> None:
    told, count = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in INPUTS:
            for whole in (False, True):
                for training in (False, True):
                    ours, theirs = [
                        _end(torch, name, kind, whole, training) for torch in (skimp, oracle)
                    ]
                    count += 1
                    if ours != theirs and theirs != UNDERIVED:
                        told.append(f"{name}, {whole=}, {training=}: {ours} instead of {theirs}")
    assert count > 500
    assert told == []
