"""Code made of text is compiled once: later imports read what the first has kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import builtins

texts, real = [], builtins.compile
def compile(source, file, *args, **kwargs):
    texts.append(str(file))
    return real(source, file, *args, **kwargs)
builtins.compile = compile
import skimp, linecache
count = sum(name.startswith("<skimp op") for name in texts)
y = skimp.ones(3).softmax(0)
code = skimp.Tensor.softmax.__code__
assert "def function(" in linecache.getlines(code.co_filename)[0]
print(count)
"""


def compiled_by_an_import(folder: Path, **settings: str) -> int:
    """How many texts an import of the package compiles, with bytecode in `folder`."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": str(folder), **settings}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


def test_an_import_reads_what_an_earlier_one_compiled(tmp_path: Path) -> None:
    assert compiled_by_an_import(tmp_path) > 100
    (kept,) = tmp_path.rglob("*.texts")
    assert compiled_by_an_import(tmp_path) == 0
    damaged = kept.read_bytes()[:-9]  # not whole: as good as none
    kept.write_bytes(damaged)
    assert compiled_by_an_import(tmp_path, PYTHONDONTWRITEBYTECODE="1") > 100
    assert kept.read_bytes() == damaged
