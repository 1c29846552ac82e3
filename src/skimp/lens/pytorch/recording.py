"""A recording of a program on PyTorch: profiles of some steps each, counted one after another."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile

from skimp._engine.memory.ledger import Ledger
from skimp.lens.collect import Collector
from skimp.lens.data import Report
from skimp.lens.growth import growth, look
from skimp.lens.layouts import Source
from skimp.lens.pytorch.events import Allocation, events
from skimp.lens.pytorch.facts import Became, Copied, Edge, Fact, Given, Saved
from skimp.lens.pytorch.hooks import Hooks
from skimp.lens.pytorch.spots import Spot
from skimp.lens.replay import advise
from skimp.lens.report import Places, make

FACTS: Final = 20_000  # after so many a profile is counted and the next begins


class Recording:
    """Records PyTorch's memory while it is open, then gives a report.

    The totals are those of PyTorch's profiler, to the byte: every allocation of its allocator on
    the CPU, temporaries inside of ops included.
    """

    def __init__(self, program: str = "") -> None:
        self.program = program
        self.hooks = Hooks()
        self.counting = 0.0  # seconds that profiles took to be counted
        self._ledger = Ledger("torch")
        self._now = 0.0
        self._collector = Collector(self._ledger, lambda: self._now)
        self._profile: Any = None
        self._first = 0  # ns of the first event
        self._began = 0.0
        self._seconds = 0.0
        self._sequence: dict[int, int] = {}
        self._alive: dict[int, int] = {}  # bytes by address
        self._given: dict[str, Source] = {}  # what ops that copy by nature were given last
        self._collector.given = self._given.get
        self._open: dict[str, float] = {}  # phases that have begun

    def start(self) -> None:
        """Record from now on."""
        self._began = time.perf_counter()
        self._first = time.time_ns()
        self._begin()
        self.hooks.between = self._between
        self.hooks.__enter__()

    def stop(self) -> None:
        """Record no longer."""
        if self._profile is None:
            return
        self.hooks.__exit__()
        self._seconds = time.perf_counter() - self._began
        self._count()

    def report(self) -> Report:
        """Everything from `start` to `stop`."""
        self._now = self._seconds
        places = Places(self.hooks.spots, self.hooks.paths)
        report = make(self.program, self._collector, places)
        return replace(
            report,
            engine="torch",
            recording=self.hooks.seconds + self.counting,
            growth=growth(look(self._collector, search=False), places),
            advice=tuple([a for a in advise(report) if a.kind != "budget"]),  # skimp's alone
        )

    # -- profiles ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.start()

    def _between(self) -> None:
        if len(self.hooks.facts) >= FACTS:
            self._count()
            self._begin()

    def _count(self) -> None:
        start = time.perf_counter()
        self._profile.stop()
        tree = self._profile.profiler.kineto_results.experimental_event_tree()
        facts = self.hooks.facts
        for event in events(tree, self._sequence):
            self._now = max(self._now, (event.time - self._first) / 1e9)
            if isinstance(event, Allocation):
                self._allocation(event)
            else:
                self._fact(facts[event.fact])
        facts.clear()
        self._profile = None
        self.counting += time.perf_counter() - start

    # -- counting ---------------------------------------------------------------------------------

    def _allocation(self, event: Allocation) -> None:
        ledger = self._ledger
        if event.bytes > 0:
            ledger.made += 1
            ledger.total += event.bytes
            self._alive[event.address] = event.bytes
            self._collector.allocated(event.address, event.bytes, self._place(event))
            return
        nbytes = self._alive.pop(event.address, None)
        if nbytes is not None:  # else it was there before the recording began
            ledger.dropped += 1
            ledger.freed += nbytes
            self._collector.freed(event.address, nbytes)

    def _place(self, event: Allocation) -> Spot:
        spots = self.hooks.spots
        known = spots.known
        if event.forward >= 0:
            forward = known[event.forward]
            return spots.spot(event.node, forward.stack, forward.module, "backward")
        if event.place >= 0:
            return known[event.place]
        return spots.spot("outside of functions", 0, 0, "other")

    def _fact(self, fact: Fact) -> None:
        collector, known = self._collector, self.hooks.spots.known
        if isinstance(fact, Became):
            collector.became(fact.address, fact.role)
        elif isinstance(fact, Saved):
            if fact.back:
                record = collector.live.owners.get(fact.address)
                collector.unsaved([] if record is None else [record])
            else:
                collector.saved(fact.address)
        elif isinstance(fact, Edge):
            self._edge(fact)
        elif isinstance(fact, Given):
            self._given[known[fact.place].op] = fact.source
        elif isinstance(fact, Copied):
            why = f"{fact.op} of a tensor" if fact.forced else "written over what was there"
            if fact.forced and fact.source is not None:
                why = f"{why} with strides {fact.source.strides}"
            site = known[fact.place]
            collector.copied(fact.bytes, fact.op, why, site, fact.source, fact.forced)
        else:
            collector.step()

    def _edge(self, edge: Edge) -> None:
        if edge.begins:
            self._open[edge.kind] = self._now
        elif edge.kind in self._open:
            start = self._open.pop(edge.kind)
            self._collector.marked(edge.kind, edge.name, start, self._now)
