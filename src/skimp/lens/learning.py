"""How a step is learned that others may repeat: routine.py follows those that do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from skimp._engine.autograd.nodes import Node
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp.lens.awaited import OLDER, Awaited, Ending, Events, number_of
from skimp.lens.collect import BY_NATURE, Collector
from skimp.lens.live import Record
from skimp.lens.stacks import Here, Ran, Stacks

MOST: Final = 1 << 16  # allocations of a step that is learned


class Template(NamedTuple):
    """What is awaited of a step."""

    awaited: Awaited  # the first allocation
    events: Events
    nodes: dict[int, Ending]  # by their numbers
    older: dict[Awaited, int]  # storages from before the step, and how often its nodes save them
    copying: dict[Site, list[int]]  # the bytes of allocations that are counted as copies
    stride: int  # numbers that an event of the step may take


class Learning:
    """A step that is learned: its allocations, its nodes with what they save, and both with its
    frees in their order.
    """

    def __init__(self, collector: Collector, stacks: Stacks, first: int) -> None:
        """`first` is the number with which the step began."""
        self._collector = collector
        self._stacks = stacks
        self._here: Here = stacks.of_thread.here  # of the thread whose step it is
        self._first = first
        self._base = host.total - host.freed  # bytes that live
        self._learned: list[Awaited] = []
        self._endings: list[tuple[Ending, list[Record]]] = []
        self._sequence: list[Any] = []  # three values each: what, its owner, its bytes
        self._node = 0  # the number of the one that made the last allocation
        owners = collector.live.owners
        self._unsettled = [r for r in list(owners.values()) if r.role is None]

    def begin(self, undivert: Callable[[], object]) -> bool:
        """Listen; False: others observe."""
        return host.divert(self._birth, self._death, undivert)

    def end(self) -> None:
        """Listen no longer."""
        host.told, host.fell = host.tell_allocated, self._collector.freed

    def _birth(self, nbytes: int, owner: Any) -> None:
        site = owner.site
        deferred = site is not None
        if not deferred:
            site = self._stacks.find()
        level = host.total - host.freed - self._base
        one = Awaited(nbytes, self._collector.allocated(id(owner), nbytes, site), level)
        here = self._stacks.of_thread.here
        if deferred:
            one.deferred = True
        elif here.node is not None and len(here.calls) == here.depth:
            one.within = True
            if not isinstance(here.node, Ran):
                number = number_of(here.node, self._first)
                if number != self._node:
                    one.node = self._node = number
        elif here.guess.spot is site:
            one.guess = here.guess
        self._learned.append(one)
        self._sequence.extend((one, id(owner), nbytes))
        if here is not self._here or len(self._learned) > MOST:
            self._learned = []  # which no step is like
            self.end()

    @enters_uninterrupted
    def _death(self, owner: int, nbytes: int) -> None:
        self._sequence.extend((None, owner, -nbytes))
        self._collector.freed(owner, nbytes)

    def node_begins(self, node: Node, saved: list[Record]) -> None:
        """A node will let go of what it `saved`."""
        self._endings.append((Ending(node, self._first), saved))

    def node_ends(self, node: Node) -> None:
        """It has run."""
        number = number_of(node, self._first)
        for ending, _ in reversed(self._endings):  # mostly the last one
            if ending.number == number:
                self._sequence.extend((ending, OLDER, 0))
                return

    def template(self) -> Template | None:
        """What is awaited of the next step, if it can be like this one."""
        learned, endings = self._learned, self._endings
        if not learned or any(r.role is not None for r in self._unsettled):
            return None
        for one in learned:
            if one.guess is None and not one.within and not one.deferred:
                return None
            r = one.record
            one.saves = max(r.saves, 0)
            one.settled = r.role, r.owner, r.name
        older = self._savings()
        if older is None:
            return None
        for one, after in pairwise(learned):
            one.next = after
        copying: dict[Site, list[int]] = {}
        for one in learned:
            if one.spot.op in BY_NATURE:
                copying.setdefault(one.spot, []).append(one.nbytes)
        stride = 1 + max([len(ending.lets_go) for ending, _ in endings], default=0)
        nodes = {ending.number: ending for ending, _ in endings}
        return Template(learned[0], _events(self._sequence), nodes, older, copying, stride)

    def _savings(self) -> dict[Awaited, int] | None:
        """What nodes save, noted in them; gives what is from before the step, and how often. None:
        some of it is of the step before, and will be another one.
        """
        by_record = {id(one.record): one for one in self._learned}
        number = self._collector.steps.now.number
        older: dict[Awaited, int] = {}
        for ending, saved in self._endings:
            for r in saved:
                found = by_record.get(id(r))
                if found is None:
                    if r.gone >= 0 or r.step >= number - 1:
                        return None
                    found = by_record[id(r)] = Awaited(r.bytes, r)
                    older[found] = 0
                if found in older:
                    older[found] += 1
                else:
                    found.saves += 1
                ending.lets_go.append(found)
                found.let_go.append(ending)
        return older


def _events(sequence: list[Any]) -> Events:
    """From what was learned, with owners' ids: the numbers of allocations."""
    whats, sizes = sequence[0::3], sequence[2::3]
    numbers = []
    alive: dict[int, int] = {}
    count = 0
    for what, owner in zip(whats, sequence[1::3], strict=True):
        if type(what) is Awaited:
            alive[owner] = count
            numbers.append(count)
            count += 1
        else:
            numbers.append(OLDER if what is not None else alive.pop(owner, OLDER))
    return Events(whats, sizes, numbers)
