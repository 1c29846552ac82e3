"""Wrong calls: a call that PyTorch takes, with one thing in it replaced by something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.support import schemas
from tests.support.schema_values import Given, Named, candidates
from tests.support.schemas import Call, Form

_ANYTHING: list[Any] = [
    None, "a", b"a", [], {}, 1.5, 1j, True, -1, 0, 7, 2**62, 2**70, float("nan"), ["a"], [None],
    Named("float32"), int, Ellipsis, Given((2, 3)), Given(()), Given((2,), "int64"), [-1], [7, 7],
    [1.5], (), slice(None), [[1, 2]], "", "cpu",
]  # fmt: skip
_DTYPES = ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float64", "complex64"]
_SHAPES = [(0,), (0, 3), (2, 0), (), (1,), (7,), (2, 3), (3, 2), (5, 5), (2, 2, 2), (1, 1, 1, 1, 1)]
_NUMBERS: list[Any] = [-1, -2, -7, 0, 3, 7, 2**62, 2**70, -(2**62), 1.5, True, None, "a", 1j]


def _other_tensor(t: Given, chance: random.Random) -> Any:
    if chance.random() < 0.5:
        return Given(t.shape, chance.choice(_DTYPES))
    return Given(chance.choice(_SHAPES), t.dtype)


def other(value: Any, chance: random.Random) -> Any:
    """Something else than this value, near to it or far from it."""
    if chance.random() < 0.3:
        return chance.choice(_ANYTHING)
    if isinstance(value, Given):
        return _other_tensor(value, chance)
    if isinstance(value, list) and value:
        return _other_list(value, chance)
    if isinstance(value, (int, float)):
        return chance.choice(_NUMBERS)
    return chance.choice(_ANYTHING)


def _other_list(values: list[Any], chance: random.Random) -> list[Any]:
    way = chance.randrange(3)
    if way == 0:
        return values[:-1]
    if way == 1:
        return [*values, values[-1]]
    at = chance.randrange(len(values))
    return [other(v, chance) if i == at else v for i, v in enumerate(values)]


def _given(form: Form, chance: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """A call that PyTorch takes, some of its arguments by name and some optional ones given."""
    values = schemas.valid(form)
    assert values is not None
    call = schemas.call_of(form, values)
    args, kwargs = list(call.args), dict(call.kwargs)
    own = 1 if form.space == "Tensor" else 0
    while len(args) > own and chance.random() < 0.3:
        last = form.args[len(args) - 1]
        kwargs[last.name] = args.pop()
    for arg in form.optional:
        if chance.random() < 0.2:
            kwargs[arg.name] = chance.choice(candidates(arg) or [None])
    return args, kwargs


def wrong(form: Form, chance: random.Random) -> Call:
    """A call with one thing in it that is likely to be wrong."""
    args, kwargs = _given(form, chance)
    own = 1 if form.space == "Tensor" else 0
    types = {a.name: a.type for a in form.args}
    way, replaced = chance.random(), "call"
    if way < 0.05 and kwargs:
        kwargs.pop(chance.choice(list(kwargs)))
    elif way < 0.1 and len(args) > own:
        args.pop(chance.randrange(own, len(args)))
    elif way < 0.13:
        kwargs[chance.choice(["foo", "axis", "input", "dims", "self", "keepdims", "dim"])] = 1
    elif way < 0.16:
        args.append(chance.choice(_ANYTHING))
    elif kwargs and (way < 0.45 or not args):
        name = chance.choice(list(kwargs))
        replaced = types[name]
        kwargs[name] = other(kwargs[name], chance)
    elif args:
        at = chance.randrange(len(args))
        replaced = form.args[at].type
        # a method's own tensor stays a tensor: without one it is another method
        args[at] = _other_tensor(args[0], chance) if at < own else other(args[at], chance)
    return Call(form, tuple(args), tuple(kwargs.items()), replaced)


def generate(forms: list[Form], count: int, seed: int) -> Iterator[Call]:
    """This many wrong calls, as many of each form.

    Each form has its own chances: what PyTorch has beside it on another machine changes none.
    """
    for form in forms:
        chance = random.Random(f"{seed} {form.path} {[(a.name, a.type) for a in form.args]}")
        for _ in range(-(-count // len(forms))):
            call = wrong(form, chance)
            if not _never_ends(call):
                yield call


def of_the_same_types(form: Form) -> Iterator[tuple[Call, Call]]:
    """Right calls, each with one that has other values of the same types (in lists others too)."""
    listed = [a for a in form.args if a.type.startswith(("int[", "bool", "dtype"))]
    values = schemas.valid(form) if listed else None
    if values is None:
        return
    right = schemas.call_of(form, values)
    named = dict(right.kwargs)
    for i, value in enumerate(right.args):
        if isinstance(value, list) and value and form.args[i].type.startswith("int["):
            for wrong in ([*value[:-1], True], [*value[:-1], None], ["a"] * len(value), [2**70]):
                args = (*right.args[:i], wrong, *right.args[i + 1 :])
                yield right, Call(form, args, right.kwargs)
    for arg in form.optional:
        if arg.name in named or arg.name in [a.name for a in form.args[: len(right.args)]]:
            continue
        if arg.type.startswith("bool"):
            yield right, Call(form, right.args, (*right.kwargs, (arg.name, not arg.default)))
        elif arg.type.startswith("dtype"):
            more = [Call(form, right.args, (*right.kwargs, (arg.name, t))) for t in (float, str)]
            yield more[0], more[1]


def _never_ends(call: Call) -> bool:
    """PyTorch counts up to the order of a polynomial, to a window's end and the number of steps of
    a decomposition, however far.
    """
    long = any([word in call.form.name for word in ("polynomial", "max_pool1d", "lowrank")])
    return long and any([str(number) in repr(call) for number in (2**62, 2**70)])
