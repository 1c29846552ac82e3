"""Locks stay usable whatever a signal handler raises."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

import skimp
from skimp._kernels import locks


class Came(Exception):
    pass


@pytest.mark.parametrize("make", [locks.reentrant, lambda: locks._kept()()])
def test_no_lock_is_lost_to_a_signal(make: Any) -> None:
    lock = make()
    came = 0

    def handler(*_: Any) -> None:
        raise Came

    before = signal.signal(signal.SIGALRM, handler)
    end = time.monotonic() + 20
    try:
        while came < 100 and time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-4)
                for _ in range(3000):
                    with lock:
                        pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Came:
                came += 1
            assert not lock._is_owned()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came


@pytest.mark.parametrize("make", [locks.reentrant, lambda: locks._kept()()])
def test_its_thread_may_take_it_again_and_others_wait(make: Any) -> None:
    lock, seen = make(), []

    def other() -> None:
        with lock:
            seen.append("other")

    with lock, lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        seen.append("mine")
    thread.join()
    assert seen == ["mine", "other"]


def test_what_comes_when_the_lock_is_taken_gives_it_back() -> None:
    class Interrupted(locks._kept()):  # type: ignore[misc]
        def acquire(self) -> bool:
            super().acquire()
            raise Came  # as a handler does once it has the lock

    lock = Interrupted()
    with pytest.raises(Came), lock:
        pytest.fail("the block ran")
    assert not lock._is_owned()


def ended(child: int) -> int:
    """How a fork ends; one that hangs is killed."""
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_locks_of_other_threads_are_free_in_a_fork() -> None:
    lock: Any = locks.reentrant()
    held, over = threading.Event(), threading.Event()

    def other() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    own: Any = locks.reentrant()
    with own:
        child = os.fork()
        if not child:
            os._exit(0 if lock.acquire(blocking=False) and own._is_owned() else 1)
    over.set()
    thread.join()
    assert ended(child) == 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_waits_for_who_draws_and_goes_on_drawing() -> None:
    over = threading.Event()

    def draw() -> None:
        while not over.is_set():
            skimp.rand(300_000)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(4):
            child = os.fork()
            if not child:
                skimp.rand(100_000)
                os._exit(0)
            assert ended(child) == 0
    finally:
        over.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forks_child_seeds_a_generator_of_which_another_thread_draws() -> None:
    generator = skimp.Generator().manual_seed(1)
    held, over = threading.Event(), threading.Event()

    def other() -> None:
        with generator._engine._bits.lock:  # NumPy's, as a draw holds it
            held.set()
            over.wait()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        generator.manual_seed(2)
        skimp.rand(3, generator=generator)
        os._exit(0)
    over.set()
    thread.join()
    assert ended(child) == 0
