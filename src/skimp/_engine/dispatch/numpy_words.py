"""NumPy's names of arguments, which PyTorch's parser takes for its own: `x.sum(axis=0)`.

Functions that PyTorch has in Python take their own names alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any, Final

from skimp._engine.dispatch.in_python import binds
from skimp._engine.dispatch.row import FORMS, REQUIRED, Function, signature

NUMPY_WORDS: Final = {
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


def in_python(name: str, namespaces: Sequence[str]) -> bool:
    """Whether PyTorch has a function of that name in Python, in one of these namespaces."""
    return any([binds(space, name) for space in namespaces])


def put_spoken(
    title: str, given: dict[str, Any], words: dict[str, Any], own: Mapping[str, Any]
) -> None:
    """Put arguments under NumPy's names where those of the function still have their defaults,
    which `own` has, or none.
    """
    for word, value in words.items():
        name = NUMPY_WORDS.get(word, "")
        if name not in given or (given[name] is not own[name] and given[name] is not REQUIRED):
            raise TypeError(f"{title}() got an unexpected keyword argument '{word}'")
        given[name] = value


def spoken(f: Function, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, under the names that the function has."""
    if NUMPY_WORDS.keys().isdisjoint(kwargs):
        return kwargs
    known = _known(f)
    meant = {word: known[word] for word in kwargs if known.get(word, word) not in kwargs}
    if not meant:
        return kwargs
    return {meant.get(word, word): value for word, value in kwargs.items()}


@functools.cache
def _known(f: Function) -> dict[str, str]:
    """NumPy's names for arguments of this function; none that it takes itself."""
    own = signature(f).parameters
    form = None if isinstance(f, MethodType) else FORMS.get(f)  # a twin stands for a builtin
    if form is not None and in_python(form.name, form.op.namespaces):
        return {}
    return {word: name for word, name in NUMPY_WORDS.items() if name in own and word not in own}
