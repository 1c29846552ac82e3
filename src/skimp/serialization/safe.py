"""Which classes and functions a program lets files name: PyTorch's `add_safe_globals` and its
kin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.interpreter import enters_uninterrupted
from skimp.serialization import names

Safe = Callable[..., Any] | tuple[Callable[..., Any], str]
_allowed: list[Safe] = []


def add_safe_globals(safe_globals: Sequence[Safe]) -> None:
    """Let files name these classes and functions from now on; a pair gives the name that files
    use.
    """
    for one in safe_globals:
        _name(one)
        if one not in _allowed:
            _allowed.append(one)


def get_safe_globals() -> list[Safe]:
    """What files may name besides the default list."""
    return list(_allowed)


def clear_safe_globals() -> None:
    """Files may name the default list only."""
    _allowed.clear()


class safe_globals:  # noqa: N801  (PyTorch's name)
    """Inside, files may also name these."""

    def __init__(self, safe_globals: Sequence[Safe]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self._before = list(_allowed)
        try:
            add_safe_globals(self.safe_globals)
        except BaseException:
            self.__exit__()
            raise

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        _allowed[:] = self._before


def allowed() -> dict[str, Any]:
    """What the program allows, by the names that files use."""
    return dict(_name(one) for one in _allowed)


def _name(one: Any) -> tuple[str, Any]:
    if isinstance(one, tuple):
        if len(one) != 2 or not isinstance(one[1], str):
            raise ValueError(
                f"Expected tuple of length 2 (global, str of callable full path), but got {one!r}"
            )
        return one[1], one[0]
    if not hasattr(one, "__qualname__") and names.functions().get(id(one)) is None:
        raise TypeError(f"a safe global is a class or a function, not {one!r}")
    return names.full_name(one), one
