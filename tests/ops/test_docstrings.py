"""What docstrings say of dtypes is what the ops take, on their samples; of memory: see
tests/engine/dispatch/test_describing.py.
"""

from __future__ import annotations

import os
import re
import warnings
from itertools import groupby
from typing import Any

import pytest
import torch

import skimp
from skimp._compat.refusals import is_refused
from skimp._engine.dispatch.pointwise_forms import ROWS as POINTWISE
from skimp._engine.dispatch.row import FORMS, METHODS, NAMESPACES, OPS
from tests.support.op_samples import Sample, entered, function_of, registry, samples_of

KINDS = {
    "bool": torch.bool,
    "integers": torch.int64,
    "floating point": torch.float32,
    "complex numbers": torch.complex64,
}
KIND = "|".join(KINDS)
LISTED = re.compile(rf"^Dtypes: ((?:(?:, | and )?(?:{KIND}))+)\.$", re.M)
NUMBERS = (torch.float64, torch.float32, torch.complex128)
ROWS = {
    op: names
    for op, names in registry().items()
    if op in OPS and op.removesuffix("_") not in POINTWISE
}
HEADS = ("Shape:", "Dtypes:", "Raises:", "Memory:")


def room(op: str) -> str:
    return OPS[op].raw.__module__


def rooms() -> dict[str, list[str]]:
    return {name: list(ops) for name, ops in groupby(sorted(ROWS, key=room), room)}


def of_type(value: Any, dtype: torch.dtype) -> Any:
    """The value with its tensors of numbers (not of indices or masks) in another type."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in NUMBERS:
            return value
        return (value.real if value.is_complex() else value).detach().to(dtype)
    if isinstance(value, dict):
        return {k: of_type(v, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(of_type(v, dtype) for v in value)
    return value


def works(sample: Sample, dtype: torch.dtype) -> bool:
    """Whether the call is taken with tensors of this type."""
    made: dict[int, Any] = {}
    args = of_type(sample.args, dtype)
    kwargs = of_type(sample.kwargs, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function_of(skimp, sample.op)(
                *[entered(skimp, a, made) for a in args],
                **{k: entered(skimp, a, made) for k, a in kwargs.items()},
            )
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False
    return True


@pytest.mark.skipif(os.environ.get("SKIMP_DEFER", "auto") != "auto", reason="the same in any mode")
@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
@pytest.mark.parametrize("room", rooms())
def test_what_is_said(room: str) -> None:
    for op in rooms()[room]:
        samples = [s for s in samples_of(op, ROWS[op], 2) if not s.op.startswith("masked")]
        if not samples:
            continue
        f = function_of(skimp, samples[0].op)
        samples = [s for s in samples if function_of(skimp, s.op) is f]
        doc = f.__doc__ or ""
        if listed := LISTED.search(doc):
            taken = {kind for kind, d in KINDS.items() if any([works(s, d) for s in samples])}
            assert {kind for kind in KINDS if kind in listed[1]} == taken, (op, doc)


def test_how_many_say_it() -> None:
    """Each thing is said by more than four in five of the functions that compute something."""
    spaces = [*NAMESPACES.values(), METHODS]
    public = {f for space in spaces for name, f in space.items() if not name.startswith("_")}
    docs = [
        f.__doc__ or ""
        for f in public
        if f in FORMS and not is_refused(FORMS[f].op.raw) and not FORMS[f].op.looks
    ]
    shares = {head: sum([head in doc for doc in docs]) / len(docs) for head in HEADS}
    assert min(shares.values()) > 0.8, shares
