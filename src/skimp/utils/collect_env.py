"""torch.utils.collect_env: what a bug report should say about a machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

from skimp._kernels.blas import get_num_threads
from skimp.version import VERSION

__all__ = ["get_env_info", "get_pretty_env_info", "main"]
_PACKAGES = ("numpy", "ml-dtypes", "safetensors", "rich")


def get_env_info() -> dict[str, str]:
    """Versions and sizes by name; nothing is run to find them."""
    found = {
        "skimp": VERSION,
        "Python": sys.version.replace("\n", " "),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "processors": str(os.cpu_count()),
        "threads that skimp uses": str(get_num_threads()),
        "CUDA": "not available",
    }
    for name in _PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found


def get_pretty_env_info() -> str:
    """The same as text, a line for each."""
    return "\n".join([f"{name}: {value}" for name, value in get_env_info().items()])


def main() -> None:
    """Write it to stdout."""
    sys.stdout.write(f"{get_pretty_env_info()}\n")


if __name__ == "__main__":
    main()
