"""Storages in shared memory, and how tensors go to other processes.

A shared storage is a mapping of an anonymous file (`memfd_create` on Linux). Its descriptor, not a
name, goes from process to process, so the kernel frees the memory with the last process that has
it: nothing can leak, however a program ends, and `/dev/shm` and its limit are not involved.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import weakref
from typing import Any, Final

import numpy as np

from skimp._compat.arrivals import when_imported
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout, contiguous_strides, numel
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage, sequence
from skimp._engine.memory.users import users, users_beside
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, wrap
from skimp._ops.create.storages import UntypedStorage

# bytes from which a storage goes to another process in shared memory; smaller ones are copied
SHARE_FROM = 1 << 16
CAN_SHARE = hasattr(os, "memfd_create") or os.name == "posix"


class Segment:
    """The open file behind a shared storage."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._closing = weakref.finalize(self, os.close, fd)

    def array(self) -> Any:
        """The bytes, mapped; the array keeps the mapping."""
        return np.frombuffer(mmap.mmap(self.fd, self.nbytes), np.uint8)


_SEGMENTS: weakref.WeakKeyDictionary[Storage, Segment] = weakref.WeakKeyDictionary()


def is_shared(s: Storage) -> bool:
    """Whether other processes may see the bytes."""
    return s in _SEGMENTS


def make(nbytes: int) -> Storage:
    """A shared storage of zeros."""
    return _on(_segment(nbytes))


def share(s: Storage, tensors: list[Any] | None = None) -> None:
    """Move the bytes into shared memory, for all tensors on them (`tensors`, where that is known).
    Arrays made before keep the old bytes.
    """
    if is_shared(s) or len(s) == 0:
        return
    s.will_write()
    old = s.flat()
    segment = _segment(len(s))
    new = segment.array()
    new[:] = old
    tensors = users(s) if tensors is None else tensors
    for t in tensors:
        t._skimp_layout_of()  # while the old block can still tell the offset
    host.refund(s)
    s.block, s.size, s._flat = new, None, None
    s.exported = s.external = True  # other processes may write unseen:
    s.unseen = next(sequence)  # who would make the bytes again for backward has these, too
    for t in tensors:
        t._np = None
    _SEGMENTS[s] = segment


def _segment(nbytes: int) -> Segment:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("skimp", os.MFD_CLOEXEC)
    else:
        import tempfile  # where files have names

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    segment = Segment(fd, nbytes)
    os.ftruncate(fd, nbytes)
    return segment


def _on(segment: Segment) -> Storage:
    s = storages.external(segment.array())
    _SEGMENTS[s] = segment
    return s


def empty(shape: tuple[int, ...], dtype: dtypes.dtype) -> Tensor:
    """A row-major tensor of zeros in shared memory."""
    s = make(numel(shape) * dtype.itemsize)
    return wrap(s, Layout(shape, contiguous_strides(shape), 0), dtype)


# -- to other processes ---------------------------------------------------------------------------


def received(handle: Any, nbytes: int) -> Storage:
    """The storage whose descriptor another process sent."""
    return _on(Segment(handle.detach(), nbytes))


def _reduce_storage(s: Storage) -> Any:
    if not is_shared(s):
        if len(s) < SHARE_FROM or not CAN_SHARE:
            return s.__reduce__()
        share(s)
    handle = sys.modules[_PICKLING].DupFd(_SEGMENTS[s].fd)
    _forget_with_pool(handle)
    return received, (handle, len(s))


def _forget_with_pool(handle: Any) -> None:
    """Close the copy of a descriptor that lies ready for a pool's worker when the pool is gone.

    The standard library keeps the copy until somebody fetches it, which a worker that was
    terminated never does. The thread that hands out a pool's tasks lives as long as the pool can
    have workers.
    """
    pool: Any = sys.modules.get("multiprocessing.pool")
    if pool is None:
        return
    thread = threading.current_thread()
    sharer = sys.modules.get("multiprocessing.resource_sharer")  # `DupFd` has imported it
    waiting = getattr(getattr(sharer, "_resource_sharer", None), "_cache", None)
    if getattr(thread, "_target", None) is not pool.Pool._handle_tasks or waiting is None:
        return
    weakref.finalize(thread, _close, waiting, handle._id[1])


def _close(waiting: dict[Any, Any], key: Any) -> None:
    found = waiting.pop(key, None)
    if found is not None:
        found[1]()


def _reduce_tensor(t: Tensor) -> Any:
    if t._rg and t._skimp_node is not None:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    return t.__reduce_ex__(2)


def _register(reduction: Any) -> None:
    """Tell the pickler between processes how tensors go there."""
    reduction.ForkingPickler.register(Storage, _reduce_storage)
    reduction.ForkingPickler.register(Tensor, _reduce_tensor)


_PICKLING: Final = "multiprocessing.reduction"
when_imported(_PICKLING, _register)


# -- as methods -----------------------------------------------------------------------------------


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def share_memory_(self: Tensor) -> Tensor:
    """Move the bytes into memory that processes started later share; they see each other's
    writes.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError where the system has no shared memory.
    Memory: written in place: the bytes move, once.
    """
    if not is_shared(self._storage):
        tensors = users_beside(self)
        share(self._storage, tensors)
    return self


def _tensor_is_shared(self: Tensor) -> bool:
    """Whether the bytes are in shared memory.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    return is_shared(self._storage)


_tensor_is_shared.__name__ = "is_shared"
export("share_memory_", share_memory_, namespaces=())
export("is_shared", _tensor_is_shared, namespaces=(), looks=True)


def _storage_is_shared(self: UntypedStorage) -> bool:
    """Whether another process may see the bytes."""
    return is_shared(self._storage)


def _storage_share(self: UntypedStorage) -> UntypedStorage:
    """Move the bytes into shared memory."""
    share(self._storage)
    return self


UntypedStorage.is_shared = _storage_is_shared  # type: ignore[method-assign]
UntypedStorage.share_memory_ = _storage_share  # type: ignore[attr-defined]
