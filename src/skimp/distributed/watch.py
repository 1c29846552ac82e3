"""Who of a job's ranks has failed or left, and where each waits: told and asked through a store.

Each process has a connection of its own with a last will, which the store executes when the
connection ends without a farewell: so a killed process is known at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from skimp.distributed import mpi
from skimp.distributed.errors import DistBackendError, DistError
from skimp.distributed.tcp import TCPStore

LOOK_AFTER = 0.25  # seconds between looks, for who waits
LAST_WORDS = 3.0  # seconds in which others that wait for a failed rank may say so
LEFT, KILLED = "has ended", "was killed, or ended without a farewell"
GAVE_UP = "waited for a rank that had failed"


class PeerFailure(DistBackendError):
    """Another rank has failed, and this one waits for it."""


class Watch:
    """This process's part in it."""

    def __init__(self, store: TCPStore, rank: int, size: int) -> None:
        self.store, self.rank, self.size, self.process = store, rank, size, os.getpid()
        self.failed = False  # this rank has, or knows of one that has
        self.closed = False
        self.store._step("will", self._steps(KILLED))

    def _steps(self, text: str) -> list[Any]:
        return [["set", [f"gone/{self.rank}"], [text]], ["append", ["gone"], f"{self.rank},"]]

    def announce(self, text: str) -> None:
        """Say how this rank has ended; the last will is void."""
        if self.closed or os.getpid() != self.process:
            return
        self.closed = True
        try:
            for step in self._steps(text):
                self.store._step(*step)
            self.store._step("will", [])
        except DistError:
            self.failed = True  # the store is gone, and with it the rank that held it

    def hear(self) -> None:
        """After a failure, stay until all ranks have ended, or for a while, where the others' last
        lines need this process: it holds their store, or mpiexec ends them as soon as it ends.
        """
        by_mpiexec = mpi.launched() and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ
        if os.getpid() != self.process or not (by_mpiexec or self.store.is_here()):
            return
        end, names = time.monotonic() + LAST_WORDS, [f"gone/{rank}" for rank in range(self.size)]
        try:
            while not all(self.store._step("find", names)) and time.monotonic() < end:
                time.sleep(0.02)
        except DistError:
            self.failed = True  # the rank that holds the store has heard all

    def gone(self, ranks: list[int]) -> dict[int, str]:
        """Those of the ranks that have ended, and how."""
        names = [f"gone/{rank}" for rank in ranks]
        try:
            texts = self.store._step("find", names)
        except DistError:
            return {0: f"{KILLED} (it held the job's store)"} if 0 in ranks else {}
        found = {r: t for r, t in zip(ranks, texts, strict=True) if t and r != self.rank}
        self.failed = self.failed or any([t != LEFT for t in found.values()])
        return found

    def say(self, place: dict[str, Any] | None) -> None:
        """Where this rank waits, for those who ask."""
        key = [f"at/{self.rank}"]
        try:
            if place is None:
                self.store._step("drop", key)
            else:
                self.store._step("set", key, [json.dumps(place)])
        except DistError:
            self.failed = True

    def places(self, ranks: list[int]) -> dict[int, dict[str, Any]]:
        """Where the ranks wait."""
        try:
            texts = self.store._step("find", [f"at/{rank}" for rank in ranks])
        except DistError:
            return {}
        return {r: json.loads(t) for r, t in zip(ranks, texts, strict=True) if t}


_now: list[Watch] = []  # none, or this process's


def current() -> Watch | None:
    """This process's watch, if it is in a job."""
    return _now[0] if _now else None


def begin(store: TCPStore, rank: int, size: int) -> Watch:
    """Watch from now on."""
    made = Watch(store, rank, size)
    _now[:] = [made]
    return made


def here(work: Any, told: bool) -> bool:
    """Say once where this rank waits."""
    if _now and not told:
        group = work._group
        place = {"group": group.group_name, "number": group.sequence, "what": work.where()}
        _now[0].say(place)
    return True


def not_here() -> None:
    """It waits no longer."""
    if _now:
        _now[0].say(None)


def gone(work: Any) -> dict[int, str]:
    """The ranks of a group that have ended."""
    return _now[0].gone(work._group.ranks) if _now else {}


def failure(work: Any, found: dict[int, str]) -> PeerFailure:
    """The error of who waits for ranks that have ended."""
    if _now:
        _now[0].failed = True
    first = {rank: text for rank, text in found.items() if text != GAVE_UP} or found
    told = "; ".join([f"rank {rank} {text}" for rank, text in first.items()])
    return PeerFailure(f"waited in {work.where()}, but {told}")


def timeout(work: Any, seconds: float) -> DistBackendError:
    """The error of who has waited too long: it names those who have not come."""
    group = work._group
    text = f"Timed out after {round(seconds * 1000)}ms in {work.where()}"
    if not _now:
        return DistBackendError(text)
    _now[0].failed = True
    places = _now[0].places(group.ranks)
    for rank in group.ranks:
        place = places.get(rank)
        if rank == _now[0].rank or (
            place and (place["group"], place["number"]) == (group.group_name, group.sequence)
        ):
            continue
        text += f"; rank {rank} " + (f"is in {place['what']}" if place else "has not come")
    return DistBackendError(text)


# -- what a process says when it ends -------------------------------------------------------------


def install_hook(rank: int) -> None:
    """Uncaught errors are printed with the rank before each line, as PyTorch does, and told to the
    others afterwards: so their lines come after the traceback.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, PeerFailure):
            sys.stderr.write(f"{line(rank, error)}\n")
            sys.stderr.flush()
        else:
            _with_prefix(rank, lambda: before(kind, error, trace))
        now = tell(error)
        if now is not None and not isinstance(error, KeyboardInterrupt):
            now.hear()

    sys.excepthook = hook


def line(rank: int, error: PeerFailure) -> str:
    """What a rank that waited for another one says."""
    return f"[rank{rank}]: {error}"


def tell(error: BaseException) -> Watch | None:
    """Say to the others that this rank ends with an error; its watch, if it is in a job."""
    now = current()
    if now is not None:
        now.failed = True
        if isinstance(error, SystemExit):
            now.announce(f"ended with exit code {error.code}")
        elif isinstance(error, PeerFailure):
            now.announce(GAVE_UP)
        elif not isinstance(error, KeyboardInterrupt):
            text = "".join(traceback.format_exception_only(error)).strip()
            now.announce(f"failed: {text}")
    return now


def _with_prefix(rank: int, write: Callable[[], None]) -> None:
    stream = sys.stderr
    sys.stderr = _Prefixed(stream, f"[rank{rank}]: ")
    try:
        write()
    finally:
        sys.stderr = stream
        stream.flush()


class _Prefixed:
    """A stream that begins each line with a prefix, and writes whole lines at once."""

    def __init__(self, stream: Any, prefix: str) -> None:
        self._stream, self._prefix, self._rest = stream, prefix, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join([f"{self._prefix if n else ''}{n}\n" for n in lines]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


os.register_at_fork(after_in_child=_now.clear)
