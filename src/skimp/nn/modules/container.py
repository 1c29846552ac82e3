"""Containers of modules: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from skimp.nn.modules.module import Module, indented


def index_of(container: Any, idx: Any) -> int:
    """A position as Python's lists take it, counted from the front."""
    position, length = operator.index(idx), len(container)
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of range")
    return position % length


class Container(Module):
    """PyTorch's deprecated base of layers that hold others.

    Shape: none; making one warns (FutureWarning).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args)
        for name, module in kwargs.items():
            self.add_module(name, module)


def _only_sequential(other: Any) -> None:
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but {type(other)} is given."
        )


class Sequential(Module):
    """Modules that are called one after the other, each with what the last one returned.

    Shape: the first module's input to the last one's output.
    Dtypes: as its modules'.
    Raises: TypeError for what is no module; IndexError for a place that is not there.
    Memory: an index gives the module itself, a slice a Sequential of the same modules.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = (
            args[0].items()
            if len(args) == 1 and isinstance(args[0], OrderedDict)
            else enumerate(args)
        )
        for name, module in named:
            self.add_module(str(name), module)

    def _skimp_key(self, idx: Any) -> str:
        return list(self._modules)[index_of(self, idx)]

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._skimp_key(idx)]

    def __setitem__(self, idx: int, module: Any) -> None:
        setattr(self, self._skimp_key(idx), module)

    def __delitem__(self, idx: Any) -> None:
        for key in list(self._modules)[idx] if isinstance(idx, slice) else [self._skimp_key(idx)]:
            delattr(self, key)
        self._skimp_renumber(self._modules.values())

    def _skimp_renumber(self, modules: Iterable[Any]) -> None:
        self._modules = {str(i): m for i, m in enumerate(modules)}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __add__(self, other: Any) -> Any:
        _only_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        _only_sequential(other)
        return self.extend(list(other))

    def __mul__(self, other: int) -> Any:
        _check_times(self, other)
        return Sequential(*[m for _ in range(other) for m in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Any:
        _check_times(self, other)
        return self.extend([m for _ in range(other - 1) for m in list(self)])

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, module: Any) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Add modules at the end."""
        for module in sequential:
            self.append(module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Put a module before the one at `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index + n if index < 0 else index, module)
        self._skimp_renumber(modules)
        return self

    def pop(self, key: Any) -> Any:
        """Take a module out."""
        found = self[key]
        del self[key]
        return found

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


def _check_times(owner: Any, times: Any) -> None:
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(owner)} and {type(times)}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for {type(owner)}")


class ModuleList(Module):
    """A list of modules, which the module that holds it knows of.

    Shape: none: it has no forward (NotImplementedError when called).
    """

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx: Any) -> str:
        """The name of a layer by its place; libraries' subclasses ask for it."""
        return str(index_of(self, idx))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self)[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: int, module: Any) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx: Any) -> None:
        for k in range(len(self))[idx] if isinstance(idx, slice) else [index_of(self, idx)]:
            delattr(self, str(k))
        self._modules = {str(i): m for i, m in enumerate(self._modules.values())}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Any]) -> Any:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Equal neighbours on one line: `(0-3): 4 x Linear(...)`."""
        groups: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        if not groups:
            return f"{self._get_name()}()"
        lines = [
            f"({a}): {indented(text)}" if a == b else f"({a}-{b}): {b - a + 1} x {indented(text)}"
            for a, b, text in groups
        ]
        inner = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {inner}\n)"

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def insert(self, index: int, module: Any) -> None:
        """Put a module before the one at `index`."""
        for i in range(len(self), index, -1):
            self._modules[str(i)] = self._modules[str(i - 1)]
        self._modules[str(index)] = module

    def append(self, module: Any) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Any) -> Any:
        """Take a module out."""
        found = self[key]
        del self[key]
        return found

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                f"{type(modules).__name__}"
            )
        for i, module in enumerate(modules, len(self)):
            self.add_module(str(i), module)
        return self


class ModuleDict(Module):
    """A dictionary of modules, which the module that holds it knows of.

    Shape: none: it has no forward (NotImplementedError when called).
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping or from pairs."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                + type(modules).__name__
            )
        for key, module in pairs_of(modules, "ModuleDict"):
            self[key] = module


def pairs_of(values: Any, who: str) -> Iterable[tuple[str, Any]]:
    """The pairs of a mapping, or of a sequence of pairs, checked."""
    if isinstance(values, (Mapping, ModuleDict)) or hasattr(values, "items"):
        return list(values.items())
    found = []
    for j, m in enumerate(values):
        if not isinstance(m, Iterable):
            raise TypeError(
                f"{who} update sequence element #{j} should be Iterable; is {type(m).__name__}"
            )
        pair = tuple(m)
        if len(pair) != 2:
            raise ValueError(
                f"{who} update sequence element #{j} has length {len(pair)}; 2 is required"
            )
        found.append((pair[0], pair[1]))
    return found
