"""Which tensors lie on the largest storages at the end of a recording."""

from __future__ import annotations

from pathlib import Path

from skimp.lens import load
from skimp.lens.data import Alias
from tests.support.running import default_mode, skimp, write

PROGRAM = """
    import torch

    class Log:
        rows = []

    x = torch.zeros(10, 4)
    Log.rows.append(x[2:4].t())
    y = torch.zeros(3)
    many = [y[1:] for _ in range(20)]
    e = torch.zeros(0, 3)
"""


@default_mode
def test_tensors_on_storages_have_names_and_extents(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = skimp("run", "--report", str(report), write(tmp_path, PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, third = load(report).shared
    assert first.tensors == (
        Alias("Log.rows[0]", (4, 2), (1, 4), 8, "float32", 32, 64),
        Alias("x", (10, 4), (4, 1), 0, "float32", 0, 160),
    )
    assert (len(second.tensors), second.more) == (16, 5)
    assert {(a.first, a.last) for a in second.tensors} == {(0, 12), (4, 12)}
    assert third.tensors == (Alias("e", (0, 3), (3, 1), 0, "float32", 0, 0),)
    assert first.order < second.order < third.order
