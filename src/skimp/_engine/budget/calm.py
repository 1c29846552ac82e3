"""Sleep for a program that does not repeat, within a budget without a file from which nothing goes.

What was not noted can't go there, so all is noted from the start. Where nothing went in some steps
one after the other, and nothing was kept of them, it is enough to note what is made once little
room is left: from there on ops have that room, whatever comes. After a step in which something goes
all is noted, until twice as many have passed in which nothing did.
"""

from __future__ import annotations

from typing import Final

from skimp._engine.budget.statistics import counts
from skimp._engine.budget.telling import floor
from skimp._engine.memory.ledger import host

STEPS: Final = 4  # in which nothing went
SPARE: Final = 8  # of the budget: the room from which on ops are noted; or twice what one needs
LEAST: Final = 2  # of it: where that is more, all is noted
KEEPS: Final = 64  # of it: what a program may keep of all these steps
APART: Final = 16  # of the budget: so much less has to be held before they are noted no more


class Calm:
    """Whether a budget is asleep as nothing goes, and bytes that are held where that ends."""

    def __init__(self) -> None:
        self.on = False
        self.wakes_at = self.sleeps_at = 0
        self._steps = 0  # in which nothing went
        self._wanted = STEPS
        self._held = 0  # at the end of the one before the first of them
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self.seen = 0  # bytes of the blocks that a budget was asked about, asleep or not
        self._evictions = counts.evictions
        self._before = host.total - counts.brought

    def ends(self, nbytes: int) -> None:
        """A step ends, within a budget of `nbytes`. `on`, from now on: none of it has to be noted,
        as long as no more is held than `wakes_at`. Where most bytes are small arrays', which nobody
        sees, all of it has to.
        """
        held = host.total - host.freed
        if counts.evictions != self._evictions or held > self._held + nbytes // KEEPS:
            if self.on:
                self._wanted *= 2
            self.on, self._steps, self._held = False, 0, held
        elif not self.on:
            self._steps += 1
            spare = max(nbytes // SPARE, 2 * floor.nbytes)
            plain = 2 * self.seen >= host.total - counts.brought - self._before
            self.on = self._steps >= self._wanted and plain and spare <= nbytes // LEAST
            self.wakes_at = nbytes - spare
            self.sleeps_at = self.wakes_at - nbytes // APART
        self.begin()
