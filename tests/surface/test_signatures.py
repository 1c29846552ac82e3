"""Every argument that PyTorch's schemas name, given by its name, by its position and with its
default, on both sides: taken or refused alike, and the same shapes and types.

Differences that stay stand in differences.toml, with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.support import schemas
from tests.support.schema_values import Arg, candidates
from tests.support.schemas import REQUIRED, Call, Form, Known

LIST = Path(__file__).with_name("differences.toml")


def calls(form: Form) -> Iterator[Call]:
    """The ways to call one overload that its schema tells of, with values that PyTorch takes."""
    values = schemas.valid(form)
    if values is None:
        return
    yield schemas.call_of(form, values)
    given = dict(zip([a.name for a in form.required], values, strict=True))
    first = form.args[0].name if form.space == "Tensor" else None
    own = (given[first],) if first else ()
    words = tuple([(k, v) for k, v in given.items() if k != first])
    yield Call(form, own, words)
    positional = list(values)
    by_position = all(a.default is REQUIRED for a in form.args[: len(values)])
    for arg in form.optional:
        taken = _taken(form, arg, own, words)
        if taken is None:
            continue
        yield Call(form, own, (*words, (arg.name, taken)))
        if _is_plain(arg):
            yield Call(form, own, (*words, (arg.name, arg.default)))
        if by_position:
            positional.append(taken)
            yield Call(form, tuple(positional))


def _taken(form: Form, arg: Arg, own: tuple[Any, ...], words: Any) -> Any:
    """A value that PyTorch takes for an optional argument."""
    for value in candidates(arg):
        call = Call(form, own, (*words, (arg.name, value)))
        if not isinstance(call.outcome(torch), schemas.Refused):
            return value
    return None


def _is_plain(arg: Arg) -> bool:
    """Whether the default can be given as the schema writes it (dtypes stand there as numbers)."""
    return (
        isinstance(arg.default, (bool, int, float, str))
        and arg.type.removesuffix("?") not in ("dtype", "layout")
    )  # fmt: skip


def test_arguments_by_name_by_position_and_with_their_defaults() -> None:
    known, wrong, count = Known(LIST, "signature"), [], 0
    for space in schemas.SPACES:
        for form in schemas.forms(space):
            for call in calls(form):
                count += 1
                told = schemas.difference(call)
                if told is not None and not known.covers(call):
                    wrong.append(f"{call}: {told}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count} calls", *wrong])
    assert not known.stale()
    assert count > 6000
