"""What the budget tells: what an op needs where it does not fit, when most of the time goes into
bringing bytes back, and in the end what it did.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

from skimp._engine.budget import recipes
from skimp._engine.budget.spill import FULL
from skimp._engine.budget.statistics import Outcome, counts
from skimp._engine.memory import call_site
from skimp._engine.memory.ledger import host
from skimp._engine.memory.sizes import readable

_PATIENCE: Final = 3.0  # seconds of a program before its time is judged
_LINES: Final = 5  # that a message or a report lists
_SPILL: Final = "Let the budget spill (no --no-spill, spill=True), and it may go."


class Held(NamedTuple):
    """Bytes that could not be taken away, and the line that made them."""

    site: call_site.Site | None
    nbytes: int


class Floor:
    """The most that one op was seen to need at once, and its line."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.nbytes = 0
        self.all = 0  # bytes that the program had then, here or away
        self.site: call_site.Site | None = None
        self._read: list[weakref.ref[Any]] = []

    def see(self, nbytes: int, read: Iterable[Any] = (), held: int = 0) -> None:
        """The op that runs needs so much, more than any before: what it `read`, and what it made,
        of all that is `held` at once.
        """
        self.nbytes, self.site = nbytes, call_site.find()
        self._read = [weakref.ref(s) for s in read]
        budget: Any = host.budget
        if budget is not None:
            self.all = max(self.all, away(budget.gone) + host.reserved_for(held - host.allocated))

    def with_what_stays(self, known: Any, spills: bool) -> int:
        """Bytes of a budget in which that op runs beside what stays whatever runs: small storages,
        and without a file what no op made. What it reads of that is there once.
        """
        read = [s for ref in self._read if (s := ref()) is not None and s.nbytes > 0]
        twice = [s for s in read if id(s) not in known or not (spills or s.recipe is not None)]
        once: int = self.nbytes - sum([s.nbytes for s in twice])
        return once + _staying(known, spills)


floor: Final = Floor()  # of the program, while one budget after the other is obeyed


def refusal(nbytes: int, budget: int, spills: bool, error: OSError | None, known: Any) -> str:
    """Why `nbytes` do not fit, though all that may go has gone: what is in use, by line, and the
    smallest budget in which this op fits, and any that was seen so far.
    """
    needed = host.reserved_for(nbytes) + host.coming
    why = "what is in use now can't be taken away"
    if needed <= budget and host.backing is not None:  # it is the pool that has no pages for it
        kept = host.backing.overhead
        why = f"{readable(kept)} more are held that no tensor has, and could not be given back"
    parts = [
        f"This op needs {readable(needed)} at once, and the budget is {readable(budget)}: {why}."
    ]
    parts += [f"  {readable(one.nbytes):>12}  {one.site}" for one in pinned(known)[:_LINES]]
    parts.append(f"The smallest budget in which it fits is about {readable(_roomy(needed))}.")
    most = max(floor.with_what_stays(known, spills), needed)
    there: Any = host.budget
    everything = needed + (0 if there is None else away(there.gone))
    fits = min(_roomy(most), max(floor.all, everything))  # in which nothing has to go
    if fits > _roomy(needed):
        parts.append(
            f"{floor.site} needs more, {readable(min(most, fits))}: what has run so far fits in "
            f"about {readable(fits)}."
        )
    parts.append("Ops that have not run yet may need more: `skimp fit` finds the program's budget.")
    if error is not None:
        when = "now" if error.errno in FULL else "any more"
        parts.append(f"Nothing is spilled {when}: {error.strerror or error}.")
    if not spills and (lost := _not_made_again(known)):
        end = ": without a file it stays. " + _SPILL
        if error is not None:
            end = ", nor what was made while the file was enough: it stays."
        parts.append(
            f"{readable(lost)} of what is held can't be made again, as parameters, gradients, an "
            f"optimizer's state and data can't, nor what was made of them before they changed{end}"
        )
    return "\n".join(parts)


def _roomy(nbytes: int) -> int:
    """A round number of bytes, some more than these."""
    wanted = nbytes * 9 // 8
    step = max(1 << wanted.bit_length() - 4, 1 << 14)
    return -(-wanted // step) * step


def _staying(known: Any, spills: bool) -> int:
    """Bytes that stay whatever runs: of small storages, and without a file of what no op made."""
    there = [s for ref in list(known.values()) if (s := ref()) is not None and s.nbytes > 0]
    small: int = host.allocated - sum([s.nbytes for s in there])
    return small if spills else small + sum([s.nbytes for s in there if s.recipe is None])


def _not_made_again(known: Any) -> int:
    """Bytes of storages that are here and that no recipe makes again as things are now."""
    there = [s for ref in list(known.values()) if (s := ref()) is not None and s.nbytes > 0]
    return sum([s.nbytes for s in there if s.recipe is None or recipes.price(s.recipe[0]) is None])


def pinned(known: Any) -> list[Held]:
    """What is there, by line, largest first."""
    totals: dict[call_site.Site | None, int] = {}
    for ref in list(known.values()):
        s = ref()
        if s is not None and s.nbytes > 0:
            totals[s.made_at] = totals.get(s.made_at, 0) + s.nbytes
    return sorted([Held(*one) for one in totals.items()], key=lambda one: -one.nbytes)


class Clock:
    """Compares the time that bytes take to come back with the time of the program, once it has
    begun: what goes when a budget is set is no measure. Of a program with backwards whole steps
    are compared, some seconds of them at a time, so that what it did before them is no measure
    either; and a step more is seen, for what it has at once.
    """

    def __init__(self) -> None:
        self._began = math.inf
        self._spent = 0.0
        self._by_steps = False  # backwards end
        self._due = ""  # what is to be told at the end of this step
        self._wanted = 0  # bytes that it had at once, here or away
        self._told = False

    def begin(self) -> None:
        """From here on, unless it has begun before."""
        if self._began == math.inf:
            self._start()

    def _start(self) -> None:
        self._began, self._spent = perf_counter(), counts.seconds

    def look(self, gone: Any, coming: int) -> None:
        """Room was made. Warn, once, where more time goes into bringing back than into work.
        `coming`: bytes for which there is room now.
        """
        if self._told or (self._by_steps and not self._due) or not (self._due or self._judge()):
            return
        self._wanted = max(self._wanted, host.reserved_for(away(gone) + coming))
        if not self._by_steps:
            self._tell()

    def ends_step(self) -> None:
        """Backward has ended: the same."""
        if self._told:
            return
        if self._wanted:
            self._tell()
        elif not self._by_steps or self._judge() or perf_counter() - self._began >= _PATIENCE:
            self._start()
        self._by_steps = True

    def _judge(self) -> bool:
        elapsed = perf_counter() - self._began
        spent = counts.seconds - self._spent
        if elapsed < _PATIENCE or spent < elapsed - spent:
            return False
        self._due = f"({spent:.1f} s of {elapsed:.1f} s)"
        return True

    def _tell(self) -> None:
        self._told = True
        call_site.warn(
            f"more time goes into having bytes back {self._due} than into work: a budget of "
            f"{readable(self._wanted)} would hold all that the program has at once"
        )


def away(gone: Any) -> int:
    """Bytes that are not there and may come back."""
    return sum([len(s) for s in gone.values() if s.block is None])


def outcome(budget: int | None) -> Outcome:
    """Of this process up to now."""
    return Outcome(
        budget=budget, peak=host.peak, seconds=process_time(), spent=counts.seconds,
        evictions=counts.evictions, evicted=counts.evicted, dropped=counts.dropped,
        rematerialized=counts.rematerialized_bytes,
        rematerialized_seconds=counts.rematerialized_seconds,
        written=counts.written, read=counts.was_read, spill_seconds=counts.spill_seconds,
        search_seconds=counts.search_seconds, again=counts.again, beyond=counts.beyond,
    )  # fmt: skip


def words(one: Outcome) -> tuple[str, str]:
    """What was held and what went, and what that took; the second is empty if nothing went."""
    head = "Budget" if one.budget is None else f"Budget of {readable(one.budget)}"
    if one.beyond:
        head += f", {readable(one.beyond)} less than an op needed with its scratch memory"
    if not one.evictions:
        return f"{head}: at most {readable(one.peak)} were held, and nothing had to go.", ""
    return (
        f"{head}: at most {readable(one.peak)} were held; bytes went {one.evictions:,} times "
        f"({readable(one.evicted)}).",
        f"made again: {readable(one.rematerialized)} in {one.rematerialized_seconds:.2f} s; "
        f"written: {readable(one.written)}, read: {readable(one.read)} in "
        f"{one.spill_seconds:.2f} s; choosing: {one.search_seconds:.2f} s",
    )


def report(budget: int | None = None) -> str:
    """What was done to stay within a budget, as lines of text."""
    one = outcome(budget)
    head, details = words(one)
    lines = [head, f"  {details}"] if details else [head]
    lines += [
        f"  {again.seconds:8.2f} s  {readable(again.nbytes):>12}  {again.times:>6} times "
        f"{again.way:>7}  {again.op}"
        + (f" at {again.filename}:{again.lineno}" if again.lineno else "")
        for again in one.again[:_LINES]
    ]
    return "\n".join(lines)
