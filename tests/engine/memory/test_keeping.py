"""What only expressions that wait keep alive is found, and not looked for when there is none."""

from __future__ import annotations

import pytest

import skimp
from skimp._engine.memory import pending
from skimp._engine.memory.keeping import Watch
from skimp._engine.memory.storage import empty

BYTES = 1 << 20


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many storages were found at each look."""
    found: list[int] = []
    look = Watch.look

    def counted(self: Watch, waiting: list[skimp.UntypedStorage]) -> set[int]:
        alone = look(self, waiting)
        found.append(len(alone))
        return alone

    monkeypatch.setattr(Watch, "look", counted)
    return found


def waits(t: skimp.Tensor) -> bool:
    return t._storage in pending.pending()


def test_a_storage_that_somebody_holds_is_not_looked_at(looks: list[int]) -> None:
    with skimp.config.using(defer="always"):
        x, w = skimp.ones(BYTES // 4), skimp.ones(BYTES // 4)
        y = x + w
        empty(BYTES)
        empty(BYTES)
        assert (looks, waits(y)) == ([], True)
        del w  # its block will be the result's
        empty(BYTES)
        empty(BYTES)
        assert (looks, waits(y)) == ([1], True)
        del x  # both can't be
        empty(BYTES)
        assert (looks[1:2], waits(y)) == ([2], False)


def test_who_takes_over_a_block_is_asked_again_when_another_reads_it(looks: list[int]) -> None:
    with skimp.config.using(defer="always"):
        x = skimp.ones(BYTES // 4)
        y = x + 1
        del x
        empty(BYTES)
        assert (looks, waits(y)) == ([1], True)
        z = y.double()
        del y  # its block is too small for the result
        empty(BYTES)
        assert not waits(z)


def test_many_that_wait_are_looked_at_once(looks: list[int]) -> None:
    with skimp.config.using(defer="always"):
        held = [skimp.empty(BYTES // 4) for _ in range(257)]
        sums = [t + 1 for t in held]
        for _ in range(4):
            empty(BYTES)
        assert (looks, all(map(waits, sums))) == ([0], True)
