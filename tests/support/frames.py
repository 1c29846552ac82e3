"""Which Python functions of the package a call runs: what it costs, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import skimp

PACKAGE = str(Path(skimp.__file__).parent)
# Frames in Python 3.11 and none later.
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def frames_of(
    call: Callable[[], object], before: Callable[[], object] = lambda: None, warm: int = 100
) -> list[str]:
    """The package's functions that a call runs once warm, in their order; `before` each call."""
    found: list[str] = []

    def told(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        own = code.co_filename.startswith((PACKAGE, "<skimp"))
        if event == "call" and own and code.co_name not in COMPREHENSIONS:
            found.append(code.co_qualname)

    for _ in range(warm):
        before()
        call()
    before()
    asked = sys.getprofile()
    sys.setprofile(told)
    try:
        call()
    finally:
        sys.setprofile(asked)
    return found
