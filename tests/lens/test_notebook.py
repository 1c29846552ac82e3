"""Notebooks: `%load_ext skimp`, `%%memory`, and what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import skimp
from skimp.lens.notebook import Shown
from tests.support.shell import shell_of_ipython


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    with shell_of_ipython() as made:
        made.run_cell("%load_ext skimp\nimport skimp as torch").raise_error()
        yield made


def test_a_cell_shows_what_it_did_to_memory(shell: InteractiveShell) -> None:
    shown = shell.run_cell_magic("memory", "", "x = torch.ones(1000)\ny = x.t().clone()\nx + 1")
    assert isinstance(shown, Shown)
    assert shown.report.peak.bytes == 12000
    assert shown.report.allocations == 3
    assert "11.72 KiB" in repr(shown)
    assert "<iframe srcdoc=" in shown._repr_html_()
    assert "<html" not in shown._repr_html_()  # all of the page is escaped
    assert shell.user_ns["y"].shape == (1000,)
    ops = {held.place.op for held in shown.report.peak.held}
    assert ops == {"ones", "clone", "add"}
    shell.run_cell("del x, y")


def test_words_of_the_magic(shell: InteractiveShell, tmp_path: Path) -> None:
    page = tmp_path / "cell.html"
    assert shell.run_cell_magic("memory", f"--quiet --report {page}", "torch.ones(10)") is None
    assert page.read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match=r"unrecognized arguments: --loud; usage: %%memory"):
        shell.run_cell("%%memory --loud\n1").raise_error()


def test_an_error_of_the_cell_is_the_cell_s(shell: InteractiveShell) -> None:
    with pytest.raises(ValueError, match="the cell's own"):
        shell.run_cell("%%memory\nraise ValueError('the cell\\'s own')").raise_error()
    assert shell.run_cell("%%memory\ntorch.ones(3)").success  # and nothing listens any more


def test_regions_are_shown_as_tables(shell: InteractiveShell) -> None:
    with skimp.memory.region("a <step>") as r:
        skimp.ones(1000)
    html = shell.display_formatter.format(r)[0]["text/html"]
    assert "<caption>a &lt;step&gt;</caption>" in html
    assert "<th>peak</th><td>3.91 KiB</td>" in html
    assert repr(r).startswith("a <step>: peak 3.91 KiB (3.91 KiB extra), allocated 3.91 KiB")
