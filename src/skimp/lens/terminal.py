"""What renderings as text share: colours and frames on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

WIDTH = 160  # without a terminal: wide enough that little is cut off
Draw = Callable[[box.Box | None], RenderableType]  # with these frames, or none


def plain(draw: Draw, width: int = WIDTH) -> str:
    """As for a log: no colours, no frames, no spaces at lines' ends."""
    buffer = StringIO()
    Console(file=buffer, width=width, color_system=None).print(draw(None))
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def write(draw: Draw, file: TextIO, width: int = WIDTH) -> None:
    """To a terminal with colours, to anything else plain."""
    console = Console(file=file)
    if console.is_terminal:
        console.print(draw(box.SIMPLE_HEAD))
    else:
        file.write(plain(draw, width))


def table(frame: box.Box | None) -> Table:
    """A table without columns yet."""
    return Table(box=frame, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
