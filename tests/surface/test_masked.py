"""torch.masked: values, types, refusals and gradients are torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
import skimp.masked
from tests.support.samples import OF_TYPES, agree, numbers, same_gradients

REDUCTIONS = ("sum", "prod", "amax", "amin", "mean", "logsumexp", "norm", "var", "std")
PLACES = ("argmax", "argmin")
ALONG = ("cumsum", "cumprod", "softmax", "log_softmax", "softmin", "median")
MASKS = {
    "none": None,
    "some": torch.tensor([[True, False, True, True], [True] * 4, [False] * 4]),
    "row": torch.tensor([True, False, True, False]),
}


def called(name: str, *args: Any, **words: Any) -> Any:
    def call(lib: Any, x: Any, mask: Any) -> Any:
        f = getattr(lib.masked, name)
        dtype = {k: getattr(lib, v) for k, v in words.items() if k == "dtype"}
        return f(x, *args, mask=mask, **{**words, **dtype})

    return call


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, dtype: str, mask: str) -> None:
    x = numbers((3, 4), dtype)
    for args in ((), (0,), (1,), ((0, 1),), (-1,)):
        given = (2.0, *args) if name == "norm" else args
        for keepdim in (False, True):
            agree(
                called(name, *given, keepdim=keepdim),
                x, MASKS[mask], tolerance=1e-5, strides=False, message=6, refused=OF_TYPES
            )  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", [*PLACES, *ALONG])
def test_along_a_dim(name: str, mask: str) -> None:
    x = numbers((3, 4), "float64", ties=False)
    for dim in (0, 1, -1):
        agree(called(name, dim), x, MASKS[mask], tolerance=1e-9)
    agree(called(name, 2), x, MASKS[mask], refused=IndexError, message=6)
    agree(
        called(name, 0),
        x.long() if name != "softmax" else x,
        MASKS[mask],
        tolerance=1e-9,
        message=6,
        refused=OF_TYPES,
    )


@pytest.mark.parametrize("mask", ["none", "some"])
@pytest.mark.parametrize("name", [*REDUCTIONS, "softmax", "cumsum", "normalize"])
def test_gradients(name: str, mask: str) -> None:
    x = numbers((3, 4), "float64", seed=3, ties=False)
    given = (2.0, 0) if name in ("norm", "normalize") else (0,)
    m = MASKS[mask]
    same_gradients(lambda lib, x, m: called(name, *given)(lib, x, m), x, m, tolerance=1e-7)


def test_masks_of_two() -> None:
    x, y = numbers((3, 4), "float64"), numbers((3, 4), "float64", 1)

    def call(lib: Any, x: Any, y: Any, m: Any) -> Any:
        return lib.masked.logaddexp(x, y, input_mask=m, other_mask=m[1])

    agree(call, x, y, MASKS["some"], tolerance=1e-12)


def test_refusals() -> None:
    x = numbers((3, 4), "float64")
    agree(called("sum", (0, 0)), x, None, refused=RuntimeError)
    agree(called("sum"), x, torch.ones(1, 3, 4, dtype=torch.bool), refused=IndexError)
    with pytest.raises(AssertionError):
        skimp.masked.var(skimp.ones(2), 0, True, correction=1)
    agree(called("mean"), x.long(), None, refused=ValueError)
    with pytest.raises(NotImplementedError, match="MaskedTensor"):
        skimp.masked.masked_tensor(skimp.ones(2), skimp.ones(2).bool())
    assert not skimp.masked.is_masked_tensor(skimp.ones(2))
