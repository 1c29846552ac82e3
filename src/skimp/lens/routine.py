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
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice, pairwise
from typing import Any, Final, NamedTuple

from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.autograd.saving import Many, Packed
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp._engine.tensor.tensor import Tensor
from skimp.lens.collect import BY_NATURE, Collector
from skimp.lens.live import Record
from skimp.lens.stacks import OUTSIDE, PATH, Guess, Here, Stacks, next_number

MOST: Final = 1 << 16  # allocations of a step that is learned
PATIENCE: Final = 2  # steps alike before one is learned; after a mistake more and more,
LONGEST: Final = 1 << 10  # up to so many
_clock: Final = time.perf_counter
_NO_TENSORS: Final = frozenset([int, float, bool, type(None)])  # and most of what is saved


class Awaited:
    """An allocation of the learned step. `guess` is where its frames stand; None: `within` a node
    of backward, or of a storage that was deferred at `spot`.
    """

    __slots__ = (
        "deferred",
        "guess",
        "let_go",
        "nbytes",
        "next",
        "owner",
        "record",
        "saves",
        "settled",
        "spot",
        "within",
    )

    def __init__(self, nbytes: int, record: Record) -> None:
        self.nbytes = nbytes
        self.record = record  # of the last step
        self.owner = 0  # its storage's id
        self.spot: Any = record.site
        self.guess: Guess | None = None
        self.within: Ending | None = None
        self.deferred = False
        self.next: Awaited | None = None
        self.saves = 0  # times that nodes save it
        self.let_go: list[Ending] = []  # nodes that do
        self.settled: tuple[str | None, int, str] = (None, -1, "")  # role, owner and name


def saved_by(saved: Any) -> list[int]:
    """The ids of the storages with bytes that a node saved."""
    found = []
    for value in saved:
        kind = type(value)
        if kind in _NO_TENSORS:
            continue
        if kind is Tensor or isinstance(value, Tensor):
            if not value._hollow:
                found.append(value._storage)
        elif kind is Many:
            found += [t._storage for t in value.pairs[::2] if isinstance(t, Tensor)]
        elif kind is tuple and value and isinstance(value[0], Tensor):
            found.append(value[0]._storage)  # a Function's: value, version, result
        elif kind is Packed and isinstance(value.data, Tensor):
            found.append(value.data._storage)
    return [id(s) for s in found if s.nbytes >= 0]


class Ending:
    """A node of backward of the learned step, and what it let go of. `number` counts from the
    step's beginning; a leaf's node is known by its tensor's id.
    """

    __slots__ = ("keeps", "lets_go", "next", "number")

    def __init__(self, node: Node, keeps: bool, first: int) -> None:
        self.number = _number(node, first)
        self.keeps = keeps
        self.lets_go: list[Awaited] = []
        self.next: Ending | None = None


# What was noted, four values for an event: an allocation, its owner's id, bytes and time; None
# for a free; a node that has run. Flat, since a tuple for each is work for the garbage collector.
Notes = list[Any]
_FOUR: Final = 4


class Followed(NamedTuple):
    """The events of a step that was followed to its end, and how many events and bytes there were
    before it.
    """

    notes: Notes
    order: int
    stride: int  # of the numbers of events
    total: int


def replay(collector: Collector, what: Any, owner: int, nbytes: int, when: float) -> None:
    """Tell of one event, by the time of the last allocation."""
    if what is None:
        collector.freed(owner, -nbytes, collector.latest)
    elif type(what) is Awaited:
        what.record = record = collector.allocated(owner, nbytes, what.spot, when)
        record.saves = what.saves
        record.role, record.owner, record.name = what.settled
        what.spot.latest[0] = what.spot.stack
    else:
        collector.unsaved([one.record for one in what.lets_go], collector.latest)


def expand(collector: Collector) -> None:
    """Give the steps that are kept the allocations of those that were followed."""
    for kept in collector.steps.recent:
        followed, kept.followed = kept.followed, None
        if followed is None:
            continue
        apart = collector.apart(kept.number, followed.order, followed.total)
        for i, event in enumerate(_events(followed.notes)):
            apart.live.order = followed.order + i * followed.stride
            replay(apart, *event)
        kept.records.extend(apart.steps.now.records)


def _events(notes: Notes) -> Iterator[Any]:
    return zip(*[notes[i::_FOUR] for i in range(_FOUR)], strict=True)


def _number(node: Node, first: int) -> int:
    """What a node is known by in each step: leaves' nodes may be those of the step before."""
    return id(node.variable) if type(node) is AccumulateGrad else node._skimp_number - first


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
        self._notes: Notes = []
        self._copying: dict[Site, list[int]] = {}  # bytes of those that are counted as copies
        self._at = 0  # how many notes were told,
        self._order = -1  # and the event before the next one
        self._open: list[Ending] = []  # nodes that run, one inside of another
        self._followed = 0  # steps in a row

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
        one = self._awaited
        here = self._of_thread.here
        if one is not None and one.nbytes == nbytes and here is self._here:
            calls = here.calls
            guess = one.guess
            if owner.site is not None:
                same = one.deferred and owner.site is one.spot
            elif here.node is not None and len(calls) == here.depth:
                same = one.within is here.ending is not None
            elif guess is not None:
                stacks = self._stacks
                doing = (
                    1 if here.optimizing else 2 if here.outer else 3 if stacks.graph_waits else 0
                )
                same = (
                    guess.module == (calls[-1][PATH] if calls else OUTSIDE)
                    and guess.doing == doing
                    and stacks.stands(here, guess, 0)
                )
            else:
                same = False
            if same:
                self._awaited = one.next
                one.owner = id(owner)
                self._notes.extend((one, one.owner, nbytes, _clock()))
                return
        self.leave()
        host.told(nbytes, owner)

    @enters_uninterrupted
    def _noted_death(self, owner: int, nbytes: int) -> None:
        self._notes.extend((None, owner, -nbytes, 0.0))

    def node_begins(self, here: Here, node: Node, keeps: bool) -> bool:
        """Whether it is the node that is awaited; else nothing is followed any more."""
        one = self._ending
        if (
            one is not None
            and here is self._here
            and one.keeps == keeps
            and one.number == _number(node, self._first)
            and (
                keeps
                or not (saved := node._skimp_saved)
                or saved_by(saved) == [kept.owner for kept in one.lets_go]
            )
        ):
            here.ending = one
            self._ending = one.next
            self._open.append(one)
            return True
        self.leave()
        return False

    def node_ends(self) -> None:
        """The node that was awaited has run."""
        self._notes.extend((self._open.pop(), 0, 0, 0.0))

    def _tell(self) -> None:
        """Tell the collector all that was noted, and have it be told of all that follows."""
        notes, collector = self._notes, self._collector
        told, fell = host.tell_allocated, collector.freed
        self._save_older(1)
        if -1 < self._order < collector.live.order:
            self._at += 1  # it was told, and then interrupted
        rest = islice(notes, _FOUR * self._at, None)
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
        notes, collector = self._notes, self._collector
        length = len(notes)
        whole, live, now = notes[:length], collector.live, collector.steps.now
        whats, ids, sizes = whole[0::_FOUR], whole[1::_FOUR], whole[2::_FOUR]
        count = len(whats)
        start, total = live.order, live.total
        most = total + max(accumulate(sizes))
        if most > live.peak:
            self._save_older(1)
            for event in _events(whole):
                replay(collector, *event)
        else:
            now.peak = max(now.peak, most)
            stride = self._stride
            now.followed = Followed(whole, start, stride, total)
            last = dict(zip(ids, range(count), strict=True))
            first = dict(zip(reversed(ids), range(count - 1, -1, -1), strict=True))
            left = [i for i in last.values() if type(whats[i]) is Awaited]
            gone = [i for i in first.values() if whats[i] is None]
            for i in sorted(left + gone):
                live.order = start + i * stride
                replay(collector, *whole[_FOUR * i : _FOUR * i + _FOUR])
            self._settle([whats[i] for i in left], whats, whole[3::_FOUR], start)
            live.order = start + count * stride
        del notes[:length]

    def _settle(self, left: list[Any], whats: Notes, times: Notes, start: int) -> None:
        """What events would have done that nobody was told of."""
        for spot, sizes in self._copying.items():
            told = [one.nbytes for one in left if one.spot is spot]
            self._collector.copies_by_nature(sum(sizes) - sum(told), spot, len(sizes) - len(told))
        saved = {one for one in left if one.saves}
        endings = {whats.index(ending): ending for one in saved for ending in one.let_go}
        for i in sorted(endings):
            born = (times[j] for j in range(i, -1, -1) if type(whats[j]) is Awaited)
            self._collector.live.order = start + i * self._stride
            let_go = [one.record for one in endings[i].lets_go if one in saved]
            self._collector.unsaved(let_go, next(born, self._collector.latest))

    def _save_older(self, times: int) -> None:
        """What the nodes of a step save of older tensors, before they let them go."""
        for one, count in self._older.items():
            one.record.saves += times * count

    def _resume(self) -> None:
        """In the middle of a step: the nodes that run let go of what the learned ones did."""
        here, running = self._here, self._open
        self._awaited = self._ending = None
        self._open = []
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
