"""What functions take: read from their code as an import needs it, and whole signatures for those
who ask, made when they do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

Parameter = inspect.Parameter
_tuple = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


class _Fields(NamedTuple):
    name: str
    kind: Any
    default: Any = Parameter.empty


class Argument(_Fields):
    """A parameter without its annotation: a tenth of the time to make, a third of the bytes."""

    __slots__ = ()
    empty = Parameter.empty
    POSITIONAL_ONLY = Parameter.POSITIONAL_ONLY
    POSITIONAL_OR_KEYWORD = Parameter.POSITIONAL_OR_KEYWORD
    VAR_POSITIONAL = Parameter.VAR_POSITIONAL
    KEYWORD_ONLY = Parameter.KEYWORD_ONLY
    VAR_KEYWORD = Parameter.VAR_KEYWORD


Arguments: TypeAlias = Sequence[Argument | Parameter]


def arguments_of(f: Any) -> Arguments:
    """What `inspect.signature` says that a function takes."""
    if type(f) is not FunctionType or "__signature__" in f.__dict__:
        return list(inspect.signature(f).parameters.values())
    if "__wrapped__" in f.__dict__:
        return arguments_of(f.__dict__["__wrapped__"])
    return arguments_of_code(f)


def arguments_of_code(f: FunctionType) -> list[Argument]:
    """What the code takes, whatever the function shows."""
    code, defaults, words = f.__code__, f.__defaults__ or (), f.__kwdefaults__ or {}
    names, count, alone = code.co_varnames, code.co_argcount, code.co_posonlyargcount
    kinds = [Parameter.POSITIONAL_ONLY] * alone + [Parameter.POSITIONAL_OR_KEYWORD] * count
    given = [*[Parameter.empty] * (count - len(defaults)), *defaults]
    found = [_tuple(Argument, fields) for fields in zip(names[:count], kinds, given, strict=False)]
    starred = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        found.append(Argument(names[starred], Parameter.VAR_POSITIONAL))
    found += [
        _tuple(Argument, (name, Parameter.KEYWORD_ONLY, words.get(name, Parameter.empty)))
        for name in names[count:starred]
    ]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        last = starred + bool(code.co_flags & inspect.CO_VARARGS)
        found.append(Argument(names[last], Parameter.VAR_KEYWORD))
    return found


class Late(inspect.Signature):
    """A signature that is made when somebody looks into it: an import has 1,300 of them."""

    __slots__ = ("_skimp_made_by",)

    def __init__(self, make: Callable[..., inspect.Signature], *args: Any) -> None:
        self._skimp_made_by: Any = make, args

    def _skimp_fill(self) -> None:
        if self._skimp_made_by is not None:
            make, args = self._skimp_made_by
            made = make(*args)
            super().__init__([*made.parameters.values()], return_annotation=made.return_annotation)
            self._skimp_made_by = None

    @property
    def parameters(self) -> Any:
        self._skimp_fill()
        return super().parameters

    @property
    def return_annotation(self) -> Any:
        self._skimp_fill()
        return super().return_annotation

    def _skimp_plain(self) -> inspect.Signature:
        every = [*self.parameters.values()]
        return inspect.Signature(every, return_annotation=self.return_annotation)

    def replace(self, **changed: Any) -> inspect.Signature:  # type: ignore[override]
        return self._skimp_plain().replace(**changed)

    __replace__ = replace  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return self._skimp_plain().__reduce__()
