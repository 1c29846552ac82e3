"""What would break the steps that skimp/_engine/interpreter.py rests on."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from typing import Any


def breaks_between(function: Callable[..., Any], first: str, last: str) -> Iterator[str]:
    """The instructions at which something else may run, in a function's source lines from the one
    that has `first` to the one that has `last`. A loop may begin anew in the first, where the step
    has not begun, and after the last.
    """
    lines, start = inspect.getsourcelines(function)
    begin = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines) if i >= begin and last in line)
    within = range(start + begin, start + end + 1)
    line, entry = 0, -1
    for found in dis.get_instructions(function):
        position = found.positions
        line = (position.lineno if position is not None else None) or line
        if entry < 0 and line == within.start:
            entry = found.offset
        around = found.opname == "JUMP_BACKWARD" and found.argval <= entry
        if around and line in {within[0], within[-1]}:
            continue
        if line in within and found.opname.startswith(("CALL", "JUMP_BACKWARD", "RESUME", "SEND")):
            yield f"{found.opname} in line {line - start + 1}: {lines[line - start].strip()}"
