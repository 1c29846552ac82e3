"""The sections of a report's text, each a table: what `--show` may name."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from skimp._engine.budget.telling import words
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.memory.sizes import readable
from skimp.lens import totals
from skimp.lens.data import Copied, Place, Report, Step

ROWS: Final = 10  # of each table; the rest is one line
WIDTH: Final = 30  # of a bar

Row = tuple[str, ...]


class Section(NamedTuple):
    """A table with a title; `note` stands below it, or alone where there is nothing."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    note: str = ""


def roles(report: Report) -> Section:
    """What the peak's bytes are for."""
    rows: list[Row] = []
    whose = totals.whose(report)
    for role, total in totals.by_role(report.peak.held).items():
        most = max([h for h in report.peak.held if h.role == role], key=lambda h: h.bytes)
        who = whose(most.root, most.name or most.module)
        what = " ".join(filter(None, [most.place.op, _at(most.place), who]))
        share = f"{100 * total.bytes / report.peak.bytes:.0f}%"
        rows.append((readable(total.bytes), share, str(total.allocations), role, what))
    columns = ("bytes", "share", "tensors", "role", "the largest")
    return Section("the peak by role", columns, rows)


def modules(report: Report) -> Section:
    """Which modules hold them, as a tree."""
    found = totals.by_module(report.peak.held)
    limit = report.peak.bytes // 200
    rows: list[Row] = []
    hidden = 0
    for path, total in totals.tree(found):
        if total.bytes < limit or (len(rows) >= 4 * ROWS and len(path) > 2):
            hidden += 1
            continue
        name = "  " * (len(path) - 1) + path[-1]
        parts = sorted(total.roles.items(), key=lambda item: -item[1])
        words = ", ".join([f"{role} {readable(n)}" for role, n in parts[:4]])
        rows.append((readable(total.bytes), name, words))
    words = "smaller one is" if hidden == 1 else "smaller ones are"
    note = f"{hidden} {words} not shown" if hidden else ""
    return Section("the peak by module", ("bytes", "module", "of which"), rows, note)


def lines(report: Report) -> Section:
    """Which lines of the program asked for them."""
    rows: list[Row] = []
    whose = totals.whose(report)
    for held in report.peak.held[:ROWS]:
        place = held.place
        who = whose(held.root, held.name or held.module)
        rows.append(
            (
                readable(held.bytes),
                str(held.allocations or ""),
                held.role,
                where(place),
                " ".join(filter(None, [place.op, who])),
                code(place),
            )
        )
    rest = report.peak.held[ROWS:]
    if rest:
        count = f"{len(rest)} more places"
        rows.append((readable(sum(h.bytes for h in rest)), "", "", count, "", ""))
    columns = ("bytes", "tensors", "role", "where", "op", "line")
    return Section("live at the peak", columns, rows)


def saved(report: Report) -> Section:
    """What autograd kept at the peak."""
    alone = sum(s.bytes for s in report.saved if s.alone)
    shared = sum(s.bytes for s in report.saved) - alone
    whose = totals.whose(report)
    rows: list[Row] = [
        (
            readable(s.bytes),
            str(s.tensors),
            "backward alone" if s.alone else "alive anyway",
            s.op,
            whose(s.place.root, s.place.module),
            where(s.place),
        )
        for s in report.saved[:ROWS]
    ]
    _rest(rows, [s.bytes for s in report.saved[ROWS:]], 6)
    note = (
        f"{readable(alone)} are kept for backward alone, {readable(shared)} are parameters and data"
    )
    columns = ("bytes", "tensors", "kept for", "op", "module", "where")
    return Section("saved by autograd at the peak", columns, rows, note if rows else "nothing")


def holders(report: Report) -> Section:
    """What is alive at the end, and who holds it."""
    whose = totals.whose(report)
    rows: list[Row] = [
        (
            readable(one.held.bytes),
            str(one.held.allocations),
            one.held.role,
            one.chain or "nobody by a name",
            " ".join(
                filter(
                    None,
                    [one.held.place.op, _at(one.held.place), whose(one.held.root, one.held.name)],
                )
            ),
        )
        for one in report.alive[:ROWS]
    ]
    _rest(rows, [one.held.bytes for one in report.alive[ROWS:]], 5)
    columns = ("bytes", "tensors", "role", "held by", "made by")
    return Section("alive at the end", columns, rows, "" if rows else "nothing")


def copies(report: Report) -> Section:
    """What was copied from one storage to another, and why."""
    rows: list[Row] = []
    for copy in report.copies[:ROWS]:
        made = copy.made
        rows.append(
            (
                readable(copy.bytes),
                str(copy.times),
                where(copy.place),
                copy.place.op,
                str(copy.shape) if copy.shape else "",
                " ".join([made.op, _at(made)]) if made is not None else "",
                _why(copy),
            )
        )
    _rest(rows, [copy.bytes for copy in report.copies[ROWS:]], 7)
    columns = ("bytes", "times", "where", "op", "shape", "laid out by", "why")
    return Section("copies", columns, rows, "" if rows else "none")


def _why(copy: Copied) -> str:
    if copy.forced:  # the reason has the strides
        return copy.reason
    rows = not copy.shape or copy.strides == contiguous_strides(copy.shape)
    return f"{copy.reason}: the op is a copy" + ("" if rows else f", strides {copy.strides}")


def timeline(report: Report) -> Section:
    """The steps, with the peak of each."""
    steps = report.steps
    shown = steps if len(steps) <= 2 * ROWS else (*steps[:ROWS], *steps[-ROWS:])
    most = max([s.peak for s in steps], default=0) or 1
    rows: list[Row] = []
    for step in shown:
        name = (
            str(step.first + 1) if step.first == step.last else f"{step.first + 1}-{step.last + 1}"
        )
        if step is steps[-1]:
            name = "after them" if len(steps) > 1 else "all"
        rows.append(_step(step, name, most))
    left = len(steps) - len(shown)
    note = f"{left} rows between them are not shown" if left else ""
    return Section(
        "timeline", ("step", "seconds", "peak", "at its end", "peak as a bar"), rows, note
    )


def _step(step: Step, name: str, most: int) -> Row:
    bar = "█" * round(WIDTH * step.peak / most)
    return name, f"{step.seconds:.3f}", readable(step.peak), readable(step.end), bar


def advice(report: Report) -> Section:
    """What would make the peak smaller, computed from the events."""
    rows = [
        (
            readable(one.saves),
            readable(one.peak),
            f"{one.seconds:+.3f} s" if one.seconds else "",
            one.text,
        )
        for one in report.advice
    ]
    columns = ("bytes", "peak", "a step", "what to do")
    none = "none"
    if report.budget is not None and report.budget.evictions:
        none = "none: the budget decides the peak; a run without one has advice"
    return Section("advice: bytes that each would save", columns, rows, "" if rows else none)


def budget(report: Report) -> Section:
    """What a budget did: what was made again, written and read, and how long that took."""
    if report.budget is None:
        return Section("budget", (), (), "there was none")
    head, details = words(report.budget)
    rows: list[Row] = [
        (
            f"{one.seconds:.3f}",
            readable(one.nbytes),
            str(one.times),
            one.way,
            one.op,
            f"{short(one.filename)}:{one.lineno}" if one.lineno else "",
        )
        for one in report.budget.again[:ROWS]
    ]
    return Section(head, ("seconds", "bytes", "times", "how", "op", "where"), rows, details)


SECTIONS: Final[dict[str, Callable[[Report], Section]]] = {
    "roles": roles,
    "modules": modules,
    "lines": lines,
    "saved": saved,
    "holders": holders,
    "copies": copies,
    "timeline": timeline,
    "advice": advice,
    "budget": budget,
}


def _rest(rows: list[Row], sizes: Sequence[int], columns: int) -> None:
    if sizes:
        words = (f"{len(sizes)} more places", *[""] * (columns - 3))
        rows.append((readable(sum(sizes)), "", *words))


def _at(place: Place) -> str:
    return f"at {where(place)}" if place.line else ""


def where(place: Place) -> str:
    """`train.py:12`, from here if the file is below the working directory."""
    return f"{short(place.file)}:{place.line}" if place.line else ""


def short(path: str) -> str:
    """The path from here if it is below the working directory, else as it is."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def code(place: Place) -> str:
    """The text of a place's line."""
    return linecache.getline(place.file, place.line).strip() if place.line else ""


def times(n: int) -> str:
    """`1 time`, `2 times`."""
    return "1 time" if n == 1 else f"{n:,} times"
