"""Turns: the engines of a workload are alive together, and take turns at slices of a few calls.

A machine's speed changes within seconds, for all engines; the slices of one turn are neighbours in
time. So engines are compared turn by turn, and every other turn goes through them backwards.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from bench import process
from bench.engines import Engine
from bench.worker import Answer, Worker

Found = dict[str, Any]  # seconds, slices, extra_mib, ledger_mib, cpu, losses; or error
Turn = dict[str, float]  # seconds of a call, by engine
SECONDS = 0.8  # that an engine's share of a workload's turns may take,
LEAST, MOST = 3, 80  # and how many they are
EACH = 2 * 2**30  # bytes that the process of an engine may take: GELU's gradient takes 1.6 GiB


class Asked(Protocol):
    """A worker, as turns see it; in tests something simpler."""

    def ask(self, words: str) -> Answer: ...


class Turns:
    """Measures workloads, one after another, on engines whose workers it keeps."""

    def __init__(
        self, engines: Sequence[Engine], shrink: int = 1, threads: int | None = None
    ) -> None:
        self.engines = engines
        self.shrink = shrink
        self.threads = threads
        self._workers: dict[str, Worker] = {}

    def measured(self, name: str, seconds: float = SECONDS, room: int = 99) -> dict[str, Found]:
        """By engine, of those that have the workload.

        `room` is how many engines may work on it together, two or more.
        """
        turns: list[Turn] = []
        told: dict[str, Answer] = {}
        for party in parties([e for e in self.engines if name in e.workloads], room):
            workers = {engine.name: self._worker(engine) for engine in party}
            taken, answers = take_turns(name, workers, seconds)
            turns += taken
            told |= answers
            for engine, answer in answers.items():
                if "error" in answer:  # the next workload finds one that is well
                    self._workers.pop(engine).close()
        return figures(turns, told)

    def _worker(self, engine: Engine) -> Worker:
        if engine.name not in self._workers:
            self._workers[engine.name] = Worker(engine, self.shrink, threads=self.threads)
        return self._workers[engine.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.popitem()[1].close()


def room_for(engines: int, shrink: int) -> int:
    """How many of the engines fit into the memory that is available now; two have to."""
    free = process.available()
    return engines if free is None else min(engines, max(free * shrink // EACH, 2))


def parties(engines: Sequence[Engine], room: int) -> Iterator[Sequence[Engine]]:
    """All together; if there is no room for that, the first one with some of the others in turn."""
    if len(engines) <= room:
        yield engines
        return
    others, count = engines[1:], room - 1
    for start in range(0, len(others), count):
        yield [engines[0], *others[start : start + count]]


def take_turns(
    name: str,
    workers: Mapping[str, Asked],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[Turn], dict[str, Answer]]:
    """The turns, and the last word of each engine: its memory, or the error that ended its part."""
    told: dict[str, Answer] = {}

    def able() -> list[str]:
        return [engine for engine in workers if "error" not in told[engine]]

    def each(words: str, engines: Sequence[str]) -> None:
        for engine in engines:
            told[engine] = workers[engine].ask(words)

    each(f"prepare {name}", list(workers))
    each("warm", able())
    turns: list[Turn] = []
    start = clock()
    while len(turns) < MOST and able():
        if len(turns) >= LEAST and clock() - start >= seconds * len(able()):
            break
        order = able()[::-1] if len(turns) % 2 else able()
        each("turn", order)
        turns.append({e: told[e]["seconds"] for e in order if "seconds" in told[e]})
    each("end", able())
    return turns, told


def figures(turns: Sequence[Turn], told: Mapping[str, Answer]) -> dict[str, Found]:
    """By engine: `slices`, the seconds of each turn, or None where it had none; their median."""
    found: dict[str, Found] = {}
    for engine, answer in told.items():
        slices = [turn.get(engine) for turn in turns]
        taken = [seconds for seconds in slices if seconds is not None]
        if taken and "error" not in answer:
            answer = {"seconds": statistics.median(taken), "slices": slices, **answer}
        found[engine] = answer
    return found
