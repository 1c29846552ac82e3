"""Steps that do what the step before them did: only that they do is looked at, event by event.

Most of what an event costs is finding out what it means: its place, who saves it, whose gradient
it becomes. In a step that repeats the one before, all of that is known. So when some steps had the
same counters, the next one is *learned*: each allocation with its place and how that was found,
each node of backward with what it lets go of. The steps after it are *followed*: an allocation has
to come with the learned bytes from the learned frames, module, phase and node, a node has to be the
learned one and to have saved the same; then it is noted, and nothing else. At the step's end the
collector is told what is left of it. The first event that is another one ends this in the middle of
the step: what was noted is told, and everything goes on as ever (docs/notes/lens.md).
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from itertools import islice, pairwise
from typing import Any, Final

from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp.lens.awaited import (
    FOUR,
    Awaited,
    Ending,
    Followed,
    Notes,
    Outcome,
    events,
    replay,
    saved_by,
    saves,
)
from skimp.lens.collect import BY_NATURE, Collector
from skimp.lens.live import Record
from skimp.lens.stacks import OUTSIDE, PATH, STACK, Called, Here, Stacks, next_number

MOST: Final = 1 << 16  # allocations of a step that is learned
PATIENCE: Final = 2  # steps alike before one is learned; after a mistake more and more,
LONGEST: Final = 1 << 10  # up to so many
_clock: Final = time.perf_counter
_getframe: Final = sys._getframe


class Routine:
    """Learns a step and follows the next ones."""

    def __init__(self, collector: Collector, stacks: Stacks) -> None:
        self.follows = False  # a step is being followed
        self.learns = False
        self._collector = collector
        self._stacks = stacks
        self._of_thread = stacks.of_thread
        self._here: Here | None = None  # of the thread whose steps these are
        self._stride = 1  # numbers that an event of the step may take
        self._first = 0  # the number with which the step began
        self._counted = self._counts = (0, 0, 0, 0)
        self._alike = 0  # steps in a row, by their counters
        self._patience = PATIENCE
        self._learned: list[Awaited] = []
        self._endings: list[tuple[Ending, list[Record]]] = []
        self._unsettled: list[Record] = []  # older ones without a role when learning began
        self._template: tuple[Awaited | None, Ending | None] = (None, None)
        self._older: dict[Awaited, int] = {}  # older storages that a step's nodes save
        self._awaited: Awaited | None = None
        self._ending: Ending | None = None
        self.notes: Notes = []
        self._copying: dict[Site, list[int]] = {}  # bytes of those that are counted as copies
        self._at = 0  # how many notes were told,
        self._order = -1  # and the event before the next one
        self.running: list[Ending] = []  # nodes that run, one inside of another
        self._followed = 0  # steps in a row
        self._outcome: Outcome | None = None  # of the last one

    # -- steps ------------------------------------------------------------------------------------

    def ends(self) -> None:
        """A step is over, and the collector does not know yet."""
        if self.follows:
            if self._awaited is None and self._ending is None:
                self._finish()
                self._followed += 1
                if self._followed > 8 * self._patience:
                    self._patience = PATIENCE
            else:
                self.leave()  # it did less
        elif self.learns:
            self._stop_learning()
            self._compile()
            if self._template[0] is None:
                self._be_patient()
        self._count()

    def begins(self) -> None:
        """The next step begins."""
        self._first = next_number()
        self._here = self._of_thread.here
        if any(one.record.gone >= 0 for one in self._older):
            self.leave()  # what is saved is another one now
        if self.follows or (
            self._template[0] is not None
            and host.divert(self._noted_birth, self._noted_death, self.leave)
        ):
            self.follows = True
            self._awaited, self._ending = self._template
        elif self._alike >= self._patience and host.divert(
            self._learned_birth, self._collector.freed, self._stop_learning
        ):
            self._learned, self._endings = [], []
            owners = self._collector.live.owners
            self._unsettled = [r for r in list(owners.values()) if r.role is None]
            self.learns = True

    def leave(self) -> None:
        """Follow no longer: all that was noted is told, and events are counted as they come."""
        if self.learns:
            self._stop_learning()
        if not self.follows:
            return
        self._tell()
        self._template = None, None
        self._be_patient()
        self._resume()

    def _be_patient(self) -> None:
        self._alike = self._followed = 0
        self._patience = min(2 * self._patience, LONGEST)

    def _count(self) -> None:
        """Whether the step had the counters of the one before."""
        now = host.made, host.total, host.dropped, host.freed
        made, total, dropped, freed = self._counted
        counts = now[0] - made, now[1] - total, now[2] - dropped, now[3] - freed
        self._alike = self._alike + 1 if counts == self._counts else 0
        self._counted, self._counts = now, counts

    # -- learning ---------------------------------------------------------------------------------

    def _learned_birth(self, nbytes: int, owner: Any) -> None:
        site = owner.site
        deferred = site is not None
        if not deferred:
            site = self._stacks.find()
        one = Awaited(nbytes, self._collector.allocated(id(owner), nbytes, site))
        one.owner = id(owner)
        here = self._of_thread.here
        if deferred:
            one.deferred = True
        elif here.node is not None and len(here.calls) == here.depth:
            one.within = here.ending  # type: ignore[assignment]
        elif here.guess.spot is site:
            one.guess = here.guess
        self._learned.append(one)
        if here is not self._here or len(self._learned) > MOST:
            self._stop_learning()

    def learn_node(self, here: Here, node: Node, keeps: bool, saved: list[Record]) -> None:
        """A node begins; it will let go of what it `saved`."""
        if self.learns:
            here.ending = ending = Ending(node, keeps, self._first)
            self._endings.append((ending, saved))

    def _stop_learning(self) -> None:
        self.learns = False
        host.told, host.fell = host.tell_allocated, self._collector.freed

    def _compile(self) -> None:
        """From what was learned to what is awaited, if a step can be like it."""
        learned, endings = self._learned, self._endings
        self._learned, self._endings = [], []
        self._template, self._older = (None, None), {}
        unsettled, self._unsettled = self._unsettled, []
        if not learned or len(learned) > MOST or any(r.role is not None for r in unsettled):
            return
        by_record = {id(one.record): one for one in learned}
        number = self._collector.steps.now.number
        owners = {id(r): owner for owner, r in self._collector.live.owners.copy().items()}
        for one in learned:
            if one.guess is None and one.within is None and not one.deferred:
                return
            r = one.record
            one.saves = max(r.saves, 0)
            one.settled = r.role, r.owner, r.name
        for ending, saved in endings:
            for r in saved:
                found = by_record.get(id(r))
                if found is None:
                    if r.gone >= 0 or r.step >= number - 1:
                        return  # a tensor of the step before, which will be another one
                    found = by_record[id(r)] = Awaited(r.bytes, r)
                    found.owner = owners[id(r)]
                    self._older[found] = 0
                if found in self._older:
                    self._older[found] += 1
                else:
                    found.saves += 1
                ending.lets_go.append(found)
                found.let_go.append(ending)
        for one, after in pairwise(learned):
            one.next = after
        for (ending, _), (after_it, _) in pairwise(endings):
            ending.next = after_it
        self._stride = 1 + max([len(ending.lets_go) for ending, _ in endings], default=0)
        self._copying = {}
        for one in learned:
            if one.spot.op in BY_NATURE:
                self._copying.setdefault(one.spot, []).append(one.nbytes)
        self._template = learned[0], endings[0][0] if endings else None

    # -- following --------------------------------------------------------------------------------

    def _noted_birth(self, nbytes: int, owner: Any) -> None:
        # `Stacks.find`, written out: of an allocation a call more is half a percent
        one = self._awaited
        here = self._of_thread.here
        if one is not None and one.nbytes == nbytes and here is self._here:
            calls = here.calls
            guess = one.guess
            same = False
            if owner.site is not None:
                same = one.deferred and owner.site is one.spot
            elif here.node is not None and len(calls) == here.depth:
                same = one.within is here.ending is not None
            elif guess is not None and guess.module == (calls[-1][PATH] if calls else OUTSIDE):
                stacks = self._stacks
                doing = (
                    1 if here.optimizing else 2 if here.outer else 3 if stacks.graph_waits else 0
                )
                try:
                    entry = _getframe(guess.entry_at - 1)
                    frame = _getframe(guess.at - 1)
                except ValueError:  # there are not so many
                    entry = frame = _getframe(0)
                if (
                    doing == guess.doing
                    and frame.f_code is guess.code
                    and entry.f_code is guess.entry
                ):
                    if guess.lasti == 0:
                        above = calls[-1][STACK]
                        same = above == guess.above or stacks.called_from(here, guess, frame)
                    elif frame.f_lasti == guess.lasti:
                        called: Any = frame.f_trace
                        if type(called) is Called and called.of == guess.of:
                            same = called.stack == guess.above
                        else:
                            same = stacks.called_from(here, guess, frame)
            if same:
                self._awaited = one.next
                one.owner = id(owner)
                self.notes.extend((one, one.owner, nbytes, _clock()))
                return
        self.leave()
        host.told(nbytes, owner)

    @enters_uninterrupted
    def _noted_death(self, owner: int, nbytes: int) -> None:
        self.notes.extend((None, owner, -nbytes, 0.0))

    def node_begins(self, here: Here, node: Node, keeps: bool) -> bool:
        """Whether it is the node that is awaited; else nothing is followed any more."""
        one = self._ending
        if one is not None and here is self._here and one.keeps == keeps:
            if type(node) is AccumulateGrad:
                same = one.number == id(node.variable)
            else:
                same = one.number == node._skimp_number - self._first
                if same and not keeps and (saved := node._skimp_saved):
                    same = saves(saved, one.lets_go)
            if same:
                here.ending = one
                self._ending = one.next
                self.running.append(one)
                return True
        self.leave()
        return False

    def _tell(self) -> None:
        """Tell the collector all that was noted, and have it be told of all that follows."""
        notes, collector = self.notes, self._collector
        told, fell = host.tell_allocated, collector.freed
        self._save_older(1)
        if -1 < self._order < collector.live.order:
            self._at += 1  # it was told, and then interrupted
        rest = islice(notes, FOUR * self._at, None)
        for what in rest:
            self._order = collector.live.order
            replay(collector, what, next(rest), next(rest), next(rest))
            self._at += 1
        # one step with the question whether there is more
        self.follows = False
        host.told, host.fell = told, fell
        notes.clear()
        self._at, self._order = 0, -1

    def _finish(self) -> None:
        """A step was followed to its end: the collector is told what is left of it. Its events are
        kept as they were noted, for whoever asks for them one by one.
        """
        notes, collector = self.notes, self._collector
        length = len(notes)
        whole, live, now = notes[:length], collector.live, collector.steps.now
        whats, ids, sizes = whole[0::FOUR], whole[1::FOUR], whole[2::FOUR]
        count = len(whats)
        start, total = live.order, live.total
        outcome = self._outcome
        if outcome is None or not outcome.fits(whats, ids, sizes, live.owners):
            self._outcome = outcome = Outcome(whats, ids, sizes)
        most = total + outcome.most
        if most > live.peak:
            self._save_older(1)
            for event in events(whole):
                replay(collector, *event)
        else:
            now.peak = max(now.peak, most)
            stride = self._stride
            now.followed = Followed(whole, start, stride, total)
            for i in outcome.told:
                live.order = start + i * stride
                replay(collector, *whole[FOUR * i : FOUR * i + FOUR])
            self._settle([whats[i] for i in outcome.left], whats, whole, start)
            live.order = start + count * stride
        del notes[:length]

    def _settle(self, left: list[Any], whats: Notes, whole: Notes, start: int) -> None:
        """What events would have done that nobody was told of."""
        for spot, sizes in self._copying.items():
            told = [one.nbytes for one in left if one.spot is spot]
            self._collector.copies_by_nature(sum(sizes) - sum(told), spot, len(sizes) - len(told))
        saved = {one for one in left if one.saves}
        endings = {whats.index(ending): ending for one in saved for ending in one.let_go}
        for i in sorted(endings):
            born = (whole[FOUR * j + 3] for j in range(i, -1, -1) if type(whats[j]) is Awaited)
            self._collector.live.order = start + i * self._stride
            let_go = [one.record for one in endings[i].lets_go if one in saved]
            self._collector.unsaved(let_go, next(born, self._collector.latest))

    def _save_older(self, times: int) -> None:
        """What the nodes of a step save of older tensors, before they let them go."""
        for one, count in self._older.items():
            one.record.saves += times * count

    def _resume(self) -> None:
        """In the middle of a step: the nodes that run let go of what the learned ones did."""
        here, running = self._here, self.running
        self._awaited = self._ending = None
        self.running = []
        for depth, ending in enumerate(running, 1):
            assert here is not None
            gone = [one.record for one in ending.lets_go]
            if depth == len(here.outer):
                here.saved = gone
            else:
                node, at, _, start = here.outer[depth]
                here.outer[depth] = node, at, gone, start
        if here is not None:
            here.spot = None
        self.recount()

    def recount(self) -> None:
        """Count anew what nodes have saved, by asking who they are: what is expected of a step is
        not all of it in the middle, and a graph that is dropped tells nobody.
        """
        owners = self._collector.live.owners
        saves: Counter[Record] = Counter()
        for node in gc.get_objects():
            if issubclass(type(node), Node):
                ids = saved_by(getattr(node, "_skimp_saved", None) or ())
                saves.update([owners[owner] for owner in ids if owner in owners])
        here = self._of_thread.here
        for node, _, saved, _ in [*here.outer[1:], (here.node, 0, here.saved, 0.0)]:
            if not getattr(node, "_skimp_saved", None):
                saves.update(saved)  # it runs, and has taken them out
        for record in list(owners.values()):
            record.saves = saves[record]
