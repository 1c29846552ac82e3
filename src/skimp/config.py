"""Settings: when work is deferred, how it is cut into blocks, on how many threads it runs.

They are read from the environment once, at import (`SKIMP_THREADS`, `SKIMP_DEFER`), and can be
changed while a program runs. Without `SKIMP_THREADS`, `MKL_NUM_THREADS` and `OMP_NUM_THREADS` say
how many threads, as they do in PyTorch. `config` is the one object; its attributes are plain,
because the path of every op reads them. Time and memory depend on them, no result does, but for
products so large that BLAS shares them among its own threads, which may round otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from skimp._engine.interrupts import insist, region

MAX_THREADS: Final = 64
MODES: Final = ("auto", "never", "always")
HUGE: Final = 1 << 62

# (defer_from, small_below, rematerialize_from) by mode: from how many elements work is deferred,
# below how many elements one NumPy call per op is better than a plan, and from how many elements a
# result is made again for backward, if that is cheap, instead of being kept.
_LIMITS: Final = {
    "auto": (1 << 17, 1 << 17, 1 << 14),
    "never": (HUGE, 1 << 17, HUGE),
    "always": (0, 0, 0),
}


class Config:
    """The settings. Assigning a wrong value raises a ValueError that says what would be right."""

    __slots__ = (
        "block", "defer", "defer_from", "max_nodes", "rematerialize_from", "small_below", "threads",
        "threads_from",
    )  # fmt: skip

    defer: str
    defer_from: int
    small_below: int
    rematerialize_from: int
    threads: int
    block: int
    threads_from: int
    max_nodes: int

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.block = 1 << 17
        self.threads_from = 1 << 19
        self.max_nodes = 256
        self.threads = _threads_of(environ)
        self.defer = environ.get("SKIMP_DEFER", "auto")

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, _checked(name, value))
        if name == "defer":
            self.defer_from, self.small_below, self.rematerialize_from = _LIMITS[value]

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def sharers(self, elements: int) -> int:
        """How many threads share work on so many elements, of which `threads_from` pay for two.

        Each of more than two has what each of two has there: with less, they would wait for each
        other at the interpreter's lock, and take longer than one.
        """
        if elements < self.threads_from:
            return 1
        return max(1, min(self.threads, 2 * elements // max(self.threads_from, 1)))

    @region
    def using(self, **changes: Any) -> Iterator[Config]:
        """Change settings inside a `with`: `config.using(defer="never", threads=1)`.

        The settings belong to the process: other threads see the change too.
        """
        before = {name: getattr(self, name) for name in self.__slots__}
        try:
            self._put(changes)
            yield self
        finally:
            insist(self._put, before)

    def _put(self, settings: dict[str, Any]) -> None:
        """The mode sets three limits, which may be among the settings: it goes first."""
        for name in sorted(settings, key=lambda name: name != "defer"):
            setattr(self, name, settings[name])


_LEAST: Final = {
    "defer_from": 0,
    "small_below": 0,
    "rematerialize_from": 0,
    "threads": 1,
    "block": 64,
    "threads_from": 0,
    "max_nodes": 1,
}


def _checked(name: str, value: Any) -> Any:
    if name == "defer":
        if value not in MODES:
            raise ValueError(f"defer must be one of {', '.join(MODES)}; got {value!r}")
        return value
    if name not in _LEAST:
        raise AttributeError(f"no setting {name!r}; settings are {', '.join(Config.__slots__)}")
    if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[name]:
        raise ValueError(f"{name} must be an integer of at least {_LEAST[name]}; got {value!r}")
    return min(value, MAX_THREADS) if name == "threads" else value


def choice(setting: str, environ: Mapping[str, str]) -> str:
    """What the environment says of a library: "auto", where it is there, or "never"."""
    chosen = environ.get(setting, "auto")
    if chosen not in ("auto", "never"):
        raise ValueError(f"{setting} must be one of auto, never; got {chosen!r}")
    return chosen


def _threads_of(environ: Mapping[str, str]) -> int:
    text = environ.get("SKIMP_THREADS", "")
    if text.isdecimal():
        return int(text)
    if text:
        raise ValueError(f"SKIMP_THREADS must be an integer of at least 1; got {text!r}")
    for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):  # MKL's comes first; both end at the cores
        first = environ.get(name, "").partition(",")[0].strip()
        if first.isdecimal() and int(first):
            return min(int(first), cores())
    return min(cores(), MAX_THREADS)


def cores() -> int:
    """How many cores this process may run on: fewer than there are within a `taskset`, say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


config: Final = Config(os.environ)
using = config.using
