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

# Another thread has begun to import the module.
MEANWHILE = """
import importlib.machinery, sys, threading
name, begun, on = "multiprocessing.reduction", threading.Event(), threading.Event()
class Slow:
    def find_spec(self, fullname, path, target=None):
        if fullname != name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader.exec_module = self.slowly(spec.loader.exec_module)
        return spec
    def slowly(self, load):
        def exec_module(module):
            begun.set()
            on.wait(1)
            load(module)
        return exec_module
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=__import__, args=(name,))
thread.start()
begun.wait()
import skimp
thread.join()
assert sys.modules[name].ForkingPickler._extra_reducers[skimp.Tensor]
"""

# Who only asks where the module lies gets the loader's other methods as well.
ASKED = """
import importlib.util
from skimp._compat.arrivals import when_imported
come = []
when_imported("colorsys", come.append)
loader = importlib.util.find_spec("colorsys").loader
assert "def rgb_to_hsv" in loader.get_source("colorsys")
assert loader.get_code("colorsys") and not come
import colorsys
assert come == [colorsys]
"""


@pytest.mark.parametrize("program", [LATER, BEFORE, REFUSED, MEANWHILE, ASKED])
def test_tensors_are_shared_whenever_multiprocessing_is_imported(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_docstrings() -> None:
    program = "import skimp; print(skimp.nn.Linear(2, 2)(skimp.ones(1, 2)).sum().backward())"
    done = subprocess.run([sys.executable, "-OO", "-B", "-c", program], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"None\n"), done.stderr
