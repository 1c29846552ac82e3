"""Stores of keys and values that processes share: they need no group.

A store is where a `Table` is kept: in this process, in a file, or behind a socket (`tcp`). All that
programs call is written once, in `Store`, on the few steps that a table can do.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from skimp._kernels.locks import reentrant
from skimp.distributed.errors import DistStoreError, QueueEmptyError

T = TypeVar("T")
DEFAULT_TIMEOUT = timedelta(minutes=5)


class Table:
    """Values by key, and the steps on them that nothing may interrupt.

    Bytes are text of Latin-1 here, so that steps and results are JSON.
    """

    CHANGING = frozenset({"set", "add", "swap", "drop", "append", "push", "pop"})

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._queues: dict[str, deque[str]] = {}

    def step(self, name: str, keys: list[str], *args: Any) -> Any:
        """One of the methods below, by its name."""
        return getattr(self, f"_{name}")(keys, *args)

    def _set(self, keys: list[str], values: list[str]) -> None:
        self._values.update(zip(keys, values, strict=True))

    def _find(self, keys: list[str]) -> list[str | None]:
        return [self._values.get(key) for key in keys]

    def _add(self, keys: list[str], amount: int) -> int:
        total = int(self._values.get(keys[0], "0")) + amount
        self._values[keys[0]] = str(total)
        return total

    def _swap(self, keys: list[str], expected: str, desired: str) -> str:
        held = self._values.get(keys[0])
        if held == expected or (held is None and not expected):
            self._values[keys[0]] = desired
            return desired
        return expected if held is None else held

    def _drop(self, keys: list[str]) -> bool:
        return self._values.pop(keys[0], None) is not None

    def _append(self, keys: list[str], value: str) -> None:
        self._values[keys[0]] = self._values.get(keys[0], "") + value

    def _names(self, keys: list[str]) -> list[str]:
        return list(self._values)

    def _push(self, keys: list[str], value: str) -> None:
        self._queues.setdefault(keys[0], deque()).append(value)

    def _pop(self, keys: list[str]) -> str | None:
        queue = self._queues.get(keys[0])
        return queue.popleft() if queue else None

    def _length(self, keys: list[str]) -> int:
        return len(self._queues.get(keys[0], ()))


class Store:
    """Keys and values, as bytes, that processes share. What waits gives up after `timeout`."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    def _step(self, name: str, keys: list[str], *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} says not where its values are")

    @property
    def timeout(self) -> timedelta:
        """How long `get`, `wait` and `queue_pop` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        """Let them wait so long."""
        self._timeout = timeout

    def set(self, key: str, value: str | bytes, /) -> None:
        """Let a key have this value; text is encoded as UTF-8."""
        self._step("set", [_key("set", key)], [_text("set", value)])

    def get(self, key: str, /) -> bytes:
        """The value, once there is one; a DistStoreError after `timeout`."""
        return self.multi_get([_key("get", key)])[0]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes], /) -> None:
        """`set` for each, in one step."""
        self._step("set", list(keys), [_text("multi_set", value) for value in values])

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        """The values, once all are there."""

        def found() -> list[str] | None:
            values = self._step("find", list(keys))
            return None if None in values else values

        return [value.encode("latin-1") for value in self._wait(found, keys, self.timeout)]

    def add(self, key: str, amount: int, /) -> int:
        """The number that the key holds (0 at first) becomes larger by `amount`; the new one."""
        if not isinstance(amount, int):
            raise TypeError(f"add(): incompatible function arguments: {amount!r} is no int")
        try:
            total: int = self._step("add", [_key("add", key)], amount)
        except ValueError:
            raise ValueError(f"add(): the value of {key!r} is no number") from None
        return total

    def append(self, key: str, value: str | bytes, /) -> None:
        """Put more behind a key's value."""
        self._step("append", [_key("append", key)], _text("append", value))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set `desired` if the value is `expected` ("": there is none); the value then. Where there
        is none and one was expected, `expected`.
        """
        texts = [_text("compare_set", value) for value in (expected, desired)]
        held: str = self._step("swap", [_key("compare_set", key)], *texts)
        return held.encode("latin-1")

    def delete_key(self, key: str, /) -> bool:
        """Forget a key; whether it was there."""
        return bool(self._step("drop", [_key("delete_key", key)]))

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all keys have values now."""
        return None not in self._step("find", list(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        """Return once all keys have values; a DistStoreError after the time."""
        self._wait(lambda: self.check(keys) or None, keys, timeout or self.timeout)

    def num_keys(self) -> int:
        """How many keys there are, with those that the store itself has set."""
        return len(self._step("names", []))

    def list_keys(self) -> list[str]:
        """The keys, in no order."""
        names: list[str] = self._step("names", [])
        return names

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Return once `world_size` callers have come here with this key."""
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_member", "1")
        self.wait([f"{key}/last_member"], timeout or self.timeout)

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are single steps."""
        return True

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        """Put a value at the end of a queue; queues are no keys."""
        self._step("push", [_key("queue_push", key)], _text("queue_push", value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value, once there is one; without `block` a QueueEmptyError if not."""

        def first() -> str | None:
            value: str | None = self._step("pop", [_key("queue_pop", key)])
            return value

        value = self._wait(first, [key], self.timeout) if block else first()
        if value is None:
            raise QueueEmptyError("queue is empty")
        return value.encode("latin-1")

    def queue_len(self, key: str, /) -> int:
        """How many values a queue has."""
        length: int = self._step("length", [_key("queue_len", key)])
        return length

    def _wait(self, look: Callable[[], T | None], keys: Sequence[str], limit: timedelta) -> T:
        """What `look` finds, which is asked again until then, ever less often."""
        end, pause = time.monotonic() + limit.total_seconds(), 0.0005
        while (found := look()) is None:
            if time.monotonic() >= end:
                raise self._late(keys, limit)
            time.sleep(min(pause, max(end - time.monotonic(), 0)))
            pause = min(pause * 1.5, 0.02)
        return found

    def _late(self, keys: Sequence[str], limit: timedelta) -> Exception:
        return DistStoreError("Wait timeout")


def _key(function: str, key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{function}(): incompatible function arguments: the key {key!r} is no str")
    return key


def _text(function: str, value: Any) -> str:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise TypeError(
            f"{function}(): incompatible function arguments: the value {value!r} is no str or bytes"
        )
    return value.decode("latin-1")


class HashStore(Store):
    """A store in this process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._lock = Table(), reentrant()

    def _step(self, name: str, keys: list[str], *args: Any) -> Any:
        with self._lock:
            return self._table.step(name, keys, *args)

    def clone(self) -> HashStore:
        """The same values, with a timeout of its own."""
        made = HashStore()
        made._table, made._lock, made._timeout = self._table, self._lock, self._timeout
        return made


class PrefixStore(Store):
    """Another store, in which each key begins with `prefix/`."""

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix, self._store = f"{prefix}/", store

    @property
    def timeout(self) -> timedelta:
        """That of the store below."""
        return self._store.timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        """Set that of the store below."""
        self._store.set_timeout(timeout)

    @property
    def underlying_store(self) -> Store:
        """The store that has the values."""
        return self._store

    def list_keys(self) -> list[str]:
        """The keys with the prefix, without it."""
        names = self._store.list_keys()
        return [n.removeprefix(self._prefix) for n in names if n.startswith(self._prefix)]

    def clone(self) -> PrefixStore:
        """The same prefix on a clone of the store below."""
        below: Any = self._store
        return PrefixStore(self._prefix[:-1], below.clone())

    def _step(self, name: str, keys: list[str], *args: Any) -> Any:
        return self._store._step(name, [self._prefix + key for key in keys], *args)

    def _late(self, keys: Sequence[str], limit: timedelta) -> Exception:
        return self._store._late([self._prefix + key for key in keys], limit)


class FileStore(Store):
    """A store in a file, which has every step that changed something: whoever reads them all has
    the values. The file is the program's to delete.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self._path, self._world_size = os.fspath(file_name), world_size
        self._table, self._read, self._lock = Table(), 0, reentrant()
        self.add("efcount/", 1)  # PyTorch counts its users there

    @property
    def path(self) -> str:
        """The file's name."""
        return self._path

    def clone(self) -> FileStore:
        """Another user of the file."""
        return FileStore(self._path, self._world_size)

    def has_extended_api(self) -> bool:
        """PyTorch's has not."""
        return False

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        """Refused, as in PyTorch."""
        raise NotImplementedError("queue support is not implemented.")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Refused, as in PyTorch."""
        raise NotImplementedError("queue support is not implemented.")

    def queue_len(self, key: str, /) -> int:
        """Refused, as in PyTorch."""
        raise NotImplementedError("queue support is not implemented.")

    def _step(self, name: str, keys: list[str], *args: Any) -> Any:
        with self._lock, open(self._path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
            file.seek(self._read)
            for line in file:
                self._table.step(*json.loads(line))
            found = self._table.step(name, keys, *args)
            if name in Table.CHANGING:
                file.write(json.dumps([name, keys, *args]).encode() + b"\n")
            self._read = file.tell()
        return found

    def _late(self, keys: Sequence[str], limit: timedelta) -> Exception:
        return RuntimeError("Wait timeout")
