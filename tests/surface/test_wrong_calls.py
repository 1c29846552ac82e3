"""Ten thousand wrong calls made from PyTorch's schemas: refused by both sides or by neither, with
the same class of error.

SKIMP_FUZZ_CALLS asks for more, SKIMP_FUZZ_SEED for others. What stays different stands in
differences.toml with its reason: kinds first, then cause by cause, with the functions that it was
met in; of the calls of seed 0 none is left.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import skimp
from skimp._engine.dispatch import schemas as schema_data
from skimp._engine.dispatch.row import FORMS
from tests.support import schemas, wrong_calls
from tests.support.schema_values import Given
from tests.support.schemas import Call, Known
from tools import schemas as tool

LIST = Path(__file__).with_name("differences.toml")
CALLS = int(os.environ.get("SKIMP_FUZZ_CALLS", "10000"))
SEED = int(os.environ.get("SKIMP_FUZZ_SEED", "0"))
# of all calls: which forms there are, and so which calls a seed gives, depends a little on what the
# process has imported; other seeds meet functions that the list lacks
LEFT = 0.0025 if SEED else 0.0015


def test_wrong_calls_are_refused_alike() -> None:
    forms = [form for space in schemas.SPACES for form in schemas.forms(space)]
    forms = [form for form in forms if schemas.valid(form) is not None]
    known, wrong, count = Known(LIST, "wrong_call"), [], 0
    for call in wrong_calls.generate(forms, CALLS, SEED):
        count += 1
        told = schemas.difference(call)
        if told is not None and not known.covers(call, " ".join(told.split())):
            wrong.append(f"{call}: {told}")
    assert count >= CALLS * 0.99
    assert len(wrong) <= LEFT * count, "\n".join([f"{len(wrong)} of {count} calls", *wrong])
    assert SEED or not known.stale()


# of the kinds that a seed chooses: each has 1,400 calls or so
KINDS = [("bool", "float16"), ("int64", "complex64"), ("uint8", "bfloat16"), ("float64",)]


def _of_kind(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return [_of_kind(v, kind) for v in value]
    floats = isinstance(value, Given) and value.dtype == "float32"
    return Given(value.shape, kind, value.kind) if floats else value


def test_functions_take_the_types_that_pytorchs_take() -> None:
    """Right calls with all floating-point tensors of another type."""
    forms = [form for space in schemas.SPACES for form in schemas.forms(space)]
    known, wrong, count = Known(LIST, "dtype_kind"), [], 0
    kinds = KINDS[SEED % 4] if SEED else [kind for kinds in KINDS for kind in kinds]
    for form in forms:
        values = schemas.valid(form)
        for kind in kinds if values is not None else ():
            call = schemas.call_of(form, tuple([_of_kind(v, kind) for v in values or ()]))
            told = schemas.difference(call)
            count += 1
            if told is not None and not known.covers(call, " ".join(told.split())):
                wrong.append(f"{call}: {told}")
    assert count > 1000
    assert wrong == []
    assert SEED or not known.stale()


def _end(call: Call) -> str:
    end = call.outcome(skimp)
    return end.kind if isinstance(end, schemas.Refused) else "taken"


def test_what_is_taken_does_not_depend_on_the_calls_before() -> None:
    """Calls with arguments of the same types as a right call's, before and after it."""
    forms = [form for space in schemas.SPACES for form in schemas.forms(space)]
    told, count = [], 0
    for form in forms[SEED % 8 :: 8]:
        for right, other in wrong_calls.of_the_same_types(form):
            for known in list(FORMS.values()):
                known.fine.clear()
                known.judged = frozenset()
            ends = [_end(other), _end(right), _end(other)]
            count += 1
            if ends[0] != ends[2]:
                told.append(f"{other}: {ends[0]}, {ends[2]} after {right}")
    assert count > 60
    assert told == []


def test_the_schemas_are_pytorchs() -> None:
    assert Path(schema_data.FILE).read_text().splitlines() == list(tool.lines())


CALLS_OF_OBJECTS = """
F.max_pool2d(o, 2)
F.max_unpool2d(t.ones(1, 1, 2, 2), o, 2)
F.conv2d(o, t.ones(1, 3, 1, 1))
F.cross_entropy(o, t.ones(2).long())
F.layer_norm(o, (8,))
F.dropout(o)
F.scaled_dot_product_attention(o, t.ones(2, 2), t.ones(2, 2))
F.nll_loss(o, t.ones(2).long())
F.one_hot(o)
F.grid_sample(o, t.ones(1, 2, 2, 2), align_corners=False)
t.nonzero(o)
t.sort(o)
t.zeros_like(o)
t.multinomial(o, 1)
t.bernoulli(o)
t.nn.utils.rnn.pack_padded_sequence(o, [1])
t.nn.utils.rnn.pad_sequence([o])
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS_OF_OBJECTS)
def test_objects_of_no_known_class_are_refused(call: str) -> None:
    for thing in (len, object(), re.compile("x")):
        for library in (torch, skimp):
            with pytest.raises(TypeError):
                eval(call, {"t": library, "F": library.nn.functional, "o": thing})
