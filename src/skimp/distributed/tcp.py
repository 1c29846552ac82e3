"""A store behind a socket: one process listens and has the values, and all of them ask it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from skimp._kernels.locks import reentrant
from skimp.distributed.errors import DistNetworkError, DistStoreError
from skimp.distributed.stores import DEFAULT_TIMEOUT, Store, Table

LENGTH = struct.Struct("!I")  # of the JSON that follows, in bytes


class TCPStore(Store):
    """A store for processes, also of several hosts. The one with `is_master` listens at `port` (0:
    at a free one, which `port` says); the others must reach it there within `timeout`.

    With a `world_size` the master waits until so many have come, unless `wait_for_workers` is
    false. Messages are small and neither encrypted nor signed, as PyTorch's.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        self._timeout, self.host, self.libuvBackend = timeout, host_name, use_libuv
        self._server = _listen(port, master_listen_fd, multi_tenant) if is_master else None
        self.port = port if self._server is None else self._server.port
        self._socket = _connect(host_name, self.port, timeout)
        self._lock = reentrant()
        # not at the end of the process, which is told to others through it: its end closes it
        weakref.finalize(self, self._socket.close).atexit = False
        if world_size is not None:
            here = self.add("init/", 1)
            if is_master and wait_for_workers:
                self._gather(here, world_size, timeout)

    def _gather(self, here: int, world_size: int, timeout: timedelta) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while here < world_size:
            if time.monotonic() > end:
                raise DistStoreError(
                    f"Timed out after {max(1, round(timeout.total_seconds()))} seconds waiting for "
                    f"clients. {here}/{world_size} clients joined."
                )
            time.sleep(0.01)
            here = self.add("init/", 0)

    def clone(self) -> TCPStore:
        """Another connection to the same values."""
        made = TCPStore(self.host, self.port, timeout=self._timeout)
        made._server = self._server  # which lives as long as somebody here asks it
        return made

    def is_here(self) -> bool:
        """Whether its values are in this process, and go with it."""
        return self._server is not None

    def list_keys(self) -> list[str]:
        """The keys, without the store's own."""
        return [name for name in super().list_keys() if name != "init/"]

    def _step(self, name: str, keys: list[str], *args: Any) -> Any:
        try:
            with self._lock:
                _send(self._socket, [name, keys, *args])
                error, found = _receive(self._socket)
        except OSError as problem:
            raise DistNetworkError(
                f"The store at {self.host}:{self.port} does not answer: {problem}"
            ) from problem
        if error is not None:
            raise ValueError(error)
        return found

    def _late(self, keys: Sequence[str], limit: timedelta) -> Exception:
        shown = ", ".join(f"/{key}" for key in keys)
        milliseconds = round(limit.total_seconds() * 1000)
        return DistStoreError(f"wait timeout after {milliseconds}ms, keys: {shown}")


class _Server:
    """Answers each client in a thread of its own, as long as the server is there."""

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        weakref.finalize(self, _close, listener).atexit = False
        table, lock = Table(), reentrant()
        threading.Thread(target=_accept, args=(listener, table, lock), daemon=True).start()


_servers: weakref.WeakValueDictionary[int, _Server] = weakref.WeakValueDictionary()


def _listen(port: int, descriptor: int | None, shared: bool) -> _Server:
    """A server at the port; the one that is there already if it may be shared."""
    known = _servers.get(port) if shared else None
    if known is not None:
        return known
    try:
        if descriptor is not None:
            listener = socket.socket(fileno=descriptor)
        elif socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=2048
            )
        else:
            listener = socket.create_server(("", port), backlog=2048)
    except OSError as problem:
        raise DistNetworkError(
            "The server socket has failed to listen on any local network address. "
            f"port: {port}, {problem}"
        ) from problem
    made = _servers[listener.getsockname()[1]] = _Server(listener)
    return made


def _close(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
    listener.close()


def _accept(listener: socket.socket, table: Table, lock: threading.RLock) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # closed: the store is gone
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(client, table, lock), daemon=True).start()


def _answer(client: socket.socket, table: Table, lock: threading.RLock) -> None:
    will: list[Any] = []  # steps to take when the client is gone, which it may change until then
    with client, contextlib.suppress(OSError):  # until the client goes
        while True:
            request = _receive(client)
            if request[0] == "will":
                will = request[1]
                _send(client, [None, None])
                continue
            try:
                with lock:
                    reply = [None, table.step(*request)]
            except ValueError as problem:
                reply = [str(problem), None]
            _send(client, reply)
    with lock:
        for step in will:
            table.step(*step)


def _connect(host: str, port: int, timeout: timedelta) -> socket.socket:
    end, pause = time.monotonic() + timeout.total_seconds(), 0.005
    while True:
        try:
            made = socket.create_connection((host, port), max(0.05, end - time.monotonic()))
        except OSError as problem:
            if time.monotonic() + pause > end:
                raise DistNetworkError(
                    f"The client socket has timed out after "
                    f"{round(timeout.total_seconds() * 1000)}ms while trying to connect to "
                    f"({host}, {port})."
                ) from problem
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
            continue
        made.settimeout(None)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def _send(to: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    to.sendall(LENGTH.pack(len(data)) + data)


def _receive(of: socket.socket) -> Any:
    (length,) = LENGTH.unpack(_exactly(of, LENGTH.size))
    return json.loads(_exactly(of, length))


def _exactly(of: socket.socket, n: int) -> bytes:
    parts, left = [], n
    while left:
        part = of.recv(min(left, 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
