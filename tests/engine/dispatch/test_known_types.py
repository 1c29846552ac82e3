"""Types of arguments that were judged once are known the next time, those in lists too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import skimp
from skimp._engine.dispatch import arguments
from skimp._engine.dispatch.row import FORMS

CALLS: dict[str, Callable[[], object]] = {
    "a list after a star": lambda: skimp.ones(3, 600, 100).flip((0, 1)),
    "numbers after a star": lambda: skimp.ones(3, 600, 100).flip(0, 1),
    "a list by place": lambda: skimp.ones(3, 600, 100).roll((1, 2), (0, 1)),
    "lists of two lengths": lambda: [skimp.ones(3, 600, 100).flip(d) for d in ((0, 1), (0, 1, 2))],
    "an option left out": lambda: skimp.ones(600, 100, 3).expand((600, 100, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_are_not_looked_at_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("flip", "roll", "expand"):  # what other tests called is not known
        form = FORMS[getattr(skimp.Tensor, op)]
        form.fine.clear()
        if form.judged:  # one for all forms, which never changes, before the first
            form.judged.clear()
    CALLS[name]()
    monkeypatch.setattr(arguments, "elements", None)
    CALLS[name]()


def test_a_list_and_its_numbers_are_not_the_same() -> None:
    x = skimp.ones(2, 3)
    assert x.flip((0, 1)).shape == (2, 3)
    for _ in range(2):
        with pytest.raises(TypeError):
            x.flip((0,), 1)
        with pytest.raises(TypeError):
            x.flip(("a", "b"))
        with pytest.raises(TypeError):
            x.permute((0, 1), 1)
