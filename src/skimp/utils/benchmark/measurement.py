"""What was timed, and how long it took."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_WIDE_AT = 0.1  # an interquartile range above this part of the median is a warning
_WIDER_AT = 0.25  # and above this a stronger one
_FINEST = 25e-9  # seconds that no clock tells apart
_MIN_MEASUREMENTS = 4


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time in seconds has one to three digits before the point, in seconds."""
    found = "ns"
    for unit, size in _UNITS.items():
        if t >= size:
            found = unit
    return found, _UNITS[found]


def unit_to_english(u: str) -> str:
    """A unit's name in full."""
    return _ENGLISH[u]


def trim_sigfig(x: float, n: int) -> float:
    """The number with `n` significant digits."""
    if x == 0:
        return 0.0
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(np.float32(round(x / scale) * scale))  # PyTorch's is a float32's


@dataclass(frozen=True, repr=False)
class TaskSpec:
    """What is timed: a statement and its labels."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement where it has none."""
        if self.label is None and "\n" in self.stmt:
            named = f" ({self.sub_label})" if self.sub_label else ""
            return f"stmt:{named}\n{textwrap.indent(self.stmt, '  ')}"
        title = self.stmt if self.label is None else self.label
        return title + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        """The setup, where there is one."""
        if self.setup in ("", "pass"):
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup, each on lines of its own."""
        parts = [s for s in (self.title, self.description, self.setup_str()) if s]
        return "\n".join([f"{s}\n" if "\n" in s else s for s in parts])


@dataclass(repr=False)
class Measurement:
    """Times of a statement: `raw_times` in seconds, each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def median(self) -> float:
        return float(np.median(self.times))

    @property
    def iqr(self) -> float:
        """From the first to the third quartile."""
        low, high = np.quantile(self.times, (0.25, 0.75))
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """Digits of the median that are certain, from 1 to 4: by the spread of the middle half."""
        times = np.asarray(self.times)
        low, high = np.quantile(times, (0.25, 0.75))
        middle = times[(low <= times) & (times <= high)]
        if not middle.size:
            return 1
        interval = max(1.645 * float(middle.std()) / math.sqrt(middle.size), _FINEST)
        return max(1, min(4, math.floor(math.log10(max(self.median, _FINEST) / interval))))

    @property
    def has_warnings(self) -> bool:
        """Whether the measurements spread wide."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _WIDE_AT) -> bool:
        """Whether the quartiles are within this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return self.task_spec.env or ""

    @property
    def as_row_name(self) -> str:
        """What the row of a table is called."""
        return self.task_spec.sub_label or self.task_spec.stmt

    def __repr__(self) -> str:
        if not self.raw_times:
            raise ValueError("cannot convert float NaN to integer")
        unit, size = select_unit(self.median)
        n = len(self.times)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if n > 1:
            lines.append(f"  Median: {self.median / size:.2f} {unit}")
            if n >= _MIN_MEASUREMENTS:
                low, high = np.quantile(self.times, (0.25, 0.75)) / size
                lines.append(f"  IQR:    {high - low:.2f} {unit} ({low:.2f} to {high:.2f})")
        else:
            lines.append(f"  {self.median / size:.2f} {unit}")
        threads = self.task_spec.num_threads
        lines.append(
            f"  {n} measurement{'s' * (n > 1)}, {self.number_per_run} runs "
            f"{'per measurement' * (n > 1)}, {threads} thread{'s' * (threads > 1)}"
        )
        if self.has_warnings:
            part = self.iqr / self.median
            lines += [
                f"  WARNING: Interquartile range is {part * 100:.1f}% of the median measurement.",
                "           This suggests significant environmental influence."
                if part >= _WIDER_AT
                else "           This could indicate system fluctuation.",
            ]
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all of its."""
        together: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            together.setdefault(m.task_spec, []).append(m)
        return [_merged(spec, group) for spec, group in together.items()]


def _merged(spec: TaskSpec, group: Sequence[Measurement]) -> Measurement:
    return Measurement(1, [t for m in group for t in m.times], spec)
