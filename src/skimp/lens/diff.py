"""Two reports side by side: what appeared, went, grew, by role, module and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TextIO

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from skimp._engine.memory.sizes import readable
from skimp.lens import terminal, totals
from skimp.lens.data import Held, Report

ROWS: Final = 12


class Change(NamedTuple):
    """Bytes at the peak of one role, module or line, in two reports."""

    name: str
    before: int
    after: int

    @property
    def more(self) -> int:
        """How much they grew."""
        return self.after - self.before

    @property
    def word(self) -> str:
        """What happened to it."""
        if not self.before:
            return "appeared"
        if not self.after:
            return "went"
        return "grew" if self.more > 0 else "shrank"


def by_role(a: Report, b: Report) -> list[Change]:
    """Roles whose bytes differ, those that changed most first."""
    return _changes(totals.by_role, str, a, b)


def by_module(a: Report, b: Report) -> list[Change]:
    """Modules whose bytes (with what is below them) differ."""
    return _changes(totals.by_module, _path, a, b)


def by_line(a: Report, b: Report) -> list[Change]:
    """Lines whose bytes differ. Files are the same if they are called so; the programs are the same
    whatever they are called, under the first one's name.
    """
    old, new = (_file(report.program) for report in (a, b))

    def line(place: tuple[str, int]) -> str:
        file, number = place
        name = _file(file)
        return f"{old if name == new else name}:{number}" if number else "before the report began"

    return _changes(totals.by_line, line, a, b)


def _changes(
    by: Callable[[tuple[Held, ...]], Mapping[Any, totals.Total]],
    name: Callable[[Any], str],
    a: Report,
    b: Report,
) -> list[Change]:
    before, after = (_named(by(report.peak.held), name) for report in (a, b))
    found = [Change(n, before[n], after[n]) for n in {**before, **after}]
    return sorted([c for c in found if c.more], key=lambda c: (-abs(c.more), c.name))


def _path(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _named(found: Mapping[Any, totals.Total], name: Callable[[Any], str]) -> Counter[str]:
    """Bytes by name: two files of one name are one."""
    named: Counter[str] = Counter()
    for key, total in found.items():
        named[name(key)] += total.bytes
    return named


def to_text(a: Report, b: Report) -> str:
    """The comparison as plain text."""
    return terminal.plain(lambda frame: _everything(a, b, frame))


def show(a: Report, b: Report, file: TextIO) -> None:
    """Write it to a terminal with colours, to anything else as `to_text` has it."""
    terminal.write(lambda frame: _everything(a, b, frame), file)


def _everything(a: Report, b: Report, frame: box.Box | None) -> RenderableType:
    parts: list[RenderableType] = [_summary(a, b)]
    for title, changes in (
        ("by role", by_role(a, b)),
        ("by module", by_module(a, b)),
        ("by line", by_line(a, b)),
    ):
        parts.append(Text(f"\n{title}", style="bold"))
        if changes:
            parts.append(Padding(_table(changes, frame), (0, 0, 0, 2), expand=False))
        else:
            parts.append(Text("  no difference", style="dim"))
    return Group(*parts)


def _summary(a: Report, b: Report) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_row("  ", a.program, b.program, "")
    for name, x, y in (
        ("peak", a.peak.bytes, b.peak.bytes),
        ("allocated", a.allocated, b.allocated),
        ("copied", a.copied, b.copied),
        ("at the end", a.live, b.live),
    ):
        table.add_row(f"  {name}", readable(x), readable(y), _more(y - x))
    table.add_row("  seconds", f"{a.seconds:.3f}", f"{b.seconds:.3f}", "")
    return Group(Text("\nskimp diff: at their peaks", style="bold"), table)


def _more(nbytes: int) -> str:
    if not nbytes:
        return "the same"
    return f"{readable(abs(nbytes))} {'more' if nbytes > 0 else 'less'}"


def _table(changes: list[Change], frame: box.Box | None) -> Table:
    table = terminal.table(frame)
    for name in ("change", "before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("")
    for c in changes[:ROWS]:
        sign = "+" if c.more > 0 else "-"
        figures = (f"{sign}{readable(abs(c.more))}", readable(c.before), readable(c.after))
        table.add_row(*figures, c.word, Text(c.name))
    if len(changes) > ROWS:
        table.add_row("", "", "", "", f"{len(changes) - ROWS} smaller changes")
    return table
