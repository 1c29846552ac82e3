"""What docstrings say because the op's row knows it, held against what the ops do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS, OPS
from tests.support.op_samples import Sample, function_of, registry, samples_of, tensors_of
from tests.support.pointwise_rows import BINARY, UNARY
from tests.support.samples import outcome, twin

NAMES = registry()
KINDS = {"bool": "bool", "int64": "integers", "float32": "floating point", "complex64": "complex"}


def said(name: str, section: str) -> str:
    """A section of the docstring of a public function, or nothing."""
    lines = (function_of(skimp, name).__doc__ or "").splitlines()
    found = [line.removeprefix(f"{section}: ") for line in lines if line.startswith(f"{section}: ")]
    return found[0] if found else ""


@pytest.mark.parametrize("name", [n for n in (*UNARY, *BINARY) if n in ROWS])
def test_dtypes_are_those_that_it_takes(name: str) -> None:
    taken = said(name, "Dtypes").partition(";")[0]
    refused = [part.partition(" for ") for part in said(name, "Raises").split("; ")]
    for dtype, kind in KINDS.items():
        x = skimp.ones(2, dtype=getattr(skimp, dtype))
        found = outcome(getattr(skimp, name), *[x] * len(ROWS[name].args))
        if kind in taken:
            assert not isinstance(found, Exception), (dtype, found)
        else:
            errors = [error for error, _, kinds in refused if kind in kinds]
            assert errors == [type(found).__name__], (dtype, found)


def _storages(values: Any) -> list[Any]:
    return [t._storage for t in tensors_of(values) if t.numel()]


def is_sparse(sample: Sample) -> bool:
    return any([getattr(a, "layout", torch.strided) is not torch.strided for a in sample.args])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [op for op, names in NAMES.items() if op in OPS])
def test_memory_is_a_view_a_new_tensor_or_the_argument(op: str) -> None:
    for sample in samples_of(op, NAMES[op], 2):
        memory = said(sample.op, "Memory")
        if not memory or "tensor itself" in memory or is_sparse(sample):
            continue
        args, kwargs = list(twin(sample.args)), twin(sample.kwargs)
        given = _storages([*args, *kwargs.values()])
        found = function_of(skimp, sample.op)(*args, **kwargs)
        shares = [any(s is g for g in given) for s in _storages(found)]
        if memory.startswith("a new tensor"):
            assert not any(shares)
        elif memory.startswith("a view"):
            assert all(shares)
        elif memory.startswith("written in place"):
            assert found is args[0]


def test_what_rows_know_is_said_of_every_form() -> None:
    silent = [
        form.name
        for f, form in FORMS.items()
        if f.__doc__ and "Memory:" not in f.__doc__
        if form.op.kind in ("pointwise", "view", "reduction") and form.op.name in OPS
    ]
    assert silent == []


def test_hand_written_sections_stay() -> None:
    text = skimp.nn.functional.linear.__doc__ or ""
    assert text.count("Memory:") == 1
    assert "the bias costs no second one" in text
