"""Modules whose `forward` is one call of a function."""

from __future__ import annotations

from typing import Any, Final

from skimp._engine.generated import compiled
from skimp.nn import functional, ops

_PARAMETERS: Final = frozenset({"weight", "bias"})  # of most modules that have such
_OWN: Final = (  # `forward` may be called with what is no module, but has the attributes of one
    "    try:",
    "        own = self._parameters if self._skimp_direct else ()",
    "    except AttributeError:",
    "        own = ()",
)


def _read(name: str) -> str:
    """The expression of a module's attribute: parameters as `held` finds them."""
    if name not in _PARAMETERS:
        return f"self.{name}"
    return f'own["{name}"] if "{name}" in own else self.{name}'


class _Forward:
    """Stands in a class body for the function that is made once the class has its name."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def __set_name__(self, owner: type[Any], name: str) -> None:
        function, takes, gives = [[p.strip() for p in part.split(",")] for part in self.parts]
        kept = [f"{g if g[-1] == '=' else ''}{_read(g.rstrip('='))}" for g in gives if g]
        given = ", ".join([t.partition(":")[0].partition("=")[0] for t in takes] + kept)
        to = function[0] if "." in function[0] else f"F.{function[0]}"
        called = to if function[0] else "getattr(F, self._skimp_function)"  # a layer by rank
        text = [
            f"def {name}(self, {', '.join(takes)}):",
            *(_OWN if "own[" in "".join(kept) else ()),
            f"    return {called}({given})",
        ]
        space = {"__name__": owner.__module__, "F": functional, "ops": ops}
        made = compiled(name, text, space, f"{owner.__name__}.")
        made.__qualname__ = f"{owner.__qualname__}.{name}"
        setattr(owner, name, made)


def calling(function: str, takes: str = "input", gives: str = "") -> Any:
    """A `forward` that hands what it takes, and options of the module, to a function of
    nn.functional: `calling("threshold", "input", "threshold, value, inplace=")`, where "inplace="
    goes by its name. "" is the function that a layer's number of dimensions tells.
    """
    return _Forward(function, takes, gives)
