"""How ranks find each other: from `init_method` and the environment to a communicator."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlparse

from skimp.distributed import mpi
from skimp.distributed.errors import DistBackendError, DistStoreError
from skimp.distributed.stores import FileStore, PrefixStore, Store
from skimp.distributed.tcp import TCPStore

T = TypeVar("T")
HEARD = 0.3  # seconds in which the others read what this process, perhaps, has in its store
Handler = Callable[..., Iterator[tuple[Store, int, int]]]


class Joined(NamedTuple):
    """A job's ranks: a communicator in their order, and the store that they share."""

    comm: Any
    store: Store
    control: TCPStore  # a connection of this process's own


# -- from an address to a store -------------------------------------------------------------------


def rendezvous(
    url: str,
    rank: int = -1,
    world_size: int = -1,
    timeout: timedelta = timedelta(minutes=30),
    **words: Any,
) -> Iterator[tuple[Store, int, int]]:
    """The store of an address (env://, file://, tcp://), the rank and the number of ranks.

    Raises: RuntimeError for a scheme without a handler and for numbers that are none, ValueError
    for an address that lacks a part.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    if rank != -1:
        query["rank"] = str(rank)
    if world_size != -1:
        query["world_size"] = str(world_size)
    handler = _handlers.get(parts.scheme)
    if handler is None:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    return handler(parts, query, timeout)


def _wrong(scheme: str, text: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {text}")


def _numbers(scheme: str, query: dict[str, str]) -> tuple[int, int]:
    for name, words in (("rank", "rank"), ("world_size", "world size")):
        if name not in query:
            raise _wrong(scheme, f"{words} parameter missing")
    return int(query["rank"]), int(query["world_size"])


def _file(parts: Any, query: dict[str, str], timeout: timedelta) -> Iterator[Any]:
    path = parts.netloc + parts.path
    if not path:
        raise _wrong("file", "path missing")
    rank, size = _numbers("file", query)
    yield FileStore(path, size), rank, size


def _tcp(parts: Any, query: dict[str, str], timeout: timedelta) -> Iterator[Any]:
    if parts.port is None:
        raise _wrong("tcp", "port number missing")
    rank, size = _numbers("tcp", query)
    yield _store_at(parts.hostname, parts.port, rank, timeout), rank, size


def _env(parts: Any, query: dict[str, str], timeout: timedelta) -> Iterator[Any]:
    def named(name: str) -> str:
        found = os.environ.get(name)
        if not found:
            raise _wrong(
                "env",
                f"environment variable {name} expected, but not set. `skimp launch -n 2 PROGRAM` "
                "and `skimp torchrun` start ranks that have it",
            )
        return found

    rank = int(query["rank"]) if "rank" in query else int(named("RANK"))
    size = int(query["world_size"]) if "world_size" in query else int(named("WORLD_SIZE"))
    host, port = named("MASTER_ADDR"), int(named("MASTER_PORT"))
    yield _store_at(host, port, rank, timeout), rank, size


_handlers: dict[str, Handler] = {"file": _file, "tcp": _tcp, "env": _env}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Addresses that begin with `scheme` go to this function, as to PyTorch's.

    Raises: RuntimeError for a scheme that has a handler already.
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = lambda parts, query, timeout: handler(parts.geturl(), timeout=timeout)


def _store_at(host: str, port: int, rank: int, timeout: timedelta) -> TCPStore:
    """The store at an address, which rank 0 opens unless a launcher has."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    opens = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(host, port, None, opens, timeout, multi_tenant=True)


# -- from a store to a communicator ---------------------------------------------------------------


def join(store: Store, rank: int, size: int, timeout: timedelta) -> Joined:
    """Processes that have started themselves: each says in the store that it has come; when all
    have, they connect, one after another. A DistStoreError names those who have not come in time.
    """
    control = _control(store, rank)
    turn = _all_here(store, rank, size, timeout)
    world = mpi.load()
    comm = world.COMM_SELF.Dup()
    limit = timeout.total_seconds()
    port = world.Open_port() if rank == 0 and size > 1 else ""
    for i in range(max(rank, 1), size):
        # MPI does not say which of two that connect at once it takes: each is told when it may
        turn_of = f"port/{turn}/{i}"
        if rank == 0:
            store.set(turn_of, port)
        elif rank == i:
            port = store.get(turn_of).decode()
        comm = within(limit, f"rank {i} did not join", partial(_merged, comm, port, rank == i))
    if rank == 0 and size > 1:
        world.Close_port(port)
    return Joined(comm, store, control)


def _merged(comm: Any, port: str, comes: bool) -> Any:
    """The communicator of those who are together and of one who comes, who is the last in it."""
    inter = comm.Connect(port) if comes else comm.Accept(port)
    merged = inter.Merge(high=comes)
    inter.Free()
    return merged


def _control(store: Store, rank: int) -> TCPStore:
    """A connection of this process's own to a store behind a socket: the given one, or another
    that rank 0 opens and announces there.
    """
    below = store
    while isinstance(below, PrefixStore):
        below = below.underlying_store
    if isinstance(below, TCPStore):
        return below.clone()
    if rank:
        host, port = store.get("control").decode().rsplit(":", 1)
        return TCPStore(host, int(port))
    made = TCPStore("localhost", 0, is_master=True)
    store.set("control", f"{socket.gethostname()}:{made.port}")
    return made


def _all_here(store: Store, rank: int, size: int, timeout: timedelta) -> int:
    """Wait until every rank has come; how many times they have."""
    turn = store.add(f"come/{rank}", 1)
    names = [f"here/{turn}/{i}" for i in range(size)]
    store.set(names[rank], "1")
    end, pause, late = time.monotonic() + timeout.total_seconds(), 0.001, f"late/{turn}"
    while not store.check(names):
        if store.check([late]):
            raise DistStoreError(store.get(late).decode())
        if time.monotonic() > end:
            missing = [i for i, name in enumerate(names) if not store.check([name])]
            text = (
                f"Timed out after {max(1, round(timeout.total_seconds()))} seconds waiting for "
                f"clients. {size - len(missing)}/{size} clients joined. Missing: "
                f"{', '.join([f'rank {i}' for i in missing])}"
            )
            store.set(late, text)
            time.sleep(HEARD)
            raise DistStoreError(text)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    return turn


def within(seconds: float, otherwise: str, call: Callable[[], T]) -> T:
    """A call of MPI that can't be interrupted, in a thread that is left alone after the time."""
    found: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.1)  # in pieces, so that Ctrl-C comes through
    if errors:
        raise DistBackendError(f"{otherwise}: {errors[0]}") from errors[0]
    if not found:
        raise DistBackendError(f"{otherwise} within {seconds:g} seconds")
    return found[0]


# -- under a launcher of MPI's --------------------------------------------------------------------


def launched(rank: int, size: int, store: Store | None, timeout: timedelta) -> Joined:
    """The ranks of COMM_WORLD, in the order that the ranks given or in the environment ask for."""
    world = mpi.load().COMM_WORLD
    comm = world.Dup() if rank < 0 else world.Split(0, rank)
    if size not in (-1, comm.size):
        raise ValueError(
            f"world_size is {size}, but the MPI launcher has started {comm.size} processes"
        )
    if store is None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(host, port, timeout=timeout)
    if store is None:
        store = _store_of(comm, timeout)
    return Joined(comm, store, _control(store, comm.rank))


def _store_of(comm: Any, timeout: timedelta) -> TCPStore:
    """A store that rank 0 opens, and whose address it tells the others by MPI."""
    made = TCPStore("localhost", 0, is_master=True) if comm.rank == 0 else None
    host, port = comm.bcast((socket.gethostname(), made.port) if made is not None else None)
    return made or TCPStore(host, port, timeout=timeout)
