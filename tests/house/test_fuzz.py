"""The long form of the random programs finds what is wrong, and says it shortly."""

from __future__ import annotations

from typing import Any

import pytest

from tests import fuzz
from tests.support.autograd_twin import Step


def test_finds_are_short_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(ours: Any, theirs: Any, steps: list[Step]) -> str | None:
        """As if `exp` after `tanh` were wrong."""
        ops = [step[1] for step in steps if step[0] == "unary"]
        wrong = "tanh" in ops and "exp" in ops[ops.index("tanh") :]
        return "exp is wrong" if wrong else None

    monkeypatch.setattr(fuzz, "compare", compare)
    found = list(fuzz.programs(seed=3))
    assert found
    assert found == list(fuzz.programs(seed=3))
    for find in found:
        assert "exp is wrong" in find
        (steps,) = eval(find.split("\n")[1])
        assert [step[:2] for step in steps] == [("unary", "tanh"), ("unary", "exp")]


def test_a_crash_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(ours: Any, theirs: Any, steps: list[Step]) -> str | None:
        raise MemoryError("no room")

    monkeypatch.setattr(fuzz, "compare", compare)
    assert fuzz.found_in([]) == "MemoryError: no room"
