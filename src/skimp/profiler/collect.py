"""What a profile is made of: the interpreter tells when public ops begin and end.

`sys.setprofile` calls us for every function while a profile is open, and nothing is asked of the
ops themselves, so they cost nothing more when none is. Each call of an op's own function is an
event; an op that calls others contains their events.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from skimp._engine.autograd.runner import CODES
from skimp._engine.dispatch.row import FORMS, METHODS, NAMESPACES
from skimp._engine.eval import run
from skimp._engine.memory.call_site import op_name
from skimp._engine.memory.ledger import host
from skimp._engine.tensor.tensor import Tensor


class Event:
    """A call of an op, or a range that a program named: times in nanoseconds."""

    __slots__ = (
        "allocated", "children", "children_allocated", "depth", "end", "name", "shapes",
        "start", "thread", "user",
    )  # fmt: skip

    def __init__(self, name: str, user: bool, depth: int) -> None:
        self.name = name
        self.user = user
        self.depth = depth
        self.thread = threading.get_native_id()
        self.shapes: list[list[int]] = []
        self.children = 0  # nanoseconds that events inside took
        self.children_allocated = 0  # bytes that are more because of them
        self.allocated = host.allocated  # bytes: first what was, in the end what is more
        self.end = 0
        self.start = time.perf_counter_ns()

    def close(self) -> None:
        """It ends now."""
        self.end = time.perf_counter_ns()
        self.allocated = host.allocated - self.allocated

    @property
    def duration(self) -> int:
        return self.end - self.start


@functools.cache
def op_codes() -> dict[CodeType, str]:
    """The code of every public op that computes, and PyTorch's name for it: PyTorch doesn't count
    those that only look at a tensor either.
    """
    found: dict[CodeType, str] = {}
    functions = [f for space in NAMESPACES.values() for f in space.values()]
    methods = [f for name, f in vars(Tensor).items() if name in METHODS or name[:2] == "__"]
    for f in (*functions, *methods):
        code = getattr(f, "__code__", None)
        if code is None:
            continue
        form = FORMS.get(f)
        if form is None or not form.op.looks:
            found.setdefault(code, f"aten::{op_name(code)}")
    for word in ("__init__", "__new__", "__getattr__"):  # of the class, no ops
        code = getattr(getattr(Tensor, word, None), "__code__", None)
        if code is not None:
            found.pop(code, None)
    found[run.evaluate.__code__] = "skimp::deferred"
    return found


active: list[Recorder] = []  # those that listen now, on any thread


class Recorder:
    """Collects the events of the thread that starts it."""

    def __init__(self, shapes: bool = False) -> None:
        self.events: list[Event] = []
        self._shapes = shapes
        self._open: list[tuple[Event, FrameType | None]] = []
        self._codes = op_codes()
        self._before: Any = None

    def start(self) -> None:
        """Listen."""
        self._before = sys.getprofile()
        active.append(self)
        sys.setprofile(self._told)

    def stop(self) -> None:
        """Listen no longer; what is open ends now."""
        sys.setprofile(self._before)
        active.remove(self)
        while self._open:
            self._close()

    def _told(self, frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            code = frame.f_code
            name = self._codes.get(code)
            if name is not None:
                self._begin(name, frame)
            elif code in CODES:  # a node of backward runs
                node = type(frame.f_locals["node"]).__name__
                self._begin(f"autograd::engine::evaluate_function: {node}", frame)
        elif what == "return" and self._open and self._open[-1][1] is frame:
            self._close()

    def _begin(self, name: str, frame: FrameType) -> None:
        event = Event(name, False, len(self._open))
        if self._shapes:
            seen = {n: v for n, v in frame.f_locals.items() if n != "owner"}
            given: Any = seen.values()
            if "args" in seen and "kwargs" in seen:  # a wrapper that forwards
                given = (*seen["args"], *seen["kwargs"].values())
            event.shapes = [list(v.shape) if isinstance(v, Tensor) else [] for v in given]
        self._open.append((event, frame))

    def begin(self, name: str) -> Event:
        """A named range begins."""
        event = Event(name, True, len(self._open))
        self._open.append((event, None))
        return event

    def finish(self, event: Event) -> None:
        """A named range ends, and all that is open in it."""
        while any([e is event for e, _ in self._open]):
            self._close()

    def _close(self) -> None:
        event, _ = self._open.pop()
        event.close()
        if self._open:
            outer, _ = self._open[-1]
            outer.children += event.duration
            outer.children_allocated += event.allocated
        self.events.append(event)
