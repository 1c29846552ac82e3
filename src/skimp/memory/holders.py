"""Who keeps a tensor's bytes alive, and which tensors share them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from skimp._engine.memory.storage import Storage
from skimp._engine.memory.users import users
from skimp._engine.tensor.tensor import Tensor
from skimp.memory.chains import Parameters, words
from skimp.memory.search import Paths, Root, search

SHOWN = 20  # chains that are told at most


class Lines(list[str]):
    """Sentences, one below the other when printed."""

    def __repr__(self) -> str:
        return "\n".join(self)

    __str__ = __repr__


def holders(x: Tensor) -> Lines:
    """The chains of references that keep the bytes of `x` alive, each from a name of the program,
    nearest first: through containers, attributes, closures, graphs (`saved by TanhBackward0,
    model.py:11`), hooks, NumPy arrays and deferred expressions. At most 20.

    Nothing is copied or computed. Takes time: it walks all that the program's names lead to.
    TypeError: `x` is no tensor with bytes of its own.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: TypeError for what is no tensor with bytes of its own.
    Memory: the list is text: it keeps nothing alive.
    """
    s = _storage(x)
    found = _chains({id(s): s}, [sys._getframe().f_locals])
    return Lines(found or ["no name leads to it: a reference cycle, or code that is not Python"])


def chains(targets: set[int], hidden: Iterable[Any] = ()) -> dict[int, str]:
    """The shortest chain to each object of these ids to which a name leads, not by way of another
    of them; `hidden` are not looked at.
    """
    paths, called = Paths(), Parameters()
    told: dict[int, str] = {}
    for holder, value in search(paths, targets, [targets, *hidden]):
        if id(value) in told or id(holder) in targets:
            continue
        way = (holder, []) if type(holder) is Root else paths.to(holder)
        if way is not None:
            told[id(value)] = words(way[0], [*way[1], value], called)
            if len(told) == len(targets):
                break
    return told


def _chains(storages: dict[int, Storage], hidden: list[Any]) -> list[str]:
    tensors = [t for s in storages.values() for t in users(s)]
    blocks = [s.block for s in storages.values() if s.block is not None]
    targets = {id(t) for t in tensors} | set(storages) | {id(b) for b in blocks}
    own = [hidden, tensors, blocks, storages, *hidden]
    paths, called = Paths(), Parameters()
    told: dict[str, int] = {}
    for holder, value in search(paths, targets, own):
        if id(holder) in targets:
            continue  # a tensor's own storage, a storage's own block
        if type(holder) is Root:
            text = words(holder, [value], called)
            length = 1
        else:
            way = paths.to(holder)
            if way is None or any([id(one) in targets for one in way[1]]):
                continue  # by way of another tensor on the storage, of which something is said
            text, length = words(way[0], [*way[1], value], called), len(way[1])
        told.setdefault(text, length)
    array = " -> NumPy array"  # that a deferred expression reads, which is said already
    said = [
        text for text in told if text.removesuffix(array) == text or text[: -len(array)] not in told
    ]
    return sorted(said, key=lambda text: told[text])[:SHOWN]


class Alias(NamedTuple):
    """A tensor on a storage that others share."""

    name: str  # how the program reaches it, if it does
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: Any
    requires_grad: bool

    def __str__(self) -> str:
        grad = ", requires grad" if self.requires_grad else ""
        layout = f"shape {self.shape}, strides {self.strides}, offset {self.offset}"
        return f"{self.name or 'a tensor'}: {layout}, {self.dtype}{grad}"


class Aliases(list[Alias]):
    """Tensors on one storage, one below the other when printed."""

    def __repr__(self) -> str:
        return "\n".join([str(one) for one in self])

    __str__ = __repr__


def aliases(x: Tensor) -> Aliases:
    """Every live tensor on the storage of `x`, `x` included: the name that leads to it, its shape,
    strides and offset (in elements), dtype.

    TypeError: `x` is no tensor with bytes of its own.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: TypeError for what is no tensor with bytes of its own.
    Memory: the list holds no tensors: names, shapes and strides.
    """
    s = _storage(x)
    tensors = users(s)
    called = names(tensors, [sys._getframe().f_locals])
    made = Aliases()
    for t in tensors:
        layout = t._skimp_layout_of()
        made.append(
            Alias(
                called.get(id(t), ""),
                tuple(layout.shape),
                tuple(layout.strides),
                layout.offset,
                t.dtype,
                bool(t._rg),
            )
        )
    made.sort(key=lambda a: (not a.name, a.name))
    return made


def names(tensors: list[Tensor], hidden: list[Any]) -> dict[int, str]:
    """How the program reaches tensors, by their ids; `hidden` are not looked at."""
    return chains({id(t) for t in tensors}, [tensors, sys._getframe().f_locals, *hidden])


def _storage(x: Any) -> Storage:
    if not isinstance(x, Tensor) or x._hollow:
        raise TypeError(f"expected a tensor with bytes of its own, got {type(x).__name__}")
    return x._storage
