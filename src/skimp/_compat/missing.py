"""What to say about a name that skimp does not have."""

from __future__ import annotations

from collections.abc import Iterable


class _Sentence:
    """What the error says, made when somebody reads it: `hasattr` asks for errors that nobody does,
    and looking for what is near takes milliseconds.
    """

    def __init__(self, module_name: str, name: str, spaces: tuple[Iterable[str], ...]) -> None:
        self._known = module_name, name, spaces

    def __str__(self) -> str:
        module_name, name, spaces = self._known
        hint = nearest(name, (word for space in spaces for word in [*space]))
        return f"module {module_name!r} has no attribute {name!r}{hint}"

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def missing(module_name: str, name: str, *spaces: Iterable[str]) -> AttributeError:
    """The error for `module_name.name`, which a module's `__getattr__` raises. `spaces` hold the
    names that there are.
    """
    return AttributeError(_Sentence(module_name, name, spaces), name=name)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """`; the nearest is 'x'`, or nothing where nothing is near.

    Names like __file__ are asked for by machines: `inspect.stack` asks every module.
    """
    if name.startswith("__"):
        return ""
    import difflib  # once a name is wrong

    public = [word for word in candidates if not word.startswith("_")]
    found = difflib.get_close_matches(name, public, n=1)
    return f"; the nearest is {found[0]!r}" if found else ""
