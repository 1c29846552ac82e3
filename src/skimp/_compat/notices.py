"""What is said once per process, on stderr: that a request is accepted and changes nothing."""

from __future__ import annotations

import sys

_said: set[str] = set()


def once(text: str) -> None:
    """Say it, unless it was said before."""
    if text not in _said:
        _said.add(text)
        sys.stderr.write(f"skimp: {text}\n")
