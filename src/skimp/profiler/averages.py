"""Events summed by name, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skimp.profiler.collect import Event


class Average:
    """All events of one name: times in microseconds, PyTorch's names."""

    def __init__(self, key: str, shapes: Any, events: list[Event]) -> None:
        self.key = key
        self.input_shapes = shapes
        self.count = len(events)
        self.is_user_annotation = any([e.user for e in events])
        self.cpu_time_total = sum([e.duration for e in events]) / 1000
        self.self_cpu_time_total = sum([e.duration - e.children for e in events]) / 1000
        self.cpu_memory_usage = sum([e.allocated for e in events])
        self.self_cpu_memory_usage = sum([e.allocated - e.children_allocated for e in events])
        self.device_time_total = self.self_device_time_total = 0.0
        self.cuda_time_total = self.self_cuda_time_total = 0.0

    @property
    def cpu_time(self) -> float:
        """Of one call."""
        return self.cpu_time_total / self.count

    @property
    def cpu_time_total_str(self) -> str:
        return time_text(self.cpu_time_total)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={time_text(self.self_cpu_time_total)} "
            f"cpu_time={time_text(self.cpu_time)} cpu_memory_usage={self.cpu_memory_usage}>"
        )


def time_text(microseconds: float) -> str:
    """A time with its unit."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def bytes_text(nbytes: int) -> str:
    """Bytes with their unit."""
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


class Averages(list[Average]):
    """Averages, the longest by themselves first."""

    def __init__(self, rows: Iterable[Average] = (), memory: bool = False) -> None:
        super().__init__(rows)
        self._memory = memory

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events by themselves."""
        return sum([row.self_cpu_time_total for row in self])

    def total_average(self) -> Average:
        """All as one."""
        whole = Average("Total", None, [])
        for row in self:
            whole.count += row.count
            whole.cpu_time_total += row.cpu_time_total
            whole.self_cpu_time_total += row.self_cpu_time_total
            whole.cpu_memory_usage += row.cpu_memory_usage
            whole.self_cpu_memory_usage += row.self_cpu_memory_usage
        return whole

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        **_: Any,
    ) -> str:
        """The rows as text, sorted by a time, a count or bytes: `sort_by="cpu_time_total"`."""
        rows = list(self)
        if sort_by is not None:
            if not rows or not hasattr(rows[0], sort_by):
                known = (
                    "cpu_time_total, self_cpu_time_total, cpu_time, count, cpu_memory_usage, "
                    "self_cpu_memory_usage"
                )
                if rows:
                    raise AttributeError(f"table(sort_by={sort_by!r}): it is one of {known}")
            rows.sort(key=lambda r: getattr(r, sort_by), reverse=True)
        whole = self.self_cpu_time_total or 1.0
        titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        titles += ["CPU Mem", "Self CPU Mem"] * self._memory + ["# of Calls"]
        shapes = any([row.input_shapes is not None for row in rows])
        titles += ["Input Shapes"] * shapes
        cells = [
            [
                _short(row.key, max_name_column_width),
                f"{row.self_cpu_time_total / whole:.2%}",
                time_text(row.self_cpu_time_total),
                f"{row.cpu_time_total / whole:.2%}",
                time_text(row.cpu_time_total),
                time_text(row.cpu_time),
                *(
                    [bytes_text(row.cpu_memory_usage), bytes_text(row.self_cpu_memory_usage)]
                    * self._memory
                ),
                str(row.count),
                *([_short(str(row.input_shapes), max_shapes_column_width)] * shapes),
            ]
            for row in (rows if row_limit < 0 else rows[:row_limit])
        ]
        return _laid_out(titles, cells, header, whole if rows else 0.0)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _laid_out(titles: list[str], cells: list[list[str]], header: str | None, whole: float) -> str:
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    rule = "  ".join(["-" * w for w in widths])
    lines = [] if header is None else ["=" * len(rule), header]
    lines += [rule, "  ".join([t.rjust(w) for t, w in zip(titles, widths, strict=True)]), rule]
    lines += ["  ".join([c.rjust(w) for c, w in zip(row, widths, strict=True)]) for row in cells]
    return "\n".join([*lines, rule, f"Self CPU time total: {time_text(whole)}", ""])


def averages(events: Iterable[Event], by_shape: bool, memory: bool) -> Averages:
    """Events by name, and by the shapes of their arguments if asked."""
    groups: dict[tuple[str, str], list[Event]] = {}
    for e in events:
        groups.setdefault((e.name, str(e.shapes) if by_shape else ""), []).append(e)
    rows = [
        Average(name, found[0].shapes if by_shape else None, found)
        for (name, _), found in groups.items()
    ]
    rows.sort(key=lambda r: r.self_cpu_time_total, reverse=True)
    return Averages(rows, memory)
