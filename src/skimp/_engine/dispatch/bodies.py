"""Pointwise ops whose functions look at their arguments first: one body, whose forms follow.

    @pointwise(LERP, in_place=())
    def lerp(input, end, weight, *, out=None, inplace=False): ...

Users hold `lerp(input, end, weight, *, out=None)` and `x.lerp_(end, weight)`, whose texts call the
body. What the docstring leaves unsaid follows from the row. Other functions that differ from a body
in an argument are made so too (`form_of`), as are those of one, two and three dims (`of_dims`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.row import Function
from skimp._engine.dispatch.settled import settle
from skimp._engine.dispatch.signatures import arguments_of
from skimp._engine.dispatch.wrappers import Parameters
from skimp._engine.generated import function_of
from skimp._engine.tensor.tensor import Tensor


def pointwise(
    row: Pointwise | None,
    namespaces: tuple[str, ...] = ("",),
    method: bool = True,
    *,
    in_place: tuple[str, ...] = ("",),
    says_in_place: str = "",
    aliases: tuple[str, ...] = (),
    fast: Function | None = None,
    fast_in_place: Function | None = None,
    free: str | None = None,
    **known: Any,
) -> Callable[[Function], Callable[..., Tensor]]:
    """Declare a function and `name_` by a body with `out` and `inplace`, for the latter of which
    `out` is its first argument; by one that decides (`settled.py`), if it answers a `Run`.
    `in_place`: the namespaces of `name_`; `says_in_place`: sections of its docstring that the row
    does not know.
    """

    def declare(body: Function) -> Function:
        nonlocal fast, fast_in_place
        if body.__annotations__["return"] == "Run":
            body, made, over = settle(body, free)
            fast, fast_in_place = fast or made, fast_in_place or over
        titles = (body.__name__, *aliases)
        main = form_of(body, body.__name__, ("inplace",))
        for title in titles:
            export(title, main, namespaces, method, fast=fast, row=row, **known)
        first = arguments_of(body)[0].name
        made = in_place_of(body, f", out={first}", says_in_place)
        for title in titles:
            export(f"{title}_", made, in_place, method, fast=fast_in_place, row=row)
        return body

    return declare


def in_place_of(body: Function, more: str = "", says: str = "") -> Function:
    """`name_` of a function that takes `inplace`."""
    said = (body.__doc__ or "").partition("\n\n")[0].strip()
    doc = f"{said} In place.\n\n{says}".rstrip()
    more = f"{more}, inplace=True"
    made = form_of(body, f"{body.__name__}_", ("inplace", "out"), more, doc)
    own: inspect.Signature = made.__signature__  # type: ignore[attr-defined]
    first, *others = own.parameters.values()
    own = own.replace(parameters=[first.replace(annotation="Tensor"), *others])
    made.__signature__ = own  # type: ignore[attr-defined]
    return made


def of_dims(body: Function, nd: int, title: str, doc: str, **always: Any) -> Function:
    """A function of `nd` spatial dims, by a body whose first argument is their number. What stands
    in `always` is taken, as PyTorch takes it, and has no effect.
    """
    own = inspect.signature(body)
    others = list(own.parameters.values())[1:]
    passed = [repr(always[p.name]) if p.name in always else p.name for p in others]
    own = own.replace(parameters=others)
    return caller_of(body, title, own, f"{nd}, {', '.join(passed)}", doc)


def form_of(
    body: Function, title: str, without: tuple[str, ...], more: str = "", doc: str | None = None
) -> Function:
    """A function with the body's arguments but those `without`, which calls it with `more`. The
    docstring is the body's unless there is a `doc`.
    """
    own = inspect.signature(body)
    passed, left_out = [], False
    for p in own.parameters.values():
        if p.name in without:
            left_out = True
        else:
            by_name = left_out or p.kind is p.KEYWORD_ONLY
            passed.append(f"{p.name}={p.name}" if by_name else p.name)
    own = own.replace(parameters=[p for p in own.parameters.values() if p.name not in without])
    return caller_of(body, title, own, ", ".join(passed) + more, doc or body.__doc__)


def caller_of(
    body: Function, title: str, own: inspect.Signature, passed: str, doc: str | None, **space: Any
) -> Function:
    """A function with this signature and name, whose text calls the body with what is `passed`;
    `space`: what that names beside the arguments.
    """
    p = Parameters([*own.parameters.values()], False, False)
    text = [p.header(), f"    return body({passed})"]
    made = function_of(title, text, {"body": body, **space})
    p.give_defaults(made)
    made.__signature__ = own  # type: ignore[attr-defined]
    made.__module__, made.__doc__ = body.__module__, doc
    return made
