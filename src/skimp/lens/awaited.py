"""What a step consists of that is like the one before, and the notes of one that was: routine.py
learns and follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple

from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.autograd.saving import Many, Packed
from skimp._engine.tensor.tensor import Tensor
from skimp.lens.collect import Collector
from skimp.lens.live import Record
from skimp.lens.stacks import Guess

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


def saves(saved: Any, awaited: list[Awaited]) -> bool:
    """Whether these are the storages that a node saved: `saved_by`, mostly in one loop."""
    i, count = 0, len(awaited)
    for value in saved:
        kind = type(value)
        if kind in _NO_TENSORS or (kind is tuple and value and type(value[0]) is int):
            continue
        if not isinstance(value, Tensor) or value._hollow:
            return saved_by(saved) == [one.owner for one in awaited]
        s = value._storage
        if s.nbytes >= 0:
            if i == count or awaited[i].owner != id(s):
                return False
            i += 1
    return i == count


class Ending:
    """A node of backward of the learned step, and what it let go of. `number` counts from the
    step's beginning; a leaf's node is known by its tensor's id.
    """

    __slots__ = ("keeps", "lets_go", "next", "number")

    def __init__(self, node: Node, keeps: bool, first: int) -> None:
        self.number = number_of(node, first)
        self.keeps = keeps
        self.lets_go: list[Awaited] = []
        self.next: Ending | None = None


# What was noted, four values for an event: an allocation, its owner's id, bytes and time; None
# for a free; a node that has run. Flat, since a tuple for each is work for the garbage collector.
Notes = list[Any]
FOUR: Final = 4


class Followed(NamedTuple):
    """The events of a step that was followed to its end, and how many events and bytes there were
    before it.
    """

    notes: Notes
    order: int
    stride: int  # of the numbers of events
    total: int


class Outcome:
    """What a followed step comes to: the places of the allocations that are `left` of it, and with
    the frees of what was there before those of all that are `told`.
    """

    def __init__(self, whats: Notes, ids: list[int], sizes: list[int]) -> None:
        self._whats = whats
        self._sizes = sizes
        self.most = max(accumulate(sizes))
        alive: dict[int, int] = {}
        births, frees, older = [0], [0], []
        for i, what in enumerate(whats):
            if type(what) is Awaited:
                alive[ids[i]] = i
            elif what is None:
                born = alive.pop(ids[i], -1)
                if born < 0:
                    older.append(i)
                else:
                    births.append(born)
                    frees.append(i)
        self.left = sorted(alive.values())
        self.told = sorted(self.left + older)
        self._older = len(older)
        self._births, self._frees, self._olders = (
            itemgetter(*places, 0) for places in (births, frees, [*older, 0])
        )  # two places each at least, for a tuple

    def fits(self, whats: Notes, ids: list[int], sizes: list[int], alive: dict[int, Any]) -> bool:
        """Whether another step comes to the same: the same events, and each free is of the same
        allocation. `alive` was there before. Two that are alive have two ids: so if those of births
        and frees are pairs, and the others of so many that were there before, nobody else is left.
        """
        if whats != self._whats or sizes != self._sizes or self._births(ids) != self._frees(ids):
            return False
        older = set(self._olders(ids)[: self._older])
        return len(older) == self._older and older <= alive.keys()


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
        for i, event in enumerate(events(followed.notes)):
            apart.live.order = followed.order + i * followed.stride
            replay(apart, *event)
        kept.records.extend(apart.steps.now.records)


def events(notes: Notes) -> Iterator[Any]:
    """The four values of each."""
    return zip(*[notes[i::FOUR] for i in range(FOUR)], strict=True)


def number_of(node: Node, first: int) -> int:
    """What a node is known by in each step: leaves' nodes may be those of the step before."""
    return id(node.variable) if type(node) is AccumulateGrad else node._skimp_number - first
