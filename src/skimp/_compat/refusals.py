"""Names that exist so that programs can import them, and raise one clear error when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from skimp._compat.table import theirs


class Refusal(type):
    """The class of such names: they can be imported, tested against and derived from."""

    _refused: str

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(cls._refused)

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(cls._refused, name=name)


def docstring(reason: str, error: type[Exception] = RuntimeError) -> str:
    """What a function says that only refuses."""
    stop = "" if reason.endswith(".") else "."
    return f"Refused: {reason}{stop}\n\nRaises: {error.__name__}, whatever it is given."


def refusal(module: str, name: str, reason: str) -> Refusal:
    """The stand-in for `module.name`; its docstring says what its error says."""
    text = f"{theirs(module)}.{name}: {reason}"
    return Refusal(name, (), {"__doc__": text, "__module__": module, "_refused": text})


def refusing(
    name: str, error: type[Exception], text: str, reason: str = ""
) -> Callable[..., NoReturn]:
    """A function that raises this error; its docstring gives the reason, or else the text."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise error(text)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = docstring(reason or text, error)
    return refused


def is_refused(value: Any) -> bool:
    """Whether it is such a name, or a function whose docstring says that it refuses."""
    if isinstance(value, Refusal):
        return True
    return callable(value) and (getattr(value, "__doc__", None) or "").startswith("Refused")
