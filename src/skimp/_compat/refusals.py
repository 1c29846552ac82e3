"""Names that exist so that programs can import them, and raise one clear error when used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from skimp._compat.left_out import REASONS


class Refusal(type):
    """The class of such names: they can be imported, tested against and derived from."""

    _refused: str

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(cls._refused)

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(cls._refused, name=name)


def refusal(module: str, name: str, reason: str) -> Refusal:
    """The stand-in for `module.name`; its docstring says what its error says."""
    shown = module.replace("skimp", "torch", 1)
    text = f"{shown}.{name}: {reason}"
    return Refusal(name, (), {"__doc__": text, "__module__": module, "_refused": text})


def names(module: str, known: Iterable[str] = (), reason: str = "") -> Callable[[str], Any]:
    """A module's `__getattr__` that makes its refused names, each when first asked for: these, and
    those of `left_out`.
    """
    reasons = {**REASONS.get(module, {}), **dict.fromkeys(known, reason)}
    made: dict[str, Refusal] = {}

    def lookup(name: str) -> Any:
        if name not in reasons:
            from skimp._compat.missing import missing

            there = vars(sys.modules[module])
            raise missing(module.replace("skimp", "torch", 1), name, [*there, *reasons])
        if name not in made:
            made[name] = refusal(module, name, reasons[name])
        return made[name]

    return lookup


def method(name: str, reason: str) -> Callable[..., NoReturn]:
    """A method of tensors that raises."""

    def refused(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"torch.Tensor.{name}: {reason}")

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Refused: {reason}."
    return refused


def is_refused(value: Any) -> bool:
    """Whether it is such a name, or a function whose docstring says that it refuses."""
    if isinstance(value, Refusal):
        return True
    return callable(value) and (getattr(value, "__doc__", None) or "").startswith("Refused")
