"""torch.multiprocessing's `spawn`: run one function in several processes, and end them all when one
fails.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skimp._compat import finder

# what reports end in: of a rank of a job that failed, and of one that waited for such
OF_RANK, WAITED = ".rank", ".waited"
LAST_WORDS = 3.0  # seconds in which ranks that wait for a failed process may end by themselves


class ProcessException(Exception):
    """A process did not end as it should."""

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid


class ProcessRaisedException(ProcessException):
    """The function raised an exception."""


class ProcessExitedException(ProcessException):
    """A process was killed, or left by itself."""

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int | None,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], report: str) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        watch: Any = sys.modules.get("skimp.distributed.watch")  # the function is a rank, perhaps
        job = None if watch is None else watch.tell(error)
        if job is None:
            Path(report).write_text(traceback.format_exc())
        elif isinstance(error, watch.PeerFailure):
            Path(report + WAITED).write_text(watch.line(job.rank, error))
        else:
            Path(report + OF_RANK).write_text(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes of one `spawn`."""

    def __init__(self, processes: list[Any], reports: tempfile.TemporaryDirectory[str]) -> None:
        self.processes = processes
        self._reports = reports

    def pids(self) -> list[int | None]:
        """The processes' numbers."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until some process has ended; whether all have. Raises what one of them raised."""
        alive = [p for p in self.processes if p.is_alive()]
        if alive:
            multiprocessing.connection.wait([p.sentinel for p in alive], timeout)
        codes = self._codes()  # asked once: a process may end meanwhile
        if any(codes):
            first = self._first_failed()
            self._end(grace_period)
            raise self._error(first, self.processes[first])
        if None in codes:
            return False
        self._reports.cleanup()
        return True

    def _codes(self) -> list[int | None]:
        return [p.exitcode for p in self.processes]

    def _said(self, i: int, suffix: str = "") -> str | None:
        report = Path(self._reports.name) / f"{i}{suffix}"
        return report.read_text() if report.exists() else None

    def _first_failed(self) -> int:
        """Which process failed by itself. Ranks that wait for it get a moment to say so."""
        end = time.monotonic() + LAST_WORDS
        failed = [i for i, code in enumerate(self._codes()) if code]
        while any([self._said(i) is None for i in failed]):
            alive = [p.sentinel for p in self.processes if p.is_alive()]
            left = end - time.monotonic()
            if not alive or left < 0:
                break
            multiprocessing.connection.wait(alive, left)
        ended = [i for i, code in enumerate(self._codes()) if code]
        return next((i for i in ended if self._said(i, WAITED) is None), ended[0])

    def _end(self, grace_period: float | None) -> None:
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        for p in self.processes:
            p.join(grace_period or 30)
            if p.is_alive():
                p.kill()
                p.join()

    def _error(self, i: int, p: Any) -> ProcessException:
        text = self._said(i) or self._said(i, OF_RANK)
        waited = [self._said(j, WAITED) for j in range(len(self.processes))]
        others = "".join([f"\n{line}" for line in waited if line is not None])
        self._reports.cleanup()
        if text is not None:
            return ProcessRaisedException(
                f"\n\n-- Process {i} terminated with the following error:\n{text}{others}", i, p.pid
            )
        if p.exitcode < 0:
            name = signal.Signals(-p.exitcode).name
            return ProcessExitedException(
                f"process {i} terminated with signal {name}{others}", i, p.pid, p.exitcode, name
            )
        return ProcessExitedException(
            f"process {i} terminated with exit code {p.exitcode}{others}", i, p.pid, p.exitcode
        )


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes; wait for all of them, or return their context.

    Tensors among `args` of 64 KiB and more are moved to shared memory, so the processes write into
    these; smaller ones are copied, unless `share_memory_()` was called.
    ProcessRaisedException for the first that raised, with its traceback, ProcessExitedException
    for one that ended otherwise; the others are stopped. Memory is counted by each process alone.
    """
    context: Any = multiprocessing.get_context(start_method)
    reports = tempfile.TemporaryDirectory(prefix="skimp-spawn-")
    processes = []
    for i in range(nprocs):
        p = context.Process(
            target=_run, args=(fn, i, args, str(Path(reports.name) / str(i))), daemon=daemon
        )
        p.start()
        processes.append(p)
    running = ProcessContext(processes, reports)
    if not join:
        return running
    while not running.join():
        continue
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with new interpreters: `fn` must be importable, and `args` be picklable."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


finder.join()
