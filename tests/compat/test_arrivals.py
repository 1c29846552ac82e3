"""What waits for a module that a program may import later."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each in a process of its own, where nothing is imported yet.
LATER = """
import sys
import skimp
assert not {"multiprocessing", "socket"} & set(sys.modules)
import multiprocessing
from multiprocessing import reduction
assert reduction.ForkingPickler._extra_reducers[skimp.Tensor]
assert type(reduction.__loader__) is type(reduction.__spec__.loader) is type(skimp.__loader__)
assert not [finder for finder in sys.meta_path if type(finder).__name__ == "_Arrival"]
context = multiprocessing.get_context("fork")
given, taken = context.SimpleQueue(), context.SimpleQueue()
def double():
    given.get().mul_(2)
    taken.put(0)
child = context.Process(target=double)
child.start()
x = skimp.ones(100_000)
given.put(x)
taken.get()
child.join()
assert x.eq(2).all(), "the bytes were copied"
"""

BEFORE = """
from multiprocessing import reduction
import skimp
assert reduction.ForkingPickler._extra_reducers[skimp.Tensor]
"""

REFUSED = """
import sys
import skimp
for _ in range(2):
    sys.modules["socket"] = None
    try:
        import multiprocessing.reduction
    except ImportError:
        pass
    else:
        raise AssertionError
del sys.modules["socket"]
from multiprocessing import reduction
assert reduction.ForkingPickler._extra_reducers[skimp.Tensor]
"""


@pytest.mark.parametrize("program", [LATER, BEFORE, REFUSED])
def test_tensors_are_shared_whenever_multiprocessing_is_imported(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_docstrings() -> None:
    program = "import skimp; print(skimp.nn.Linear(2, 2)(skimp.ones(1, 2)).sum().backward())"
    done = subprocess.run([sys.executable, "-OO", "-B", "-c", program], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"None\n"), done.stderr
