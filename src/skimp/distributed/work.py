"""One operation in flight: asked whether it is done, waited for, and its future."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple

from skimp._engine.memory import call_site
from skimp.distributed import watch
from skimp.distributed.errors import DistBackendError
from skimp.utils.futures import Future

SPINS = 64  # polls without a pause: two ranks that meet lose nothing
YIELDING = 0.05  # seconds in which the core is only offered to others between polls
NAP, LONG_NAP = 2e-5, 0.001  # then: for the first second, and later
BUSY = 2e-5  # a poll that took so long moved bytes: no pause after it
# seconds after which a core that was offered comes back: others want it, and whoever sleeps gets it
# back sooner than whoever waits in line
CROWDED = 1e-4
GRACE = 0.5  # seconds in which what a rank sent before it left may still arrive
_abandoned: list[Any] = []
ACCOUNTS: list[Callable[[Work, float], None]] = []  # who is told of each operation and its time


class Label(NamedTuple):
    """What an operation is, for people and for comparing ranks."""

    name: str
    tensors: tuple[Any, ...] = ()
    detail: str = ""
    nbytes: int = 0  # where the tensors are not named: they shall not live for the label's sake

    def __str__(self) -> str:
        shown = ", ".join([f"{t.dtype}{list(t.shape)}" for t in self.tensors])
        words = [self.name, f"of {shown}" if shown else "", self.detail]
        return " ".join([w for w in words if w]).replace("torch.", "")


class Work:
    """One operation that may still run. It keeps its tensors until it is done."""

    def __init__(
        self,
        group: Any,
        label: Label,
        requests: Sequence[Any] = (),
        result: list[Any] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self._group, self._label, self._result = group, label, result
        self._requests, self._finish = list(requests), finish
        self._done = False
        self._error: BaseException | None = None
        self._future: Future | None = None
        self._site: call_site.Site | None = None
        self._lock = threading.Lock()
        self._source = -1

    # -- asking -----------------------------------------------------------------------------------

    def is_completed(self) -> bool:
        """Whether it is done; asking moves it on."""
        return self._poll()

    def is_success(self) -> bool:
        """Whether it is done, without an error."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def result(self) -> list[Any]:
        """The tensors that it wrote."""
        return list(self._result or ())

    def source_rank(self) -> int:
        """Who sent what was received."""
        return self._source

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when it is done. A DistBackendError after the time, or when a rank has failed."""
        if not self._done:
            limit = self._group.timeout if timeout is None else timeout
            until(self._poll, self, limit.total_seconds())
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """`wait`: there are no streams."""
        self.wait()

    def get_future(self) -> Future:
        """Its future, which has the tensors that it wrote when it is done."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                if self._done:
                    self._complete(self._future)
            return self._future

    # -- moving on --------------------------------------------------------------------------------

    def _poll(self) -> bool:
        if self._done:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # another thread asks
        try:
            if self._done:
                return True
            return self._step()
        finally:
            self._lock.release()

    def _step(self) -> bool:
        try:
            requests = self._requests
            while requests:
                if not requests[-1].Test():
                    return False
                requests.pop()
            if self._finish is not None:
                self._finish()
        except Exception as error:
            self._error = _translated(error, self)
        self._done = True
        self._requests, self._finish = [], None
        if self._future is not None:
            self._complete(self._future)
        return True

    def _complete(self, future: Future) -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._result)

    def _fail(self, error: BaseException) -> None:
        self._error, self._done = error, True
        _abandoned.append((self._requests, self._finish))  # MPI may still write into the tensors

    def where(self) -> str:
        """What it is and the line of the program that started it."""
        site = self._site or _here()
        place = f" at {site.filename}:{site.lineno}" if site.lineno else ""
        return f"{self._label}{place}"


def _here() -> call_site.Site:
    """The nearest line of the program; in backward, of the call that began it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(call_site.OWN_CODE):
        frame = frame.f_back
    if frame is None:
        return call_site.Site("", 0, "")
    return call_site.Site(frame.f_code.co_filename, frame.f_lineno or 0, "")


def _translated(error: Exception, work: Work) -> Exception:
    """MPI's errors as PyTorch's."""
    if type(error).__module__.startswith("mpi4py"):
        made = DistBackendError(f"{work.where()}: {error}")
        made.__cause__ = error
        return made
    return error


def until(poll: Callable[[], bool], work: Work, seconds: float) -> None:
    """Poll until done, ever more politely, looking for ranks that have failed."""
    for _ in range(SPINS):
        if poll():
            return
    start = now = time.monotonic()
    look, told, gone_since = start + watch.LOOK_AFTER, False, 0.0
    crowded = False
    try:
        while True:
            if poll():
                break
            before, now = now, time.monotonic()
            if now - before < BUSY:
                if crowded or now - start > YIELDING:
                    time.sleep(NAP if now - start < 1 else LONG_NAP)
                else:
                    os.sched_yield()
                    crowded = time.monotonic() - now > CROWDED
                now = time.monotonic()
            if now > look:
                look = now + watch.LOOK_AFTER
                told = watch.here(work, told)
                gone = watch.gone(work)
                gone_since = gone_since or (now if gone else 0.0)
                if gone and now - gone_since > GRACE and not poll():
                    raise watch.failure(work, gone)
            if now - start <= seconds:
                continue
            raise watch.timeout(work, seconds)
    except DistBackendError as error:
        work._fail(error)
        raise
    finally:
        if told:
            watch.not_here()


# -- polling for those who don't ------------------------------------------------------------------


def _undone(works: list[Work]) -> list[Work]:
    return [work for work in works if not work._done]


class Progress:
    """Polls operations that nobody waits for, from a thread that lives while there are any.

    Each poll takes the interpreter from who computes, so pauses grow while nothing comes, and are
    short again when an operation is done or added.
    """

    PAUSE, LONGEST = 0.001, 0.004
    IDLE = 0.2  # seconds without an operation after which the thread ends

    def __init__(self) -> None:
        self._waiting: list[Work] = []
        self._lock = threading.Lock()
        self._runs = False
        self._pause = self.PAUSE

    def add(self, work: Work) -> None:
        """Poll it from now on."""
        with self._lock:
            self._waiting.append(work)
            self._pause = self.PAUSE
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=self._run, daemon=True, name="skimp-mpi-progress").start()

    def poll(self) -> None:
        """Ask all, once."""
        for work in list(self._waiting):
            work._poll()
        with self._lock:
            left = _undone(self._waiting)
            if len(left) < len(self._waiting):
                self._pause = self.PAUSE
            self._waiting = left

    def drain(self, seconds: float) -> None:
        """Wait until nothing waits, or for so long."""
        end = time.monotonic() + seconds
        while self._waiting and time.monotonic() < end:
            self.poll()
            time.sleep(NAP)

    def _run(self) -> None:
        idle = 0.0
        while True:
            pause = self._pause
            time.sleep(pause)
            self._pause = min(2 * pause, self.LONGEST)
            self.poll()
            with self._lock:
                idle = 0.0 if self._waiting else idle + pause
                if idle > self.IDLE:
                    self._runs = False
                    return


progress = Progress()


def forget_all() -> None:
    """In a fork's child: MPI is the parent's."""
    progress.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=forget_all)


def submit(work: Work, async_op: bool) -> Work | None:
    """Hand a started operation to its caller: as it is, or done."""
    if ACCOUNTS:
        _account(work)
    if async_op:
        work._site = _here()
        if not work._poll():
            progress.add(work)
        return work
    work.wait()
    return None


def _account(work: Work) -> None:
    start = time.perf_counter()
    work._site = _here()
    inner = work._finish

    def finish() -> None:
        if inner is not None:
            inner()
        for tell in ACCOUNTS:
            tell(work, time.perf_counter() - start)

    work._finish = finish
