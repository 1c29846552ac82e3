"""Notebooks: `%load_ext skimp`, then `%%memory` at the head of a cell.

What a cell did to memory is shown below its output: in a notebook as the page that `skimp run
--report FILE.html` writes, in a terminal as the text of `skimp run`.
"""

from __future__ import annotations

import argparse
import shlex
from html import escape
from pathlib import Path
from typing import Any

from skimp._engine.memory.regions import Region
from skimp._engine.memory.sizes import readable
from skimp.lens.data import Report
from skimp.lens.html import to_html
from skimp.lens.recording import Recording
from skimp.lens.render import to_text

HEIGHT = 720  # pixels of the page below a cell


class Shown:
    """A report that a notebook shows as a page, and a terminal as text."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __repr__(self) -> str:
        return to_text(self.report)

    def _repr_html_(self) -> str:
        page = escape(to_html(self.report), quote=True)
        return (
            f'<iframe srcdoc="{page}" title="where the memory went" '
            f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
        )


def load(shell: Any) -> None:
    """Give an IPython shell the magic `%%memory`, and a display of regions."""

    def memory(line: str, cell: str) -> Shown | None:
        """Run the cell, then show what it did to memory: %%memory [--report FILE] [--quiet]"""
        options = _options(line)
        recording = Recording("cell")
        with recording:
            done = shell.run_cell(cell)
        done.raise_error()
        report = recording.report()
        if options.report is not None:
            options.report.write_text(to_html(report), encoding="utf-8")
        return None if options.quiet else Shown(report)

    shell.register_magic_function(memory, magic_kind="cell", magic_name="memory")
    shell.display_formatter.formatters["text/html"].for_type(Region, region_table)


def region_table(region: Region) -> str:
    """A region's figures as a small table."""
    rows = (
        ("peak", readable(region.peak)),
        ("above what was there", readable(region.extra)),
        ("allocated", f"{readable(region.allocated)} in {region.allocations:,} allocations"),
        ("copied", readable(region.copied)),
        ("never written", readable(region.unwritten)),
        ("time", f"{region.seconds:.3f} s"),
    )
    cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    title = f"<caption>{escape(region.name)}</caption>" if region.name else ""
    return f"<table>{title}{cells}</table>"


class _Words(argparse.ArgumentParser):
    """Wrong words are the cell's error; an interpreter does not end for them."""

    def error(self, message: str) -> Any:
        raise ValueError(f"%%memory: {message}; usage: %%memory [--report FILE] [--quiet]")


def _options(line: str) -> argparse.Namespace:
    parser = _Words(prog="%%memory", add_help=False)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(shlex.split(line))
