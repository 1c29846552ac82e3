"""What a worker process of a DataLoader does: indices in, batches out, until it is told to end or
has no parent.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import numpy as np

from skimp._kernels.blas import set_num_threads
from skimp._ops.random.generator import manual_seed
from skimp.utils.data._utils.fetch import Fetcher

INTERRUPTED = 130  # how a worker ends that was interrupted, as shells say it
LOOK_AROUND = 0.2  # seconds after which an idle worker looks whether its parent wants more


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is: its number, how many there are, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a DataLoader's worker, which one it is; None elsewhere."""
    return _info


class ExceptionWrapper:
    """An exception as text, with its traceback, for another process."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import traceback  # when a worker fails

        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raise an exception of the same type whose message has the original traceback."""
        message: Any = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None  # its type wants other arguments
        raise error


class KeyErrorMessage(str):
    """A KeyError shows the repr of its argument: this one's is its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class End:
    """An iterable dataset has no more items in this worker."""


@dataclass(frozen=True)
class Resume:
    """A new pass begins: iterate anew."""


@dataclass(frozen=True)
class Work:
    """What all workers of a loader are told at their start."""

    dataset: Any
    iterable: bool
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    num_workers: int
    init_fn: Callable[[int], None] | None

    def fetcher(self) -> Fetcher:
        """A fetcher at the beginning of the dataset."""
        return Fetcher(self.dataset, self.iterable, self.batched, self.collate_fn, self.drop_last)


def numpy_seed(base_seed: int, worker_id: int) -> list[int]:
    """PyTorch's seed of NumPy's global generator: one SeedSequence of both numbers."""
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(n) for n in np.random.SeedSequence(entropy).generate_state(4)]


def run(work: Work, worker_id: int, tasks: Any, results: Any, done: Any) -> None:
    """The life of a worker."""
    global _info
    watched = _Parent()
    try:
        set_num_threads(1)
        seed = work.base_seed + worker_id
        random.seed(seed)
        manual_seed(seed)
        np.random.seed(numpy_seed(work.base_seed, worker_id))
        _info = WorkerInfo(worker_id, work.num_workers, seed, work.dataset)
        _Worker(work, worker_id, results).serve(tasks, done, watched)
    except KeyboardInterrupt:  # so has the parent been, or will be, and it raises it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        results.cancel_join_thread()
        results.close()
        sys.exit(INTERRUPTED)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    if done.is_set() or not watched.lives():
        results.cancel_join_thread()  # nobody reads what is left
    results.close()


class _Parent:
    """The process that waits for this one."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._process = multiprocessing.parent_process()

    def lives(self) -> bool:
        return os.getppid() == self._pid and (self._process is None or self._process.is_alive())


class _Worker:
    def __init__(self, work: Work, worker_id: int, results: Any) -> None:
        self._work = work
        self._where = f"in DataLoader worker process {worker_id}"
        self._results = results
        self._ended = False
        self._failure: ExceptionWrapper | None = None
        self._fetcher: Fetcher | None = None
        try:
            if work.init_fn is not None:
                work.init_fn(worker_id)
            self._fetcher = work.fetcher()
        except Exception:
            self._failure = ExceptionWrapper(where=self._where)

    def serve(self, tasks: Any, done: Any, parent: _Parent) -> None:
        while parent.lives():
            try:
                task = tasks.get(timeout=LOOK_AROUND)
            except queue.Empty:
                if done.is_set():  # a queue that is garbage too has ended, and sends no task
                    return
                continue
            if task is None:
                return
            if isinstance(task, Resume):
                self._send(task, None)
                self._ended = False
                self._fetcher = self._work.fetcher()
            elif not done.is_set() and not self._ended:
                number, index = task
                self._send(number, self._fetch(index))

    def _fetch(self, index: Any) -> Any:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            return failure
        assert self._fetcher is not None
        try:
            return self._fetcher.fetch(index)
        except Exception as error:
            if isinstance(error, StopIteration) and self._work.iterable:
                self._ended = True
                return End()
            return ExceptionWrapper(where=self._where)

    def _send(self, number: Any, data: Any) -> None:
        """Pickled here, so that what can't be pickled is an error there, not silence."""
        try:
            pickled = bytes(ForkingPickler.dumps((number, data)))
        except Exception:
            pickled = pickle.dumps((number, ExceptionWrapper(where=self._where)))
        self._results.put(pickled)
