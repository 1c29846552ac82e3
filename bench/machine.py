"""What the figures depend on: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.engines import ROOT
from bench.limits import cores

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def machine() -> dict[str, Any]:
    return {
        "processor": _after("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": cores(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "huge_pages": _huge_pages(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("torch", "numpy", "skimp"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["loops"] = "compiled" if _compiled() else "not compiled"
    return found


def _compiled() -> bool:
    """Whether `skimp compile` was run; asked elsewhere, for skimp changes its own environment."""
    asked = "from skimp._kernels.compiled import loops; print(loops() is not None)"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


def commit() -> tuple[str, bool]:
    """The short name of the commit, and whether files differ from it."""
    name = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "bench/*.py")
    return name or "unknown", bool(changed)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # a source archive on a machine without git
        return ""
    return done.stdout.strip()


def _after(path: str, key: str) -> str | None:
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    return next((s.partition(":")[2].strip() for s in lines if s.startswith(key)), None)


def _memory_gib() -> float | None:
    text = _after("/proc/meminfo", "MemTotal")
    return round(int(text.split()[0]) / 2**20, 1) if text else None


def _huge_pages() -> str:
    """The kernel's setting: `always`, `madvise` or `never`."""
    if not HUGE_PAGES.exists():
        return "unknown"
    return HUGE_PAGES.read_text().partition("[")[2].partition("]")[0]
