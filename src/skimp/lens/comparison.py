"""Two engines' runs of one program side by side, as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, TextIO

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from skimp._engine.memory.sizes import readable
from skimp.lens import terminal
from skimp.lens.data import ROLES, Report

_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
NAMES = {"skimp": "skimp", "torch": "PyTorch"}


def show_comparison(
    first: Report, second: Report, seconds: Sequence[float], printed: Sequence[str], file: TextIO
) -> None:
    """Peaks by role, what was allocated, times, and whether both printed the same."""
    terminal.write(
        lambda frame: _everything(first, second, seconds, printed, frame), file, width=120
    )


def _everything(
    first: Report,
    second: Report,
    seconds: Sequence[float],
    printed: Sequence[str],
    frame: box.Box | None,
) -> RenderableType:
    title = Text("\nskimp: ", style="bold").append(f"{second.program} on both engines", "not bold")
    table = terminal.table(frame)
    table.add_column("")
    for report in (first, second):
        table.add_column(NAMES[report.engine], justify="right", style="cyan", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    _bytes(table, "peak", first.peak.bytes, second.peak.bytes)
    roles = first.peak.by_role(), second.peak.by_role()
    for role in ROLES:
        a, b = (one.get(role, 0) for one in roles)
        if a or b:
            _bytes(table, f"  {role}", a, b)
    _bytes(table, "allocated", first.allocated, second.allocated)
    _bytes(table, "live at the end", first.live, second.live)
    times = [f"{t:.2f} s" for t in seconds]
    table.add_row("time by itself", *times, f"{seconds[1] / seconds[0]:.2f}")
    recorded = [f"{report.seconds:.2f} s" for report in (first, second)]
    table.add_row("time while recorded", *recorded, "")
    return Group(title, Padding(table, (0, 0, 0, 2), expand=False), _printed(*printed))


def _bytes(table: Table, name: str, a: int, b: int) -> None:
    table.add_row(name, readable(a), readable(b), f"{b / a:.2f}" if a else "")


def _apart(first: str, second: str) -> float | None:
    """How far numbers of two texts are apart, of the larger one; None: other words differ too."""
    if _NUMBER.sub("", first) != _NUMBER.sub("", second):
        return None
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    sizes = [(abs(float(a) - float(b)), max(abs(float(a)), abs(float(b)))) for a, b in pairs]
    return max((apart / size for apart, size in sizes if apart), default=0.0)


def _printed(first: str, second: str) -> Text:
    """Whether the engines' programs printed the same, and if not, where they part."""
    a, b = first.splitlines(), second.splitlines()
    if a == b:
        count = (
            "nothing" if not a else "the same line" if len(a) == 1 else f"the same {len(a)} lines"
        )
        return Text(f"\n  both printed {count}")
    pairs = enumerate(zip_longest(a, b, fillvalue="(nothing)"), 1)
    number, (left, right) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
    words = f"\n  what they printed differs from line {number} on"
    apart = _apart(first, second)
    if apart is not None:
        words += f", in numbers alone: by at most {apart:.1g} of their size"
    return Text(f"{words}\n    PyTorch  {left}\n    skimp    {right}")
