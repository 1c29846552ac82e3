"""Groups of processes: what one is, this process's, and what may be asked of them."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, NoReturn

from skimp._engine.memory import call_site
from skimp.distributed import direct
from skimp.distributed.debug import wanted
from skimp.distributed.stores import Store

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

    @classmethod
    def register_backend(cls, name: str, *_: Any, **__: Any) -> NoReturn:
        """Refused: every backend's name means MPI."""
        raise RuntimeError(
            f"torch.distributed.Backend.register_backend: {name!r} would be a way to communicate "
            "of its own; skimp has MPI, which every backend's name means"
        )


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


# -- asking ---------------------------------------------------------------------------------------


def is_initialized() -> bool:
    """Whether there is a default group."""
    return world.default is not None


def default() -> ProcessGroup:
    """The default group. ValueError: there is none."""
    if world.default is None:
        raise ValueError(NOT_READY)
    return world.default


def chosen(group: Any) -> ProcessGroup:
    """The group given, or the default one."""
    found: ProcessGroup = default() if group is None else group
    return found


def _rank_not_in_group(group: Any) -> bool:
    """Whether this rank is not in the group."""
    return group is not None and bool(group == GroupMember.NON_GROUP_MEMBER)


def _get_process_group_name(group: ProcessGroup) -> str:
    """The name that the group has on all of its ranks."""
    return group.group_name


def outside(group: Any, name: str) -> bool:
    """Whether this rank is not in the group, which is warned of."""
    if not _rank_not_in_group(group):
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
    """The name that the group was made with.

    Raises: ValueError for a group that this rank is not in, and without a default group.
    """
    found = chosen(group)
    if not isinstance(found, ProcessGroup):
        raise ValueError("Invalid process group specified")
    return found.backend


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The backend by device."""
    name = get_backend(group)
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def get_default_backend_for_device(device: Any) -> str:
    """PyTorch's usual backend for a device; here all are MPI.

    Raises: ValueError for a device that has none.
    """
    kind = str(getattr(device, "type", device)).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The global ranks of a group, in its order."""
    return list(getattr(chosen(group), "ranks", ()))


def _registered(group: ProcessGroup) -> None:
    if group not in world.groups:
        raise ValueError(
            f"Group {group} is not registered, please create group with "
            "torch.distributed.new_group API"
        )


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place in the group of a global rank.

    Raises: ValueError for a rank that is not in the group, and for an unknown group.
    """
    if group is world.default:
        return global_rank
    _registered(group)
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank at a place in the group.

    Raises: ValueError for a rank that is not in the group, and for an unknown group.
    """
    if group is world.default:
        return group_rank
    _registered(group)
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


def checked_timeout(timeout: Any) -> timedelta:
    """The timeout, if it is one."""
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )
    return timeout


def _forget() -> None:
    """In a fork's child: the groups are the parent's."""
    world.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget)
