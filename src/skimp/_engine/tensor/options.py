"""Classes that declare their options: `__init__` follows from the class body.

    @options
    class Dropout(Module):
        p: float = 0.5
        inplace: bool = False

        def _skimp_set_up(self) -> None:
            require_between(self.p, 0, 1, "dropout probability has to be between 0 and 1, ...")

An annotated name is an argument of `__init__`, with the default that stands beside it, and an
attribute; arguments after `_: KW_ONLY` go by name only; one that is annotated `InitVar[...]` is no
attribute: `_skimp_set_up` gets it. `__init__` calls that of the class above, assigns, and calls
`_skimp_set_up`, where checks and what is made of the options (parameters, pairs) belong.
The rules are those of `dataclasses`, which type checkers know (`dataclass_transform`); unlike
these, nothing else is put on the class: no default stays as a class attribute, and a subclass that
is not decorated itself may annotate what it likes.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import KW_ONLY, InitVar
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from skimp._engine.generated import compiled

__all__ = [
    "KW_ONLY", "InitVar", "Option", "declared", "default_of", "options", "own_init", "parameters",
]  # fmt: skip

T = TypeVar("T", bound=type[Any])
_MISSING: Any = object()


class Option(NamedTuple):
    """An argument of `__init__`: `kept` ones become attributes."""

    name: str
    annotation: str
    default: Any
    by_name_only: bool
    kept: bool


def declared(cls: type[Any]) -> list[Option]:
    """The options of a class, those of the classes above it first."""
    found: dict[str, Option] = {}
    for base in reversed(cls.__mro__):
        for option in base.__dict__.get("_skimp_options", ()):
            found[option.name] = option
    by_name_only = False
    for name, annotation in inspect.get_annotations(cls).items():
        if annotation == "KW_ONLY":
            by_name_only = True
        elif not annotation.startswith("ClassVar"):
            default = cls.__dict__.get(name, _MISSING)
            kept = not annotation.startswith("InitVar[")
            shown = annotation if kept else annotation[len("InitVar[") : -1]
            found[name] = Option(name, shown, default, by_name_only, kept)
    return [*found.values()]


def parameters(found: list[Option], space: dict[str, Any]) -> str:
    """The options as the parameters of a `def`; defaults that are no plain values go to `space`."""
    parts, starred = [], False
    for o in sorted(found, key=lambda o: o.by_name_only):
        if o.by_name_only and not starred:
            parts.append("*")
            starred = True
        default = ""
        if o.default is not _MISSING:
            space[f"_default_{o.name}"] = o.default
            plain = type(o.default) in (int, float, bool, str, type(None))
            default = f" = {o.default!r}" if plain else f" = _default_{o.name}"
        parts.append(f"{o.name}: {o.annotation}{default}")
    return ", ".join(parts)


def default_of(cls: type[Any], name: str) -> Any:
    """The default of an option, wherever above the class it is declared."""
    for base in cls.__mro__:
        for option in base.__dict__.get("_skimp_options", ()):
            if option.name == name:
                return option.default
    return _MISSING


@dataclass_transform()
def options(cls: T) -> T:
    """Give a class the `__init__` that its annotated options describe."""
    found = declared(cls)
    for o in found:
        if o.name in cls.__dict__:
            delattr(cls, o.name)
    written = [base for base in cls.__mro__ if "_skimp_options" in base.__dict__]
    space: dict[str, Any] = {"__name__": cls.__module__, "_above": (written or [cls])[-1]}
    text = [
        "from __future__ import annotations",
        f"def __init__(self, {parameters(found, space)}) -> None:",
        "    super(_above, self).__init__()",
        *[f"    self.{o.name} = {o.name}" for o in found if o.kept],
    ]
    if hasattr(cls, "_skimp_set_up"):
        text.append(f"    self._skimp_set_up({', '.join([o.name for o in found if not o.kept])})")
    init = compiled("__init__", text, space, f"{cls.__name__}.")
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init
    cls._skimp_options = tuple(found)
    return cls


def own_init(cls: T) -> T:
    """Give a class a copy of the `__init__` that it inherits, under its own name, which is what
    Python's refusals of wrong calls say.
    """
    above = cls.__init__
    init = types.FunctionType(
        above.__code__, above.__globals__, "__init__", above.__defaults__, above.__closure__
    )
    init.__kwdefaults__ = above.__kwdefaults__
    init.__annotations__ = above.__annotations__
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    cls.__init__ = init
    return cls
