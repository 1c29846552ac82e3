"""A test's own module is the program: other tests' modules don't hold its tensors."""

from __future__ import annotations

import pytest

from skimp.memory import search


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked for in the test's module and in what is no test: in a process that has all
    tests, each report walked the modules of hundreds, twice.
    """
    own, is_users = request.module.__name__, search._is_users

    def is_programs(name: str) -> bool:
        return is_users(name) and (name == own or not name.startswith("tests."))

    monkeypatch.setattr(search, "_is_users", is_programs)
