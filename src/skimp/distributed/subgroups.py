"""Groups of some of the job's ranks."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from skimp.distributed import rendezvous
from skimp.distributed.errors import DistBackendError, DistError
from skimp.distributed.groups import (
    GroupMember,
    ProcessGroup,
    checked_timeout,
    default,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    world,
)
from skimp.distributed.stores import PrefixStore, Store


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> ProcessGroup | int:
    """A group of some ranks (None: all), in ascending order. All ranks of the job must call this,
    in the same order, and those who are not in it get GroupMember.NON_GROUP_MEMBER.

    With `use_local_synchronization` only the members call it.
    """
    above = default()
    limit = above.timeout if timeout is None else checked_timeout(timeout)
    members = sorted(above.ranks if ranks is None else ranks)
    _check_members(list(above.ranks if ranks is None else ranks), above.size())
    world.made += 1
    name = ",".join([str(r) for r in members]) if use_local_synchronization else str(world.made)
    if above.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    store = PrefixStore(f"{name}", above.store)
    _members_here(store, members, above.rank(), limit)
    comm = _communicator(above, members, zlib.crc32(name.encode()) % 30000, limit)
    made = ProcessGroup(comm, members, name, backend or above.backend, store, limit)
    made.group_desc = group_desc or "undefined"
    world.groups.append(made)
    return made


def _check_members(ranks: list[int], size: int) -> None:
    if len(ranks) > size:
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by "
            "init_process_group"
        )
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"ranks list must not contain duplicate entries, got {ranks}")
    for rank in ranks:
        if not 0 <= rank < size:
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})"
            )


def _members_here(store: Store, members: list[int], rank: int, limit: timedelta) -> None:
    """Wait for all members, because making a communicator can't be interrupted."""
    turn = store.add(f"come/{rank}", 1)
    names = [f"here/{turn}/{i}" for i in members]
    store.set(f"here/{turn}/{rank}", "1")
    try:
        store.wait(names, limit)
    except DistError as error:
        missing = [i for i, name in zip(members, names, strict=True) if not store.check([name])]
        raise DistBackendError(
            f"new_group: {', '.join([f'rank {i}' for i in missing])} did not come"
        ) from error


def _communicator(above: ProcessGroup, members: list[int], tag: int, limit: timedelta) -> Any:
    whole = above.comm.Get_group()
    some = whole.Incl(members)
    try:
        return rendezvous.within(
            limit.total_seconds(), "new_group", lambda: above.comm.Create_group(some, tag)
        )
    finally:
        some.Free()
        whole.Free()


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` neighbours each (None: this host's ranks): this rank's, and all.

    Raises: ValueError for a size that does not divide the number of ranks.
    """
    size = get_world_size(group)
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})"
        )
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by '{group_size=}'")
    ranks = get_process_group_ranks(group)
    parts = [ranks[i : i + group_size] for i in range(0, size, group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the given ranks, which must not overlap: this rank's, and all.

    Raises: ValueError for an empty list and for a rank in two groups.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: dict[int, list[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in seen:
                raise ValueError(
                    f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}"
                )
            seen[rank] = ranks
    mine, found = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        found.append(made)
        if get_rank() in ranks:
            mine = made
    return mine, found
