"""`skimp diff`: what differs between the peaks of two reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skimp import lens
from skimp.lens import diff
from skimp.lens.data import Held, Peak, Place, Report
from tests.support.running import skimp as command, write

PROGRAM = """
    import torch
    net = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range({depth})])
    {more}
    net(torch.ones(4, 16)).sum().backward()
"""


def report(*held: Held) -> Report:
    total = sum(h.bytes for h in held)
    peak = Peak(total, 0.1, held[0].place, held)
    return Report("train.py", 1.0, peak, len(held), total, total, 0, ())


def at(line: int, nbytes: int, role: str, module: str) -> Held:
    return Held(Place("/x/train.py", line, "linear"), nbytes, 1, role, module, "", "Net")


A = report(at(3, 100, "parameter", "a"), at(7, 50, "saved for backward", "a"))
B = report(at(3, 100, "parameter", "a"), at(7, 80, "saved for backward", "a"), at(9, 7, "data", ""))


def test_changes_by_role_module_and_line_add_up() -> None:
    assert [(c.name, c.more, c.word) for c in diff.by_role(A, B)] == [
        ("saved for backward", 30, "grew"),
        ("data", 7, "appeared"),
    ]
    assert [(c.name, c.more, c.word) for c in diff.by_line(A, B)] == [
        ("train.py:7", 30, "grew"),
        ("train.py:9", 7, "appeared"),
    ]
    assert {c.name: c.more for c in diff.by_module(A, B)} == {"Net": 37, "Net.a": 30}
    assert [c.word for c in diff.by_line(B, A)] == ["shrank", "went"]
    assert diff.by_role(A, A) == []
    assert "no difference" in diff.to_text(A, A)


def test_a_program_is_the_same_whatever_it_is_called_and_files_of_one_name_are_one() -> None:
    def run(program: str, nbytes: int) -> Report:
        held = tuple(
            Held(Place(file, 7, "linear"), nbytes, 1, "parameter", "a", "", "Net")
            for file in (f"/x/{program}", "/y/model.py", "/z/model.py")
        )
        return replace(report(*held), program=f"old/{program}")

    a, b = run("train.py", 100), run("train2.py", 130)
    changes = {c.name: (c.before, c.after) for c in diff.by_line(a, b)}
    assert changes == {"train.py:7": (100, 130), "model.py:7": (200, 260)}


def test_two_runs_from_their_files(tmp_path: Path) -> None:
    for name, depth, more in (("a", 2, ""), ("b", 3, "kept = torch.ones(1000)")):
        script = write(tmp_path, PROGRAM.format(depth=depth, more=more), f"{name}.py")
        command("run", "--quiet", "--report", f"{name}.json", script, cwd=tmp_path)
    done = command("diff", "a.json", "b.json", "--report", "both.html", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "both.html").read_text().count('"engine":') == 2
    lost = command("diff", "a.json", "b.json", "--report", "no/both.html", cwd=tmp_path)
    assert lost.returncode == 2
    assert "can't write 'no/both.html'" in lost.stderr
    assert "appeared  Sequential.2" in done.stdout
    a, b = lens.load(tmp_path / "a.json"), lens.load(tmp_path / "b.json")
    assert sum(c.more for c in diff.by_role(a, b)) == b.peak.bytes - a.peak.bytes
    assert b.peak.bytes - a.peak.bytes > 4000


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone.json", "No such file or directory"), ("a.py", "no report of `skimp run`")],
)
def test_what_is_no_report_is_said(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path, "x = 1", "a.py")
    done = command("diff", name, name, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
