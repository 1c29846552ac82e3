"""PyTorch's names, and their state here. `names.json` is written by tools/api.py."""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import skimp
from skimp._compat.homes import HOMES
from skimp._compat.refusals import is_refused
from skimp._compat.table import ours

DATA = Path(__file__).with_name("names.json")
_ABSENT = object()


class State(enum.Enum):
    """What a program that uses a name meets."""

    WORKS = "works"
    DIFFERS = "differs"
    REFUSED = "refused"
    MISSING = "missing"


class Known(NamedTuple):
    """PyTorch's public names by module or class, and the names of which docs/differences.md says
    something.
    """

    names: dict[str, frozenset[str]]
    differs: dict[str, str]


@functools.cache
def known() -> Known:
    """The data file."""
    found = json.loads(DATA.read_text())
    names = {space: frozenset(words.split()) for space, words in found["names"].items()}
    return Known(names, found["differs"])


def module(name: str) -> ModuleType | None:
    """The skimp module behind a torch module's name; None where there is none."""
    real = ours(name)
    try:
        return importlib.import_module(real) if importlib.util.find_spec(real) else None
    except ModuleNotFoundError as error:
        if error.name is None or not real.startswith(error.name):
            raise
        return None


def look(space: str, name: str) -> Any:
    """What `space.name` is here (a module, class, function, ...); `_ABSENT` where it is nothing."""
    owner: Any = skimp.Tensor if space == "torch.Tensor" else module(space)
    if owner is None:
        return _ABSENT
    try:
        return getattr(owner, name)
    except AttributeError:
        inner = module(f"{space}.{name}") if isinstance(owner, ModuleType) else None
        return _below_torch(space, name) if inner is None else inner
    except (RuntimeError, AssertionError):
        return None  # a property of the class that wants an instance


def _below_torch(space: str, name: str) -> Any:
    """What has the name only where `torch` is imported: a module of ours has not what PyTorch's
    has and another of ours makes.
    """
    source, real = HOMES.get(space.partition(".")[2], {}).get(name, ("", ""))
    return getattr(module(source or space), real, _ABSENT) if real else _ABSENT


def state(space: str, name: str, differs: Mapping[str, str] | None = None) -> State:
    """The state of one name; `differs` stands in for the data file's."""
    found = look(space, name)
    if found is _ABSENT:
        return State.MISSING
    if is_refused(found):
        return State.REFUSED
    told = known().differs if differs is None else differs
    return State.DIFFERS if f"{space}.{name}" in told else State.WORKS
