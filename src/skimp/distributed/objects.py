"""Python objects between ranks, pickled: only from ranks that may be trusted."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, adopt
from skimp.distributed import collectives, p2p
from skimp.distributed.arguments import at_root_only, first, place
from skimp.distributed.groups import chosen, get_rank, outside


def _packed(obj: Any) -> Tensor:
    return adopt(np.frombuffer(pickle.dumps(obj), np.uint8).copy(), dtypes.uint8)


def _room(n: int) -> Tensor:
    return adopt(np.empty(n, np.uint8), dtypes.uint8)


def _padded(packed: Tensor, length: int) -> Tensor:
    """An object's bytes in a room for the longest of all."""
    room = _room(length)
    room._skimp_array()[: packed.numel()] = packed._skimp_array()
    return room


def _sizes(sizes: list[int]) -> Tensor:
    return adopt(np.array(sizes, np.int64), dtypes.int64)


def _unpacked(t: Tensor, n: int) -> Any:
    return pickle.loads(t._skimp_array()[:n].tobytes())


def _all_sizes(n: int, group: Any) -> list[int]:
    every = _sizes([0] * group.size())
    collectives.all_gather_single(every, _sizes([n]), group)
    found: list[int] = every.tolist()
    return found


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Each rank's object to all: into the list, which has as many elements as there are ranks."""
    if outside(group, "all_gather_object"):
        return
    group = chosen(group)
    packed = _packed(obj)
    sizes = _all_sizes(packed.numel(), group)
    widest = max(sizes)
    mine, every = _padded(packed, widest), _room(widest * group.size())
    collectives.all_gather_single(every, mine, group)
    for i, n in enumerate(sizes):
        object_list[i] = _unpacked(every[i * widest : (i + 1) * widest], n)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Each rank's object to rank `dst`: into its list."""
    if outside(group, "gather_object"):
        return
    group = chosen(group)
    target = place(group, first(dst, group_dst), group_dst)
    here = target == group.rank()
    at_root_only(object_gather_list, here, "gather_list", "destination")
    packed = _packed(obj)
    sizes = _all_sizes(packed.numel(), group)
    widest = max(sizes)
    mine = _padded(packed, widest)
    every = [_room(widest) for _ in sizes] if here else None
    collectives.gather(mine, every, group=group, group_dst=target)
    if every is not None and object_gather_list is not None:
        for i, (t, n) in enumerate(zip(every, sizes, strict=True)):
            object_gather_list[i] = _unpacked(t, n)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """The objects of rank `src`'s list into every rank's, which must be as long."""
    if outside(group, "broadcast_object_list"):
        return
    group = chosen(group)
    source = place(group, first(src, group_src), group_src)
    here = source == group.rank()
    parts = [_packed(obj) for obj in object_list] if here else []
    sizes = _sizes([t.numel() for t in parts] if here else [0] * len(object_list))
    collectives.broadcast(sizes, group=group, group_src=source)
    counts: list[int] = sizes.tolist()
    together = _room(sum(counts))
    if here and parts:
        np.concatenate([t._skimp_array() for t in parts], out=together._skimp_array())
    collectives.broadcast(together, group=group, group_src=source)
    if not here:
        at = 0
        for i, n in enumerate(counts):
            object_list[i] = _unpacked(together[at : at + n], n)
            at += n


def scatter_object_list(
    scatter_object_output_list: Any,
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Rank `src` sends each rank one of its list's objects: into the first place of its list.

    Raises: ValueError for an empty list to receive into, or ranks that don't exist.
    """
    if outside(group, "scatter_object_list"):
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    group = chosen(group)
    source = place(group, first(src, group_src), group_src)
    here = source == group.rank()
    parts = [_packed(obj) for obj in scatter_object_input_list or ()] if here else []
    sizes = _sizes([t.numel() for t in parts] if here else [0] * group.size())
    collectives.broadcast(sizes, group=group, group_src=source)
    widest = int(max(sizes.tolist()))
    mine = _room(widest)
    padded = [_padded(part, widest) for part in parts]
    collectives.scatter(mine, padded or None, group=group, group_src=source)
    scatter_object_output_list[0] = _unpacked(mine, sizes.tolist()[group.rank()])


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the list's objects to a rank, which calls `recv_object_list` with one as long.

    Raises: ValueError for this rank itself, or one that doesn't exist.
    """
    if outside(group, "send_object_list"):
        return
    group = chosen(group)
    target = place(group, dst, group_dst)
    if target == get_rank(group):
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the "
            "current process."
        )
    parts = [_packed(obj) for obj in object_list]
    p2p.send(_sizes([t.numel() for t in parts]), group=group, group_dst=target)
    for part in parts:
        p2p.send(part, group=group, group_dst=target)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive objects into the list; the sender's global rank."""
    if outside(group, "recv_object_list"):
        return -1
    sizes = _sizes([0] * len(object_list))
    found = p2p.recv(sizes, src, group, group_src=group_src)
    for i, n in enumerate(sizes.tolist()):
        part = _room(n)
        p2p.recv(part, found, group)
        object_list[i] = _unpacked(part, n)
    return found
