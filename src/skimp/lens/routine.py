"""Steps that do what the step before them did: only that they do is looked at.

Most of what an event costs is finding out what it means: its place, who saves it, whose gradient
it becomes. In a step that repeats the one before, all of that is known. So when some steps had the
same counters, the next one is *learned*: its allocations, each with its place and how that was
found, its frees, and its nodes of backward with what they let go of. The steps after it are
*followed*. An allocation has to come with the learned bytes when as many bytes live as did in the
learned step, and, outside of backward's nodes, from the learned frames, module and phase. Of a free
nothing is asked: the table of who lives drops its owner in C. At the step's end the collector is
told what is left of the step. The first allocation that is another one ends this in the middle of
the step: what has happened is told, and everything goes on as ever (docs/notes/lens.md).
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, Protocol

from skimp._engine.autograd.nodes import Node
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp._engine.memory.users import alive
from skimp._kernels.locks import reentrant
from skimp.lens.awaited import (
    OLDER,
    Awaited,
    Ending,
    Events,
    Followed,
    Told,
    as_they_came,
    as_told,
    number_of,
    replay,
    saved_by,
)
from skimp.lens.collect import Collector
from skimp.lens.learning import Learning, Template
from skimp.lens.live import Record
from skimp.lens.stacks import (
    OUTSIDE,
    PATH,
    RUN,
    STACK,
    Called,
    Here,
    Spot,
    Stacks,
    next_number,
    running_in,
)

PATIENCE: Final = 2  # steps alike before one is learned; after a mistake more and more,
LONGEST: Final = 1 << 10  # up to so many
_clock: Final = time.perf_counter
_getframe: Final = sys._getframe


class Others(Protocol):
    """Who is told of nodes of backward, of savings and of views."""

    def attend(self) -> None:
        """Be told from now on."""

    def ignore(self) -> None:
        """Be told no longer."""


class Routine:
    """Learns a step and follows the next ones."""

    def __init__(self, collector: Collector, stacks: Stacks, others: Others) -> None:
        """`others` tell of all that is no allocation, but in steps that are followed."""
        self.follows = False  # a step is being followed
        self._collector = collector
        self._stacks = stacks
        self._others = others
        self._of_thread = stacks.of_thread
        self._here: Here | None = None  # of the thread whose steps these are,
        self._thread = 0  # and its number
        self._whole = reentrant()  # of whoever tells the collector of a step
        self._first = 0  # the number with which the step began
        self._counted = self._counts = (0, 0, 0, 0)
        self._alike = 0  # steps in a row, by their counters
        self._patience = PATIENCE
        self._followed = 0  # steps in a row
        self._learning: Learning | None = None
        self._template: Template | None = None
        # the step that is followed
        self._awaited: Awaited | None = None
        self._base = 0  # bytes that lived when it began
        self._alive: dict[int, int] = {}  # by owner: the number of an allocation that was followed
        self._before: dict[int, int] = {}  # the same when the step began
        self._left: list[int] = []  # the owners that the step before left
        self._start = 0  # the number before its first allocation's
        self._born = 0  # and that of the last one
        self._times: list[float] = []
        self._late: list[int] = []  # owners that died while a step that was left is told, and bytes
        self._extra: list[tuple[int, int, Site]] = []  # allocations while a whole step is told
        self._pending: list[Told] = []  # what is to be told
        self._owners: list[tuple[int, int]] = []  # and what stands for which owner meanwhile

    # -- steps ------------------------------------------------------------------------------------

    def ends(self) -> None:
        """A step is over, and the collector does not know yet."""
        self._drain()
        if self.follows:
            if self._awaited is None:
                with self._whole:
                    self._finish()
                self._followed += 1
                if self._followed > 8 * self._patience:
                    self._patience = PATIENCE
            else:
                self.leave()  # it did less
        elif self._learning is not None:
            self._template = self._learning.template()
            self._stop_learning()
            if self._template is None:
                self._be_patient()
        self._count()

    def begins(self) -> None:
        """The next step begins."""
        self._first = next_number()
        self._here, self._thread = self._of_thread.here, threading.get_ident()
        template = self._template
        if self._here.outer or (
            template is not None and any(one.record.gone >= 0 for one in template.older)
        ):
            self.leave()  # a backward steps, or what is saved is another one now
            self._template = None
        elif template is not None:
            self._base = host.total - host.freed
            self._awaited = template.awaited
            if self.follows:
                host.told = self._noted_birth
            else:
                self._follow()
        elif self._alike >= self._patience:
            learning = Learning(self._collector, self._stacks, self._first)
            if learning.begin(self._stop_learning):
                self._learning = learning

    def _follow(self) -> None:
        """Follow from here on, if nobody else observes."""
        owners = self._collector.live.owners
        self._start = self._born
        self._left = []
        self._alive = alive = dict.fromkeys(owners.copy(), OLDER)
        self.follows = True
        if not host.divert(self._noted_birth, alive.pop, self.leave):  # type: ignore[arg-type]
            self.follows = False
            return
        for owner in alive.keys() - owners.keys():  # those that have gone meanwhile
            del alive[owner]
        self._before = alive.copy()
        self._others.ignore()

    def leave(self) -> None:
        """Follow no longer: all that has happened is told, and events are counted as they come."""
        self._stop_learning()
        if not self.follows:
            self._drain()
            return
        with self._whole:
            if self.follows:
                self._tell()

    @property
    def learning(self) -> Learning | None:
        """The step that is learned, if one is."""
        return self._learning

    def _stop_learning(self) -> None:
        learning, self._learning = self._learning, None
        if learning is not None:
            learning.end()

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

    # -- following --------------------------------------------------------------------------------

    def _noted_birth(self, nbytes: int, owner: Any) -> None:
        # `Stacks.find`, written out: of an allocation a call more is half a percent
        one = self._awaited
        here = self._of_thread.here
        if (
            one is not None
            and one.nbytes == nbytes
            and host.total - host.freed == self._base + one.level
            and here is self._here
        ):
            guess = one.guess
            same = False
            if owner.site is not None:
                same = one.deferred and (owner.site is one.spot or self._kept(owner) is one.spot)
            elif guess is None:
                same = one.within and bool(here.outer) and (not one.node or self._runs(one))
            else:
                calls = here.calls
                if guess.module == (calls[-1][PATH] if calls else OUTSIDE):
                    stacks = self._stacks
                    waits = 3 if stacks.graph_waits else 0
                    doing = 1 if here.optimizing else 2 if here.outer else waits
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
                self._times.append(_clock())
                key = id(owner)
                self._awaited = one.next
                self._born = born = self._born + 1
                self._alive[key] = born  # one step with the two lines above
                return
        if owner.site is not None:
            owner.site = self._kept(owner)
        self.leave()
        host.told(nbytes, owner)

    def _kept(self, owner: Any) -> Spot:
        """The place of a deferred storage that nodes may have saved since, and nobody was told."""
        site: Spot = owner.site
        return self._stacks.kept(site) if owner.saved and not site.kept else site

    def _runs(self, one: Awaited) -> bool:
        """Whether the learned node runs."""
        try:
            frame = _getframe(one.run_at)
        except ValueError:  # there are not so many
            frame = _getframe(0)
        at = one.run_at
        if frame.f_code is not RUN:
            at = 0
            above: FrameType | None = _getframe(0)
            while above is not None and above.f_code is not RUN:
                above, at = above.f_back, at + 1
            if above is None:
                return False
            frame = above
        one.run_at = at
        node = running_in(frame)
        return node is not None and number_of(node, self._first) == one.node

    def _between(self, nbytes: int, owner: Any) -> None:
        """While a whole step is told a finalizer has allocated."""
        site = owner.site or self._stacks.find()
        self._extra.append((id(owner), nbytes, site))
        self._alive[id(owner)] = OLDER

    @enters_uninterrupted
    def _noted_death(self, owner: int, nbytes: int) -> None:
        self._late.extend((owner, nbytes))

    def _finish(self) -> None:
        """A step was followed to its end: the collector is told what is left of it. Its events are
        kept as they were learned, for whoever asks for them one by one.
        """
        host.told = self._between
        template = self._template
        assert template is not None
        events, stride = template.events, template.stride
        times, self._times = self._times, []
        collector = self._collector
        live, now = collector.live, collector.steps.now
        events, gone = self._came(events, len(times), self._alive.copy())
        start, total = live.order, live.total
        step = Followed(events, times, start, stride, total)
        most = total + events.most
        if most > live.peak:
            for one, count in template.older.items():  # what nodes save, before they let it go
                one.record.saves += count
            which: Sequence[int] = range(len(events.whats))
        else:
            now.peak = max(now.peak, most)
            now.followed = step
            which = events.told
        whole = which is not events.told
        self._pending = as_told(step, which, iter(gone))
        self._drain()
        if not whole:
            self._settle(step, template.copying)
        live.order = start + len(events.whats) * stride
        extra, self._extra = self._extra, []
        for owner, nbytes, site in extra:
            collector.allocated(owner, nbytes, site)
            self._before[owner] = OLDER

    def _came(self, events: Events, count: int, alive: dict[int, int]) -> tuple[Events, list[int]]:
        """The events of a step after so many allocations, which are those that were learned if it
        came to the same, and the owners of those that have gone, in the order of their frees.
        """
        gone = self._changed(alive)
        left = [number for number, _ in self._owners]
        owners = self._collector.live.owners
        sizes = [owners[owner].bytes for owner in gone]
        order = events.order(sizes)
        if count != events.count or left != events.left or order is None:
            events = as_they_came(events, count, left, sizes)
            order = events.order(sizes)
            assert order is not None
        return events, [gone[i] for i in order]

    def _changed(self, alive: dict[int, int]) -> list[int]:
        """Notes who is left of the step, in their order, in `_owners`; gives the owners of those
        that were there before it and have gone.
        """
        before, start = self._before, self._start
        self._before, self._start = alive, self._born
        extra = {owner for owner, _, _ in self._extra}
        left = []
        again = set()  # those whose place such a one has taken
        for owner in reversed(alive):  # the newest stand at the end
            number = alive[owner]
            if number > start:
                left.append((number - start - 1, owner))
            elif owner not in extra:
                break
            elif owner in before:
                again.add(owner)
            else:
                before[owner] = number  # it is told by itself
        self._owners = left[::-1]
        gone: list[int] = []
        missing = len(before) + len(again) + len(left) - len(alive)
        if missing:
            still = {owner: number for owner, number in alive.items() if owner not in again}
            gone = [owner for owner in self._left if still.get(owner) != before[owner]]
            if len(gone) != missing:
                gone = [owner for owner, number in before.items() if still.get(owner) != number]
        self._left = [owner for _, owner in self._owners]
        return gone

    def _drain(self) -> None:
        """Tell the collector what is to be told. What was told before an interrupt is not told
        again.
        """
        live = self._collector.live
        pending = self._pending
        if pending:
            for order, what, owner, nbytes, when in pending:
                if order >= live.order:
                    live.order = order
                    replay(self._collector, what, owner, nbytes, when)
            owners = live.owners
            for number, owner in self._owners:
                record = owners.pop(OLDER - 1 - number, None)
                if record is not None:
                    owners[owner] = record
            self._pending = []

    def _settle(self, step: Followed, copying: dict[Site, list[int]]) -> None:
        """What events would have done that nobody was told of."""
        events, times, start, stride, _ = step
        left: list[Awaited] = [events.whats[i] for i in events.births]
        for spot, sizes in copying.items():
            there = [one.nbytes for one in left if one.spot is spot]
            self._collector.copies_by_nature(sum(sizes) - sum(there), spot, len(sizes) - len(there))
        saved = {one for one in left if one.saves}
        endings = {events.whats.index(ending): ending for one in saved for ending in one.let_go}
        for i in sorted(endings):
            last = max(events.numbers[: i + 1])
            self._collector.live.order = start + i * stride
            let_go = [one.record for one in endings[i].lets_go if one in saved]
            self._collector.unsaved(let_go, times[last] if last >= 0 else None)

    # -- leaving ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """In the middle of a step: tell the collector all that has happened in it, and have it be
        told of all that follows.
        """
        template = self._template
        assert template is not None
        collector = self._collector
        self._late = []
        tell, note = host.tell_allocated, self._noted_death
        host.told, host.fell = tell, note
        self.follows = False
        self._template, self._awaited = None, None
        times, self._times = self._times, []
        events, gone = self._came(template.events, len(times), self._alive)
        self.recount()  # and what the nodes that have run let go of
        for ending in events.whats:
            if type(ending) is Ending:
                for one in ending.lets_go:
                    one.record.saves += one in template.older
        step = Followed(events, times, collector.live.order, template.stride, collector.live.total)
        self._pending = as_told(step, range(len(events.whats)), iter(gone))
        self._drain()
        fell = collector.freed
        rest = iter(self._late)
        for owner in rest:
            fell(owner, next(rest), collector.latest)
        # one step with the question whether there is more
        host.fell = fell
        self._others.attend()
        self._be_patient()
        self._resume(template.nodes)

    def _resume(self, nodes: dict[int, Ending]) -> None:
        """The nodes that run let go of what the learned ones did."""
        here = self._here
        if here is not None:
            here.spot = None
            # a frame that is kept in a variable of its own would keep all above it
            running = self._stacks.running(
                here, sys._current_frames().get(self._thread), len(here.outer)
            )
            for level, (node, depth) in enumerate(running[::-1], 1):
                ending = nodes.get(number_of(node, self._first))
                gone = [] if ending is None else [one.record for one in ending.lets_go]
                here.unended.append((level, node))
                if level == len(here.outer):
                    here.node, here.depth, here.saved = node, depth, gone
                else:
                    here.outer[level] = node, depth, gone, here.outer[level][3]
        self.recount()

    def recount(self) -> None:
        """Count anew what nodes have saved, by asking who they are: what is expected of a step is
        not all of it in the middle, and a graph that is dropped tells nobody.
        """
        live = self._collector.live
        owners = live.owners
        saves: Counter[Record] = Counter()
        for node in alive(Node):
            ids = saved_by(getattr(node, "_skimp_saved", None) or ())
            saves.update([owners[owner] for owner in ids if owner in owners])
        here = self._of_thread.here
        for node, _, saved, _ in [*here.outer[1:], (here.node, 0, here.saved, 0.0)]:
            if not getattr(node, "_skimp_saved", None):
                saves.update(saved)  # it runs, and has taken them out
        for record in list(owners.values()):
            record.saves = saves[record]
