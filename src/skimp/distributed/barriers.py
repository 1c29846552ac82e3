"""Waiting until all ranks have come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from skimp.distributed.collectives import start
from skimp.distributed.errors import DistError
from skimp.distributed.groups import chosen, outside
from skimp.distributed.stores import PrefixStore
from skimp.distributed.work import Label, Work


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Return when all ranks have come here.

    Raises: TypeError for device_ids that are no list, DistBackendError where a rank has gone.
    """
    if outside(group, "barrier"):
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    return start(chosen(group), Label("barrier"), lambda c: c.Ibarrier(), [], None, async_op)


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that names who has not come within the time: on rank 0 the first of them, or all
    (`wait_all_ranks`).

    Raises: RuntimeError that names who has not come.
    """
    if outside(group, "monitored_barrier"):
        return
    group = chosen(group)
    seconds = (group.timeout if timeout is None else timeout).total_seconds()
    group.sequence += 1
    store = PrefixStore(f"monitored_barrier/{group.sequence}", group.store)
    if group.rank():
        store.set(str(group.rank()), "1")
        try:
            store.wait(["all"], timedelta(seconds=seconds))
        except DistError as error:
            raise RuntimeError(
                f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors "
                "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
            ) from error
        return
    missing, end = list(range(1, group.size())), time.monotonic() + seconds
    while missing and time.monotonic() < end:
        missing = [r for r in missing if not store.check([str(r)])]
        time.sleep(0.001 if missing else 0)
    if missing:
        shown = ", ".join([str(r) for r in (missing if wait_all_ranks else missing[:1])])
        raise RuntimeError(
            f"[Rank 0]: Rank{'s' * wait_all_ranks} {shown} failed to pass monitoredBarrier in "
            f"{round(seconds * 1000)} ms"
        )
    store.set("all", "1")
