"""torch.utils.weak: dictionaries whose keys are objects themselves, not what they are equal to."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from skimp._engine.tensor.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]

K = TypeVar("K")
V = TypeVar("V")


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is equal to another of the same object only."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        a = self()
        return self is other or (a is not None and isinstance(other, WeakIdRef) and a is other())


class WeakIdKeyDictionary(MutableMapping[K, V]):
    """Values by object; an entry goes with its key.

    Memory: a weak reference and the value for each key, which keep no key.
    """

    def __init__(self, dict: Mapping[K, V] | None = None, ref_type: type = WeakIdRef) -> None:
        self._entries: MutableMapping[Any, V] = {}
        self._ref_type = ref_type
        if dict is not None:
            self.update(dict)

    def _ref(self, key: K) -> Any:
        entries = weakref.ref(self)

        def gone(ref: Any) -> None:
            alive = entries()
            if alive is not None:
                alive._entries.pop(ref, None)

        return self._ref_type(key, gone)

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[self._ref(key)] = value

    def __getitem__(self, key: K) -> V:
        return self._entries[self._ref_type(key)]

    def __delitem__(self, key: K) -> None:
        del self._entries[self._ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self._ref_type(key) in self._entries
        except TypeError:  # nothing that can be referred to weakly
            return False

    def __iter__(self) -> Iterator[K]:
        for ref in list(self._entries):
            key = ref()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def copy(self) -> WeakIdKeyDictionary[K, V]:
        """Another with the same keys and values."""
        other: WeakIdKeyDictionary[K, V] = WeakIdKeyDictionary()
        for key in self:
            other[key] = self[key]
        return other

    def keyrefs(self) -> list[Any]:
        """The references, dead ones too if their entries are not gone yet."""
        return list(self._entries)


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A reference to a tensor that does not keep it: `ref()` is the tensor, or None."""

    __slots__ = ("ref",)

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
