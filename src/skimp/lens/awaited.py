"""What a step consists of that is like the one before: its events as they were learned, and what
they come to. routine.py learns and follows them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.autograd.saving import Many, Packed
from skimp._engine.tensor.tensor import Tensor
from skimp.lens.collect import Collector
from skimp.lens.live import Record
from skimp.lens.stacks import Guess, Spot

_NO_TENSORS: Final = frozenset([int, float, bool, type(None)])  # and most of what is saved
OLDER: Final = -1  # the number of an allocation from before the step. Meanwhile the owner of number
# n is told as -2 - n: ids are taken again, and it is renamed when all that have gone are told


class Awaited:
    """An allocation of the learned step. `guess` is where its frames stand; None: it is made
    `within` a node of backward, or of a storage that was deferred at `spot`.
    """

    __slots__ = (
        "deferred", "guess", "let_go", "level", "nbytes", "next", "node", "record", "run_at",
        "saves", "settled", "spot", "within",
    )  # fmt: skip

    def __init__(self, nbytes: int, record: Record, level: int = 0) -> None:
        self.nbytes = nbytes
        self.record = record  # of the last step that was told
        self.level = level  # bytes that live with it, beyond those with which the step began
        self.spot: Spot = record.site  # type: ignore[assignment]
        self.guess: Guess | None = None
        self.deferred = self.within = False
        self.node = 0  # the number of the node, of its first allocation
        self.run_at = 0  # how many frames up that was run
        self.next: Awaited | None = None
        self.saves = 0  # times that nodes save it
        self.let_go: list[Ending] = []  # nodes that do
        self.settled: tuple[str | None, int, str] = (None, OLDER, "")  # role, owner and name


class Ending:
    """A node of backward of the learned step, and what it let go of. `number` counts from the
    step's beginning; a leaf's node is known by its tensor's id.
    """

    __slots__ = ("lets_go", "number")

    def __init__(self, node: Node, first: int) -> None:
        self.number = number_of(node, first)
        self.lets_go: list[Awaited] = []


def number_of(node: Node, first: int) -> int:
    """What a node is known by in each step: leaves' nodes may be those of the step before."""
    return id(node.variable) if type(node) is AccumulateGrad else node._skimp_number - first


def saved_by(saved: Any) -> list[int]:
    """The ids of the storages with bytes that a node saved."""
    found: list[Any] = []
    for value in saved:
        kind = type(value)
        if kind in _NO_TENSORS:
            continue
        if kind is Tensor or isinstance(value, Tensor):
            found.append(value)
        elif kind is Many:
            found += value.pairs[::2]
        elif kind is tuple and value:
            found.append(value[0])  # a Function's: value, version, result
        elif kind is Packed:
            found.append(value.data)
    storages = [t._storage for t in found if isinstance(t, Tensor) and not t._hollow]
    return [id(s) for s in storages if s.nbytes >= 0]


class Events:
    """A step's events in their order. Of each: what it is (an allocation; None: a free; a node that
    has run), its bytes, and the number of the allocation in the step. `older` are its frees of what
    was there before.
    """

    __slots__ = (
        "_orders", "births", "bytes", "count", "left", "most", "numbers", "older", "told", "whats",
    )  # fmt: skip

    def __init__(self, whats: list[Any], sizes: list[int], numbers: list[int]) -> None:
        self.whats = whats
        self.bytes = sizes
        self.numbers = numbers
        self.most = max(accumulate(sizes), default=0)
        self.count = max(numbers, default=OLDER) + 1  # allocations
        alive: dict[int, int] = {}
        older = []
        for i, what in enumerate(whats):
            if what is None:
                if numbers[i] == OLDER:
                    older.append(i)
                else:
                    alive.pop(numbers[i])
            elif type(what) is Awaited:
                alive[numbers[i]] = i
        self.older = [-sizes[i] for i in older]
        self.left = list(alive)
        self.births = [alive[number] for number in self.left]  # the events that made them
        self.told = sorted([*self.births, *older])  # without which nobody knows what is alive
        self._orders: tuple[list[int], list[int] | None] = [], []

    def order(self, gone: list[int]) -> list[int] | None:
        """In which order those go that were there before the step, by the bytes of those who have
        `gone`; None: they are others.
        """
        known, order = self._orders
        if known != gone:
            order = None
            if sorted(gone) == sorted(self.older):
                places: dict[int, deque[int]] = defaultdict(deque)
                for place, nbytes in enumerate(gone):
                    places[nbytes].append(place)
                order = [places[nbytes].popleft() for nbytes in self.older]
            self._orders = gone, order
        return order


class Followed(NamedTuple):
    """A step that was followed to its end, when its allocations were, and how many events and bytes
    there were before it.
    """

    events: Events
    times: Sequence[float]
    order: int
    stride: int  # of the numbers of events
    total: int


def as_they_came(learned: Events, count: int, left: Sequence[int], gone: Sequence[int]) -> Events:
    """The events of a step after so many allocations, of which others than in the learned one are
    `left` or others are `gone`, whose bytes stand here. A free is where the learned step has one of
    as many bytes.
    """
    alive = set(left)
    waiting: dict[int, deque[int]] = defaultdict(deque)  # frees that are late, by their bytes
    olds: dict[int, deque[int]] = defaultdict(deque)
    for nbytes in gone:
        olds[nbytes].append(OLDER)
    whats: list[Any] = []
    sizes: list[int] = []
    numbers: list[int] = []
    born: dict[int, int] = {}  # bytes of those that are to be freed

    def add(what: Any, nbytes: int, number: int) -> None:
        whats.append(what)
        sizes.append(nbytes)
        numbers.append(number)

    for what, nbytes, number in zip(learned.whats, learned.bytes, learned.numbers, strict=True):
        if type(what) is Awaited:
            if number == count:
                break
            add(what, nbytes, number)
            if number not in alive:
                born[number] = nbytes
                waiting[nbytes].append(number)
        elif what is not None:
            add(what, 0, OLDER)
        else:
            queue = olds[-nbytes] if number == OLDER else waiting[-nbytes]
            if number in born:
                queue.remove(number)
            elif queue:
                number = queue.popleft()
            else:
                continue
            born.pop(number, None)
            add(None, nbytes, number)
    for number, nbytes in born.items():
        add(None, -nbytes, number)
    for nbytes, queue in olds.items():
        for number in queue:
            add(None, -nbytes, number)
    return Events(whats, sizes, numbers)


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


Told = tuple[int, Any, int, int, float]  # the number of an event, and what `replay` takes


def as_told(step: Followed, which: Sequence[int], gone: Iterator[int]) -> list[Told]:
    """Some events of a step. `gone` are the owners of what was there before, in their order."""
    events, times, start, stride, _ = step
    whats, sizes, numbers = events.whats, events.bytes, events.numbers
    found: list[Told] = []
    for i in which:
        what, number = whats[i], numbers[i]
        if type(what) is Awaited:
            row = start + i * stride, what, OLDER - 1 - number, sizes[i], times[number]
        else:
            owner = OLDER - 1 - number if what is not None or number != OLDER else next(gone, OLDER)
            row = start + i * stride, what, owner, sizes[i], 0.0
        found.append(row)
    return found


def expand(collector: Collector) -> None:
    """Give the steps that are kept the allocations of those that were followed."""
    for kept in collector.steps.recent:
        followed, kept.followed = kept.followed, None
        if followed is None:
            continue
        apart = collector.apart(kept.number, followed.order, followed.total)
        for order, what, owner, nbytes, when in as_told(
            followed, range(len(followed.events.whats)), iter(())
        ):
            apart.live.order = order
            replay(apart, what, owner, nbytes, when)
        kept.records.extend(apart.steps.now.records)
