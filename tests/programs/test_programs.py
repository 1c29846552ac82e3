"""Programs as people write them, of many kinds, print under skimp what they print under PyTorch.

The numbers that they print are compared one by one: to 3e-5, which a dozen steps of training make
of a difference in the last digit at most.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.running import SKIMP, WITH_WARNINGS, default_mode, printed_by_pytorch
from tests.support.shared import made_once

PROGRAMS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?|\bnan\b|\binf\b")
pytestmark = default_mode


@made_once
def by_pytorch() -> dict[str, list[str]]:
    """The lines that each program prints under PyTorch."""
    with TemporaryDirectory() as folder:
        return printed_by_pytorch(Path(folder), [str(path) for path in PROGRAMS])


def numbers(line: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(line)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_under_pytorch(path: Path, tmp_path: Path) -> None:
    done = WITH_WARNINGS.run([*SKIMP, "run", "--quiet", str(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    lines, wanted = done.stdout.splitlines(), by_pytorch()[str(path)]
    assert [NUMBER.sub("#", line) for line in lines] == [NUMBER.sub("#", line) for line in wanted]
    assert len(lines) >= 9
    for line, other in zip(lines, wanted, strict=True):
        assert numbers(line) == pytest.approx(numbers(other), rel=3e-5, abs=1e-5, nan_ok=True), (
            line,
            other,
        )
