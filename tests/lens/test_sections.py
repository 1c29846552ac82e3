"""What a report's text says: ten lines, and the sections that are asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skimp import lens
from skimp.lens import terminal, totals
from skimp.lens.data import Held, Peak, Place, Report, Saved, Step
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


def test_modules_of_several_outermost_ones_have_their_names(result: Report) -> None:
    """A generator and a discriminator both have a `blocks.0.mlp`."""
    other = Place("model.py", 20, "relu", "blocks.0.mlp", "Judge", "forward")
    both = (*HELD, Held(other, 1024, 1, "temporary", "blocks.0.mlp", "", "Judge"))
    saved = (Saved("linear", LINE, 4096, 1, True), Saved("relu", other, 1024, 1, True))
    report = replace(result, peak=replace(result.peak, held=both), saved=saved)
    text = lens.to_text(report, ("lines", "saved"))
    assert "GPT.blocks.0 4.00 KiB" in text  # by module
    assert "relu Judge.blocks.0.mlp" in text
    assert "  Judge.blocks.0.mlp  model.py:20" in text
    loss = Held(replace(other, module=""), 4, 1, "temporary", "", "", "CrossEntropyLoss")
    report = replace(result, peak=replace(result.peak, held=(*HELD, loss)))
    assert "GPT.blocks" not in lens.to_text(report, ("lines",))


@pytest.mark.parametrize("width", [70, 80, 120])
def test_no_number_and_no_line_is_cut_off_on_a_narrow_terminal(result: Report, width: int) -> None:
    place = replace(LINE, file="/somewhere/far/away/package/_impl/long_name_of_a_module.py")
    module = "layers.0.attention.output"
    long = Held(place, 123456789, 1234, "saved for backward", module, "", "GPT")
    report = replace(result, peak=replace(result.peak, held=(long,)))
    text = terminal.plain(lambda _: lens.render.drawn(report, ("lines",)), width)
    lines = text[text.index("live at the peak") :].splitlines()
    head = next(line for line in lines if "tensors" in line)

    def cell(column: str, after: str) -> str:
        """All that stands below a column's name."""
        begin, end = head.index(column), head.index(after)
        below = lines[lines.index(head) + 1 :]
        return "".join([line[begin:end].strip(" ─") for line in below])

    assert "117.74 MiB" in text
    assert "1234" in text
    assert cell("where", "op").endswith("long_name_of_a_module.py:11")
    assert cell("op", "line") == f"linear{module}"


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
