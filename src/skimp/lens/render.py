"""A report as text (rich on a terminal, plain elsewhere) and as JSON."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable
from io import StringIO
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from skimp._engine.memory.sizes import readable
from skimp.lens.data import Place, Report

ROWS = 10  # of each table; the rest is one line
PLAIN_WIDTH = 160  # without a terminal: wide enough that little is cut off


def to_text(report: Report) -> str:
    """The report without colours and frames, as for a log."""
    buffer = StringIO()
    console = Console(file=buffer, width=PLAIN_WIDTH, color_system=None)
    console.print(_everything(report, None))
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def show(report: Report, file: TextIO) -> None:
    """Write the report to a terminal with colours, to anything else as `to_text` has it."""
    console = Console(file=file)
    if not console.is_terminal:
        file.write(to_text(report))
        return
    console.print(_everything(report, box.SIMPLE_HEAD))


def _everything(report: Report, frame: box.Box | None) -> RenderableType:
    parts: list[RenderableType] = [_summary(report)]
    if report.peak.held:
        parts += [_heading("live at the peak"), _indented(_held_table(report, frame))]
    if report.copies:
        parts += [_heading("copies"), _indented(_copies_table(report, frame))]
    return Group(*parts)


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2), expand=False)


def _heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _summary(report: Report) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    copies = sum(copy.times for copy in report.copies)
    table.add_row("  peak", readable(report.peak.bytes), _peak_words(report))
    table.add_row("  allocated", readable(report.allocated), times(report.allocations))
    table.add_row("  copied", readable(report.copied), times(copies))
    table.add_row("  never written", readable(report.unwritten), "of results, thanks to deferral")
    table.add_row("  live at the end", readable(report.live), "")
    title = Text("\nskimp: ", style="bold")
    title.append(f"{report.program}, {report.seconds:.3f} s", "not bold")
    return Group(title, table)


def _peak_words(report: Report) -> str:
    peak = report.peak
    if not peak.bytes:
        return "nothing was allocated"
    where = f" at {_where(peak.place)}" if peak.place.line else ""
    op = f" ({peak.place.op})" if peak.place.op else ""
    exact = f"{peak.bytes:,} bytes, " if peak.bytes >= 1024 else ""  # else it stands there already
    return f"{exact}reached after {peak.seconds:.3f} s{where}{op}"


def _held_table(report: Report, frame: box.Box | None) -> Table:
    table = _table(frame, "bytes", "tensors", "where", "op", "line")
    for held in report.peak.held[:ROWS]:
        place = held.place
        table.add_row(
            readable(held.bytes),
            str(held.allocations or ""),
            _where(place),
            place.op,
            _source(place),
        )
    _add_rest(table, (held.bytes for held in report.peak.held[ROWS:]))
    return table


def _copies_table(report: Report, frame: box.Box | None) -> Table:
    table = _table(frame, "bytes", "times", "where", "op", "why")
    for copy in report.copies[:ROWS]:
        place = copy.place
        table.add_row(
            readable(copy.bytes), str(copy.times), _where(place), place.op, Text(copy.reason)
        )
    _add_rest(table, (copy.bytes for copy in report.copies[ROWS:]))
    return table


def _table(frame: box.Box | None, *names: str) -> Table:
    table = Table(box=frame, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        numeric = name in ("bytes", "tensors", "times")
        table.add_column(
            name,
            justify="right" if numeric else "left",
            style="cyan" if name == "bytes" else "",
            no_wrap=name is not names[-1],  # the last column gives way on a narrow terminal
        )
    return table


def _add_rest(table: Table, rest: Iterable[int]) -> None:
    sizes = list(rest)
    if sizes:
        table.add_row(readable(sum(sizes)), "", f"{len(sizes)} more places", "", "")


def _where(place: Place) -> Text:
    if not place.line:
        return Text("")
    return Text(f"{_short(place.file)}:{place.line}")


def _short(path: str) -> str:
    """The path from here if it is below the working directory, else as it is."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def _source(place: Place) -> Text:
    line = linecache.getline(place.file, place.line).strip()
    return Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def times(n: int) -> str:
    return "1 time" if n == 1 else f"{n:,} times"
