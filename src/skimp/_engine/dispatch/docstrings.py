"""Docstrings in sections: what a thing is, then Shape, Dtypes, Raises, Memory and Source.

A section that a docstring lacks comes from what knows it: the op's row (`describing`), or the
`SAYS` of a file, which holds of all ops, classes and functions of that file, and of classes derived
from them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from typing import Any

_ORDER = ("Sha", "Dty", "Rai", "Mem", "Sou")
_STARTS = re.compile(r"\n(?=(?:Shape|Dtypes|Raises|Memory|Source):)")


def sections(text: str) -> list[str]:
    """What is said under a head, with the head."""
    return _STARTS.split(f"\n{text}")[1:]


def of_file(module: str) -> list[str]:
    """What holds of all ops or classes of a file."""
    return sections(getattr(sys.modules[module], "SAYS", ""))


def is_said(section: str, known: Iterable[str]) -> bool:
    """Whether there is a section of that head."""
    return section[:5] in [s[:5] for s in known]


def completed(text: str, more: Iterable[str]) -> str:
    """A docstring with those of `more` whose head it lacks (the first of each), in order."""
    text, *said = _STARTS.split(inspect.cleandoc(text) if "\n" in text else text.lstrip())
    known = len(said)
    heads = [s[:5] for s in said]
    for section in more:
        if section[:5] not in heads:
            heads.append(section[:5])
            said.append(section)
    if len(said) == known:
        return "\n".join([text, *said])
    return "\n".join([text.rstrip(), "", *map(_lines, sorted(said, key=_place))]).rstrip()


def _lines(section: str) -> str:
    """A section, and after an example the empty line that ends it."""
    return f"{section.rstrip()}\n" if ">>>" in section else section.rstrip()


def _place(section: str) -> int:
    return _ORDER.index(section[:3])


class _Completed:
    """The docstring of a class, which is put together when somebody reads it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, instance: object, owner: type) -> str:
        said = of_file(owner.__module__)
        for base in owner.__mro__[1:]:
            if base.__module__.startswith(f"{_PACKAGE}.") and (more := of_file(base.__module__)):
                said += [*sections(inspect.cleandoc(base.__doc__ or "")), *more]
        return completed(self.text, said)


_PACKAGE = __name__.partition(".")[0]


def complete_functions(namespace: dict[str, Any]) -> None:
    """Let the public functions of tensors that a module defines say what its `SAYS` says."""
    said = sections(namespace["SAYS"])
    for name, f in namespace.items():
        own = inspect.isfunction(f) and f.__module__ == namespace["__name__"]
        if own and name[0] != "_" and "Tensor" in str(f.__annotations__):
            f.__doc__ = completed(f.__doc__ or "", said)


def complete_classes(namespace: dict[str, Any]) -> None:
    """Let the public classes of a module say what their files, and those of their bases, say."""
    for name, cls in namespace.items():
        if name[0] != "_" and isinstance(cls, type) and cls.__module__.startswith(f"{_PACKAGE}."):
            own: Any = vars(cls).get("__doc__")
            if isinstance(own, str):
                described: Any = _Completed(own)
                cls.__doc__ = described
