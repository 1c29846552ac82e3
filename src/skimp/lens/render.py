"""A report as text, rich on a terminal and plain elsewhere: ten lines, and sections on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TextIO

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from skimp._engine.memory.sizes import readable
from skimp.lens import terminal, totals
from skimp.lens.data import Report
from skimp.lens.sections import SECTIONS, Row, Section, short, times, where

NO_STEPS = "not known: no optimizer stepped; skimp.memory.step() says where a step ends"
RISE: Final = 1 / 64  # of the peak, by which the ends of the last steps differ
NUMBERS = ("bytes", "tensors", "times", "share", "peak", "at its end", "seconds")


def to_text(report: Report, show: Sequence[str] = tuple(SECTIONS)) -> str:
    """The report without colours and frames, as for a log; `show`: sections behind its summary."""
    return terminal.plain(lambda frame: _everything(report, frame, show))


def show(report: Report, file: TextIO, sections: Sequence[str] = ()) -> None:
    """Write the report to a terminal with colours, to anything else as `to_text` has it."""
    terminal.write(lambda frame: _everything(report, frame, sections), file)


def drawn(report: Report, sections: Sequence[str] = ()) -> RenderableType:
    """The report with a terminal's frames, for any console of rich's."""
    return _everything(report, box.SIMPLE_HEAD, sections)


def _everything(report: Report, frame: box.Box | None, show: Sequence[str]) -> RenderableType:
    parts: list[RenderableType] = [_summary(report, show)]
    if report.budget is not None and "budget" not in show:
        show = (*show, "budget")
    for name in show:
        section = SECTIONS[name](report)
        parts.append(Text(f"\n{section.title}", style="bold"))
        if section.rows:
            parts.append(Padding(_table(section, frame), (0, 0, 0, 2), expand=False))
        if section.note:
            parts.append(Text(f"  {section.note}", style="dim"))
    return Group(*parts)


def _table(section: Section, frame: box.Box | None) -> Table:
    table = terminal.table(frame)
    for i, name in enumerate(section.columns):
        number = name in NUMBERS
        table.add_column(
            name,
            justify="right" if number else "left",
            style="cyan" if name == "bytes" else "",
            # one that is cut off is another number
            min_width=max([len(row[i]) for row in section.rows]) if number else None,
            no_wrap=number,  # the others give way on a narrow terminal
            overflow="fold",
        )
    for row in section.rows:
        table.add_row(*[Text(cell) for cell in row])
    return table


# -- the first lines -------------------------------------------------------------------------------


def _summary(report: Report, show: Sequence[str]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    for name, figure, words in _lines(report, show):
        table.add_row(f"  {name}", figure, Text(words))
    title = Text("\nskimp: ", style="bold")
    steps = len(report.steps) - 1
    count = report.steps[-1].first if steps > 0 else 0
    ran = f", {count} step{'s' * (count != 1)}" if count else ""
    title.append(f"{report.program}, {report.seconds:.3f} s{ran}", "not bold")
    if report.engine != "skimp":
        title.append(f" on PyTorch, {report.recording:.3f} s of it in recording", "not bold")
    return Group(title, table)


def _lines(report: Report, show: Sequence[str]) -> Iterable[Row]:
    peak = report.peak
    yield "peak", readable(peak.bytes), _peak_words(report)
    if peak.bytes:
        roles = totals.by_role(peak.held).items()
        yield "by role", "", ", ".join([f"{role} {readable(t.bytes)}" for role, t in roles])
        if any(held.root for held in peak.held):
            yield "by module", "", _modules_words(report)
        yield "by line", "", _lines_words(report)
    copied = [copy for copy in report.copies if copy.forced]
    yield "copied", readable(report.copied), _copies_words(report) if copied else ""
    if report.engine == "skimp":  # PyTorch defers nothing
        yield "never written", readable(report.unwritten), "of results, thanks to deferral"
    yield "at the end", readable(report.live), _end_words(report)
    if len(report.steps) > 2:
        yield "each step", "", growth_words(report)
    elif sum(mark.kind == "backward" for mark in report.marks) > 1 and len(report.steps) == 1:
        yield "each step", "", NO_STEPS
    for advice in report.advice[:1]:
        yield "advice", readable(advice.saves), f"less at the peak: {advice.text}"
    if not show and peak.bytes:
        yield "more", "", f"skimp run --show {','.join(SECTIONS)}"


def _peak_words(report: Report) -> str:
    peak = report.peak
    if not peak.bytes:
        return "nothing was allocated"
    place = peak.place
    exact = f"{peak.bytes:,} bytes, " if peak.bytes >= 1024 else ""  # else it stands there already
    step = _step_words(report) if len(report.steps) > 1 else ""
    at = f" at {where(place)}" if place.line else ""
    name = totals.whose(report)(place.root, place.module)
    module = f", {name}" if name else ""
    op = f" ({place.op}{module})" if place.op else ""
    return f"{exact}reached after {peak.seconds:.3f} s{step}{at}{op}"


def _step_words(report: Report) -> str:
    """In which phase of which step the peak is. The last one has not ended: a failed program's, or
    what comes after training.
    """
    peak = report.peak
    phase = "" if peak.place.phase in ("", "other") else peak.place.phase
    if peak.step == report.steps[-1].first:
        return f", after step {peak.step}" + (f", in {phase}" if phase else "")
    return f" in step {peak.step + 1}" + (f"'s {phase}" if phase else "")


def _modules_words(report: Report) -> str:
    words: list[str] = []
    rest = 0
    whose = totals.whose(report)
    for path, total in totals.widest(report.peak.held):
        if len(words) < 6 and total.bytes * 100 >= report.peak.bytes:
            itself = " itself" * (path[-1] == totals.ITSELF)
            path = path[:-1] if itself else path
            name = whose(path[0], ".".join(path[1:])) or path[0]
            words.append(f"{name}{itself} {readable(total.bytes)}")
        else:
            rest += total.bytes
    return ", ".join([*words, *([f"others {readable(rest)}"] if rest else [])])


def _lines_words(report: Report) -> str:
    words = []
    for (file, line), total in list(totals.by_line(report.peak.held).items())[:3]:
        at = f"{short(file)}:{line}" if line else "before the report began"
        words.append(f"{at} {readable(total.bytes)}")
    return ", ".join(words)


def _copies_words(report: Report) -> str:
    forced = [copy for copy in report.copies if copy.forced]
    most = forced[0]
    count = sum(copy.times for copy in forced)
    return f"{times(count)}; most by {most.place.op} at {where(most.place)}: {most.reason}"


def _end_words(report: Report) -> str:
    if not report.alive:
        return f"alive, of {readable(report.allocated)} in {report.allocations:,} allocations"
    one = report.alive[0]
    held = f"held by {one.chain}" if one.chain else f"made at {where(one.held.place)}"
    return f"alive; the largest, {readable(one.held.bytes)}, {held}"


def growth_words(report: Report) -> str:
    """One sentence on whether steps leave more and more behind."""
    growth = report.growth
    if growth is None:
        last = [s.end for s in report.steps[:-1][-3:]]
        low, high = min(last), max(last)
        rises = len(last) > 1 and all(a < b for a, b in pairwise(last))
        if rises and high - low > report.peak.bytes * RISE:
            ends = f"{readable(low)} to {readable(high)}"
            return f"each of the last {len(last)} steps ended with more, {ends}"
        ends = readable(high) if low == high else f"{readable(low)} to {readable(high)}"
        return f"no growth: the last steps ended with {ends}"
    words = f"grows {readable(round(growth.bytes_per_step))} a step: "
    if growth.line:
        return f"{words}`{growth.text}` at {growth.line} keeps {growth.keeps or growth.chain}"
    made = f"what {growth.place.op} makes at {where(growth.place)} stays"
    return f"{words}{made}, held by {growth.chain}" if growth.chain else f"{words}{made}"
