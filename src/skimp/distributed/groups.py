"""Groups of processes: the default one, those made of it, and how a process leaves them."""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import time
import zlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from skimp._engine.memory import call_site
from skimp.distributed import direct, mpi, rendezvous, tally, watch
from skimp.distributed.debug import wanted
from skimp.distributed.errors import DistBackendError, DistError
from skimp.distributed.stores import PrefixStore, Store
from skimp.distributed.work import progress

DEFAULT_TIMEOUT = timedelta(minutes=30)
NOT_READY = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)


class Backend(str):
    """A backend's name, in lower case. Every name means MPI here."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list = ("undefined", "gloo", "nccl", "xccl", "ucc", "mpi")
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}  # noqa: RUF012  (PyTorch's)

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {type(name)}")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """Some of the job's ranks, which communicate: an MPI communicator."""

    def __init__(
        self, comm: Any, ranks: list[int], name: str, backend: str, store: Store, timeout: timedelta
    ) -> None:
        self.comm, self.ranks, self.group_name, self.backend = comm, ranks, name, Backend(backend)
        self.store, self.timeout = store, timeout
        self.sequence = 0  # collectives that have begun here
        self.group_desc, self.bound_device_id = "undefined", None
        self._rank: int = comm.rank
        self._size: int = comm.size
        self._checks: Any = comm.Dup() if wanted() else None
        # whose bytes can be read where they lie, in the group's order; None: not everyone's
        self.processes = direct.processes(world.neighbours, ranks)

    def __repr__(self) -> str:
        place = f"rank {self._rank} of {self._size}"
        return f"<torch.distributed.distributed_c10d.ProcessGroup {self.group_name!r}, {place}>"

    def rank(self) -> int:
        """This process's place in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks it has."""
        return self._size

    def name(self) -> str:
        """The backend's name."""
        return str(self.backend)

    def get_group_store(self) -> Store:
        """The store of the group's ranks."""
        return self.store

    def checks(self) -> Any:
        """A second communicator, for comparing what ranks are about to do."""
        if self._checks is None:
            self._checks = self.comm.Dup()
        return self._checks

    def free(self) -> None:
        """Give the communicators back."""
        for comm in (self._checks, self.comm):
            if comm is not None:
                comm.Free()
        self._checks = None


class _World:
    """This process's groups."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: list[ProcessGroup] = []
        self.made = 0  # groups that the job has made, this process's or not
        self.stores: list[Any] = []  # which live as long as the process: others may ask them
        self.base: Any = None  # a communicator of all, for leaving
        self.file: str | None = None
        self.said = False
        self.neighbours: list[direct.Neighbour] = []


world = _World()


class _Meta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all ranks; None before init_process_group."""
        return world.default

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        world.default = group


class group(metaclass=_Meta):  # noqa: N801  (PyTorch's name)
    """Where the group of all ranks is."""


class GroupMember(metaclass=_Meta):
    """Where the group of all ranks is, and what stands for a group of others."""

    NON_GROUP_MEMBER = -100


# -- the default group ----------------------------------------------------------------------------


def is_initialized() -> bool:
    """Whether there is a default group."""
    return world.default is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all ranks. Every backend means MPI.

    Under an MPI launcher the ranks are the launcher's; otherwise they come together through the
    store, or `init_method`: env:// (the default), tcp:// or file://. Whoever has not come within
    `timeout` (30 minutes) is named in a DistStoreError. RuntimeError without mpi4py.
    """
    if world.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and world_size <= 0:
        raise AssertionError("world_size must be positive if using store")
    if store is not None and rank < 0:
        raise AssertionError("rank must be non-negative if using store")
    timeout = checked_timeout(DEFAULT_TIMEOUT if timeout is None else timeout)
    name = Backend("undefined" if backend is None else backend)
    mpi.load()
    joined = _join(name, init_method, timeout, world_size, rank, store)
    _remember(joined, name, timeout)


def _join(
    name: str,
    init_method: str | None,
    timeout: timedelta,
    size: int,
    rank: int,
    store: Store | None,
) -> rendezvous.Joined:
    started = mpi.load().COMM_WORLD.size
    told = mpi.launched()
    alone = started == 1 and size == -1 and "WORLD_SIZE" not in os.environ
    if alone and told is not None and told[1] > 1:
        raise DistBackendError(
            f"a launcher has started {told[1]} processes, but this one's MPI library "
            f"({_library()}) does not know of it: use that library's own mpiexec"
        )
    if started > 1:
        if name == "mpi" and (size != -1 or rank != -1):
            call_site.warn(
                f"For MPI backend, world_size ({size}) and rank ({rank}) are ignored since they "
                "are assigned by the MPI runtime."
            )
            size = rank = -1
        if rank == -1 and os.environ.get("WORLD_SIZE") == str(started):
            rank = int(os.environ.get("RANK", -1))
        return rendezvous.launched(rank, size, store, timeout)
    if name == "mpi" and store is None and init_method is None and "RANK" not in os.environ:
        return rendezvous.launched(-1, -1, None, timeout)
    if store is None:
        url = init_method or "env://"
        store, rank, size = next(rendezvous.rendezvous(url, rank, size, timeout))
        world.file = getattr(store, "path", None)
        store.set_timeout(timeout)
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is not in the range of {size} ranks")
    return rendezvous.join(PrefixStore("default_pg", store), rank, size, timeout)


def _remember(joined: rendezvous.Joined, name: Backend, timeout: timedelta) -> None:
    comm = joined.comm
    store = PrefixStore("user", joined.store)
    world.base = comm.Dup()
    world.neighbours = rendezvous.within(
        timeout.total_seconds(), "ranks did not come", lambda: direct.neighbours(comm)
    )
    world.stores += [joined.store, joined.control]
    world.default = ProcessGroup(comm, list(range(comm.size)), "0", name, store, timeout)
    world.default.group_desc = "default_pg"
    world.groups, world.made = [world.default], 1
    if watch.current() is None:
        watch.install_hook(comm.rank)
        multiprocessing.util.Finalize(None, leave, exitpriority=0)
        if tally.VARIABLE in os.environ:
            tally.begin(Path(os.environ[tally.VARIABLE]))
    watch.begin(joined.control, comm.rank)
    if name not in ("mpi", "undefined") and comm.rank == 0 and not world.said:
        world.said = True
        call_site.warn(f"backend {str(name)!r} means MPI in skimp: {_library()}")


def _library() -> str:
    vendor, version = mpi.load().get_vendor()
    return f"{vendor} {'.'.join([str(n) for n in version])}"


def checked_timeout(timeout: Any) -> timedelta:
    """The timeout, if it is one."""
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )
    return timeout


def destroy_process_group(group: Any = None) -> None:
    """Forget a group; the default one (None) and with it all others. Nobody is waited for."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    if group is None or group is world.default:
        default()
        progress.drain(1.0)
        for each in world.groups[::-1]:
            _free(each)
        world.default, world.groups = None, []
        now = watch.current()
        if now is not None and sys.exc_info()[0] is None:
            now.announce(watch.LEFT)
        return
    if group not in world.groups:
        raise ValueError("Invalid process group specified")
    world.groups.remove(group)
    _free(group)


def _free(group: ProcessGroup) -> None:
    now = watch.current()
    if now is None or not now.failed:  # after a failure MPI may wait for who is gone
        group.free()


def leave() -> None:
    """When the process ends: say so, and once all have ended, end MPI. After a failure MPI is left
    as it is: ending it would wait for ranks that are gone.
    """
    now, base = watch.current(), world.base
    if now is None or now.process != os.getpid() or base is None:
        return
    world.base = None
    ending = sys.exc_info()[1]
    if isinstance(ending, SystemExit) and not ending.code:
        ending = None
    if ending is not None:
        now.failed = True
        if isinstance(ending, SystemExit):
            now.announce(f"ended with exit code {ending.code}")
        return
    if now.failed:
        return
    progress.drain(60.0)
    now.announce(watch.LEFT)
    if _all_leave(now, base) and not now.failed:
        if world.file is not None and base.rank == 0 and os.path.exists(world.file):
            os.unlink(world.file)
        if not mpi.load().Is_finalized():
            mpi.load().Finalize()


def _all_leave(now: watch.Watch, base: Any) -> bool:
    """Wait until every rank leaves; false when one has failed."""
    request = base.Ibarrier()
    look, pause = time.monotonic() + watch.LOOK_AFTER, 0.0001
    while not request.Test():
        time.sleep(pause)
        pause = min(pause * 1.2, 0.005)
        if time.monotonic() > look:
            look = time.monotonic() + watch.LOOK_AFTER
            now.gone(list(range(base.size)))
            if now.failed:
                return False
    return True


# -- asking ---------------------------------------------------------------------------------------


def default() -> ProcessGroup:
    """The default group. ValueError: there is none."""
    if world.default is None:
        raise ValueError(NOT_READY)
    return world.default


def chosen(group: Any) -> ProcessGroup:
    """The group given, or the default one."""
    found: ProcessGroup = default() if group is None else group
    return found


def outside(group: Any, name: str) -> bool:
    """Whether this rank is not in the group, which is warned of."""
    if group is None or group != GroupMember.NON_GROUP_MEMBER:
        return False
    rank = -1 if world.default is None else world.default.rank()
    call_site.warn(
        f"Running {name} on global rank {rank} which does not belong to the given group."
    )
    return True


def get_rank(group: Any = None) -> int:
    """This process's rank; -1 in a group of others."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return chosen(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks there are; -1 in a group of others."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return chosen(group).size()


def get_backend(group: Any = None) -> Backend:
    """The name that the group was made with."""
    found = chosen(group)
    if not isinstance(found, ProcessGroup):
        raise ValueError("Invalid process group specified")
    return found.backend


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The backend by device."""
    name = get_backend(group)
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def get_default_backend_for_device(device: Any) -> str:
    """PyTorch's usual backend for a device; here all are MPI."""
    kind = str(getattr(device, "type", device)).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The global ranks of a group, in its order."""
    return list(getattr(chosen(group), "ranks", ()))


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place in the group of a global rank."""
    if group is world.default:
        return global_rank
    if group not in world.groups:
        raise ValueError(
            f"Group {group} is not registered, please create group with "
            "torch.distributed.new_group API"
        )
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank at a place in the group."""
    if group is world.default:
        return group_rank
    if group not in world.groups:
        raise ValueError(
            f"Group {group} is not registered, please create group with "
            "torch.distributed.new_group API"
        )
    if not 0 <= group_rank < len(group.ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def get_pg_count() -> int:
    """How many groups this process has."""
    return len(world.groups)


def _get_default_group() -> ProcessGroup:  # PyTorch's name
    """The default group. ValueError: there is none."""
    return default()


def _get_default_store() -> Store:  # PyTorch's name
    """The store of the default group."""
    return default().store


def supports_complex(reduceOp: Any) -> bool:  # noqa: N803  (PyTorch's name)
    """Whether an operation has a meaning for complex numbers."""
    return getattr(reduceOp, "name", "") in ("SUM", "AVG", "PREMUL_SUM", "")


# -- other groups ---------------------------------------------------------------------------------


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
    """Groups of `group_size` neighbours each (None: this host's ranks): this rank's, and all."""
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
    """Groups of the given ranks, which must not overlap: this rank's, and all."""
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


def _forget() -> None:
    """In a fork's child: the groups are the parent's."""
    world.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget)
