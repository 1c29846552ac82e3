"""An unpickler that builds what is on a list and nothing else: it never imports, and calls only
what is listed.
"""

from __future__ import annotations

import _compat_pickle
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import IO, Any, NoReturn

import numpy as np

from skimp import nn
from skimp._engine.dispatch.forms import NAMESPACES
from skimp.serialization import arrays, names, own, safe
from skimp.serialization.rebuild import refuse

# What may stand in a file: numbers, text, containers, memo, references, calls of listed functions.
PLAIN = (
    pickle.PROTO,
    pickle.FRAME,
    pickle.STOP,
    pickle.MARK,
    pickle.POP,
    pickle.POP_MARK,
    pickle.DUP,
    pickle.NONE,
    pickle.NEWTRUE,
    pickle.NEWFALSE,
    pickle.INT,
    pickle.BININT,
    pickle.BININT1,
    pickle.BININT2,
    pickle.LONG,
    pickle.LONG1,
    pickle.LONG4,
    pickle.FLOAT,
    pickle.BINFLOAT,
    pickle.UNICODE,
    pickle.BINUNICODE,
    pickle.SHORT_BINUNICODE,
    pickle.BINUNICODE8,
    pickle.BINBYTES,
    pickle.SHORT_BINBYTES,
    pickle.BINBYTES8,
    pickle.BYTEARRAY8,
    pickle.STRING,
    pickle.BINSTRING,
    pickle.SHORT_BINSTRING,
    pickle.EMPTY_TUPLE,
    pickle.TUPLE,
    pickle.TUPLE1,
    pickle.TUPLE2,
    pickle.TUPLE3,
    pickle.EMPTY_LIST,
    pickle.LIST,
    pickle.EMPTY_DICT,
    pickle.DICT,
    pickle.EMPTY_SET,
    pickle.FROZENSET,
    pickle.GET,
    pickle.BINGET,
    pickle.LONG_BINGET,
    pickle.PUT,
    pickle.BINPUT,
    pickle.LONG_BINPUT,
    pickle.MEMOIZE,
    pickle.GLOBAL,
    pickle.STACK_GLOBAL,
    pickle.PERSID,
    pickle.BINPERSID,
)
_Base: Any = pickle._Unpickler  # the one whose opcodes can be chosen


class Unpickler(_Base):  # type: ignore[misc]
    """Reads one pickle. `modules`: PyTorch's modules may be named too (`weights_only=False`)."""

    def __init__(self, file: IO[bytes], modules: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(file, encoding=encoding)
        self._allowed = safe.allowed()
        self._modules = modules
        self._given: dict[int, Any] = {}  # the listed objects that this file has named

    def find_class(self, module: str, name: str) -> Any:
        """The object behind a name on the list."""
        if self.proto < 3:
            module, name = _compat_pickle.NAME_MAPPING.get(
                (module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name)
            )
        full = f"{module}.{name}"
        if module.partition(".")[0] in names.BLOCKED:
            _refuse_blocked(module, full)
        found = names.DEFAULT.get(full) or self._allowed.get(full) or self._module(module, name)
        if found is None and self._modules:
            found = names.WHOLE.get(full)
        if found is None and self._modules:
            found = own.find(module, name)
            if isinstance(found, FunctionType):
                return found  # to be kept, not to be called
        if found is None:
            _refuse_global(module, name)
        self._given[id(found)] = found
        return found

    def _module(self, module: str, name: str) -> Any:
        """A class of `torch.nn`, in whichever of its files PyTorch keeps it, or a function of
        `torch.nn.functional`, as modules keep their activation.
        """
        if self._modules and module in names.FUNCTIONAL:
            return NAMESPACES["nn.functional"].get(name)
        if not module.startswith("torch.nn."):
            return None

        found = getattr(nn.modules, name, None)
        if not isinstance(found, type) or not issubclass(found, nn.Module):
            return None
        return found if self._modules or found in self._allowed.values() else None

    def persistent_load(self, pid: Any) -> Any:
        refuse("an object from outside the pickle")

    def _called(self, what: str) -> Any:
        """The function or class that an opcode is about to call, if this file may."""
        found = self.stack[-1]
        if id(found) not in self._given or not callable(found):
            refuse(f"{what} of {type(found).__name__}, which is not a listed function or class")
        return found

    def load_reduce(self) -> None:
        args = self.stack.pop()
        func = self._called("a call")
        if not isinstance(args, tuple):
            refuse("a call without a tuple of arguments")
        self.stack[-1] = func(*args)

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self._new(args, {})

    def load_newobj_ex(self) -> None:
        keywords = self.stack.pop()
        args = self.stack.pop()
        self._new(args, keywords)

    def _new(self, args: Any, keywords: Any) -> None:
        cls = self._called("an instance")
        if not isinstance(cls, type) or not self._is_programs(cls):
            refuse(f"a bare instance of {getattr(cls, '__name__', cls)}")
        self.stack[-1] = cls.__new__(cls, *args, **keywords)

    def _is_programs(self, cls: type) -> bool:
        if cls in self._allowed.values() or cls in (OrderedDict, Counter):
            return True
        return cls not in names.DEFAULT.values()  # a module of `torch.nn`

    def load_build(self) -> None:
        state = self.stack.pop()
        found = self.stack[-1]
        if type(found) is OrderedDict and isinstance(state, dict):
            found.__dict__.update(state)
        elif self._modules and isinstance(found, (np.ndarray, np.dtype)):
            arrays.set_state(found, state)
        elif self._is_given(type(found)) and self._is_programs(type(found)):
            _set_state(found, state)
        else:
            refuse(f"the state of a {type(found).__name__}")

    def _is_given(self, cls: type) -> bool:
        return id(cls) in self._given

    def _container(self, *kinds: type) -> Any:
        found = self.stack[-1]
        if not isinstance(found, kinds):
            refuse(f"items for a {type(found).__name__}")
        return found

    def load_append(self) -> None:
        value = self.stack.pop()
        self._container(list).append(value)

    def load_appends(self) -> None:
        values = self.pop_mark()
        self._container(list).extend(values)

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._container(dict)[key] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        target = self._container(dict)
        for i in range(0, len(items) - 1, 2):
            target[items[i]] = items[i + 1]

    def load_additems(self) -> None:
        values = self.pop_mark()
        self._container(set).update(values)

    dispatch: dict[int, Callable[[Any], None]] = {op[0]: _Base.dispatch[op[0]] for op in PLAIN} | {
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build,
        pickle.APPEND[0]: load_append,
        pickle.APPENDS[0]: load_appends,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.ADDITEMS[0]: load_additems,
    }


def read(unpickler: Unpickler) -> Any:
    """The object of a pickle; whatever is wrong with it is an UnpicklingError, or the file's end an
    EOFError.
    """
    try:
        return unpickler.load()
    except (
        pickle.UnpicklingError,
        EOFError,
        MemoryError,
        RuntimeError,
        NotImplementedError,
        AssertionError,
    ):
        raise
    except KeyError as error:
        what = error.args[0] if error.args else None
        if isinstance(what, int):
            raise pickle.UnpicklingError(
                f"Weights only load failed. Unsupported operand {what}"
            ) from error
        raise pickle.UnpicklingError(
            f"Weights only load failed. The pickle is damaged: {error!r}"
        ) from error
    except Exception as error:
        raise pickle.UnpicklingError(
            f"Weights only load failed. The pickle is damaged: {error!r}"
        ) from error


def _set_state(found: Any, state: Any) -> None:
    """What pickle does with an object's state, for a class that the program allowed."""
    if hasattr(found, "__setstate__"):
        found.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        found.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(found, name, value)


def _refuse_blocked(module: str, full: str) -> NoReturn:
    raise pickle.UnpicklingError(
        f"Weights only load failed. Trying to load unsupported GLOBAL {full} whose module "
        f"{module} is blocked. "
        "No file needs it to hold data: do not use this file."
    )


def _refuse_global(module: str, name: str) -> NoReturn:
    full = f"{module}.{name}"
    if name in names.ABSENT and module.partition(".")[0] == "torch":
        raise pickle.UnpicklingError(
            f"Weights only load failed. The file holds {full}, which skimp does not have; "
            "convert those tensors with PyTorch, to float32 for example, and save the file again."
        )
    raise pickle.UnpicklingError(
        f"Weights only load failed. Unsupported global: GLOBAL {full} was not an allowed "
        "global by default. "
        f"Please use `torch.serialization.add_safe_globals([{name}])` or the "
        f"`torch.serialization.safe_globals([{name}])` context manager to allowlist this "
        "global if you trust this "
        "class/function. skimp builds only what is on its list, with weights_only=False "
        "too: loading runs no code of "
        "the file's."
    )
