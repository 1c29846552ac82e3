"""How a process joins the job's default group, and how it leaves."""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from skimp._engine.memory import call_site
from skimp.distributed import direct, mpi, rendezvous, tally, watch
from skimp.distributed.errors import DistBackendError
from skimp.distributed.groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    checked_timeout,
    default,
    world,
)
from skimp.distributed.stores import PrefixStore, Store
from skimp.distributed.work import progress

DEFAULT_TIMEOUT = timedelta(minutes=30)


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

    Raises: ValueError for a group that is there already and a rank out of range, AssertionError for
    a store beside `init_method` or without a rank and a size, DistStoreError for ranks that
    have not come, RuntimeError without mpi4py.
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
    if device_id is not None and (device_id.index is None or device_id.type == "cpu"):
        raise ValueError(
            "init_process_group device_id parameter must be an accelerator with an index"
        )
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
    by_mpi = name == "mpi" or told == (0, 1)  # a launcher of one
    if by_mpi and store is None and init_method is None and "RANK" not in os.environ:
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
    watch.begin(joined.control, comm.rank, comm.size)
    if name not in ("mpi", "undefined") and comm.rank == 0 and not world.said:
        world.said = True
        call_site.warn(f"backend {str(name)!r} means MPI in skimp: {_library()}")


def _library() -> str:
    vendor, version = mpi.load().get_vendor()
    return f"{vendor} {'.'.join([str(n) for n in version])}"


def destroy_process_group(group: Any = None) -> None:
    """Forget a group; the default one (None) and with it all others. Nobody is waited for.

    Raises: ValueError for a group that is none of this job's.
    """
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
        watch.tell(ending)
        if isinstance(ending, KeyboardInterrupt):
            return
        if isinstance(ending, watch.PeerFailure):
            ending.__traceback__ = None  # in a child that multiprocessing has made: it prints this
        if multiprocessing.parent_process() is None:
            now.hear()
        else:  # its traceback is printed next, and who waits follows: Python waits for the thread
            threading.Thread(target=now.hear, name="skimp-last-words").start()
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
