"""From what a collector counted to a report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, Protocol

from skimp.lens.collect import Collector
from skimp.lens.data import (
    ROLES,
    Alive,
    Allocations,
    Copied,
    Frame,
    Growth,
    Held,
    Mark,
    Peak,
    Place,
    Report,
    Saved,
    Step,
)
from skimp.lens.live import Record
from skimp.lens.modules import Path, Paths
from skimp.lens.replay import advise
from skimp.lens.shared import shared
from skimp.lens.steps import EVENTS
from skimp.memory.holders import chains

ALIVE = 64  # entries of what is alive whose holders are searched
_OUTSIDE = Path("", "")


class Lines(Protocol):
    """What knows the stacks that sites name by number."""

    def frames(self, stack: int) -> list[Frame]: ...


class Places:
    """Sites as places, with the frames of their stacks once each."""

    def __init__(self, stacks: Lines | None, paths: Paths | None) -> None:
        self._stacks = stacks
        self._paths = paths
        self.frames: dict[Frame, int] = {}
        self._places: dict[Any, Place] = {}
        self.numbers: dict[Place, int] = {}

    def of(self, site: Any) -> Place:
        """A site's place."""
        key = getattr(site, "serial", site)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self._make(site)
        return found

    def number(self, site: Any) -> int:
        """Its number in the report."""
        place = self.of(site)
        return self.numbers.setdefault(place, len(self.numbers))

    def path(self, number: int) -> Path:
        """A module's path."""
        return self._paths.known[number] if self._paths is not None else _OUTSIDE

    def _make(self, site: Any) -> Place:
        if self._stacks is None or not hasattr(site, "stack"):
            return Place(site.filename, site.lineno, site.op)
        stack = tuple(
            [self.frames.setdefault(f, len(self.frames)) for f in self._stacks.frames(site.stack)]
        )
        root, path = self.path(site.module)
        return Place(site.filename, site.lineno, site.op, path, root, site.phase, stack)


def make(program: str, collector: Collector, places: Places | None = None) -> Report:
    """Everything from the collector's beginning until now, but for what only a search can tell."""
    places = places or Places(None, None)
    live = collector.live
    made, allocated, unwritten = collector.since()
    peak = Peak(
        live.peak,
        live.peak_record.born,
        places.of(live.peak_record.site),
        _held(live.at_peak(), live.peak_order, places),
        collector.steps.peak.number,
    )
    detail = _detail(collector, places)
    return Report(
        program=program,
        seconds=collector.now(),
        peak=peak,
        allocations=made,
        allocated=allocated,
        live=live.total,
        unwritten=unwritten,
        copies=_copied(collector, places),
        saved=_saved(live.at_peak(), live.peak_order, places),
        steps=(*collector.steps.rows, _last(collector)),
        marks=tuple([Mark(*m) for kept in collector.steps.kept() for m in list(kept.marks)]),
        detail=detail,
        places=tuple(places.numbers),
        frames=tuple(places.frames),
    )


def finished(made: Report, collector: Collector, places: Places, growth: Growth | None) -> Report:
    """A report with who holds what is alive, and what follows from it."""
    live = alive(collector, places)
    owners = {id(r): owner for owner, r in collector.live.owners.copy().items()}
    largest: dict[tuple[Place, str | None, str], int] = {}
    for record in sorted(collector.live.owners.values(), key=lambda r: r.bytes):
        role = record.role_at(1 << 62)
        largest[places.of(record.site), role, record.name] = owners[id(record)]
    keys = {h: largest.get((h.place, h.role, h.name), 0) for h in live[:ALIVE]}
    found = chains(set(keys.values()) - {0}) if keys else {}
    told = [Alive(h, found.get(keys.get(h, 0), "")) for h in live]
    return replace(
        made,
        advice=advise(made),
        alive=tuple(told),
        shared=shared(collector),
        growth=growth,
        frames=tuple(places.frames),
        places=tuple(places.numbers),
    )


def _last(collector: Collector) -> Step:
    now = collector.steps.now
    seconds = collector.now() - now.start
    return Step(now.number, now.number, now.start, seconds, now.peak, collector.live.total)


def module_of(record: Record, place: Place, places: Places) -> Path:
    """Whom a record is charged to: the module with its parameter, or the place's."""
    if record.owner >= 0:
        return places.path(record.owner)
    return Path(place.root, place.module)


def _held(records: list[Record], event: int, places: Places) -> tuple[Held, ...]:
    totals: dict[tuple[Place, str, Path, str], list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        place = places.of(record.site)
        role = record.role_at(event)
        total = totals[place, role, module_of(record, place, places), record.name]
        total[0] += record.bytes
        total[1] += record.count
    held = [
        Held(place, nbytes, count, role, path.path, name, path.root)
        for (place, role, path, name), (nbytes, count) in totals.items()
        if nbytes
    ]
    return tuple(sorted(held, key=lambda h: (-h.bytes, h.place.file, h.place.line, h.place.op)))


def alive(collector: Collector, places: Places) -> tuple[Held, ...]:
    """What is alive now, largest first."""
    records = list(collector.live.owners.values())
    before = collector.live.before
    return _held([*records, before] if before.bytes > 0 else records, 1 << 62, places)


def _saved(records: Any, event: int, places: Places) -> tuple[Saved, ...]:
    totals: dict[tuple[str, Place, bool], list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        saved = record.saves > 0 or event < record.unsaved
        if not saved:
            continue
        place = places.of(record.site)
        total = totals[place.op, place, record.role_at(event) == "saved for backward"]
        total[0] += record.bytes
        total[1] += record.count
    rows = [Saved(op, place, n, count, own) for (op, place, own), (n, count) in totals.items()]
    return tuple(sorted(rows, key=lambda s: (-s.bytes, s.place.file, s.place.line)))


def _copied(collector: Collector, places: Places) -> tuple[Copied, ...]:
    copies = []
    for key, found in collector.copies.items():
        place = places.of(key.site)
        if place.op != key.op:
            place = Place(
                place.file, place.line, key.op, place.module, place.root, place.phase, place.stack
            )
        made = None if found.made is None else places.of(found.made)
        layout = found.shape, found.strides
        copies.append(
            Copied(place, key.reason, found.bytes, found.times, *layout, made, key.forced)
        )
    return tuple(sorted(copies, key=lambda c: (-c.bytes, c.place.file, c.place.line, c.reason)))


def _detail(collector: Collector, places: Places) -> Allocations:
    kept = collector.steps.kept()
    records: dict[int, Record] = {}
    for step in kept:
        records.update({r.order: r for r in step.records})
    records.update({r.order: r for r in collector.live.at_peak()})
    records.update({r.order: r for r in collector.live.owners.values()})
    whole = tuple([k.number for k in kept if len(k.records) < EVENTS])
    made = Allocations((kept[0].number, kept[-1].number), kept=whole)
    index = {role: i for i, role in enumerate(ROLES)}
    for order in sorted(records):
        r = records[order]
        place = places.of(r.site)
        made.bytes.append(r.bytes)
        made.place.append(places.number(r.site))
        was_saved = r.saves > 0 or r.unsaved >= 0
        role = r.role or ("saved for backward" if was_saved else "temporary")
        made.role.append(index[role])
        made.module.append(module_of(r, place, places).path)
        made.born.append(r.born)
        made.freed.append(r.freed)
        made.saved.append(r.unsaved_at if not r.saves else -1.0)
        made.step.append(r.step)
        made.order.append(r.order)
        made.gone.append(r.gone)
    return made
