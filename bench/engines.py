"""The engines, and how a fresh process of each is started."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.byhand import BY_HAND
from bench.catalogue import ALL
from bench.overhead import BY_NUMPY
from bench.workloads import COMPILED, WORKLOADS

ROOT = Path(__file__).parents[1]
TIMEOUT = 180.0  # seconds; the longest healthy answer takes a tenth of it


@dataclass(frozen=True)
class Engine:
    """A name for tables, the module that computes, and the environment that makes the difference.

    `lacking` says what this machine lacks for it, or returns None.
    """

    name: str
    module: str
    what: str
    workloads: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    lacking: Callable[[], str | None] = lambda: None


def _compiler() -> str | None:
    if shutil.which(os.environ.get("CXX", "g++")):
        return None
    return "torch.compile needs a C++ compiler (g++), and there is none"


def _jemalloc() -> str | None:
    return ctypes.util.find_library("jemalloc")


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("skimp", "skimp", "skimp, as it comes", tuple(ALL)),
        Engine("torch", "torch", "PyTorch, eager, as it comes", tuple(ALL)),
        Engine(
            "torch+thp",
            "torch",
            "PyTorch with `THP_MEM_ALLOC_ENABLE=1`, which asks for huge pages",
            tuple(WORKLOADS),
            {"THP_MEM_ALLOC_ENABLE": "1"},
        ),
        Engine(
            "torch+jemalloc",
            "torch",
            "PyTorch with jemalloc by `LD_PRELOAD`",
            tuple(WORKLOADS),
            {"LD_PRELOAD": _jemalloc() or ""},
            lambda: None if _jemalloc() else "jemalloc is not installed",
        ),
        Engine(
            "torch.compile",
            "torch",
            "`torch.compile` around the functions, with its defaults",
            COMPILED,
            {"TORCHINDUCTOR_COMPILE_THREADS": "1"},  # no worker processes beside the measured one
            _compiler,
        ),
        Engine(
            "numpy",
            "numpy",
            "NumPy by hand (`bench/byhand.py`, small ops `bench/overhead.py`), one thread",
            (*BY_HAND, *(f"micro/{name}" for name in BY_NUMPY)),
        ),
    )
}


def available(names: Sequence[str] = tuple(ENGINES)) -> tuple[list[Engine], dict[str, str]]:
    """The engines of these names that can run here, and why the others can't."""
    lacking = {name: ENGINES[name].lacking() for name in names}
    left_out = {name: why for name, why in lacking.items() if why}
    return [ENGINES[name] for name in names if name not in left_out], left_out


def command(module: str, *words: str, engine: Engine) -> dict[str, Any]:
    """Arguments for subprocess that start `python -m bench.module` as the engine wants it."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
    env = {**os.environ, "PYTHONPATH": path, **engine.environment}
    return {"args": [sys.executable, "-m", f"bench.{module}", *words], "env": env, "cwd": ROOT}


def child(module: str, *words: str, engine: Engine, timeout: float = TIMEOUT) -> list[Any]:
    """The JSON lines that `python -m bench.module` prints in a fresh process of the engine.

    A process that fails, or takes too long, gives one line with an `error` as its last.
    """
    start = command(module, *words, engine=engine)
    try:
        done = subprocess.run(**start, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        return [*_lines(late.stdout), {"error": too_long(timeout)}]
    lines = _lines(done.stdout)
    if done.returncode:
        lines.append({"error": ended(done.returncode, done.stderr)})
    return lines


def too_long(timeout: float) -> str:
    return f"took more than {timeout:.0f} s"


def ended(status: int, stderr: str) -> str:
    """How a process ended, with the last thing that it said."""
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    return f"exit {status}: {last}"[:200]


def _lines(printed: str | bytes | None) -> list[Any]:
    """The lines that are JSON objects, whole ones: libraries may print too."""
    text = printed.decode() if isinstance(printed, bytes) else printed or ""
    return [json.loads(s) for s in text.splitlines() if s.startswith("{") and s.endswith("}")]
