"""A recording: from `start` to `stop`, everything that a report is made from."""

from __future__ import annotations

import gc
from typing import Any

from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp.lens.collect import Collector
from skimp.lens.data import Report
from skimp.lens.report import make
from skimp.lens.watch import Watch

active: list[Recording] = []  # one at most


class Recording:
    """Records while it is open: `with Recording("train.py") as r: ...`, then `r.report()`.

    RuntimeError where another one is open.
    """

    def __init__(self, program: str = "") -> None:
        self.program = program
        self.collector: Collector
        self.watch: Watch
        self._report: Report | None = None

    def start(self) -> None:
        """Record from now on."""
        if active:
            raise RuntimeError("memory is being recorded already; one recording at a time")
        before = [s for s in gc.get_objects() if isinstance(s, Storage)] if host.allocated else []
        self.collector = Collector(host)
        for s in before:
            if s.nbytes >= 0:
                self.collector.adopt(id(s), s.nbytes)
        del before
        self.watch = Watch(self.collector)
        self.watch.start()
        host.watch(self.collector)
        active.append(self)

    def stop(self) -> None:
        """Record no longer."""
        if self not in active:
            return
        active.remove(self)
        host.unwatch(self.collector)
        self.watch.stop()

    def report(self) -> Report:
        """Everything from the beginning until now."""
        return make(self.program, self.collector, self.watch.stacks, self.watch.paths)

    def __enter__(self) -> Recording:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
