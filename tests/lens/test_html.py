"""The report as one page: what it carries, and what a browser makes of it."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skimp._engine.budget.statistics import Again, Outcome
from skimp.lens.data import (
    Advice,
    Alias,
    Allocations,
    Copied,
    Frame,
    Held,
    Mark,
    Peak,
    Place,
    Report,
    Shared,
    Step,
)
from skimp.lens.html import to_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOAD = Place("train.py", 3, "randn", stack=(0,))
RELU = Place("</script><b>.py", 7, "relu", "blocks.0", "Net", "forward", (0, 1))
PARAMETER, SAVED, TEMPORARY = 0, 4, 6


def report(engine: str = "skimp", **other: Any) -> Report:
    """A parameter that stays; a result that is saved, released and freed; a temporary."""
    detail = Allocations(
        steps=(0, 0),
        bytes=[1 << 20, 3 << 20, 5],
        place=[0, 1, 1],
        role=[PARAMETER, SAVED, TEMPORARY],
        module=["blocks.0", "blocks.0", ""],
        born=[0.0, 1.0, 2.0],
        freed=[-1.0, 5.0, 3.0],
        saved=[-1.0, 4.0, -1.0],
        step=[0, 0, 0],
        order=[0, 1, 2],
        gone=[-1, 4, 3],
        kept=(0,),
    )
    peak = Peak((4 << 20) + 5, 2.0, RELU, (Held(RELU, 3 << 20, 1),))
    return Report(
        program="train.py",
        seconds=5.0,
        peak=peak,
        allocations=3,
        allocated=(4 << 20) + 5,
        live=1 << 20,
        unwritten=0,
        copies=(Copied(RELU, "not contiguous", 4096, 2, (4, 4), (1, 4), LOAD),),
        engine=engine,
        frames=(Frame("train.py", 3, "<module>"), Frame("</script><b>.py", 7, "forward")),
        places=(LOAD, RELU),
        marks=(Mark("forward", "", 0.0, 2.0),),
        steps=(
            Step(0, 0, 0.0, 3.0, (4 << 20) + 5, 4 << 20),
            Step(1, 1, 3.0, 2.0, 4 << 20, 1 << 20),
        ),
        advice=(Advice("checkpoint", "checkpoint blocks.0", 3 << 20, 1 << 20),),
        detail=detail,
        shared=(Shared(0, (Alias("rows[0]", (8, 2), (2, 1), 4, "float32", 16, 80),), 3),),
        **other,
    )


def runs(page: str) -> list[dict[str, Any]]:
    """What the page's script is given."""
    found = re.search(r"^const RUNS = \[\n(.*?)\n\];$", page, re.MULTILINE | re.DOTALL)
    assert found
    return list(json.loads(f"[{found[1]}]"))


def column(run: dict[str, Any], name: str) -> list[int]:
    packed = run["columns"][name]
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(raw, f"<{packed['kind']}").tolist()


def test_the_page_needs_nothing_else() -> None:
    page = to_html(report())
    assert not re.search(r"\b(?:src|href)\s*=|url\(|@import|https?://", page)
    assert "@css@" not in page and "@js@" not in page and "@runs@" not in page  # noqa: PT018


def test_a_program_s_text_stays_text() -> None:
    page = to_html(report())
    assert page.count("</script>") == 1
    [run] = runs(page)
    assert run["report"]["places"][1]["file"] == "</script><b>.py"


def test_events_are_in_their_order() -> None:
    [run] = runs(to_html(report()))
    assert column(run, "index") == [0, 1, 2, 2, 1, 1]
    assert column(run, "kind") == [1, 1, 1, -1, 0, -1]
    assert [t * run["unit"] for t in column(run, "when")] == pytest.approx([0, 1, 2, 3, 4, 5])
    assert column(run, "bytes") == [1 << 20, 3 << 20, 5]
    assert [run["modules"][i] for i in column(run, "module")] == ["blocks.0", "blocks.0", ""]


def test_an_empty_report_and_a_long_one() -> None:
    empty = Report("a.py", 0.0, Peak(0, 0.0, Place("", 0, ""), ()), 0, 0, 0, 0, ())
    [run] = runs(to_html(empty))
    assert column(run, "when") == []
    n = 10_000
    days = [86400.0 * i for i in range(n)]
    never, numbers = [-1.0] * n, list(range(n))
    detail = Allocations(
        (0, 0), [1 << 33] * n, [0] * n, [6] * n, [""] * n, days, never, never, [0] * n,
        numbers, [-1] * n,
    )  # fmt: skip
    base = report()
    [run] = runs(to_html(Report(**{**_fields(base), "detail": detail})))
    assert column(run, "bytes")[0] == 1 << 33
    assert column(run, "when")[-1] * run["unit"] == pytest.approx(days[-1], rel=1e-6)


def _fields(one: Report) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Report.__dataclass_fields__}


def dom(path: Path) -> str:
    """What a browser makes of a page."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--virtual-time-budget=9000"]
    command += [f"--user-data-dir={path.parent / 'browser'}", "--dump-dom", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_two_runs_of_a_program_that_was_renamed_share_their_lines(tmp_path: Path) -> None:
    first = report()
    renamed = (replace(LOAD, file="/x/new.py"), RELU)
    path = tmp_path / "both.html"
    path.write_text(to_html(first, replace(first, program="new.py", places=renamed)))
    shown = dom(path)
    assert "before: 4.00 MiB in 3 storages" in shown
    assert "after: 4.00 MiB in 3 storages" in shown
    assert "train.py:3</td>" in shown
    assert "new.py:3</td>" not in shown


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("engines", [("skimp",), ("skimp", "torch")])
def test_a_browser_shows_it(tmp_path: Path, engines: tuple[str, ...]) -> None:
    path = tmp_path / "report.html"
    again = (Again("made", "relu", "net.py", 9, 3, 6 << 20, 0.25),)
    outcome = Outcome(
        budget=8 << 20, peak=7 << 20, seconds=4.0, spent=1.0, evictions=5, evicted=9 << 20,
        dropped=6 << 20, rematerialized=6 << 20, rematerialized_seconds=0.25, written=3 << 20,
        read=2 << 20, spill_seconds=0.5, search_seconds=0.001, again=again,
    )  # fmt: skip
    first, *others = map(report, engines)
    path.write_text(to_html(replace(first, budget=outcome), *others))
    shown = dom(path)
    assert "data-ready=" in shown
    assert "peak 4.00 MiB (4,194,309 bytes) at &lt;/script&gt;&lt;b&gt;.py:7 (relu)" in shown
    assert "4.00 MiB in 3 storages after 2.000 s" in shown  # the peak is pinned
    assert "forward script&gt;&lt;b&gt;.py:7" in shown  # the flame graph
    assert '<span id="gaps">. Hatched: steps whose' in shown  # of step 1 nothing is kept
    assert "checkpoint blocks.0 (saves 3.00 MiB of the peak)" in shown
    assert "rows[0]: float32 (8, 2), strides (2, 1), offset 4" in shown
    assert "3 more tensors" in shown
    assert "At most 7.00 MiB were held of 8.00 MiB. Bytes went 5 times (9.00 MiB" in shown
    assert "made again: 6.00 MiB in 250.00 ms" in shown
    assert "25% of the program's 4.000 s" in shown
    assert re.search("net.py:9</td>.*relu</td>.*made again</td>.*6.00 MiB</td>.*3</td>", shown)
    assert ">difference" in shown if len(engines) == 2 else ">tensors" in shown
    assert shown.count("<canvas") == len(engines)
