"""Signals while oneDNN multiplies: its code has the stack's pointer in the heap meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from skimp._kernels import onednn

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")

HERE = """
import signal
import threading
import numpy as np
from skimp._kernels import products_onednn
came = []
signal.signal(signal.SIGALRM, lambda *_: came.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
x = np.ones((700, 700), np.float32)
out = np.empty((700, 40), np.float32)
def product():
    assert products_onednn.multiply(x, x[:, :40], out, 1)
while len(came) < 1500:
    product()
    if len(came) % 100 == 0:  # a thread takes what it had for its signals along
        thread = threading.Thread(target=product)
        thread.start()
        thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
assert (out == 700).all()
"""

TEAM = """
import ctypes
import signal
import threading
import time
from pathlib import Path
import numpy as np
from skimp._kernels import batches_onednn, onednn, products_onednn, teams
teams.end = lambda began: None  # nobody rests
FAULTS = signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE
x = np.ones((8, 512, 512), np.float32)
out = np.empty_like(x)
def product(team):
    assert products_onednn.multiply(x[0], x[0], out[0], team) and (out[0] == 512).all()
def batch(team):
    assert batches_onednn.multiply(x, x, out, team) and (out == 512).all()
def others():  # that Python knows nothing of
    known = {str(thread.native_id) for thread in threading.enumerate()}
    return [path for path in Path("/proc/self/task").iterdir() if path.name not in known]
def blocked(path):
    words = (path / "status").read_text().split()
    mask = int(words[words.index("SigBlk:") + 1], 16)
    return {number for number in signal.valid_signals() if mask >> number - 1 & 1}
parallel = onednn.library().GOMP_parallel
nothing = ctypes.cast(ctypes.CDLL(None).sigblock, ctypes.c_void_p), ctypes.c_void_p(0)
"""

SPARED = """
before = set(others())
parallel(*nothing, 2, 0)  # somebody else's team
def check(count):
    until = time.monotonic() + 60
    while len(team := set(others()) - before) >= count:  # one that was let go ends by itself
        assert time.monotonic() < until
        time.sleep(0.001)
    assert len(team) == count - 1
    for path in team:
        some = blocked(path)
        assert {signal.SIGPROF, signal.SIGALRM, signal.SIGINT, signal.SIGTERM} <= some
        assert not some.intersection(FAULTS)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
for count in 2, 3, 2, 3:
    product(count)
    check(count)
onednn.use_threads(2)
parallel(*nothing, 2, 0)  # one of three is let go
onednn.use_threads(3)
parallel(*nothing, 3, 0)  # and another comes
product(3)
check(3)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
product(2)
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}
"""

STORM = """
came = []
signal.signal(signal.SIGPROF, lambda *_: came.append(1))
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
while len(came) < 100:
    WHAT(2)
signal.setitimer(signal.ITIMER_PROF, 0)
"""


def _run(program: str, isa: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa} if isa else None,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_who_asks_handles_them_on_memory_of_its_own() -> None:
    _run(HERE)


def test_others_of_a_team_get_none() -> None:
    """Whoever made them, and however often they go and come; who asks keeps its own mask."""
    _run(TEAM + SPARED)


@pytest.mark.parametrize(("what", "isa"), [("product", ""), ("product", "AVX2"), ("batch", "AVX2")])
def test_a_profiler_of_a_team_writes_nowhere(what: str, isa: str) -> None:
    """Its timer's signals go to whichever thread runs. Without AVX-512 batches are made by the same
    code."""
    _run(TEAM + STORM.replace("WHAT", what), isa)
