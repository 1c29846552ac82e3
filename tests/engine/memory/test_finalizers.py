"""`__del__` of a program's objects, which the collector runs on whichever thread allocates.

On a thread that works for another one it may ask for what the other holds, and when Python ends it
is alone. Each program runs in a process of its own, where a deadlock ends with a traceback.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import skimp
from skimp._engine.memory.ledger import host

_BEGIN = """
import faulthandler, gc, threading
faulthandler.dump_traceback_later(40, exit=True)
import skimp
from skimp._kernels import threads

skimp.set_num_threads(3)
done = []

class Late:
    def __init__(self):
        self.itself = self
        self.kept = skimp.ones(300, 300).mul(2).add(1)

    def __del__(self):
        done.append(threading.get_ident())
        assert self.kept.sum().item() == 3 * 90_000
        assert len(skimp.rand(70_000)) == 70_000
"""

_DIRECT = """
from skimp._engine.memory.pending import LOCK
from skimp._ops.random.generator import LOCK

def collect():
    Late()
    gc.collect()

def on_helpers():
    both, asking = threading.Barrier(2), threading.get_ident()
    def work():
        both.wait()
        if threading.get_ident() != asking:  # two collections at once would be one
            collect()
    threads.share(work, 2)

gc.disable()
main = threading.get_ident()
with LOCK(), LOCK():
    threads.whole(collect)
    on_helpers()
    threads.whole(on_helpers)
assert len(done) == 3, done
assert main not in done
with LOCK(), LOCK():
    pass
"""

_BY_THE_COLLECTOR = """
x = skimp.ones(700, 700)
gc.set_threshold(1, 1, 1)
for _ in range(30):
    for _ in range(3):
        Late()
    assert skimp.mm(x, x[:, :40]).relu_().sum().item() == 700 * 700 * 40
    y = skimp.randn(700, 700)
    y[:] = (y * 0 + 1).exp()
    y.sum()
gc.collect()
assert len(done) == 90
"""


@pytest.mark.parametrize("program", [_DIRECT, _BY_THE_COLLECTOR])
def test_finalizers_on_helpers_read_deferred_storages_and_draw(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""


_AT_THE_END = """
import atexit, sys

def compute(when):
    x = skimp.ones(1 << 22)
    x.mul_(2).exp_()  # by another thread, while there is one
    assert x.log().sub(2).abs().sum().item() < 10
    print(when, sys.is_finalizing())

class Last:
    def __del__(self):
        compute("module")

if before:
    compute("before")
atexit.register(compute, "atexit")
last = Last()
"""


@pytest.mark.parametrize("before", [True, False])
def test_what_runs_when_python_ends_computes(before: bool) -> None:
    """The threads that work for others have stopped by then, or can't be started any more."""
    program = f"before = {before}\n{_BEGIN}{_AT_THE_END}"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout == "before False\n" * before + "atexit False\nmodule True\n"
    assert ran.returncode == 0


def test_a_storage_may_outlive_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """When Python ends, what modules hold goes before the last object does."""
    kept = [skimp.ones(1 << 18)]
    before = host.allocated
    monkeypatch.setattr("skimp._engine.memory.storage.host", None)
    kept.clear()
    assert host.allocated == before - (1 << 20)
