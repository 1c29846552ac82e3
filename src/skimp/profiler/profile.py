"""torch.profiler.profile: a context in which ops are timed, with a schedule of steps."""

from __future__ import annotations

import enum
import functools
import gzip
import importlib
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from skimp._engine.memory.ledger import materialize_pending
from skimp.profiler.averages import Averages, averages
from skimp.profiler.collect import Event, Memory, Recorder, active


class ProfilerActivity(enum.Enum):
    """What may be timed. Only the CPU is there."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What a profile does during a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


_DEPRECATED = (
    "`export_memory_timeline` is deprecated and will be removed in a future version. Please use "
    "`torch.cuda.memory._record_memory_history` and `torch.cuda.memory._export_memory_snapshot` "
    "instead."
)
Schedule = Callable[[int], ProfilerAction]


def supported_activities() -> set[ProfilerActivity]:
    """What can be timed here."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, **_: Any
) -> Schedule:
    """Steps to wait, to warm up, and to record, again and again (`repeat` times, 0: always).

    Raises: AssertionError for negative numbers of steps, or none to record.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0 or (repeat and step // cycle >= repeat):
            return ProfilerAction.NONE
        step %= cycle
        if step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """For `on_trace_ready`: writes each trace into a folder."""

    def handler(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".gz" if use_gzip else ""
        name = f"{worker}.{time.time_ns()}.pt.trace.json{ending}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler


class profile:  # noqa: N801  (PyTorch's name)
    """Times the ops that this thread calls inside, and counts the bytes that they leave allocated.

    Work that was deferred counts where it is done: in the op that needs its result, under the name
    skimp::deferred. With a `schedule`, `step()` says where a step ends, and `on_trace_ready` is
    called after the last recorded step of each cycle. With shapes, memory and stacks, the lens
    records meanwhile. What else can be asked for (flops, modules) is accepted and not recorded.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **_: Any,
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._schedule = schedule or (lambda _: ProfilerAction.RECORD)
        self._ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack = with_stack
        self._lens: Any = None  # what records for `export_memory_timeline`
        self._own = False
        self._began = 0.0
        self._recorder: Recorder | None = None
        self._events: list[Event] = []
        self._memory: Memory | None = None
        self._step: record_function | None = None
        self._metadata: dict[str, str] = {}

    # -- recording --------------------------------------------------------------------------------

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """The first step begins."""
        self._enter(self._schedule(self.step_num))

    def step(self) -> None:
        """A step ends, and the next begins."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        before = self.current_action
        self.step_num += 1
        self._enter(self._schedule(self.step_num), before is ProfilerAction.RECORD_AND_SAVE)

    def stop(self) -> None:
        """The last step ends."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        recording = self._recorder is not None
        self._close()
        self.current_action = ProfilerAction.NONE
        if recording and self._ready is not None:
            self._ready(self)

    def _enter(self, action: ProfilerAction, save: bool = False) -> None:
        if save:
            self._close()
            if self._ready is not None:
                self._ready(self)
        self.current_action = action
        recording = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if recording and self._recorder is None:
            materialize_pending()  # what was asked for before is not this profile's
            self._recorder = Recorder(self.record_shapes, self.profile_memory)
            self._record_memory()
            self._recorder.start()
        if recording and self.step_num:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()
        else:
            self._step = None

    def _close(self) -> None:
        if self._recorder is not None:
            materialize_pending()
            self._recorder.stop()
            if self._own:
                self._lens.stop()
            self._events, self._memory = self._recorder.events, self._recorder.memory
            self._recorder = None

    def _record_memory(self) -> None:
        if self.record_shapes and self.profile_memory and self.with_stack:
            self._began = time.time()
            # the lens stands above this module: it is imported where it is asked for
            recording = importlib.import_module("skimp.lens.recording")
            self._own = not recording.active  # else the program is being recorded as a whole
            self._lens = recording.Recording("profile") if self._own else recording.active[0]
            if self._own:
                self._lens.start()

    def add_metadata(self, key: str, value: str) -> None:
        """A word about the run, for the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same, as JSON."""
        self._metadata[key] = json.loads(value)

    # -- what was recorded ------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """The events in the order in which they ended."""
        return list(self._events)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **_: Any
    ) -> Averages:
        """The events by name."""
        return averages(self._events, group_by_input_shape, self.profile_memory)

    def export_chrome_trace(self, path: Any) -> None:
        """Write the events as JSON for chrome://tracing and Perfetto; gzipped if it ends in .gz.
        With profile_memory, each allocation and each free is an instant named [memory].
        """
        pid = os.getpid()
        told: list[dict[str, Any]] = [
            {
                "ph": "X",
                "cat": "user_annotation" if e.user else "cpu_op",
                "name": e.name,
                "pid": pid,
                "tid": e.thread,
                "ts": e.start / 1000,
                "dur": e.duration / 1000,
                "args": {"Bytes": e.allocated, **({"Input Dims": e.shapes} if e.shapes else {})},
            }
            for e in sorted(self._events, key=lambda e: e.start)
        ]
        told += [] if self._memory is None else _of_memory(self._memory, pid)
        about = {"schemaVersion": 1, "profile_memory": int(self.profile_memory), **self._metadata}
        text = json.dumps({**about, "traceEvents": told})
        target = Path(path)
        if target.suffix == ".gz":
            target.write_bytes(gzip.compress(text.encode()))
        else:
            target.write_text(text)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write how many bytes of each category there were, and when: `.json` or `.json.gz` (times,
        and sizes by category), `.raw.json.gz` (event by event) or `.html` (the lens's page). Of a
        long profile, those of the step with the peak and of the last four.

        ValueError without record_shapes, profile_memory and with_stack, as in PyTorch.
        """
        warnings.warn(_DEPRECATED, FutureWarning, stacklevel=2)
        names = ("record_shapes", "profile_memory", "with_stack")
        missing = [f"{name}=True" for name in names if not getattr(self, name)]
        if missing:
            raise ValueError(f"{', '.join(missing)} required for memory profiling.")
        timeline = importlib.import_module("skimp.lens.timeline")
        timeline.export(self._lens.report(), path, self._began)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Refused: stacks are not recorded."""
        raise RuntimeError(
            "profile.export_stacks: skimp records no stacks; export_chrome_trace writes the events"
        )


def _of_memory(memory: Memory, pid: int) -> list[dict[str, Any]]:
    return [
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": pid,
            "tid": thread,
            "ts": when / 1000,
            "args": {
                "Total Reserved": 0,
                "Total Allocated": total,
                "Bytes": nbytes,
                "Device Id": -1,
                "Device Type": 0,
                "Addr": owner,
            },
        }
        for when, nbytes, total, owner, thread in memory.events
    ]


class record_function:  # noqa: N801  (PyTorch's name)
    """A range with a name in the profiles that are open, as a context or a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._open: list[tuple[Recorder, Event]] = []

    def __enter__(self) -> record_function:
        self._open = [(r, r.begin(self.name)) for r in active]
        return self

    def __exit__(self, *_: object) -> None:
        for recorder, event in self._open:
            if recorder in active:
                recorder.finish(event)
        self._open = []

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return fn(*args, **kwargs)

        return wrapped
