"""Containers of parameters: ParameterList, ParameterDict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.queries import typename
from skimp.nn.modules.container import index_of, pairs_of
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter


def _as_parameter(value: Any) -> Any:
    return (
        Parameter(value)
        if isinstance(value, Tensor) and not isinstance(value, Parameter)
        else value
    )


def _line(name: str, p: Any, kind_of: Callable[[Tensor], object]) -> str:
    if isinstance(p, Tensor):
        kind = "Parameter" if isinstance(p, Parameter) else "Tensor"
        return (
            f"  ({name}): {kind} containing: [{kind_of(p)} of size {'x'.join(map(str, p.shape))}]"
        )
    if isinstance(p, Module):
        return f"  ({name}): " + repr(p).replace("\n", "\n  ")
    return f"  ({name}): Object of type: {type(p).__name__}"


class ParameterList(Module):
    """A list of parameters (and anything else), which the module that holds it knows of.

    Shape: any shapes.
    Memory: tensors become parameters of the same storage; parameters stay the same objects.
    """

    _size: int

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            out = type(self)()
            for i in range(*idx.indices(len(self))):
                out.append(self[i])
            return out
        return getattr(self, str(index_of(self, idx)))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, str(index_of(self, idx)), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> Any:
        """Add a value at the end; a tensor becomes a parameter."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Any) -> Any:
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, (Tensor, str, bytes)):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(str(k), p, lambda t: t.dtype) for k, p in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters (and anything else), which the module that holds it knows of.

    Shape: any shapes.
    Memory: tensors become parameters of the same storage; parameters stay the same objects.
    """

    _keys: dict[str, None]

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _skimp_attribute(key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type "
                f"is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._skimp_attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._skimp_attribute(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._skimp_attribute(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: Any) -> Any:
        new = self.copy()
        new.update(other)
        return new

    def __ror__(self, other: Any) -> Any:
        new = ParameterDict(other)
        new.update(self)
        return new

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def copy(self) -> Any:
        """Another dictionary with the same parameters."""
        return ParameterDict({k: self[k] for k in self._keys})

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which becomes `default` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all values out."""
        for k in list(self._keys):
            del self[k]

    def pop(self, key: str) -> Any:
        """Take a value out."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Take the last pair out."""
        key, _ = self._keys.popitem()
        found = self._skimp_attribute(key), getattr(self, key)
        self._keys[key] = None
        del self[key]
        return found

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401  (this is `get`)

    @staticmethod
    def fromkeys(keys: Iterable[str], default: Any = None) -> Any:
        """A dictionary with the same value for each key."""
        return ParameterDict(dict.fromkeys(keys, default))

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Add values from a mapping or from pairs."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but "
                "got " + type(parameters).__name__
            )
        pairs = pairs_of(parameters, "ParameterDict")
        if type(parameters) is dict:
            pairs = sorted(pairs)
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(str(k), p, typename) for k, p in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
