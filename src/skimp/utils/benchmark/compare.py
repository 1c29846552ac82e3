"""Compare: measurements as tables, a row for each sub-label and a column for each description."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from skimp.utils.benchmark.measurement import Measurement, select_unit, trim_sigfig, unit_to_english


class Compare:
    """Measurements to look at side by side: a table for each label, blocks by number of threads."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = False
        self.extend_results(results)

    def __str__(self) -> str:
        return "\n".join(self._rendered())

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """More of them."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Show no more digits than the spread of the measurements leaves certain."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Accepted: the tables have no colours."""

    def highlight_warnings(self) -> None:
        """Accepted: the tables have no colours."""

    def print(self) -> None:
        """Write the tables to stdout."""
        sys.stdout.write(f"{self}\n")

    def _rendered(self) -> list[str]:
        merged = Measurement.merge(self._results)
        labels = list(dict.fromkeys([m.task_spec.label or m.task_spec.stmt for m in merged]))
        return [
            self._table(
                label, [m for m in merged if (m.task_spec.label or m.task_spec.stmt) == label]
            )
            for label in labels
        ]

    def _table(self, label: str, results: list[Measurement]) -> str:
        unit, size = select_unit(min([m.median for m in results]))
        columns = list(dict.fromkeys([m.task_spec.description or "" for m in results]))
        rows = list(
            dict.fromkeys([(m.task_spec.num_threads, m.env, m.as_row_name) for m in results])
        )
        cells = {
            ((m.task_spec.num_threads, m.env, m.as_row_name), m.task_spec.description or ""):
                self._number(m, size)
            for m in results
        }  # fmt: skip
        titles = [f"      {f'({env}) ' if env else ''}{name}" for _, env, name in rows]
        first = max([len(t) for t in titles])
        widths = [max([len(c)] + [len(cells.get((r, c), "")) for r in rows]) for c in columns]

        def line(title: str, values: list[str]) -> str:
            parts = [v.center(w) for v, w in zip(values, widths, strict=True)]
            return "  |  ".join([title.ljust(first), *parts])

        body = [
            line(t, [cells.get((r, c), "") for c in columns])
            for r, t in zip(rows, titles, strict=True)
        ]
        header = line("", columns)
        width = max(map(len, [header, *body]))
        lines = [f" {label} ".center(width - 2, "-").join("[]"), header]
        threads = None
        for row, text in zip(rows, body, strict=True):
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(width, "-"))
            lines.append(text)
        return "\n".join([*lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", ""])

    def _number(self, m: Measurement, size: float) -> str:
        value = m.median / size
        if self._trim:
            value = trim_sigfig(value, m.significant_figures)
        return f"{value:.1f}"
