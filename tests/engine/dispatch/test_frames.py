"""How many Python functions of the package a small step runs: what it costs, without a clock."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import skimp
from skimp import relu

PACKAGE = str(Path(skimp.__file__).parent)
# Functions that `y = relu(x @ w + b); y.sum().backward()` runs once warm. Only ever lowered.
MOST = 50
# Frames in Python 3.11 and none later.
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def step(x: Any, w: Any, b: Any) -> None:
    y = relu(x @ w + b)
    y.sum().backward()


def frames_of_a_step() -> list[str]:
    """The package's functions that one step calls, in their order."""
    generator = skimp.Generator().manual_seed(0)
    x = skimp.randn(8, 16, generator=generator)
    w = skimp.randn(16, 4, generator=generator).requires_grad_()
    b = skimp.randn(4, generator=generator).requires_grad_()
    found: list[str] = []

    def told(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        own = code.co_filename.startswith((PACKAGE, "<skimp"))
        if event == "call" and own and code.co_name not in COMPREHENSIONS:
            found.append(code.co_qualname)

    for _ in range(100):
        w.grad = b.grad = None
        step(x, w, b)
    w.grad = b.grad = None
    before = sys.getprofile()
    sys.setprofile(told)
    try:
        step(x, w, b)
    finally:
        sys.setprofile(before)
    assert w.grad is not None
    return found


def test_frames_of_a_small_step() -> None:
    with skimp.config.using(defer="auto"):
        found = frames_of_a_step()
    assert "relu" in found
    assert len(found) <= MOST, f"{len(found)} functions: {' '.join(found)}"
