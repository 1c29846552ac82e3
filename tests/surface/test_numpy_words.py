"""NumPy's names of arguments where PyTorch's parser takes them (`x.sum(axis=0)`), and nowhere else:
each in the place of each argument that PyTorch takes by its own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import skimp
from tests.support import schemas
from tests.support.schema_values import candidates
from tests.support.schemas import Call, Form, Known

LIST = Path(__file__).with_name("differences.toml")
WORDS = {
    "dim": ["axis", "axes", "dims"], "keepdim": ["keepdims"], "input": ["x", "a", "x1", "self"],
    "other": ["x2", "b"], "dims": ["axis", "axes", "dim"],
}  # fmt: skip


def _calls(form: Form) -> Iterator[Call]:
    right = schemas.call_of(form, schemas.valid(form) or ())
    by_name = dict(right.kwargs)
    own = 1 if form.space == "Tensor" else 0
    for i, arg in enumerate(form.args):
        if i < own or arg.name not in WORDS:
            continue
        before, after = right.args[:i], right.args[i + 1 :]
        names = [a.name for a in form.args[i + 1 :]]
        given: dict[str, Any] = {**dict(zip(names, after, strict=False)), **by_name}
        taken = (candidates(arg) or [None])[0]
        value = right.args[i] if i < len(right.args) else given.pop(arg.name, taken)
        called = Call(form, before, (*given.items(), (arg.name, value)))
        if not isinstance(called.outcome(torch), schemas.Refused):
            for word in WORDS[arg.name]:
                yield Call(form, before, (*given.items(), (word, value)))


def test_numpys_names_are_taken_where_pytorch_takes_them() -> None:
    assert schemas.same_as_pytorch(_calls, Known(LIST, "words")) > 4000


@pytest.mark.parametrize("lib", [skimp, torch], ids=["skimp", "torch"])
def test_in_regions_and_under_transforms_too(lib: Any) -> None:
    x = lib.arange(6.0).reshape(2, 3).requires_grad_()
    with lib.autocast("cpu"):
        made = lib.trapz(x, axis=0) + lib.sum(a=x, axis=0)
    made.sum().backward()
    assert x.grad.tolist() == [[1.5] * 3] * 2
    rows = lib.vmap(lambda row: lib.trapz(row, axis=0))(x.detach())
    assert rows.tolist() == [2.0, 8.0]
    for call in (lib.cross, lib.sum):
        with pytest.raises(TypeError):
            call(x, x, axis=0, dim=0)
        with pytest.raises(TypeError):
            call(x, x, x=x)


AXES = {
    "cat": lambda lib, t: lib.cat((t, t), axis=-1),
    "stack": lambda lib, t: lib.stack((t, t), axis=0),
    "sum": lambda lib, t: t.sum(axis=0, keepdims=True),
    "mean": lambda lib, t: lib.mean(t, axis=-1),
    "cumsum": lambda lib, t: lib.cumsum(t, axis=0),
    "argmax": lambda lib, t: lib.argmax(t, axis=0, keepdims=True),
    "logsumexp": lambda lib, t: t.logsumexp(axis=0),
    "unsqueeze": lambda lib, t: t.unsqueeze(axis=0),
    "index_select": lambda lib, t: lib.index_select(t, axis=0, index=lib.tensor([1, 0])),
    "gather": lambda lib, t: t.gather(axis=0, index=lib.tensor([1, 0])),
    "amax": lambda lib, t: lib.amax(t, axis=0, keepdims=True),
    "repeat_interleave": lambda lib, t: lib.repeat_interleave(t, 2, axis=0),
}


@pytest.mark.parametrize("name", AXES)
def test_an_axis_under_vmap(name: str) -> None:
    f = AXES[name]
    mine, wanted = [
        lib.vmap(lambda t, lib=lib: f(lib, t))(lib.arange(6.0).reshape(2, 3).sin())
        for lib in (skimp, torch)
    ]
    assert mine.shape == wanted.shape
    assert mine.numpy() == pytest.approx(wanted.numpy(), abs=1e-6)
    with pytest.raises(TypeError):
        skimp.vmap(lambda t: t.sum(0, axis=0))(skimp.ones(2, 3))
