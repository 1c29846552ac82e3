"""The unpickler of `load`: it builds what is on a list, and what the program has named.

It never imports and looks no name up on an object. docs/notes/saving.md says why that is enough.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter, OrderedDict
from typing import IO, Any, Final

import numpy as np

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter
from skimp.serialization import arrays, limits, listed, names, rebuild, safe, states, unlisted
from skimp.serialization.limits import refuse, refused, shown
from skimp.serialization.listed import Listed
from skimp.serialization.machine import MODERN, OLD, Machine
from skimp.serialization.scan import modern

CALLED: Final = (OrderedDict, Counter, tuple, Parameter)  # written as instances or as calls


class Unpickler(Machine):
    """Reads one pickle. `whole`: the longer list (`weights_only=False`)."""

    def __init__(self, file: IO[bytes], whole: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(file, encoding)
        self.operations = MODERN | OLD if whole else MODERN
        self._whole = whole
        self._allowed = safe.allowed()
        self.users = frozenset(
            cls for cls in self._allowed.values() if isinstance(cls, type)
        ) - frozenset(names.DEFAULT.values())
        self._named: dict[int, Listed] = {}  # the listed objects that this file has named
        self._users: dict[int, Any] = {}  # those of the program's
        self._filled: dict[int, Any] = {}  # NumPy's arrays and types take their state once

    def find(self, module: str, name: str) -> Any:
        """The object behind a name on the list, or one that the program has named."""
        module, name = modern(module, name, self.proto < 3)
        full = f"{module}.{name}"
        if module.partition(".")[0] in names.BLOCKED:
            raise unlisted.blocked(module, full)
        row = self._row(module, name)
        if row is not None:
            self._named[id(row.value)] = row
            return row.value
        if full in self._allowed:
            found = self._allowed[full]
            self._users[id(found)] = found
            return found
        raise unlisted.unlisted(module, name, self._whole, self._file)

    def _row(self, module: str, name: str) -> Listed | None:
        """What the lists say of a name. Without `whole`, the longer one's for what the program has
        named.
        """
        full = f"{module}.{name}"
        if full in names.DEFAULT:
            return Listed(names.DEFAULT[full], names.CALLS.get(full))
        if self._whole and (found := listed.find(module, name)) is not None:
            return found
        if not self._allowed:
            return None
        known = listed.find(module, name)
        for row in ([known] if known else []) + _functions(module, name):
            if any(row.value is one for one in self._allowed.values()):
                return row
        return None

    # -- calls, instances, states -----------------------------------------------------------------

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The result of a listed builder, or of what the program has named."""
        row = self._named.get(id(function))
        if row is not None and row.call is not None:
            result = row.call(*args)
            return self.nest(result, result) if type(result) is frozenset else result
        if id(function) in self._users and callable(function):
            return function(*args)
        if row is not None and row.bare:
            refuse(f"a call of {_title(function)}, of which files make bare instances")
        raise refused(f"a call of {_title(function)}, which is not a listed function or class")

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A bare instance of a listed class, or one of a class that the program has named."""
        row = self._named.get(id(cls))
        if row is not None and row.bare and not args and not keywords:
            return object.__new__(cls)
        if row is not None and isinstance(cls, type) and issubclass(cls, CALLED) and not keywords:
            return self.call(cls, args)
        if id(cls) in self._users and isinstance(cls, type):
            if any(type(key) is not str for key in keywords):
                refuse("an instance with keywords that are no names")
            return cls.__new__(cls, *args, **keywords)
        raise refused(f"a bare instance of {_title(cls)}")

    def fill(self, found: Any, state: Any) -> None:
        """Give an instance its state: by the list's function, or as its class does."""
        kind = type(found)
        if kind is OrderedDict:
            states.attributes(found, state)
        elif kind in self.users and id(kind) in self._users:
            if isinstance(found, Module):
                states.check_module(found, state)
            _set_state(found, state)
        elif isinstance(found, np.ndarray | np.dtype) and (self._whole or kind in self.users):
            self._fill_numpy(found, state)
        elif kind in listed.fillers() and (self._whole or id(kind) in self._named):
            listed.fillers()[kind](found, state)
        else:
            refuse(f"the state of {shown(found)}")

    def _fill_numpy(self, found: Any, state: Any) -> None:
        """Once: an array could otherwise be put into itself, and one type changed under another."""
        if id(found) in self._filled:
            refuse("a second state of an array or its type")
        if isinstance(found, np.dtype):
            arrays.fill_dtype(found, state)
        else:
            arrays.set_state(found, state, self._nest_objects)
        self._filled[id(found)] = found

    def _nest_objects(self, found: Any, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, np.ndarray) and id(item) not in self._filled:
                refuse("an array of arrays that have no state yet")
        self.nest(found, items)


def _functions(module: str, name: str) -> list[Listed]:
    """Functions of PyTorch's of that name, by reference, which the program may have named."""
    if module.partition(".")[0] != "torch":
        return []
    space = "nn.functional" if module in names.FUNCTIONAL else module[len("torch.") :]
    home = sys.modules.get("skimp" + module[len("torch") :])
    found = [
        NAMESPACES.get(space, {}).get(name),
        None if home is None else vars(home).get(name),
        vars(sys.modules["skimp"]).get(name),
    ]
    return [Listed(f) for f in found if f is not None and not isinstance(f, type)]


def _title(found: Any) -> str:
    name = getattr(found, "__name__", None) if callable(found) else None
    return name[:100] if type(name) is str else shown(found)


def _set_state(found: Any, state: Any) -> None:
    """What pickle does with an object's state, for a class that the program allowed."""
    if hasattr(found, "__setstate__"):
        found.__setstate__(state)
        return
    if isinstance(found, Tensor):
        rebuild.set_attributes(found, state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        found.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(found, name, value)


def read(unpickler: Machine) -> Any:
    """The object of a pickle; whatever is wrong with it is an UnpicklingError, or the file's end an
    EOFError.
    """
    try:
        return unpickler.load()
    except (pickle.UnpicklingError, EOFError, NotImplementedError, AssertionError, MemoryError):
        raise
    except RecursionError as error:
        raise _damaged("RecursionError") from error
    except RuntimeError as error:
        if len(str(error)) > limits.MESSAGE:
            raise RuntimeError(str(error)[: limits.MESSAGE]) from None
        raise
    except Exception as error:
        told = all(type(arg) in (str, int, float) for arg in error.args)
        why = f"{type(error).__name__}: {str(error)[:200]}" if told else type(error).__name__
        raise _damaged(why) from (error if told else None)


def _damaged(why: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"Weights only load failed. The pickle is damaged: {why}")
