"""A list of ints given as a list, as one number and number by number, by position and by name: to
every function and method whose schemas have such an argument. A method takes them one by one where
the list is its only argument; a function does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
