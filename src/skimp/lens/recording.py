"""A recording: from `start` to `stop`, everything that a report is made from."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

from skimp._engine.budget.statistics import counts
from skimp._engine.budget.telling import outcome
from skimp._engine.memory.ledger import host
from skimp._engine.memory.sizes import readable
from skimp._engine.memory.storage import Storage
from skimp._engine.memory.users import alive
from skimp.lens.awaited import expand
from skimp.lens.collect import Collector
from skimp.lens.data import Mark, Report
from skimp.lens.growth import FIRST, Look, growth, look
from skimp.lens.render import to_text
from skimp.lens.replay import cheapest
from skimp.lens.report import Places, finished, make
from skimp.lens.watch import Watch

SHARE: Final = 0.02  # of the program's time that may be spent on looking for what grows
active: list[Recording] = []  # one at most


class Recording:
    """Records while it is open: `with Recording("train.py") as r: ...`, then `r.report()`.

    RuntimeError where another one is open.
    """

    def __init__(self, program: str = "") -> None:
        self.program = program
        self.collector: Collector
        self.watch: Watch
        self._seen: Look | None = None
        self._steps = 0
        self._next = self._next_count = FIRST
        self._spent = 0.0
        self._evictions = 0

    def start(self) -> None:
        """Record from now on."""
        if active:
            raise RuntimeError("memory is being recorded already; one recording at a time")
        before = alive(Storage) if host.allocated else []
        self._evictions = counts.evictions
        self.collector = Collector(host)
        for s in before:
            if s.nbytes >= 0:
                self.collector.adopt(id(s), s.nbytes)
        del before
        self.watch = Watch(self.collector)
        self.watch.after_step = self._after_step
        self.watch.start()
        host.watch(self.collector)
        host.adviser = self._advise
        active.append(self)

    def stop(self) -> None:
        """Record no longer."""
        if self not in active:
            return
        active.remove(self)
        self.watch.routine.leave()
        host.unwatch(self.collector)
        host.adviser = None
        self.watch.stop()

    def report(self) -> Report:
        """Everything from the beginning until now, with who holds what is alive."""
        self._settle()
        collector = self.collector
        places = Places(self.watch.stacks, self.watch.paths)
        made = make(self.program, collector, places)
        # what a budget had back in a step is older than that
        ends = None if self._evicted() else look(collector) or self._seen
        done = finished(made, collector, places, growth(ends, places))
        if host.budget is None:
            return done
        # it has a budget; and one that took bytes away decides the peak, and events are its own
        other = [] if self._evicted() else [one for one in done.advice if one.kind != "budget"]
        return replace(done, advice=tuple(other), budget=outcome(host.budget.nbytes))

    def _settle(self) -> None:
        self.watch.routine.leave()
        self.watch.routine.recount()
        expand(self.collector)

    def _evicted(self) -> bool:
        """Whether a budget took bytes away since the beginning."""
        return counts.evictions > self._evictions

    def _advise(self, excess: int) -> str:
        """What would make a refused allocation fit, by what is known of the step with the peak."""
        if self._evicted():
            return ""
        self._settle()
        collector = self.collector
        places = Places(self.watch.stacks, self.watch.paths)
        report = make(self.program, collector, places)
        if self.watch.batch:  # of a forward that has not returned yet
            now = collector.now()
            start = now - (time.perf_counter() - self.watch.began)
            begun = Mark("forward", self.watch.batch, start, now)
            report = replace(report, marks=(*report.marks, begun))
        found = cheapest(report, excess, host.limit or 0)
        if found is None:
            return ""
        return f"It would fit with {readable(found.saves)} less at the peak: {found.text}."

    def _after_step(self) -> None:
        """Every now and then: whether something grows, while the functions that hold it run."""
        self._steps = number = self._steps + 1
        if number < self._next_count:
            return
        self._next_count = max(number + 1, number * 11 // 10)
        start = time.perf_counter()
        search = number >= self._next and self._spent <= SHARE * self.collector.now()
        if search:
            self._next = 2 * number
        self._seen = look(self.collector, self._seen, search)
        self._spent += time.perf_counter() - start

    def __str__(self) -> str:
        return to_text(self.report())

    def __enter__(self) -> Recording:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
