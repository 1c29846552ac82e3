"""A list of ints given as a list, as one number and number by number, by position and by name: to
every function and method whose schemas have such an argument. A method takes them one by one where
the list is its only argument; a function does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support import schemas
from tests.support.schemas import Call, Form, Known

LIST = Path(__file__).with_name("differences.toml")


def _spelt(value: Any) -> Iterator[tuple[Any, ...]]:
    """A list of ints, in the ways in which it may be given by position."""
    whole = value if isinstance(value, list) else [value]
    one = whole[0]
    yield from [(whole,), (tuple(whole),), (one,), tuple(whole), (one, one), (one,) * 3]
    yield from [(), ([],), (True,), (1.0,), (None,)]


def _calls(form: Form) -> Iterator[Call]:
    right = schemas.call_of(form, schemas.valid(form) or ())
    for i, arg in enumerate(form.args[: len(right.args)]):
        if not arg.type.startswith("int["):
            continue
        before, after = right.args[:i], right.args[i + 1 :]
        for ways in _spelt(right.args[i]):
            yield Call(form, (*before, *ways, *after), right.kwargs)
            if not after and len(ways) == 1:
                yield Call(form, before, (*right.kwargs, (arg.name, ways[0])))
                yield Call(form, (*before, *ways), (*right.kwargs, (arg.name, ways[0])))


def test_only_methods_take_them_one_by_one() -> None:
    assert schemas.same_as_pytorch(_calls, Known(LIST, "ints")) > 2000


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "fftn": lambda lib, n: lib.fft.fftn(lib.ones(2, 4, 4), s=n(2), dim=n(1)).abs(),
    "irfftn": lambda lib, n: lib.fft.irfftn(lib.ones(2, 4, 4), s=n(2), dim=n(1)),
    "fftshift": lambda lib, n: lib.fft.fftshift(lib.arange(8).reshape(2, 4), n(1)),
    "avg_pool2d": lambda lib, n: lib.nn.functional.avg_pool2d(lib.ones(1, 4, 4), 2, stride=n(1)),
    "max_pool1d": lambda lib, n: lib.nn.functional.max_pool1d(lib.ones(1, 4), 2, stride=n(1)),
    "squeeze": lambda lib, n: lib.ones(1, 3, 1).squeeze(n(2)),
    "tensor_split": lambda lib, n: lib.tensor_split(lib.arange(5), n(2))[0],
    "tensor_split at": lambda lib, n: lib.tensor_split(lib.arange(5), [n(2), n(4)])[1],
    "hsplit": lambda lib, n: lib.hsplit(lib.ones(4, 4), n(2))[1],
    "vector_norm": lambda lib, n: lib.linalg.vector_norm(lib.ones(2, 4), dim=n(1)),
    "norm": lambda lib, n: lib.norm(lib.ones(2, 4), 2, n(1)),
    "linalg.norm": lambda lib, n: lib.linalg.norm(lib.ones(2, 4), 2, n(1)),
    "histogramdd": lambda lib, n: lib.histogramdd(lib.ones(3, 2), n(2))[0],
    "amax backward": lambda lib, n: lib.autograd.grad(
        (x := lib.ones(2, 4, requires_grad=True)).amax(n(1)).sum(), x
    )[0],
    "vmap of roll": lambda lib, n: lib.vmap(lambda x: x.roll(n(1), n(0)))(lib.eye(3)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_one_number_of_any_kind_stands_for_a_list(name: str) -> None:
    def tensor(lib: Any) -> Callable[[int], Any]:
        return lambda k: lib.tensor(k)

    for kind in (lambda lib: np.int64, lambda lib: np.int32, tensor):
        if kind is tensor and name == "histogramdd":
            continue
        ours, theirs = NUMBERS[name](skimp, kind(skimp)), NUMBERS[name](torch, kind(torch))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        "ones(1, 2, 4).sum(t.tensor([1]))",
        "ones(2, 2).amax(t.tensor([[1]]))",
        "nn.functional.max_pool1d(t.ones(1, 1, 4), t.tensor([2]))",
        "nn.functional.avg_pool2d(t.ones(1, 1, 4, 4), t.tensor(True))",
        "nn.functional.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 1, 1), stride=t.tensor([2]))",
        "roll(t.arange(3), t.tensor([1]))",
    ],
)
def test_a_tensor_of_one_integer_stands_for_a_list(call: str) -> None:
    ours, theirs = [eval(f"t.{call}", {"t": lib}) for lib in (skimp, torch)]
    assert ours.tolist() == theirs.tolist()
    for lib in (skimp, torch):
        with pytest.raises(TypeError):
            lib.ones(2, 2).sum(lib.tensor([1.0]))


def test_what_stands_for_a_list_does_not_depend_on_calls_before() -> None:
    for lib in (skimp, torch):
        x, weight = lib.ones(1, 1, 4, 4), lib.ones(1, 1, 2, 2)
        assert lib.conv2d(x, weight, stride=lib.tensor([2])).shape == (1, 1, 2, 2)
        for wrong in ([2.0], 2.0, [2, 2], []):
            with pytest.raises(TypeError):
                lib.conv2d(x, weight, stride=lib.tensor(wrong))
