"""Updates that wait until a step has seen all parameters: by one formula with the same numbers they
are one plan, which the threads share, and tiny ones are made as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np

from skimp._engine.eval import jobs
from skimp._engine.eval.expr import Leaf
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare
from skimp._kernels.scratch import give, take
from skimp.config import config
from skimp.optim.formulas import Arrays, Formula, Term, changes, loop_for, on_arrays

Kinds = tuple[int, int, "np.dtype[Any]", bool]  # how many are written, of how many; whether tiny
_TOGETHER: Final = 1 << 14  # elements of tiny ones that are made as one
SHARE: Final = 16  # of a budget or a limit that updates which wait may hold
SMALL: Final = 1 << 16  # elements, of all that wait, below which NumPy's calls are sooner done
storage_of = attrgetter("_storage")


class _Run:
    """Updates by one formula with the same numbers: the arrays that each writes and reads."""

    __slots__ = ("arrays", "formula", "kinds", "numbers")

    def __init__(
        self, formula: Formula, numbers: tuple[Any, ...], kinds: Kinds, first: list[Arrays]
    ) -> None:
        self.formula = formula
        self.numbers = numbers
        self.kinds = kinds
        self.arrays = first  # never none, at whichever moment a signal comes

    def run(self) -> None:
        loop = loop_for(self.formula, self.kinds[2], self.numbers)
        if loop is not None:
            loop(self.arrays)
            return
        if not self.kinds[3]:
            self._share()
            return
        batch: list[Arrays] = []
        elements = 0
        for arrays in self.arrays:
            if elements + arrays[0].size > _TOGETHER:
                self._make(batch, elements)
                batch, elements = [], 0
            batch.append(arrays)
            elements += arrays[0].size
        self._make(batch, elements)

    def _make(self, batch: list[Arrays], elements: int) -> None:
        """Tiny updates as one: what each reads lies end to end in scratch memory."""
        written, many, dtype, _ = self.kinds
        if len(batch) == 1:
            on_arrays(self.formula, batch[0][:written], batch[0][written:], self.numbers)
            return
        rooms = [take(elements, dtype) for _ in range(many)]
        for room, *parts in zip(rooms, *batch, strict=True):
            bare.concatenate(parts, out=room)
        made = self.formula(*rooms, *self.numbers)
        for room, new, *parts in zip(rooms, made, *[one[:written] for one in batch], strict=False):
            if new is not room:
                start = 0
                for part in parts:
                    part[...] = new[start : start + part.size]
                    start += part.size
        for room in rooms:
            give(room)

    def _share(self) -> None:
        """Updates that are not tiny, block by block, on the threads."""
        sizes = [arrays[0].size for arrays in self.arrays]
        if sum(sizes) < min(config.small_below, SMALL):
            many = self.kinds[0]
            for arrays in self.arrays:
                on_arrays(self.formula, arrays[:many], arrays[many:], self.numbers)
            return
        first = self.arrays[sizes.index(max(sizes))]
        shape = first[0].shape
        terms = [Term(Leaf(None, a), shape, a.dtype) for a in first]
        places, nodes = changes(self.formula, terms, self.numbers)
        numbers = {id(term.node): number for number, term in enumerate(terms)}
        read = [numbers[id(leaf)] for leaf in jobs.leaves_of(nodes)]
        written, leaves = _picking(places), _picking(read)
        each = [(written(job), leaves(job)) for job in self.arrays]
        jobs.evaluate_jobs(nodes, written(first), each)


class Waiting:
    """What one thread has put off."""

    __slots__ = ("held", "read", "runs", "written")

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.written: set[Storage] = set()
        self.read: set[Storage] = set()
        self.held = 0  # bytes of all of them

    def meets(self, storages: list[Storage], written: int) -> bool:
        """Whether one of these, the first of which are `written`, has to come after what waits, as
        what may be another's bytes has to."""
        if any([s.external for s in storages]):
            return True
        if self.written.isdisjoint(storages):
            return not self.read.isdisjoint(storages[:written])
        return True

    def put(
        self,
        formula: Formula,
        written: int,
        tensors: list[Tensor],
        arrays: list[Array],
        numbers: tuple[Any, ...],
        tiny: bool,
    ) -> bool:
        """Let an update of row-major arrays of one size wait, if they have no memory in common."""
        first = arrays[0]
        storages = list(map(storage_of, tensors))
        # of one element, what is broadcast and what is not look the same
        if (first.size < 2 and not tiny) or len(set(storages)) < len(storages):
            return False
        if any([s.external for s in storages]):
            return False
        flat = [a if a.ndim == 1 else a.reshape(-1) for a in arrays]
        self.take(formula, numbers, (written, len(arrays), first.dtype, tiny), [tuple(flat)])
        self.hold(storages[:written], storages[written:], len(arrays) * first.nbytes)
        return True

    def hold(self, written: list[Storage], read: list[Storage], nbytes: int) -> None:
        """Know what updates that wait write and read; they run where that is much of a budget."""
        self.held += nbytes
        self.written.update(written)
        self.read.update(read)
        if host.bounded and self.held > (host.bound or 0) // SHARE:
            self.run()  # its bytes can't be taken away while it waits

    def take(
        self, formula: Formula, numbers: tuple[Any, ...], kinds: Kinds, updates: list[Arrays]
    ) -> None:
        for one in self.runs[-2:]:  # tiny ones and others come in turns
            if one.kinds == kinds and one.formula == formula and one.numbers == numbers:
                one.arrays += updates
                break
        else:
            self.runs.append(_Run(formula, numbers, kinds, updates))

    def run(self) -> None:
        runs, self.runs = self.runs, []
        self.written.clear()
        self.read.clear()
        self.held = 0
        for one in runs:
            one.run()


class _Here(threading.local):
    waiting: Waiting | None = None  # None while this thread puts nothing off


here = _Here()


def put_off() -> None:
    """From here to `run_all`, updates of tensors wait, so that the threads share them all, and tiny
    ones are made as one.

    In between nobody may look at what they write.
    """
    here.waiting = Waiting()


def run_all() -> None:
    """Run what waits, and let nothing wait any more."""
    waiting, here.waiting = here.waiting, None
    if waiting is not None:
        waiting.run()


def run_waiting() -> None:
    """Run what waits."""
    waiting = here.waiting
    if waiting is not None:
        waiting.run()


def _picking(places: list[int]) -> Callable[[Arrays], tuple[Array, ...]]:
    """What gives the arrays at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1))
