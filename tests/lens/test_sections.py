"""What a report's text says: ten lines, and the sections that are asked for."""

from __future__ import annotations

import pytest

from skimp import lens
from skimp.lens import totals
from skimp.lens.data import Held, Peak, Place, Report, Step
from skimp.lens.sections import SECTIONS

LINE = Place("model.py", 11, "linear", "blocks.0.mlp", "GPT", "forward")


def held(nbytes: int, role: str, module: str, root: str = "GPT") -> Held:
    return Held(LINE, nbytes, 1, role, module, "", root)


HELD = (
    held(4096, "saved for backward", "blocks.0.mlp"),
    held(2048, "saved for backward", "blocks.1"),
    held(1024, "parameter", "head"),
    held(512, "data", "", ""),
)


@pytest.fixture
def result() -> Report:
    steps = tuple([Step(i, i, 0.5 * i, 0.5, 7680 - i, 1024 * (i < 3)) for i in range(4)])
    peak = Peak(7680, 0.25, LINE, HELD, 0)
    return Report("train.py", 2.0, peak, 4, 7680, 0, 0, (), steps=steps)


def test_the_summary_has_ten_lines_with_role_module_line_and_growth(result: Report) -> None:
    lines = lens.to_text(result, ()).strip().splitlines()
    assert len(lines) <= 10
    assert lines[0] == "skimp: train.py, 2.000 s, 3 steps"
    text = "\n".join(lines)
    assert "by role" in text
    assert "saved for backward 6.00 KiB, parameter 1.00 KiB, data 512 bytes" in text
    assert "blocks.0.mlp 4.00 KiB, blocks.1 2.00 KiB, head 1.00 KiB, (no module) 512 bytes" in text
    assert "model.py:11 7.50 KiB" in text
    assert "no growth: the last steps ended with 1.00 KiB" in text


@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_can_be_asked_for_alone(result: Report, name: str) -> None:
    text = lens.to_text(result, (name,))
    assert SECTIONS[name](result).title in text
    others = [SECTIONS[other](result).title for other in SECTIONS if other != name]
    assert not [title for title in others if f"\n{title}\n" in text]


def test_modules_have_what_is_below_them(result: Report) -> None:
    found = totals.by_module(result.peak.held)
    assert found["GPT",].bytes == 7168
    assert found["GPT", "blocks"].bytes == 6144
    order = [path for path, _ in totals.tree(found)]
    assert order[:4] == [
        ("GPT",),
        ("GPT", "blocks"),
        ("GPT", "blocks", "0"),
        ("GPT", "blocks", "0", "mlp"),
    ]


def test_lines_and_roles_add_up_to_the_peak(result: Report) -> None:
    for by in (totals.by_line, totals.by_role):
        assert sum(total.bytes for total in by(HELD).values()) == result.peak.bytes
