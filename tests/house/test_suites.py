"""The tool that runs other libraries' suites on both engines, on a library made up for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import suites

LIBRARY = """
import os, pytest, torch

@pytest.mark.parametrize("n", [1, 2])
def test_passes(n):
    assert torch.ones(n).sum() == n

@pytest.mark.parametrize("n", [1, 2, 3])
def test_only_there(n):
    assert torch.__file__.replace(os.sep, "/").split("/")[-2] == "torch", f"n is {n}"

def test_from_inside():
    torch.ones(2, 3, dtype=torch.chalf)

def test_nowhere():
    assert 0

def test_skipped():
    pytest.skip()
"""


@pytest.fixture
def ends(tmp_path: Path) -> list[dict[str, dict[str, str]]]:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "setup.cfg").touch()
    (tests / "test_library.py").write_text(LIBRARY)
    (tests / "test_not_importable.py").write_text("import torch.no_such_module\n")
    return [suites.run(tests, engine, 120) for engine in suites.ENGINES]


def test_what_fails_on_skimp_alone_is_told_by_cause(
    ends: list[dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    found = suites.causes(*ends)
    assert (len(found[0].tests), found[0].error) == (3, "AssertionError")
    assert found[0].words.startswith("n is N")
    assert "test_only_there" in found[0].where
    inside = next(c for c in found if c.tests == ("tests/test_library.py::test_from_inside",))
    assert inside.where.startswith("skimp/")
    assert len(found) == 2
    text = list(suites.report(tmp_path, *ends))
    assert "6 pass on PyTorch, 2 on skimp; 4 fail on skimp alone, by 2 causes, 2 on both" in text[0]


def test_numbers_and_addresses_are_no_causes() -> None:
    same = ["size 3 at 0x7f10, not -1.5e3\nmore", "size 44 at 0xabc, not 2"]
    assert len({suites.without_numbers(words) for words in same}) == 1


def test_an_engine_that_did_not_come_to_an_end_is_told(tmp_path: Path) -> None:
    late = {"": {"outcome": "failed", "error": "Timeout", "words": "", "where": "torch"}}
    assert next(iter(suites.report(tmp_path, late, {}))) == f"{tmp_path}: Timeout on torch."
