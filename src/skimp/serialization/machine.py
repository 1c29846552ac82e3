"""Pickle's stack machine, without the operations that import, instantiate or call.

Those five are methods that a subclass fills. What a file declares is compared with what the file
has before anything is allocated.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import IO, Any, Final

import numpy as np

from skimp.serialization import limits
from skimp.serialization.limits import check_key, refuse, shown

LISTS: Final = (list, deque)
DICTS: Final = (dict, OrderedDict, Counter, defaultdict)
NESTING: Final = frozenset((tuple, frozenset, np.ndarray))
SLOW: Final = 1 << 12  # shorter reads need no question before
Operation = Callable[[Any], None]


class Machine:
    """Runs one pickle from an open file, which may go on behind it."""

    operations: dict[bytes, Operation]

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file = file
        self._encoding = encoding
        start = file.tell()
        self._end = file.seek(0, 2)
        file.seek(start)
        self._budget = limits.COPIES * (self._end - start) + limits.SPARE
        self._depths: dict[int, tuple[int, Any]] = {}
        self.users: frozenset[type] = frozenset()
        self.proto = 0

    # -- what a subclass decides ------------------------------------------------------------------

    def find(self, module: str, name: str) -> Any:
        """The object behind a name."""
        raise NotImplementedError

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The result of a call."""
        raise NotImplementedError

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A new instance."""
        raise NotImplementedError

    def fill(self, found: Any, state: Any) -> None:
        """Give an instance its state."""
        raise NotImplementedError

    def persistent_load(self, pid: Any) -> Any:
        """What lies outside the pickle."""
        refuse("an object from outside the pickle")

    # -- the loop ---------------------------------------------------------------------------------

    def load(self) -> Any:
        """The object that the pickle describes."""
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        read, operations = self._file.read, self.operations
        while True:
            code = read(1)
            if code == pickle.STOP:
                return self.stack.pop()
            operation = operations.get(code)
            if operation is None:
                if not code:
                    raise EOFError("Ran out of input: the pickle has no end")
                raise pickle.UnpicklingError(
                    f"Weights only load failed. Unsupported operand {code[0]}"
                )
            operation(self)

    def take(self, n: int) -> bytes:
        """The next bytes of the file, if it has as many."""
        if n > SLOW and n > self._end - self._file.tell():
            raise EOFError(f"Ran out of input: the pickle asks for {n} bytes")
        data = self._file.read(n)
        if len(data) < n:
            raise EOFError("Ran out of input: the pickle has no end")
        return data

    def line(self) -> bytes:
        data = self._file.readline(limits.NAME + 1)
        if not data.endswith(b"\n"):
            refuse(f"a name of more than {limits.NAME} characters, or the file ends in one")
        return data[:-1]

    def spend(self, args: Any) -> None:
        """Count what a call is given, which it may copy: a value that is written once can be named
        a million times.
        """
        parts = args if type(args) is tuple else (args,)
        self._budget -= sum([len(a) for a in parts if type(a) in _SIZED])
        if self._budget < 0:
            limits.give_up("calls with more values")

    def nest(self, value: Any, items: Any) -> Any:
        """Note how deep a tuple is, and raise where that is too deep."""
        depth = 0
        for item in items:
            if type(item) in NESTING:
                known = self._depths.get(id(item))
                depth = max(depth, 1 if known is None else known[0])
        if depth:
            if depth >= limits.DEPTH:
                refuse(f"values nested more than {limits.DEPTH} deep")
            self._depths[id(value)] = depth + 1, value
        return value

    def pop_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    # -- operations: values -----------------------------------------------------------------------

    def _proto(self) -> None:
        self.proto = self.take(1)[0]
        if self.proto > pickle.HIGHEST_PROTOCOL:
            refuse(f"pickle protocol {self.proto}")

    def _frame(self) -> None:
        n = int.from_bytes(self.take(8), "little")
        if n > self._end - self._file.tell():
            limits.give_up(f"a frame of {n} bytes")

    def _int(self) -> None:
        data = self.line()
        known = {b"00": False, b"01": True}
        self.stack.append(known[data] if data in known else int(data))

    def _long(self) -> None:
        self.stack.append(int(self.line().rstrip(b"L")))

    def _float(self) -> None:
        self.stack.append(float(self.line()))

    def _text_line(self) -> None:
        self.stack.append(str(self._file.readline()[:-1], "raw-unicode-escape"))

    def _python2_line(self) -> None:
        data = self._file.readline()[:-1]
        if len(data) < 2 or data[:1] != data[-1:] or data[:1] not in b"\"'":
            refuse("a text without quotes")
        self._python2(data[1:-1].decode("unicode-escape").encode("latin1"))

    def _python2(self, data: bytes) -> None:
        plain = self._encoding == "bytes"
        self.stack.append(data if plain else data.decode(self._encoding, "strict"))

    def _list(self) -> None:
        items = self.pop_mark()
        self.stack.append(items)

    def _dict(self) -> None:
        items = self.pop_mark()
        self.stack.append(self._put({}, items))

    def _frozenset(self) -> None:
        items = self.pop_mark()
        for item in items:
            check_key(item, self.users)
        self.stack.append(self.nest(frozenset(items), items))

    def _tuple(self) -> None:
        items = self.pop_mark()
        self.stack.append(self.nest(tuple(items), items))

    def _tuples(self, n: int) -> None:
        if len(self.stack) < n:
            refuse("more values than there are")
        items = tuple(self.stack[-n:])
        self.stack[-n:] = [self.nest(items, items)]

    # -- operations: stack and memo ---------------------------------------------------------------

    def _mark(self) -> None:
        if len(self.marks) >= limits.MARKS:
            refuse(f"more than {limits.MARKS} open containers")
        self.marks.append(self.stack)
        self.stack = []

    def _pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def _drop_mark(self) -> None:
        self.pop_mark()

    def _get(self, i: int) -> None:
        if i not in self.memo:
            refuse(f"the value {i}, which it has not noted")
        self.stack.append(self.memo[i])

    def _put_in_memo(self, i: int) -> None:
        if i < 0:
            refuse("a note with a negative number")
        self.memo[i] = self.stack[-1]

    # -- operations: names, calls and states ------------------------------------------------------

    def _global(self) -> None:
        module, name = self.line().decode("utf-8"), self.line().decode("utf-8")
        self.stack.append(self.find(module, name))

    def _stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            refuse("a name that is no text")
        if len(name) + len(module) > limits.NAME:
            refuse(f"a name of more than {limits.NAME} characters")
        self.stack.append(self.find(module, name))

    def _reduce(self) -> None:
        args = self.stack.pop()
        if type(args) is not tuple:
            refuse("a call without a tuple of arguments")
        self.spend(args)
        self.stack[-1] = self.call(self.stack[-1], args)

    def _newobj(self) -> None:
        args = self.stack.pop()
        self._new(args, {})

    def _newobj_ex(self) -> None:
        keywords, args = self.stack.pop(), self.stack.pop()
        self._new(args, keywords)

    def _new(self, args: Any, keywords: Any) -> None:
        if type(args) is not tuple or type(keywords) is not dict:
            refuse("an instance without a tuple of arguments")
        self.spend(args)
        self.stack[-1] = self.new(self.stack[-1], args, keywords)

    def _build(self) -> None:
        state = self.stack.pop()
        self.spend(state)
        self.fill(self.stack[-1], state)

    def _persid(self) -> None:
        self.stack.append(self.persistent_load(self.stack.pop()))

    # -- operations: items ------------------------------------------------------------------------

    def _container(self, kinds: tuple[type, ...]) -> Any:
        found = self.stack[-1]
        if type(found) not in kinds and type(found) not in self.users:
            refuse(f"items for {shown(found)}")
        return found

    def _append(self) -> None:
        value = self.stack.pop()
        self._container(LISTS).append(value)

    def _appends(self) -> None:
        values = self.pop_mark()
        self._container(LISTS).extend(values)

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put(self._container(DICTS), [key, value])

    def _setitems(self) -> None:
        items = self.pop_mark()
        self._put(self._container(DICTS), items)

    def _put(self, target: Any, items: list[Any]) -> Any:
        if len(items) % 2:
            refuse("a key without a value")
        for i in range(0, len(items), 2):
            check_key(items[i], self.users)
            target[items[i]] = items[i + 1]
        return target

    def _additems(self) -> None:
        values = self.pop_mark()
        target = self._container((set,))
        for value in values:
            check_key(value, self.users)
        target.update(values)


_SIZED: Final = frozenset((str, bytes, bytearray, list, tuple, dict, set, frozenset, deque))


def _constant(value: Any) -> Operation:
    return lambda m: m.stack.append(value)


def _number(layout: str) -> Operation:
    parts = struct.Struct(layout)
    return lambda m: m.stack.append(parts.unpack(m.take(parts.size))[0])


def _sized(width: int, finish: Callable[[Machine, bytes], Any]) -> Operation:
    """A value behind its length."""

    def operation(m: Machine) -> None:
        m.stack.append(finish(m, m.take(int.from_bytes(m.take(width), "little"))))

    return operation


def _index(width: int, use: Callable[[Machine, int], None]) -> Operation:
    return lambda m: use(m, int.from_bytes(m.take(width), "little"))


def _text(_: Machine, data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


def _same(_: Machine, data: bytes) -> bytes:
    return data


def _integer(_: Machine, data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


# What a pickler writes at protocol 2 and above. PyTorch's reader knows those of protocol 2.
MODERN: Final[dict[bytes, Operation]] = {
    pickle.PROTO: Machine._proto,
    pickle.FRAME: Machine._frame,
    pickle.MARK: Machine._mark,
    pickle.POP: Machine._pop,
    pickle.POP_MARK: Machine._drop_mark,
    pickle.NONE: _constant(None),
    pickle.NEWTRUE: _constant(True),
    pickle.NEWFALSE: _constant(False),
    pickle.BININT: _number("<i"),
    pickle.BININT1: _number("<B"),
    pickle.BININT2: _number("<H"),
    pickle.BINFLOAT: _number(">d"),
    pickle.LONG1: _sized(1, _integer),
    pickle.LONG4: _sized(4, _integer),
    pickle.SHORT_BINUNICODE: _sized(1, _text),
    pickle.BINUNICODE: _sized(4, _text),
    pickle.BINUNICODE8: _sized(8, _text),
    pickle.SHORT_BINBYTES: _sized(1, _same),
    pickle.BINBYTES: _sized(4, _same),
    pickle.BINBYTES8: _sized(8, _same),
    pickle.BYTEARRAY8: _sized(8, lambda _, data: bytearray(data)),
    pickle.SHORT_BINSTRING: lambda m: m._python2(m.take(m.take(1)[0])),
    pickle.EMPTY_TUPLE: _constant(()),
    pickle.TUPLE: Machine._tuple,
    pickle.TUPLE1: lambda m: m._tuples(1),
    pickle.TUPLE2: lambda m: m._tuples(2),
    pickle.TUPLE3: lambda m: m._tuples(3),
    pickle.EMPTY_LIST: lambda m: m.stack.append([]),
    pickle.EMPTY_DICT: lambda m: m.stack.append({}),
    pickle.EMPTY_SET: lambda m: m.stack.append(set()),
    pickle.FROZENSET: Machine._frozenset,
    pickle.BINGET: _index(1, Machine._get),
    pickle.LONG_BINGET: _index(4, Machine._get),
    pickle.BINPUT: _index(1, Machine._put_in_memo),
    pickle.LONG_BINPUT: _index(4, Machine._put_in_memo),
    pickle.MEMOIZE: lambda m: m._put_in_memo(len(m.memo)),
    pickle.GLOBAL: Machine._global,
    pickle.STACK_GLOBAL: Machine._stack_global,
    pickle.REDUCE: Machine._reduce,
    pickle.NEWOBJ: Machine._newobj,
    pickle.NEWOBJ_EX: Machine._newobj_ex,
    pickle.BUILD: Machine._build,
    pickle.BINPERSID: Machine._persid,
    pickle.APPEND: Machine._append,
    pickle.APPENDS: Machine._appends,
    pickle.SETITEM: Machine._setitem,
    pickle.SETITEMS: Machine._setitems,
    pickle.ADDITEMS: Machine._additems,
}

# What protocols 0 and 1 add, and Python 2.
OLD: Final[dict[bytes, Operation]] = {
    pickle.INT: Machine._int,
    pickle.LONG: Machine._long,
    pickle.FLOAT: Machine._float,
    pickle.UNICODE: Machine._text_line,
    pickle.STRING: Machine._python2_line,
    pickle.BINSTRING: lambda m: m._python2(m.take(int.from_bytes(m.take(4), "little"))),
    pickle.LIST: Machine._list,
    pickle.DICT: Machine._dict,
    pickle.GET: lambda m: m._get(int(m.line())),
    pickle.PUT: lambda m: m._put_in_memo(int(m.line())),
}
