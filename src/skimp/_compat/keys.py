"""The names by which libraries register kernels with PyTorch's dispatcher. There is none here: they
can be named, compared and put into sets, as a library does when it is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

__all__ = ["DispatchKey", "DispatchKeySet"]

# PyTorch's numbers (c10/core/DispatchKey.h) of those that Python sees.
_ALONE = {
    "Undefined": 0, "Dense": 1, "Quantized": 5, "Sparse": 8, "SparseCsr": 9, "NestedTensor": 10,
    "BackendSelect": 11, "Python": 13, "FuncTorchDynamicLayerBackMode": 14, "Functionalize": 15,
    "Conjugate": 16, "Negative": 17, "ZeroTensor": 18, "ADInplaceOrView": 19, "AutogradOther": 20,
    "AutogradFunctionality": 21, "AutogradNestedTensor": 22, "AutocastCPU": 24, "AutocastXPU": 27,
    "AutocastIPU": 28, "AutocastHPU": 29, "AutocastMPS": 31, "AutocastCUDA": 32,
    "AutocastPrivateUse1": 33, "FuncTorchBatched": 34, "FuncTorchVmapMode": 36,
    "FuncTorchGradWrapper": 39, "PythonTLSSnapshot": 41, "FuncTorchDynamicLayerFrontMode": 42,
    "PreDispatch": 45, "PythonDispatcher": 46, "Autograd": 150, "CompositeImplicitAutograd": 151,
    "FuncTorchBatchedDecomposition": 152, "CompositeImplicitAutogradNestedTensor": 153,
    "CompositeExplicitAutograd": 154, "CompositeExplicitAutogradNonFunctional": 155,
}  # fmt: skip
_BACKENDS = (
    "CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA",
    "PrivateUse1", "PrivateUse2", "PrivateUse3", "Meta",
)  # fmt: skip
# What each backend has a key for: the prefix of its name, and the group's own name.
_GROUPS = (
    ("", "Dense"), ("Quantized", "Quantized"), ("Sparse", "Sparse"), ("SparseCsr", "SparseCsr"),
    ("NestedTensor", "NestedTensor"), ("Autograd", "AutogradFunctionality"),
)  # fmt: skip
# Below it each key is a kind of its own; beyond the groups are other names of several.
_FIRST_GROUP = 48

_Numbers = frozenset[int]
_NONE: _Numbers = frozenset()


def _numbers() -> Iterator[tuple[str, int]]:
    """Each key's name and number; a group begins with a key that marks its start."""
    yield from _ALONE.items()
    first = _FIRST_GROUP
    for prefix, group in _GROUPS:
        yield f"StartOf{group}Backends", first
        yield from [(prefix + b, first + i) for i, b in enumerate(_BACKENDS, 1)]
        yield f"EndOf{group}Backends", first + len(_BACKENDS)
        first += len(_BACKENDS) + 1


class _Key(Enum):
    """What all keys have."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


_make: Any = _Key  # its members are made of the table, which no type checker reads
DispatchKey: Any = _make("DispatchKey", list(_numbers()), module="torch")


class DispatchKeySet:
    """A set of keys that is never changed. What they do and their backends are kept apart: with the
    sparse key of one backend and the dense key of another a set has all four, as in PyTorch.

    Raises: TypeError for what is no key.
    """

    __slots__ = ("_backends", "_kinds")
    __module__ = "torch"
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, key: Enum) -> None:
        if not isinstance(key, DispatchKey):
            raise TypeError(
                "__init__(): incompatible constructor arguments. The following argument types are "
                "supported:\n    1. torch._C.DispatchKeySet(arg0: torch._C.DispatchKey)\n\n"
                f"Invoked with: {key!r}"
            )
        self._kinds: _Numbers
        self._backends: _Numbers
        self._kinds, self._backends = _parts(key.value)

    def _of(self, kinds: _Numbers, backends: _Numbers) -> DispatchKeySet:
        made = DispatchKeySet(DispatchKey.Undefined)
        made._kinds, made._backends = kinds, backends
        return made

    def has(self, key: Enum) -> bool:
        """Whether the key is one of these."""
        kinds, backends = _parts(key.value)
        return kinds <= self._kinds and backends <= self._backends

    def add(self, key: Enum) -> DispatchKeySet:
        """These and the key."""
        return self | DispatchKeySet(key)

    def remove(self, key: Enum) -> DispatchKeySet:
        """These without what the key does, for any backend."""
        return self - DispatchKeySet(key)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._kinds | other._kinds, self._backends | other._backends)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._kinds & other._kinds, self._backends & other._backends)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self._of(self._kinds - other._kinds, self._backends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DispatchKeySet):
            return NotImplemented
        return (self._kinds, self._backends) == (other._kinds, other._backends)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(self._names())})"

    def _names(self) -> Iterator[str]:
        """The keys' names: of a kind that each backend has, one for each of the backends."""
        prefixes = {_ALONE[group]: prefix for prefix, group in _GROUPS}
        for kind in sorted(self._kinds):
            if kind in prefixes:
                yield from [prefixes[kind] + _BACKENDS[b] for b in sorted(self._backends)]
            else:
                yield DispatchKey(kind).name


def _parts(number: int) -> tuple[_Numbers, _Numbers]:
    """What a key does, and for which backend."""
    group, place = divmod(number - _FIRST_GROUP, len(_BACKENDS) + 1)
    if 0 <= group < len(_GROUPS):
        backends = frozenset([place - 1]) if place else _NONE
        return frozenset([_ALONE[_GROUPS[group][1]]]), backends
    return (frozenset([number]) if 0 < number < _FIRST_GROUP else _NONE), _NONE
