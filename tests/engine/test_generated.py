"""Code made of text is compiled once: later imports and programs read what the first has kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skimp._engine.generated import late_function, ready

SCRIPT = """
import builtins

texts, real = [], builtins.compile
def compile(source, file, *args, **kwargs):
    texts.append(str(file))
    return real(source, file, *args, **kwargs)
builtins.compile = compile
import skimp, linecache
count = sum(name.startswith("<skimp ") for name in texts)
texts.clear()
x = skimp.ones(3, requires_grad=True)
for _ in range(20):  # so often that how the op is recorded is made of text too
    y = x.softmax(0)
y[0].backward()
assert x.grad[0] > 0 > x.grad[1]
later = sum(name.startswith("<skimp ") for name in texts)
code = skimp.Tensor.softmax.__code__
assert "def function(" in linecache.getlines(code.co_filename)[0]
print(count, later)
"""


def compiled(folder: Path, **settings: str) -> tuple[int, int]:
    """How many texts an import of the package and a program after it compile, with bytecode in
    `folder`."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": str(folder), **settings}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    count, later = ran.stdout.split()
    return int(count), int(later)


def test_what_an_earlier_program_compiled_is_read(tmp_path: Path) -> None:
    count, later = compiled(tmp_path)
    assert count > 100
    assert later >= 3
    (kept,) = tmp_path.rglob("*.texts")
    single = sorted(tmp_path.rglob("*.texts.later/*"))
    assert len(single) == later
    assert compiled(tmp_path) == (0, 0)
    # not whole, or another text's: as good as none
    single[0].write_bytes(single[0].read_bytes()[:-9])
    single[1].write_bytes(single[2].read_bytes())
    assert compiled(tmp_path) == (0, 2)
    assert compiled(tmp_path) == (0, 0)
    damaged = kept.read_bytes()[:-9]
    kept.write_bytes(damaged)
    count, again = compiled(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert count > 100
    assert again == 0
    assert kept.read_bytes() == damaged
    single[0].with_name("old").touch()
    count, again = compiled(tmp_path)  # an import that keeps its texts lets those of others go
    assert again == later
    assert sorted(tmp_path.rglob("*.texts.later/*")) == single


def test_lines_that_are_made_when_a_function_is_first_called() -> None:
    asked = []

    def lines(space: dict[str, Any]) -> list[str]:
        asked.append(space)
        if len(asked) == 1:
            raise KeyboardInterrupt
        space["more"] = 2
        return ["def function(a, /, *, b):", "    return a + b + more / a"]

    f = late_function("doubled", lines, {})
    waiting = f.__code__
    for _ in range(2):  # what is interrupted is begun again
        try:
            assert f(1, b=4) == 7
        except KeyboardInterrupt:
            assert f.__code__ is waiting
    assert len(asked) == 2
    assert ready(f) is f
    assert f.__code__.co_varnames == ("a", "b")
    with pytest.raises(ZeroDivisionError) as failed:
        f(0, b=1)
    assert [e.name for e in failed.traceback][1:] == ["doubled"]
    assert len(asked) == 2
