"""Values that are nearly right: flags for dims of small views, numbers that a type can't hold, what
no pickle can name.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import skimp
from skimp._engine.dispatch.row import OPS
from tests.support import schemas
from tests.support.samples import alike
from tests.support.schema_values import Given
from tests.support.schemas import Call, Form

VIEWS = {form for o in OPS.values() if o.kind == "view" for form in o.forms}
ODD: list[Any] = [True, False, 1.0, "a", [True], (1.5,), 1j, Given((2,), "int64")]


def _odd_calls(form: Form) -> Iterator[Call]:
    """Right calls of a view with one argument replaced, by position and by name."""
    right = schemas.call_of(form, schemas.valid(form) or ())
    after = [a.name for a in form.args[: len(right.args)]]
    for i, odd in itertools.product(range(1, len(right.args)), ODD):
        rest = zip(after[i + 1 :], right.args[i + 1 :], strict=True)
        yield Call(form, (*right.args[:i], odd, *right.args[i + 1 :]), right.kwargs)
        yield Call(form, right.args[:i], ((after[i], odd), *rest, *right.kwargs))


def test_small_views_refuse_what_pytorchs_refuse() -> None:
    every = [form for space in ("", "Tensor") for form in schemas.forms(space)]
    calls = [
        call
        for form in every
        if form.name in VIEWS and schemas.valid(form) is not None
        for call in _odd_calls(form)
    ]
    told = [f"{call}: {told}" for call in calls if (told := schemas.difference(call)) is not None]
    assert told == []
    assert len(calls) > 800


def _with_tensors(form: Form) -> Iterator[tuple[Call, Any]]:
    """Right calls with one number given as a tensor, and that tensor."""
    right = schemas.call_of(form, schemas.valid(form) or ())
    for i, value in enumerate(right.args):
        if type(value) in (int, float):
            given = skimp.tensor(value)
            yield Call(form, (*right.args[:i], given, *right.args[i + 1 :]), right.kwargs), given


def test_a_tensor_that_stands_for_a_number_is_read_and_no_more() -> None:
    """`n >>= 1` of an argument is in place where it is a tensor."""
    written, count = [], 0
    for space in schemas.SPACES:
        for form in schemas.forms(space):
            if form.name.endswith("_") or schemas.valid(form) is None:
                continue
            for call, given in _with_tensors(form):
                before = given.item()
                call.outcome(skimp)
                count += 1
                if given._version or given.item() != before:
                    written.append(str(call))
    assert written == []
    assert count > 300


NUMBERS = [255, 256, 300, -1, -129, 2**15, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float32"])
@pytest.mark.parametrize(
    "number", NUMBERS, ids=[f"{n:.3g}" if n < 2**70 else "huge" for n in NUMBERS]
)
def test_branches_of_where_hold_their_numbers(dtype: str, number: int) -> None:
    def call(lib: Any, swapped: bool) -> Any:
        x = lib.ones(2, dtype=getattr(lib, dtype))
        branches = (number, x) if swapped else (x, number)
        return lib.where(lib.tensor([True, False]), *branches)

    for swapped in (False, True):
        alike(lambda lib, swapped=swapped: call(lib, swapped), too_large(dtype, number))


def too_large(dtype: str, number: int) -> type[Exception] | None:
    """How PyTorch refuses a number: bytes take negative ones, which wrap round."""
    if not -(2**63) <= number < 2**64:
        return OverflowError
    if dtype == "float32":
        return None
    kind = np.iinfo(dtype)
    return None if (kind.min or -kind.max) <= number <= kind.max else RuntimeError


def _bags(lib: Any, offsets: Any, **words: Any) -> Any:
    return lib.embedding_bag(lib.ones(2, 3), lib.tensor([0, 1]), offsets, **words)[0]


CALLS: dict[str, Callable[[Any], Any]] = {
    "end alone": lambda lib: lib.arange(end=3),
    "bytes as Python's kind": lambda lib: lib.arange(6.0).reshape(3, 2).view(int),
    "bytes as Python's kind by name": lambda lib: lib.arange(6.0).reshape(3, 2).view(dtype=float),
    "a copy of expanded rows": lambda lib: lib.expand_copy(lib.ones(3), (2, 3), implicit=True),
    "a flag as trapz's distance": lambda lib: lib.trapz(lib.arange(3.0), dx=True),
    "a tensor as distance": lambda lib: lib.trapz(lib.arange(3.0), dx=lib.tensor(2)),
    "a tensor as distances": lambda lib: lib.cumulative_trapezoid(
        lib.arange(3.0), dx=lib.tensor(0.5)
    ),
    "a power as a tensor": lambda lib: lib.linalg.matrix_power(lib.eye(2) * 2, lib.tensor(5)),
    "dropout by a tensor": lambda lib: lib.nn.Dropout(lib.tensor(0.25)),
    "a slope as a tensor": lambda lib: lib.nn.LeakyReLU(lib.tensor(1)),
    "rsub's third": lambda lib: lib.rsub(lib.ones(2), 1, 2),
    "a triangle of Python's kind": lambda lib: lib.triu_indices(2, 2, dtype=int),
    "bytes as indices": lambda lib: lib.embedding_bag(
        lib.ones(2, 3), lib.tensor([0, 1], dtype=lib.uint8), lib.tensor([0])
    )[0],
    "no reflections": lambda lib: lib.linalg.householder_product(lib.ones(3, 2), lib.ones(0)),
}
REFUSED: dict[type[Exception], dict[str, Any]] = {
    ValueError: {
        "type of a name": lambda lib: lib.ones(2).type("foo"),
        "type of a class's name": lambda lib: lib.ones(2).type("torch.FooTensor"),
        "bags of a vector": lambda lib: lib.nn.functional.embedding_bag(
            lib.tensor([[0, 1]]), lib.ones(3)
        ),
    },
    TypeError: {
        "type of a number": lambda lib: lib.ones(2).type(3),
        "no end": lambda lib: lib.arange(),
        "no end but a type": lambda lib: lib.arange(dtype=lib.float32),
        "a word that normal lacks": lambda lib: lib.normal(lib.ones(2), 1.0, dim=1),
        "a dim and an axis": lambda lib: lib.ones(2, 2).max(0, axis=1),
        "two tensors and an axis": lambda lib: lib.max(lib.ones(2), lib.ones(2), axis=0),
        "a list for a row": lambda lib: lib.embedding(lib.ones(3, 2), lib.tensor([1]), []),
        "a copy of rows, one by one": lambda lib: lib.expand_copy(lib.ones(3), 2, 3),
        "no offsets": lambda lib: _bags(lib, ""),
        "no indices": lambda lib: lib.embedding_bag(lib.ones(2, 3), -1, lib.tensor([0]))[0],
    },
    RuntimeError: {
        "a generator for CUDA": lambda lib: lib.Generator("cuda"),
        "a generator for nothing": lambda lib: lib.Generator("foo"),
        "rows of no table": lambda lib: lib.embedding(lib.ones(7), lib.tensor([1])),
        "too few bytes for the kind": lambda lib: lib.arange(3.0).view(float),
        "a complex slope": lambda lib: lib.nn.functional.leaky_relu_(lib.ones(2), 1j),
        "a complex alpha": lambda lib: lib.nn.functional.elu(lib.ones(2), alpha=1j),
        "a complex celu": lambda lib: lib.celu(lib.ones(2), 1j),
        "a flag as distance": lambda lib: lib.trapezoid(lib.arange(3.0), dx=True),
        "a complex distance": lambda lib: lib.cumulative_trapezoid(lib.arange(3.0), dx=1j),
        "a triangle on device 0": lambda lib: lib.triu_indices(2, 2, device=0),
        "a triangle with gradient": lambda lib: lib.triu_indices(2, 2, requires_grad=True),
        "padding in a dilated pool": lambda lib: lib.nn.functional.max_pool2d(
            lib.ones(1, 5, 5), 2, padding=2, dilation=3
        ),
        "padding in a dilated pool of lines": lambda lib: lib.nn.functional.max_pool1d(
            lib.ones(1, 5), 2, padding=2, dilation=3
        ),
        "offsets in rows": lambda lib: _bags(lib, lib.tensor([[0]])),
        "offsets beyond": lambda lib: _bags(lib, lib.tensor([0, 9])),
        "offsets that are no integers": lambda lib: _bags(lib, lib.tensor([0.0])),
        "flags as both": lambda lib: lib.embedding_bag(
            lib.ones(2, 3), lib.tensor([True]), lib.tensor([False])
        )[0],
        "an unknown mode": lambda lib: _bags(lib, lib.tensor([0]), mode=5),
        "weights of another type": lambda lib: _bags(
            lib, lib.tensor([0]), per_sample_weights=lib.ones(2).double()
        ),
        "too many weights": lambda lib: _bags(lib, lib.tensor([0]), per_sample_weights=lib.ones(3)),
        "no such padding": lambda lib: lib.nn.functional.embedding_bag(
            lib.tensor([[0, 1]]), lib.ones(2, 3), padding_idx=2
        ),
    },
    AttributeError: {
        "a local function": lambda lib: lib.save(lambda: 0, io.BytesIO()),
        "one in a state": lambda lib: lib.save({"a": [lambda: 0]}, io.BytesIO()),
        "one in the older format": lambda lib: lib.save(
            lambda: 0, io.BytesIO(), _use_new_zipfile_serialization=False
        ),
    },
    AssertionError: {"a triangle on CUDA": lambda lib: lib.tril_indices(2, 2, device="cuda")},
}


# Whose sentences are skimp's own: PyTorch's names its files, its C++ types or all its overloads.
OWN_WORDS = (
    "a generator for CUDA", "a generator for nothing", "no end", "no end but a type",
    "a word that normal lacks", "two tensors and an axis", "a copy of rows, one by one",
    "a complex celu", "a triangle on CUDA", "flags as both", "too many weights",
)  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_taken_alike(name: str) -> None:
    alike(CALLS[name])


@pytest.mark.parametrize(("error", "name"), [(e, n) for e, calls in REFUSED.items() for n in calls])
def test_refused_alike(error: type[Exception], name: str) -> None:
    alike(REFUSED[error][name], error, words=name not in OWN_WORDS)
