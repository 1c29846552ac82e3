"""Recipes: how the bytes of a storage were made, from which bytes of which others.

A recipe holds no bytes: its sources are known by weak references, but for small ones, and by how
often they were written to. What program and graph have dropped in between is known by its own
recipe (`origin`), so a chain can be made again from where bytes are. When a storage's bytes go
because there is a recipe, what that needs is held (`Evictable.needs`), and a write to it has the
storage made first.

Two kinds: a pointwise expression that was materialized, and a call of any other op.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.modes import state
from skimp._engine.autograd.tasks import running
from skimp._engine.budget import evictable
from skimp._engine.budget.evictable import Evictable
from skimp._engine.eval.expr import Expr, Leaf, Whole, lies_over, place_of, walk
from skimp._engine.memory import call_site, storage as storages
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import Rematerialized
from skimp._engine.memory.storage import Storage
from skimp.config import config

Array = np.ndarray[Any, Any]
Like = tuple[tuple[int, ...], np.dtype[Any]] | None  # of a leaf that is as it lies

RATE: Final = 4e9  # bytes a second that a kernel is taken to write until it was measured
MOST: Final = 64  # recipes that may be followed for one storage's bytes
KINDS: Final = 1 << 12  # of calls whose times are known
MANY: Final = 64  # readers of a recipe's results, after which the dead among them are forgotten
DEEPEST: Final = 256  # recipes above each other, of which the lower ones are forgotten

_usual: Final[dict[tuple[Any, ...], float]] = {}


def usual(kind: tuple[Any, ...], seconds: float) -> float:
    """Seconds that a call of this kind (its op, and how large what it makes and reads is) takes
    where nothing else has the processor: the least that was seen, of which a hundredth is forgotten
    each time.
    """
    least = 1.01 * _usual.get(kind, seconds)
    if seconds < least:
        least = seconds
    if len(_usual) > KINDS:
        _usual.clear()
    _usual[kind] = least
    return least


class Source:
    """Bytes that a recipe reads: of a storage, as they were then."""

    __slots__ = ("kept", "origin", "ref", "writes")

    ref: weakref.ref[Evictable]
    kept: Evictable | None  # a small one, as it can't go
    writes: int
    origin: tuple[Recipe, int] | None

    def follow(self, recipe: tuple[Recipe, int]) -> None:
        """The storage, away by a recipe that may be younger than this, is made by that: also when
        it has died. Lost: the recipe is too far down to be remembered.
        """
        if recipe[0].depth >= DEEPEST:
            raise Lost
        self.origin = recipe

    def storage(self) -> Evictable | None:
        """The storage, if it still has, or stands for, the same bytes."""
        s = self.ref()
        return s if s is not None and s.writes == self.writes else None


class Recipe:
    """What `make` needs (`sources`), and for whom it was made first (`results`)."""

    __slots__ = ("_lived", "depth", "last", "name", "noted", "readers", "results", "seconds",
                 "site", "sources")  # fmt: skip

    def __init__(self, sources: list[Source], name: str = "") -> None:
        self.sources: Final = sources
        self.results: Sequence[weakref.ref[Evictable] | None] = ()
        self.readers: list[weakref.ref[Evictable] | None] = []  # whose recipes read its results
        self._lived = 0  # of them, when that was last looked at
        self.seconds = 0.0  # that making took
        self.noted = (-1, -1, -1)  # in which period, and from where to where in it
        self.last = False  # backward made this, which lets go of what it has read
        self.name: Final = name
        self.site: call_site.Site | None = None  # the line that called the op
        depth = 0  # of what it is made from
        for one in sources:
            if one.origin is not None and one.origin[0].depth > depth:
                depth = one.origin[0].depth
        self.depth: Final[int] = depth + 1

    def make(self, given: list[Storage], waits: bool) -> list[Storage | None]:
        """New storages with the results' bytes, from storages with the sources' bytes, of which it
        may empty the list; None where a result is none that was made. `waits`: what is pointwise
        may stay an expression, as it was.
        """
        raise NotImplementedError

    def is_due(self, s: Evictable) -> bool:
        """Whether this will be followed whatever becomes of `s`, which it then makes as well: for
        another of its results.
        """
        if len(self.results) > 1:
            for ref in self.results:
                one = None if ref is None else ref()
                if one is not None and one.needs is not None and one is not s:
                    return True
        return False

    def is_shared(self) -> bool:
        """Whether nobody has any of its results, so that they are made for all who are made of them
        together.
        """
        living = 0
        for ref in self.results:
            living += ref is not None and ref() is not None
        return not living

    def forget_readers(self) -> None:
        """Forget the dead among many, if they may be half of them."""
        readers = self.readers
        if len(readers) > 2 * self._lived:
            readers[:] = [ref for ref in readers if ref is not None and ref() is not None]
            self._lived = len(readers)

    def read_by(self) -> Iterator[Evictable]:
        """The living storages whose recipes read a result of this."""
        for ref in self.readers:
            s = None if ref is None else ref()
            if s is not None and s.recipe is not None and s.recipe[0].reads(self):
                yield s

    def reads(self, other: Recipe) -> bool:
        """Whether this reads a result of another."""
        for source in self.sources:
            if source.origin is not None and source.origin[0] is other:
                return True
        return False

    def others(self, s: Evictable) -> list[Evictable]:
        """The living storages of its results, but for `s`."""
        if len(self.results) == 1:
            return []
        found = [None if ref is None else ref() for ref in self.results]
        return [one for one in found if one is not None and one is not s]


class Pointwise(Recipe):
    """An expression. Its nodes refer to leaves by their numbers, so that no array is kept."""

    __slots__ = ("_leaves", "_nodes", "_shape", "_whole", "size")

    def __init__(self, expr: Expr, sources: list[Source]) -> None:
        super().__init__(sources, expr.kernel.name)
        self.size: Final = expr.size  # ops in it
        self.seconds = expr.size * math.prod(expr.shape) * expr.dtype.itemsize / RATE
        numbers: dict[int, int] = {}
        self._shape = expr.shape
        self._leaves: list[tuple[int, Callable[[Storage], Array], Like]] = []
        self._nodes: list[tuple[Any, tuple[Any, ...], Any]] = []
        self._whole: Final = type(expr) is Whole
        known = {id(source.ref()): i for i, source in enumerate(sources)}
        for leaf in expr.leaves:
            numbers[id(leaf)] = len(self._leaves)
            array = leaf.array
            like = (array.shape, array.dtype) if array.flags.c_contiguous else None
            self._leaves.append((known[id(_whose(leaf.storage))], place_of(leaf), like))
        for node in walk((expr,)):
            args = [(type(a), numbers[id(a)] if type(a) in (Expr, Leaf) else a) for a in node.args]
            numbers[id(node)] = len(self._nodes)
            self._nodes.append((node.kernel, tuple(args), node.dtype))

    def is_shared(self) -> bool:
        """Unless it is whole, it is computed inside of each of its readers."""
        return self._whole and super().is_shared()

    def taken(self, seconds: float) -> None:
        """Know how long it took."""
        made = self.results[0]
        s = None if made is None else made()
        self.seconds = usual((self.name, self.size, None if s is None else s.size), seconds)

    def make(self, given: list[Storage], waits: bool) -> list[Storage | None]:
        new = storages.defer(self._expression(given))
        new.spare = True
        if not waits or self._whole:
            new.materialize()
        return [new]

    def _expression(self, given: list[Storage]) -> Expr:
        """The expression, which alone has what it reads, and may be computed over it."""
        if self._whole:
            whole = [Leaf(given[i], array_of(given[i])) for i, array_of, _ in self._leaves]
            given.clear()
            ((kernel, args, dtype),) = self._nodes
            return Whole(kernel, tuple([whole[a] for _, a in args]), self._shape, dtype)
        leaves = [_read(given[i], array_of, like) for i, array_of, like in self._leaves]
        given.clear()
        made: list[Expr] = []
        for kernel, args, dtype in self._nodes:
            filled = [made[a] if kind is Expr else leaves[a] if kind is Leaf else a
                      for kind, a in args]  # fmt: skip
            made.append(Expr(kernel, tuple(filled), self._shape, dtype))
        return made[-1]


class Called(Recipe):
    """A call: `again(storages)` makes it and gives its results' storages."""

    __slots__ = ("_again",)

    def __init__(
        self,
        name: str,
        sources: list[Source],
        again: Callable[[Sequence[Storage]], list[Storage | None]],
    ) -> None:
        super().__init__(sources, name)
        self._again: Final = again

    def make(self, given: list[Storage], waits: bool) -> list[Storage | None]:
        return self._again(given)


def _read(s: Storage, array_of: Callable[[Storage], Array], like: Like) -> Expr | Leaf:
    """A leaf on a storage's bytes; or the expression that waits for this reader alone."""
    expr = s.deferred
    if not s.spare or expr is None or expr.size > config.max_nodes // 2:
        return Leaf(s, array_of(s))
    return expr if like == (expr.shape, expr.dtype) else Leaf(s, array_of(s))


_new: Final = object.__new__  # all of a call's in one function


def sources_of(needed: Sequence[Any]) -> list[Source] | None:
    """The sources that these storages are; None where one of them can't be followed."""
    found = []
    below = host.kept_below
    for s in needed:
        if type(s) is not Evictable and not evictable.enrol(s):
            return None
        if s.exported and s.has_outsiders():
            return None
        if s.recipe is None and s.deferred is not None:
            of_expression(s, s.deferred)  # it may never be materialized
        recipe = s.recipe
        size = s.size
        if size is None:
            size = len(s)
        one = _new(Source)
        one.ref = weakref.ref(s)
        one.kept = s if size < below else None
        one.writes = s.writes
        one.origin = None if recipe is None or recipe[0].depth >= DEEPEST else recipe
        found.append(one)
    return found


def _whose(s: Any) -> Any:
    """The storage by which a recipe reads these bytes: of what stands for one that lives, and has
    them still, that one, for a budget can know no other.
    """
    if type(s) is Rematerialized:
        original = s.original()
        if original is not None and (original.version, original.unseen) == (s.noted, s.seen):
            return original
    return s


def of_expression(s: Evictable, expr: Expr) -> Recipe | None:
    """Note the expression by which a storage's bytes are made."""
    for leaf in expr.leaves:
        block: Any = leaf.storage.block  # type: ignore[attr-defined]
        if block is None or not lies_over(leaf, block):
            return None
    read = {id(one): one for one in [_whose(leaf.storage) for leaf in expr.leaves]}
    sources = None if id(s) in read else sources_of(list(read.values()))
    if sources is None:
        return None
    recipe = Pointwise(expr, sources)
    give(recipe, [s])
    return recipe


def give(recipe: Recipe, results: Sequence[Evictable | None]) -> None:
    """Make `recipe` known as the way to the results' bytes, where no outsider may change them."""
    budget: Any = host.budget
    if budget is not None:
        repetition = budget.repetition
        recipe.noted = repetition.turns, repetition.started, repetition.at
        recipe.last = running.now[0] is not None and not state.grad
    refs: list[weakref.ref[Evictable] | None] = []
    recipe.results = refs
    for i, s in enumerate(results):
        refs.append(None if s is None else weakref.ref(s))
        if s is None:
            continue
        if recipe.site is None:
            recipe.site = s.made_at
        if not (s.exported and s.has_outsiders()):
            s.recipe = (recipe, i)
    for source in recipe.sources:
        if source.origin is not None:
            read = source.origin[0]
            if len(read.readers) > MANY:
                read.forget_readers()
            read.readers += refs


# -- what a recipe needs --------------------------------------------------------------------------


class Lost(Exception):
    """Bytes that a recipe reads are nowhere, and can't be made."""


def upstream(
    recipe: Recipe, most: int = MOST, made: Container[tuple[int, int]] = ()
) -> Iterator[tuple[Recipe, list[Evictable]]]:
    """The recipes that have to be followed for this one, each after those that it needs, with the
    storages in which the others of its sources are, unless these are `made` (recipes' ids, and
    which of their results). Lost: that can't be; or there are `most`.
    """
    stack: list[tuple[Recipe, list[Evictable] | None]] = [(recipe, None)]
    seen: set[int] = set()
    while stack:
        one, there = stack.pop()
        if there is not None:
            yield one, there
            continue
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > most:
            raise Lost
        there = []
        below: list[Recipe] = []
        for source in one.sources:  # `storage` and `has_bytes` in one: most of a plan is this
            s = source.ref()
            if s is not None and s.writes == source.writes:
                if s.block is not None or s.place is not None or s.deferred is not None:
                    there.append(s)
                    continue
                if s.recipe is not None:
                    source.follow(s.recipe)
            if source.origin is None:
                raise Lost
            other, i = source.origin
            if (id(other), i) not in made:
                below.append(other)
        stack.append((one, there))
        if below:
            below.sort(key=_depth)  # the longest way first: what the others make waits for it
            stack += [(other, None) for other in below if id(other) not in seen]


_depth: Final = attrgetter("depth")


def has_bytes(s: Evictable) -> bool:
    """Whether the bytes are there without a recipe."""
    return s.block is not None or s.place is not None or s.deferred is not None


def present(recipe: Recipe) -> list[Evictable] | None:
    """The storages that a recipe reads, where all of their bytes are there."""
    found = []
    for source in recipe.sources:
        s = source.ref()
        if s is None or s.writes != source.writes:
            return None
        if s.block is None and s.place is None and s.deferred is None:  # `has_bytes`, written out
            return None
        found.append(s)
    return found


def price(recipe: Recipe) -> float | None:
    """Seconds to follow a recipe as things are; None where it can't be followed. What it reads and
    nobody has is made once for all that are made of it and away: a part of its seconds, by bytes.
    """
    if present(recipe) is not None:
        return recipe.seconds
    try:
        seconds = sum([one.seconds for one, _ in upstream(recipe)])
    except Lost:
        return None
    seen: list[Recipe] = []
    for source in recipe.sources:
        other = None if source.origin is None else source.origin[0]
        if other is not None and other not in seen and other.is_shared():
            seen.append(other)
            # the recipe first: another thread may write to the bytes, which have none from then on
            sizes = [(s.recipe[0], len(s)) for s in other.read_by()]
            mine = sum([nbytes for one, nbytes in sizes if one is recipe])
            seconds -= other.seconds * (1 - mine / max(sum([nbytes for _, nbytes in sizes]), 1))
    return max(seconds, recipe.seconds)


def holds_more(recipe: Recipe, nbytes: int) -> bool:
    """Whether bytes that go because of this have as many held that would be free: what backward has
    read for a gradient is as a rule no more once that is there.
    """
    if not recipe.last:
        return False
    try:
        held = {id(s): s for _, there in upstream(recipe) for s in there}
    except Lost:  # meanwhile, by another thread's write
        return False
    made = [len(s) for s in held.values() if s.recipe is not None and s.recipe[0].sources]
    return sum(made) >= nbytes
