"""Whether steps leave more and more behind, and who holds it: looked at a few times in a run."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from skimp.lens.collect import Collector
from skimp.lens.data import Growth
from skimp.lens.live import Record
from skimp.lens.report import Places
from skimp.lens.sections import short
from skimp.memory.chains import ARROW
from skimp.memory.holders import chains

FIRST = 4  # the step at whose end is looked first; then at twice as many, and so on
SAMPLE = 64  # storages whose holders are searched


class Look(NamedTuple):
    """What was found at the end of a step."""

    bytes_per_step: float
    steps: int
    record: Record
    chain: str
    kept: int  # of how many steps


def survivors(collector: Collector) -> list[Record]:
    """Live records of steps that are over, but those of parameters, gradients and the like. The
    first step and the last two are not among them: what they leave is often replaced.
    """
    last = collector.steps.now.number - 2
    return [
        r
        for r in list(collector.live.owners.values())
        if 0 < r.step <= last and r.role in (None, "data")
    ]


def look(collector: Collector, before: Look | None = None, search: bool = True) -> Look | None:
    """Whether at least two steps have left something that is still there, and who holds it: found
    by a search, or as it was found `before`.
    """
    left = survivors(collector)
    by_step: Counter[int] = Counter()
    for record in left:
        by_step[record.step] += record.bytes
    steps = collector.steps.now.number - 2
    if len(by_step) < 2 or len(by_step) * 2 < steps:
        return None
    per_step = sum(by_step.values()) / steps
    if not search:
        found = None if before is None else before
        record, chain = (found.record, found.chain) if found is not None else (left[0], "")
        return Look(per_step, steps, record, chain, len(by_step))
    left.sort(key=lambda r: (-r.bytes, r.order))
    owners = {id(r): owner for owner, r in collector.live.owners.copy().items()}
    sample = {owners[id(r)]: r for r in left[:SAMPLE] if id(r) in owners}
    chain_of = chains(set(sample))
    for owner, record in sample.items():
        if owner in chain_of:
            return Look(per_step, steps, record, chain_of[owner], len(by_step))
    return Look(per_step, steps, left[0], "", len(by_step))


def container(chain: str) -> str:
    """`log.rows` of `log.rows[3] -> ...`: what an element was put into; empty if nothing."""
    head = chain.partition(" -> ")[0].partition(" in ")[0]
    name, bracket, _ = head.rpartition("[")
    return name if bracket else ""


def growth(seen: Look | None, places: Places) -> Growth | None:
    """What was seen, with the line that puts tensors where they stay."""
    if seen is None:
        return None
    place = places.of(seen.record.site)
    role = seen.record.role_at(1 << 62)
    line, text = "", ""
    files = {f.file for f in places.frames}
    name = container(seen.chain).replace("'", "")
    if name:
        where = seen.chain.partition(ARROW)[0].rpartition(" in ")[2].removesuffix("()")
        line, text = _line_that_fills(name.rpartition(".")[2], files, where)
    graphs = "graph of " in seen.chain
    what = "graphs" if graphs else "tensors"
    return Growth(
        seen.bytes_per_step, seen.steps, place, role, seen.chain, line, text,
        f"{seen.kept} {what}" if name else "",
    )  # fmt: skip


def _line_that_fills(name: str, files: Iterable[str], where: str) -> tuple[str, str]:
    """The first line that puts something into what the program calls `name`: in the function
    `where`, if there is one, since others may call something else so.
    """
    name = re.escape(name.partition("[")[0])
    fills = re.compile(
        rf"\b{name}(\[.*\])?\.(append|extend|appendleft|add|insert|setdefault|update|put)\("
        rf"|\b{name}\[.+\]\s*=[^=]|\b{name}\s*\+=|\b{name} = {name} \+|setattr\({name}"
    )
    found = []
    for file in sorted(files):
        lines = linecache.getlines(file)
        for number, line in enumerate(lines, 1):
            if fills.search(line) and not line.lstrip().startswith("#"):
                inside = where in _functions(lines[:number])
                found.append((not inside, f"{short(file)}:{number}", line.strip()))
    first = min(found, key=lambda one: one[0], default=(False, "", ""))
    return first[1:]


def _functions(lines: list[str]) -> list[str]:
    """The names of the functions that the last of a file's lines is in, innermost first."""
    found = []
    inner = len(lines[-1])
    for line in reversed(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < inner:
            inner = indent
            head = re.match(r"\s*(?:async )?def (\w+)", line)
            if head is not None:
                found.append(head[1])
    return found
