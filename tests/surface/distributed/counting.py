"""What processes do that share a store; here, so that they need not import what its tests do."""

from __future__ import annotations

from skimp.distributed import FileStore
from skimp.distributed.tcp import TCPStore


def count(port: int, path: str) -> None:
    """What each process does: all add at once, and wait for the last."""
    for store in (TCPStore("127.0.0.1", port, 4), FileStore(path, 4)):
        for _ in range(50):
            store.add("sum", 1)
        store.queue_push("log", "x") if isinstance(store, TCPStore) else store.append("log", "x")
        store.barrier("all", 4)
