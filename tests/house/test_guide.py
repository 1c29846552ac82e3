"""The guide's notebook runs as a reader runs it, and shows what it is said to show."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.support.shell import shell_of_ipython

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "guide" / "tensors.ipynb"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    with shell_of_ipython() as made:
        yield made


def cells() -> list[tuple[str, str]]:
    """Program and picture of each cell that has code."""
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    return [
        ("".join(cell["source"]), "".join(cell["outputs"][0]["data"]["image/svg+xml"]))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_the_notebook_has_ten_pictures() -> None:
    assert len(cells()) == 10


def test_the_notebook_runs(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    for program, picture in cells():
        done = shell.run_cell(program)
        done.raise_error()
        assert done.result._repr_svg_() == picture
    assert "storage A" in capsys.readouterr().out  # what a terminal shows of the same object


def test_pictures_and_notebook_are_those_of_the_page() -> None:
    command = [sys.executable, str(ROOT / "tools" / "guide.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
