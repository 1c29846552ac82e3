"""The worker processes of one DataLoader iterator: who does what, and what has come back."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from skimp.utils.data._utils.worker import INTERRUPTED, End, Resume, Work, run

PATIENCE = 5.0  # seconds that a worker may take to end by itself
GRACE = 1.0  # seconds between a worker's interrupt and the parent's, at most
IMPATIENCE = 0.2  # and after a failure


class Pool:
    """`num_workers` processes, each with a queue of tasks and a queue of results.

    Pickled results are opened on arrival: a worker lives as long as one of its tensors is on its
    way.
    """

    def __init__(self, context: Any, work: Work) -> None:
        self.size = work.num_workers
        self._done = context.Event()
        self._tasks: list[Any] = []
        self._results: list[Any] = []
        self.processes: list[Any] = []
        self._owner = os.getpid()
        self._open = True
        for i in range(self.size):
            tasks, results = context.Queue(), context.Queue()
            tasks.cancel_join_thread()
            process = context.Process(
                target=run, args=(work, i, tasks, results, self._done), daemon=True
            )
            process.start()
            self._tasks.append(tasks)
            self._results.append(results)
            self.processes.append(process)

    def send(self, worker: int, task: Any) -> None:
        """Give a worker a task: (number, index), Resume, or None to end."""
        self._tasks[worker].put(task)

    def receive(self, timeout: float) -> tuple[int, Any, Any]:
        """The next result that arrives: the worker, its task's number, the data.

        RuntimeError: a worker died, or `timeout` seconds (0: no limit) have passed.
        """
        from multiprocessing import connection  # the processes have imported it

        readers = {results._reader: i for i, results in enumerate(self._results)}
        sentinels = {p.sentinel: i for i, p in enumerate(self.processes)}
        end = time.monotonic() + timeout if timeout else None
        while True:
            ready = connection.wait(
                [*readers, *sentinels], end and max(0.0, end - time.monotonic())
            )
            for one in ready:
                if one in readers:
                    worker = readers[one]
                    return self._opened(worker)
            if not ready:
                raise RuntimeError(f"DataLoader timed out after {timeout:g} seconds")
            for one in ready:
                i = sentinels.pop(one)
                if self.processes[i].exitcode in (INTERRUPTED, -signal.SIGINT):
                    _interrupted()
                if self.processes[i].exitcode != 0:
                    raise RuntimeError(self._died(i))
            if not sentinels:
                raise RuntimeError("all DataLoader workers have ended, and results are missing")

    def _opened(self, worker: int) -> tuple[int, Any, Any]:
        """A worker's next result; its tensors are fetched from it, so it must live."""
        try:
            number, data = pickle.loads(self._results[worker].get())
        except (ConnectionError, EOFError, FileNotFoundError):
            process = self.processes[worker]
            process.join(GRACE)
            if process.is_alive():
                raise
            if process.exitcode in (INTERRUPTED, -signal.SIGINT):
                _interrupted()
            raise RuntimeError(self._died(worker)) from None
        return worker, number, data

    def _died(self, i: int) -> str:
        process = self.processes[i]
        process.join()
        code = -signal.SIGINT if process.exitcode == INTERRUPTED else process.exitcode
        if code is not None and code < 0:
            return (
                f"DataLoader worker (pid {process.pid}) is killed by signal: "
                f"{signal.strsignal(-code)}. "
                f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly"
            )
        return f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly with exit code {code}"

    def close(self, patience: float = PATIENCE) -> None:
        """End all workers, those at once that don't end by themselves in time; in a process that
        inherited this object, nothing.
        """
        if not self._open or os.getpid() != self._owner:
            return
        self._open = False
        self._done.set()
        for i in range(self.size):
            with contextlib.suppress(ValueError, OSError):  # a queue that an interrupt left closed
                self.send(i, None)
        end = time.monotonic() + patience
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join()
        for one in (*self._tasks, *self._results):
            one.cancel_join_thread()
            one.close()


def _interrupted() -> None:
    """A worker was interrupted: a terminal interrupts all processes, so this one will be too.

    It may have been already: Python drops a KeyboardInterrupt that is raised in a finalizer.
    """
    if threading.current_thread() is threading.main_thread():
        time.sleep(GRACE)
        raise KeyboardInterrupt


class Schedule:
    """Tasks handed out in turn and results given back in order (or, with `in_order=False`, as they
    arrive).
    """

    def __init__(self, pool: Pool, prefetch: int, in_order: bool, timeout: float) -> None:
        self._pool = pool
        self._ahead = prefetch * pool.size
        self._in_order = in_order
        self._timeout = timeout
        self.begin(iter(()))

    def begin(self, indices: Iterator[Any]) -> None:
        """A new pass over `indices`: hand out the first tasks."""
        self._indices = indices
        self._turn = itertools.cycle(range(self._pool.size))
        self._active = [True] * self._pool.size
        self._waiting: dict[int, int] = {}  # the tasks that are out, and who has them
        self._arrived: dict[int, Any] = {}
        self._sent = self._given = 0
        for _ in range(self._ahead):
            self._hand_out()

    def resume(self, indices: Iterator[Any]) -> None:
        """The same for workers that have made a pass: what is left of it is dropped."""
        for worker in range(self._pool.size):
            self._pool.send(worker, Resume())
        left = self._pool.size
        while left:
            _, number, _ = self._pool.receive(self._timeout)
            left -= isinstance(number, Resume)
        self.begin(indices)

    def _hand_out(self) -> None:
        worker = self._next_worker()
        if worker is None:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            return
        self._pool.send(worker, (self._sent, index))
        self._waiting[self._sent] = worker
        self._sent += 1

    def _next_worker(self) -> int | None:
        turns = [w for w in itertools.islice(self._turn, self._pool.size) if self._active[w]]
        if not turns:
            return None
        if self._in_order:
            while next(self._turn) != turns[0]:
                continue
            return turns[0]
        busy = list(self._waiting.values())
        return min(turns, key=busy.count)

    def next(self) -> Any:
        """The next batch or failure; StopIteration where no more will come."""
        while True:
            while (
                self._given < self._sent
                and self._given not in self._waiting
                and self._given not in self._arrived
            ):
                self._given += 1  # its worker ended before
            if self._given in self._arrived:
                data = self._arrived.pop(self._given)
                self._given += 1
                self._hand_out()
                return data
            if not self._waiting:
                raise StopIteration
            worker, number, data = self._pool.receive(self._timeout)
            del self._waiting[number]
            if isinstance(data, End):
                self._retire(worker)
            elif self._in_order:
                self._arrived[number] = data
            else:
                self._hand_out()
                return data

    def _retire(self, worker: int) -> None:
        """A worker has no more items: its other tasks will not be done."""
        self._active[worker] = False
        self._waiting = {n: w for n, w in self._waiting.items() if w != worker}
        self._hand_out()
