"""The pages tell the truth: their programs run and print what is written below them."""

from __future__ import annotations

import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.support.running import skimp

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def programs() -> list[tuple[str, str, str | None]]:
    """Page and number, code, and what a text block right behind it says that it prints."""
    found = []
    for page in PAGES:
        blocks = list(BLOCK.finditer(page.read_text()))
        for block, after in zip_longest(blocks, blocks[1:]):
            if block[1] == "python":
                told = after is not None and after[1] == "text" and after.start() - block.end() <= 2
                name = f"{page.relative_to(ROOT)}:{block.start()}"
                found.append((name, block[2], after[2] if told and after else None))
    return found


def run(folder: Path, code: str) -> str:
    """What the program prints under `skimp run`."""
    script = folder / "block.py"
    script.write_text(code)
    done = skimp("run", "--quiet", str(script), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAMS = programs()


@pytest.mark.parametrize(
    ("code", "printed"), [p[1:] for p in PROGRAMS], ids=[name for name, _, _ in PROGRAMS]
)
def test_programs_on_the_pages_run(tmp_path: Path, code: str, printed: str | None) -> None:
    result = run(tmp_path, code)
    if printed is not None:
        assert result == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


# Names on the notes that are the system's or an earlier design's, and stand in no file here.
ELSEWHERE = frozenset({
    "MPIR_CVAR_ASYNC_PROGRESS", "MPI_Finalize", "cblas_sgemm", "ru_nvcsw", "MADV_FREE",
    "is_dataclass", "memory_budget", "UCX_NET_DEVICES", "UCX_TLS", "SA_ONSTACK", "MALLOC_ARENA_MAX",
})  # fmt: skip
SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\b[A-Za-z_]\w*_\w+|\b\w+\.py\b")
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))


@pytest.mark.parametrize("note", NOTES, ids=lambda p: p.name)
def test_names_on_the_notes_exist(note: Path) -> None:
    """Files and names with an underscore, where the notes set them as code."""
    text = re.sub(r"^```.*?^```", "", note.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = {name for span in SPAN.findall(text) for name in NAME.findall(span)}
    assert sorted(named - words() - ELSEWHERE) == []


@cache
def words() -> set[str]:
    """The names of files, and the words in them."""
    files = [f for folder in ("src", "tests", "bench", "tools") for f in (ROOT / folder).rglob("*")]
    read = [f for f in files if f.suffix in (".py", ".txt", ".toml")]
    found = {f.name for f in files} | {f.stem for f in read}
    for f in read:
        found.update(re.findall(r"[A-Za-z_]\w*", f.read_text()))
    return found


def test_commands_on_the_pages_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\bmake (\w+)  ", page.read_text())}
    assert named <= targets
    assert {"demo", "test", "check", "bench"} <= targets
