"""Whether a program does what it did before: then what was enough is enough again, and what went
then goes at the same allocations, without a search, and no recipe is noted but for that.

A period is what lies between two ends of backward at which nothing is away (but in the file), known
by the sizes of what is large: allocations, and expressions as they begin to wait (when one is
computed depends on what is away). What came after a period is expected after the next one like it.
Where small allocations, which nobody sees, are more than half, nothing is expected.
"""

from __future__ import annotations

import itertools
import weakref
from array import array
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from skimp._engine.budget.evictable import Evictable, age
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import KEPT, host

MANY: Final = 1 << 14  # events in a period (allocations, new expressions): more are not followed
KNOWN: Final = 64  # periods
MISSES: Final = 2
TRIES: Final = 4  # periods alike in which something went, the cheapest of which is a plan
LEARNS: Final = 8  # times that more goes than a plan has, which knows that then
ROOM: Final = 1 << 16  # bytes that a period may hold beyond what one like it did: logs grow
BETWEEN: Final = 12  # bits of the number of a smaller storage between two events
NEAR: Final = 4  # events between two stretches of noting that are one
SPARE: Final = 8  # of a budget: whose recipes are noted beyond those of twice what went


class Gone(NamedTuple):
    """A storage that went: at which event, and which of them made it, or below 0 for a smaller one
    its place between two of them. `older`: or which, as it was there before the period.
    """

    at: int
    made: int
    nbytes: int
    older: weakref.ref[Any] | None = None


class Period:
    """Bytes that were asked for, below 0 for what waits, and bytes that were held then, event by
    event; and what went, when, and which stretches of it hold the recipes by which it went.
    """

    __slots__ = ("before", "brought", "goes", "held", "most", "next", "noted", "room", "seen",
                 "sizes", "spent", "stretches", "whole")  # fmt: skip

    def __init__(self) -> None:
        self.before: Final = host.total  # bytes that were ever allocated
        self.brought: Final = counts.brought
        self.spent = counts.spent  # on what went; until it ends: on all before it
        self.sizes: Final = array("q")
        self.held = array("q")
        self.most = 0  # bytes that were held where an expression was computed
        self.next: Period | None = None  # the one that came after it
        self.seen = 1  # times that one like it was remembered
        self.room = 0  # bytes that it may hold beyond that
        self.goes: list[Gone] = []
        self.noted: set[tuple[int, int]] = set()  # from where to where a needed recipe was noted
        self.stretches: list[tuple[int, int]] = []  # all that, in order
        self.whole = True  # all that went was made in it, so it can be had like this again

    def is_like(self, other: Period) -> bool:
        """Whether this asked for the same, and held about the same where nothing went: never more
        than that may.
        """
        if self.sizes != other.sizes:
            return False
        room = other.room
        return bool(self.goes or other.goes) or all(
            [-ROOM <= a - b <= room for a, b in zip(self.held, other.held, strict=True)]
        )

    def take(self, other: Period) -> None:
        """Have the same go as in one like this."""
        self.held, self.goes, self.stretches = other.held, other.goes, other.stretches
        self.spent, self.room = other.spent, other.room

    def is_plain(self) -> bool:
        """Whether what ends now is told by its large allocations, and they are not too many."""
        new = host.total - self.before - (counts.brought - self.brought)
        return 0 < len(self.sizes) <= MANY and 2 * sum(map(abs, self.sizes)) >= new

    def small_ones(self) -> list[Any]:
        """Of what goes, those of before it whose tensors keep arrays as a rule."""
        found = [one.older() for one in self.goes if one.older is not None and one.nbytes < KEPT]
        return [s for s in found if s is not None]

    def end(self, budget: int) -> None:
        """What it holds is known."""
        self.whole &= len(self.sizes) == len(self.held)  # an interrupt may come between the two
        self.spent = counts.spent - self.spent
        self.stretches = self._widened(list(_merged(sorted(self.noted))), budget // SPARE)
        asked = zip(self.sizes, self.held, strict=False)
        most = max([self.most, *[max(nbytes, 0) + held for nbytes, held in asked]])
        rounding = 0 if host.backing is None else host.backing.rounding
        self.room = (
            budget // SPARE if self.goes else min(max(budget - most - rounding, 0) // 2, ROOM)
        )

    def _widened(self, stretches: list[tuple[int, int]], spare: int) -> list[tuple[int, int]]:
        """The last one goes on until there is more that may go: a program may do something else."""
        if not stretches:
            return stretches
        wanted = spare + 2 * sum([one.nbytes for one in self.goes])
        noted = sum([sum(map(abs, self.sizes[start : end + 1])) for start, end in stretches])
        start, end = stretches.pop()
        while noted < wanted and end < len(self.sizes):
            end += 1
            noted += sum(map(abs, self.sizes[end : end + 1]))
        return [*stretches, (start, end)]


def _merged(stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first, last = -1, -1
    for start, end in stretches:
        if first < 0 or start > last + NEAR:
            if first >= 0:
                yield first, last
            first, last = start, end
        last = max(last, end)
    if first >= 0:
        yield first, last


def _in_turn(period: Period | None) -> list[Period]:
    """A period and those that are expected after it."""
    found: list[Period] = []
    while period is not None and period not in found:
        found.append(period)
        period = period.next
    return found


class Repetition:
    """The periods of a program, and which of them is expected now."""

    def __init__(self) -> None:
        self._known: list[Period] = []
        self.turns = 0  # the number of the period
        self._before: Period | None = None  # the last one that ended
        self.repeats = False  # it was like the one before it, but for what went
        self._missed = 0  # times that the program did something else than what was expected
        self._learned = 0  # times that what went in a plan was not enough
        self.started = 0  # `at`, when the last op began that is part of no other
        self.expected: Period | None = None  # it is followed, and nothing is remembered
        self.forget()

    def forget(self) -> None:
        """Expect nothing, and begin to remember in the middle of a period, which is not known."""
        self._expect(None)
        self._last: Period | None = None
        self._begin()
        self._now.whole = False

    def depart(self) -> None:
        """What was expected does not come. That was too often: nothing is expected any more where
        something goes, for what was not noted stays.
        """
        if self.expected is not None and self.expected.goes:
            self._missed += 1
        self.forget()

    def learns(self) -> bool:
        """What went in the plan was not enough, as kernels' scratch memory is not always the same:
        whether what goes now beside it becomes part of it. Not too often: each time costs a look
        at all that there is.
        """
        expected = self.expected
        if expected is None:
            return True
        self._learned += 1
        return bool(expected.goes) and self._learned <= LEARNS

    def learn(self, s: Any, nbytes: int) -> None:
        """A storage went that is not in the plan: it is from now on, if it can be told again."""
        expected = self.expected
        if expected is not None and expected.goes:
            gone = self._goes(s, nbytes)
            if gone.older is None or nbytes >= KEPT:
                expected.goes.insert(self._gone, gone)
                self._gone += 1  # one step with the line above

    def _goes(self, s: Any, nbytes: int) -> Gone:
        turn, made = s.number
        older = None if turn == self.turns else weakref.ref(s)
        return Gone(self.at, made, nbytes, older)

    def forget_all(self) -> None:
        """The same, and what was is no measure of what comes."""
        self.forget()
        self._known.clear()

    def _begin(self) -> None:
        self._now = Period()
        self._born = age()  # the youngest storage that was there before
        self.turns += 1
        self.at = 0  # events up to now
        self.started = 0
        self._smaller = 0  # allocations since the last event
        self.smaller: set[int] = set()  # of them that are expected to go
        self._gone = 0  # of those that are expected to go
        self._stretch = 0
        self._owners: dict[int, weakref.ref[Any]] = {}

    # -- remembering ------------------------------------------------------------------------------

    def remember(self, nbytes: int, owner: Any) -> None:
        """A large allocation is about to be made, or an expression waits (`-nbytes`)."""
        now = self._now
        if len(now.sizes) <= MANY:
            now.sizes.append(nbytes)
            now.held.append(host.total - host.freed)
        owner.number = self.turns, self.at
        self.at += 1
        self._smaller = 0

    def place(self, owner: Any) -> None:
        """A smaller allocation is about to be made, or an expression waits. No period is known by
        these, but they may go.
        """
        self._smaller += 1
        made = -((self.at << BETWEEN) + self._smaller)
        if self.expected is None:
            owner.number = self.turns, made
        elif made in self.smaller:
            owner.loose = True
            owner.number = self.turns, made
            self._owners[made] = weakref.ref(owner)

    def sees(self, held: int) -> None:
        """A large expression is about to be computed, and so many bytes are held with it."""
        if held > self._now.most:
            self._now.most = held

    def went(self, s: Any, nbytes: int, recipes: Iterable[Any]) -> None:
        """A storage's bytes go now, because of these recipes."""
        now = self._now
        if self.expected is not None or not now.whole:
            return
        if max(len(now.sizes), len(now.goes)) > MANY:
            now.whole = False  # a program without backward is in one period for ever
            return
        gone = self._goes(s, nbytes)
        if gone.older is not None:
            now.whole &= nbytes >= KEPT or s.born <= self._born  # a small one of it has no place
        now.goes.append(gone)
        for one in recipes:
            turn, start, end = one.noted
            now.whole &= turn == self.turns
            now.noted.add((start, end))

    def repeating(self) -> int | None:
        """The period, if the program repeats."""
        return self.turns if self.repeats else None

    def turn(self, budget: int) -> Period | None:
        """A period ends that was remembered; the one that is expected after it, if one like it was
        there before.
        """
        self._now.end(budget)
        self.repeats = self._before is not None and self._before.sizes == self._now.sizes
        self._before = self._now
        found = self._like_before(self._now)
        self._begin()
        self._last = found
        after = None if found is None else found.next
        if after is not None and after.goes:
            return after if after.seen >= TRIES and self._missed < MISSES else None
        return after

    def _like_before(self, now: Period) -> Period | None:
        """The known period that one is like; if there is none, it is known from now on."""
        if not (now.whole and now.is_plain()):
            return None
        found = next((one for one in self._known if now.is_like(one)), None)
        if found is None:
            found = now
            self._known.append(now)
            if len(self._known) > KNOWN:
                self._known.pop(0).next = None
        else:
            found.seen += 1
            if now.spent < found.spent:
                found.take(now)
        if self._last is not None:
            self._last.next = found
        return found

    # -- following --------------------------------------------------------------------------------

    def follow(self, expected: Period) -> None:
        """Expect a period, which begins."""
        self._begin()
        self._expect(expected)
        self.smaller.update([s.made for s in expected.goes if s.made < 0 and s.older is None])

    def _expect(self, period: Period | None) -> None:
        """Follow a period, or none. No tensor keeps an array over small ones of before that go in
        it or in those after it, for that would pin them; over others they may again.
        """
        followed = _in_turn(period)
        for one in _in_turn(self.expected):
            for s in [] if one in followed else one.small_ones():
                s.loose = type(s) is Evictable
        self.expected = period
        for one in followed:
            for s in one.small_ones():
                s.loose = True

    def after(self) -> Period | None:
        """A period ends that was expected: the one that is expected after it, if it came whole."""
        expected = self.expected
        assert expected is not None
        return expected.next if self.at == len(expected.sizes) else None

    def goes_on(self, nbytes: int, owner: Any) -> bool:
        """Whether an event is the one that is expected, with no more held than then."""
        expected, at = self.expected, self.at
        if expected is None or at == len(expected.sizes) or expected.sizes[at] != nbytes:
            return False
        if expected.goes:
            owner.number = self.turns, at
            self._owners[at] = weakref.ref(owner)
        self.at += 1
        self._smaller = 0
        beyond = host.total - host.freed - expected.held[at] - expected.room
        return beyond <= 0 or beyond <= self._due(expected)

    def _due(self, expected: Period) -> int:
        """Bytes that went up to here, and are here as long as there is room."""
        nbytes = 0
        for one in itertools.islice(expected.goes, self._gone, None):
            if one.at >= self.at:
                break
            nbytes += one.nbytes
        return nbytes

    def next_to_go(self) -> Any:
        """What went next, when it was as now; None: nothing more went up to here."""
        expected = self.expected
        while expected is not None and self._gone < len(expected.goes):
            one = expected.goes[self._gone]
            if one.at > self.at:
                break
            self._gone += 1
            s = self._who(one)
            if s is not None and s.block is not None:  # else it went before, with another
                return s
        return None

    def ahead(self, tried: Collection[int]) -> Any:
        """What will go next, is there already and was not `tried`, where what went was not enough;
        None: nothing is.
        """
        if self.expected is None:
            return None
        for one in itertools.islice(self.expected.goes, self._gone, None):
            s = self._who(one)
            if s is not None and s.block is not None and id(s) not in tried:
                return s
        return None

    def _who(self, one: Gone) -> Any:
        ref = one.older or self._owners.get(one.made)
        return None if ref is None else ref()

    def notes(self) -> bool:
        """Whether a recipe that is needed is noted about here."""
        expected = self.expected
        assert expected is not None
        for start, end in itertools.islice(expected.stretches, self._stretch, None):
            if self.at <= end:
                return self.at >= start
            self._stretch += 1
        return False
