"""What a profile is made of: ops, nodes of backward and deferred work, as they begin and end.

While a profile is open, it is one of the transforms that `dispatch` asks, and an observer of
backward and of the evaluator. Otherwise nobody is asked anything. Each call of an op is an event;
an op that calls others contains their events.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from skimp._engine.autograd import watched
from skimp._engine.dispatch.row import FORMS, METHODS, NAMESPACES, Form
from skimp._engine.dispatch.transforms import PROFILING, TRANSFORMS, Call
from skimp._engine.eval import run
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import op_name_of
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import regions
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.index.assigning import SETITEM
from skimp._ops.index.indexing import GETITEM
from skimp.optim.optimizer import WATCHERS

_NODE = "autograd::engine::evaluate_function: {}"


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


class Memory:
    """An observer on the ledger: every allocation, and every free of what was allocated since, with
    its time in nanoseconds, its bytes (less than 0: freed), the bytes that there are then, who has
    them, and on which thread.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int, int, int]] = []
        self._alive: dict[int, int] = {}
        self._total = 0

    def allocated(self, owner_id: int, nbytes: int, site: Any) -> None:
        self._alive[owner_id] = nbytes
        self._note(nbytes, owner_id)

    @enters_uninterrupted
    def freed(self, owner_id: int, nbytes: int) -> None:
        known = self._alive.pop(owner_id, None)
        if known is not None:
            self._note(-known, owner_id)

    def copied(self, *_: Any) -> None:
        """Copies are no events."""

    def _note(self, nbytes: int, owner_id: int) -> None:
        self._total = total = self._total + nbytes
        if nbytes:
            now, thread = time.perf_counter_ns(), threading.get_native_id()
            self.events.append((now, nbytes, total, owner_id, thread))


@functools.cache
def op_names() -> dict[Form, str]:
    """The public forms of ops that compute, and PyTorch's names for them: PyTorch doesn't count
    those that only look at a tensor either.
    """
    functions = [f for space in NAMESPACES.values() for f in space.values()]
    methods = [f for name, f in vars(Tensor).items() if name in METHODS or name[:2] == "__"]
    forms = [FORMS[f] for f in (*functions, *methods) if callable(f) and f in FORMS]
    forms += [GETITEM, SETITEM]
    return {form: f"aten::{op_name_of(form.name)}" for form in forms if not form.op.looks}


active: list[Recorder] = []  # those that listen now, on any thread


class Profiling:
    """The transform: what a call of an op does lies between two looks at the clock."""

    def concerns(self, call: Call) -> bool:
        return call.form in op_names()

    def run(self, call: Call) -> Any:
        thread, name = threading.get_ident(), op_names()[call.form]
        begun = [(r, r.begin(name, False)) for r in active if r.thread == thread]
        for recorder, event in begun:
            if recorder.records_shapes:
                event.shapes = [
                    list(v.shape) if isinstance(v, Tensor) else [] for v in call.values()
                ]
        try:
            return call.below()
        finally:
            for recorder, event in begun:
                recorder.finish(event)


class Recorder:
    """Collects the events of the thread that starts it."""

    def __init__(self, shapes: bool = False, memory: bool = False) -> None:
        self.events: list[Event] = []
        self.memory = Memory() if memory else None
        self.records_shapes = shapes
        self.thread = threading.get_ident()
        self._open: list[Event] = []
        self._running: list[Event] = []  # nodes of backward, optimizers' steps, and evaluations
        self._backwards: list[int] = []  # how many of these were running before each backward

    def start(self) -> None:
        """Listen."""
        active.append(self)
        TRANSFORMS[PROFILING] = Profiling()
        regions.active.append("profile")
        watched.observe(self)
        run.OBSERVERS.append(self)
        WATCHERS.append(self)
        if self.memory is not None:
            host.watch(self.memory)

    def stop(self) -> None:
        """Listen no longer; what is open ends now."""
        if self.memory is not None:
            host.unwatch(self.memory)
        WATCHERS.remove(self)
        run.OBSERVERS.remove(self)
        watched.unobserve(self)
        regions.active.remove("profile")
        active.remove(self)
        if not active:
            TRANSFORMS[PROFILING] = None
        while self._open:
            self._close()

    def begin(self, name: str, user: bool = True) -> Event:
        """A range begins: one that the program named, if it is the `user`'s."""
        event = Event(name, user, len(self._open))
        self._open.append(event)
        return event

    def finish(self, event: Event) -> None:
        """A range ends, and all that is open in it."""
        while any([e is event for e in self._open]):
            self._close()

    def _close(self) -> None:
        event = self._open.pop()
        event.close()
        if self._open:
            outer = self._open[-1]
            outer.children += event.duration
            outer.children_allocated += event.allocated
        self.events.append(event)

    # -- what observers are told ------------------------------------------------------------------

    def node_begins(self, node: Any, keep: bool) -> None:
        self._begin(_NODE.format(node._skimp_label))
        self._begin(node._skimp_label)

    def node_ends(self, node: Any) -> None:
        self._end()
        self._end()

    def optimizer_begins(self, optimizer: Any) -> None:
        self._begin(f"Optimizer.step#{type(optimizer).__name__}.step")

    def optimizer_ends(self, optimizer: Any, done: bool) -> None:
        self._end()

    def evaluation_begins(self) -> None:
        self._begin("skimp::deferred")

    def evaluation_ends(self) -> None:
        self._end()

    def backward_begins(self) -> None:
        self._backwards.append(len(self._running))

    def backward_ends(self) -> None:
        before = self._backwards.pop() if self._backwards else 0
        while len(self._running) > before:  # a node failed
            self._end()

    def _begin(self, name: str) -> None:
        if threading.get_ident() == self.thread:
            self._running.append(self.begin(name, False))

    def _end(self) -> None:
        if threading.get_ident() == self.thread and self._running:
            self.finish(self._running.pop())
