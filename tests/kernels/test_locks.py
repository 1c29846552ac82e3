"""Locks stay usable whatever a signal handler raises."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

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
