"""Who makes room where a program has as many bytes reserved as it may."""

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import partial
from time import perf_counter
from types import FrameType
from typing import Any, Final

from skimp._engine.budget import (
    choice,
    evictable,
    formulas,
    lending,
    recipes,
    recording,
    rematerializing,
    spill as files,
    telling,
)
from skimp._engine.budget.computing import Computing
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.recipes import Recipe
from skimp._engine.budget.repetition import Repetition
from skimp._engine.budget.statistics import counts
from skimp._engine.interrupts import WeakValues
from skimp._engine.memory import allocator, call_site
from skimp._engine.memory.caching import POOLED, pool
from skimp._engine.memory.ledger import KEPT, SMALL, host
from skimp._engine.memory.pending import LOCK, pending
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import scratch
from skimp.errors import OutOfMemoryError

_MANY: Final = 1 << 10
BEFORE: Final = call_site.Site("", 0, "made before")  # the line of what nobody looked at
FEW: Final = 3  # tensors that any op may read at once
SHARE: Final = 8  # of the budget that a deferred expression of more may read
TRIAL: Final = 2  # backwards that recipes are noted before they are judged
AGED: Final = 0.5  # of the time that something was not used, for which what goes with it was not
WORTH: Final = 8  # of evicted bytes: where less go because of recipes, these are not worth noting
RESTS: Final = 8  # half of the backwards for which they are not noted then; each time twice as many
CLOSE: Final = 16  # of the budget: with less left, pages that nobody uses are given back
LITTLE: Final = 32  # of the budget: where less is written between two backwards, nothing is noted


class Spending:
    """A budget that is obeyed.

    Knowing storages and noting recipes cost every op some time, and a budget that nothing breaks
    wants neither. So one that spills is asleep until it has to make room: it writes storages to the
    file, large ones first; once much is written between two backwards, it notes recipes, as long as
    they are used. One that may not spill needs all of it but while the program repeats itself.

    `least`: bytes from which a storage may be evicted. `always`: whatever may go, goes at every
    allocation, though there is room: a test's way to meet everything in every state.
    """

    def __init__(
        self,
        nbytes: int,
        spills: bool = True,
        directory: str | None = None,
        always: bool = False,
        least: int | None = None,
    ) -> None:
        self.nbytes: Final = nbytes
        self.spills = spills
        self.directory: Final = directory
        self.verifies = False  # checksums are compared
        self.always: Final = always
        if least is None:
            least = 1 if always else choice.goes_from(nbytes)
        self.smallest: Final = least  # what `least` is when all that may go is known
        self.notes = self.knows = always or not spills  # recipes; storages
        self.least = least if self.knows else max(least, POOLED)
        self.repetition: Final = Repetition()
        self.notes_soon = False  # notes are due
        self._under_way: FrameType | None = None  # the op in which it was seen that notes are due
        self._written = counts.written  # when backward last began
        self.known: Final[choice.Known] = {}  # whose bytes are here, or were
        self.gone: Final = WeakValues[int, Evictable]()
        self.clock: Final = telling.Clock()
        self._backwards = 0  # that have begun
        self._trial = 0, 0, 0  # of them, dropped and evicted bytes when noting began
        self._rests = RESTS
        self._rest = 0  # backwards in which much was written, until recipes are tried once more
        self.highest = 0  # bytes since an op began that is noted
        self._many = _MANY  # known ones, from which the dead among them are looked for
        self.error: OSError | None = None  # why nothing is spilled now

    working = formulas.Working

    @property
    def kept_below(self) -> int:
        """Bytes of a result whose tensor keeps an ndarray, which pins them."""
        return min(self._lowest(), SMALL) if self.knows or counts.bringing else KEPT

    def _lowest(self) -> int:
        """Bytes from which storages are known now: of what is made again, as when it was noted."""
        return self.smallest if counts.bringing else self.least

    def receive(self, nbytes: int, owner: Any) -> None:
        """Know an owner of `nbytes`, which are about to be charged."""
        if self.notes and (held := host.total - host.freed + nbytes) > self.highest:
            self.highest = held
        back = counts.bringing > 0
        if nbytes >= KEPT and not back:
            self._large(nbytes, owner)
        if nbytes < (self.smallest if back else self.least):
            return
        if self.knows or back:
            self._know(owner)
        else:
            owner.made_at = call_site.find()
        if self.always:
            self._evict_all()

    def computes(self, owner: Any) -> object:
        """Know an expression that is about to be computed, how that is done and what it reads."""
        computing = Computing(evictable.leaf_arrays(owner))
        back = counts.bringing > 0
        if len(owner) >= KEPT and not back:
            self.repetition.number(owner)
        knows = self.knows or back
        if knows and len(owner) >= self._lowest() and self._know(owner):
            if self.notes:
                read = {id(one.storage): len(one.storage) for one in owner.deferred.leaves}
                telling.floor.see(sum(read.values()) + len(owner))
            if self.notes and owner.recipe is None and not (back and owner.spare):
                recipes.of_expression(owner, owner.deferred)
            owner.settled = True
            computing.recipe = owner.recipe
        return computing

    def regain(self, owner: Any) -> None:
        """Know an owner that has bytes again, which somebody else had allocated."""
        if len(owner) >= self.smallest:
            self._know(owner)

    def begin(self) -> None:
        """What this needs of what was there before. Nothing is under way."""
        if self.knows:
            self.enrol_all(settled=True)
        if self.notes:
            recording.begin()
        else:
            recording.end()

    def between_ops(self) -> None:
        """No op of this thread is under way, and backward begins: the time to note recipes from now
        on, if much was written since the last; or no longer, if nothing went and nothing new came.
        """
        written, self._written = self._written, counts.written
        self._give_back()
        if self.always:
            return
        much = counts.written - written > self.nbytes // LITTLE
        self._backwards += 1
        self.repetition.started = self.repetition.at
        wanted = self.notes_soon
        if self.notes:
            if self.spills and much:
                self._judge()
        elif self.spills:
            self._rest -= much
            wanted = self.knows and much and self._rest < 0
        if wanted and not call_site.elsewhere():
            self._note_now()

    def _judge(self) -> None:
        """Much was written though recipes are noted: no more for a while, if few went by one."""
        began, dropped, evicted = self._trial
        dropped, evicted = counts.dropped - dropped, counts.evicted - evicted
        if self._backwards - began >= TRIAL and WORTH * dropped < evicted:
            self._rest = self._rests = 2 * self._rests
            self.notes = False
            recording.end()

    def _large(self, nbytes: int, owner: Any) -> None:
        """A large allocation: the one that is expected, or one to be remembered."""
        repetition = self.repetition
        if repetition.expected is None:
            if self.knows:
                repetition.remember(nbytes, owner)
        elif not repetition.goes_on(nbytes, owner):
            self._depart()
        elif repetition.notes():
            if not self.notes:
                self._note_soon()
        elif self.notes or self.notes_soon:
            self._note_no_more()

    def _depart(self) -> None:
        """What was expected does not come. Where there is a file, whatever has to go can."""
        self.repetition.depart()
        if not self.spills:
            self._note_soon()

    def after_backward(self) -> None:
        """Backward has ended: what comes may be known, if nothing is away but in the file."""
        repetition = self.repetition
        self.clock.ends_step()
        self._give_back()
        pool.renew()
        if self.always or any(
            [s.block is None and s.needs is not None for s in self.gone.values()]
        ):
            return
        if repetition.expected is not None:
            after = repetition.after()
            if after is None:
                self._depart()
                return
        elif self.knows:
            after = repetition.turn(self.nbytes)
            if after is None or not self._sleep():
                return
        else:
            return
        evictable.leave_all(list(self.known.values()))
        self.known.clear()
        repetition.follow(after)
        if repetition.notes():
            self._note_now()
        elif self.notes:
            self._note_no_more()

    def _give_back(self) -> None:
        """Have the C library give back what kernels' temporaries were in: their ends are no
        tensors', which would have it do so.
        """
        if pool.measure() > self.nbytes - self.nbytes // CLOSE:
            allocator.trim()

    def _sleep(self) -> bool:
        """Know no storages any more, and note nothing; False: something is away."""
        if call_site.elsewhere():
            return False
        with LOCK():
            known = [weakref.ref(s) for s in gc.get_objects() if type(s) is Evictable]
            if any([s.needs is not None for ref in known if (s := ref()) is not None]):
                return False
            self._note_no_more()
            evictable.leave_all(known)
            self.known.clear()
        return True

    def _note_no_more(self) -> None:
        recording.end()
        self.notes = self.knows = self.notes_soon = False
        self._under_way = None
        self.least = max(self.smallest, POOLED)
        host.spend(self)

    def _note_soon(self) -> None:
        """Note recipes from the next op on, for this may be in the middle of one."""
        if not self.notes_soon:
            self.notes_soon = True
            self._under_way = call_site.outermost_op()
            recording.begin(self.begins_to_note)

    def begins_to_note(self) -> bool:
        """An op begins: begin to note if it is the only one under way."""
        alone = recording.is_only_op(self._under_way)
        if self._under_way is not None and not call_site.is_running(self._under_way):
            self._under_way = None  # it is over, and its frame would keep what its callers had
        if not alone or call_site.elsewhere():
            return False
        self._note_now()
        return True

    def _note_now(self) -> None:
        """Note recipes from now on, of all or of what is expected to need them; no op runs."""
        if self.repetition.expected is None:
            self.note()
            return
        self.least = self.smallest
        self.knows = self.notes = True
        self.notes_soon, self._under_way = False, None
        recording.begin()
        host.spend(self)

    def note(self) -> None:
        """Know all storages and note recipes, from now on. Nothing is under way."""
        self.least = self.smallest
        self.knows = self.notes = True
        self.notes_soon, self._under_way = False, None
        self._trial = self._backwards, counts.dropped, counts.evicted
        self.begin()
        host.spend(self)

    def _wake(self) -> bool:
        """Know more storages, in the middle of an op; False: all are known."""
        if self.knows and self.least == self.smallest:
            return False
        if self.knows:
            self.least = self.smallest
        self.knows = True
        self.enrol_all(settled=False)
        host.spend(self)
        return True

    def enrol_all(self, settled: bool) -> None:
        """Know the storages that were there before. `settled`: no op writes to them now."""
        for s in pending():
            evictable.enrol(s)
        objects = gc.get_objects()
        for s in objects:
            # by its type: what has a `__class__` of its own may do anything when asked for it
            if issubclass(type(s), Storage) and s.nbytes >= self.least:
                made_at = getattr(s, "made_at", None) or BEFORE
                if self._know(s, made_at) and settled:
                    s.settled = True
        for t in objects:
            if issubclass(type(t), Tensor) and t._np is not None and t._storage.loose:
                t._skimp_layout_of()
                t._np = None

    def _know(self, s: Any, made_at: call_site.Site | None = None) -> bool:
        new = type(s) is not Evictable
        known = not new or evictable.enrol(s)
        if known:
            key = id(s)
            if len(self.known) > self._many:
                self._forget_dead()
            self.known[key] = weakref.ref(s)
            if not new:
                self.gone.drop(key)
            if s.size is None and s.block is not None:
                s.size = s.block.nbytes  # found once, for all who ask how many bytes it has
            s.loose = True
            if s.made_at is None:
                s.made_at = made_at or call_site.find()
        return known

    def _forget_dead(self) -> None:
        for key, ref in list(self.known.items()):
            if ref() is None:
                self.known.pop(key, None)
        self._many = max(_MANY, 2 * len(self.known))

    def deferring(self, owner: Any) -> None:
        """Know a new expression. One that reads so much that it had better not wait is computed,
        if there is room: later it may take over the block of what only it still has.
        """
        if self.notes:
            evictable.enrol(owner)
        leaves = owner.deferred.leaves
        if len(leaves) <= FEW:
            return
        nbytes = sum({id(one.storage): len(one.storage) for one in leaves}.values())
        if nbytes > self.nbytes // SHARE:
            with contextlib.suppress(OutOfMemoryError):
                _read = evictable.leaf_arrays(owner)
                if self.make_room(pool.rounded(len(owner))):
                    owner.materialize()

    def explain(self, nbytes: int) -> str:
        """Why so many bytes can't be had within the budget."""
        return telling.refusal(nbytes, self.nbytes, self.spills, self.error, self.known)

    def make_room(self, nbytes: int) -> bool:
        """Evict until `nbytes` more are within the ledger's bound; whether they are."""
        if host.fits(nbytes):
            return True
        began, before = perf_counter(), counts.seconds
        try:
            with LOCK(), lending.ROOM():
                return self._make_room(nbytes)
        finally:
            counts.seconds = before + perf_counter() - began
            self.clock.look(self.gone, nbytes if host.fits(nbytes) else 0)

    def _make_room(self, nbytes: int) -> bool:
        if scratch.drop() and host.fits(nbytes):
            return True
        self._write_again()
        tried: set[int] = set()
        while not host.fits(nbytes):
            s = self.repetition.next_to_go()
            if s is None and self.spills:
                s = self.repetition.ahead(tried)
            if s is not None:
                if (self.spills or type(s) is Evictable) and not (self._know(s) and self._evict(s)):
                    tried.add(id(s))
                continue
            began = perf_counter()
            lacking = host.reserved_for(nbytes) - (host.bound or 0)
            found = choice.choose(self.known, tried, self.spills, self.repetition.repeats, lacking)
            counts.search_seconds += perf_counter() - began
            if not found:
                if self._wake():
                    if self.spills and self.repetition.expected is not None:
                        self.repetition.depart()  # what went then was not enough
                    tried.clear()
                elif not rematerializing.gives_up():
                    return False
                continue
            self._evict_some(found, nbytes, tried)
        return True

    def _evict_some(self, found: list[Evictable], nbytes: int, tried: set[int]) -> None:
        while found and not host.fits(nbytes):
            s = found.pop()
            if not self._evict(s):
                tried.add(id(s))

    def _evict_all(self) -> None:
        with LOCK():
            for ref in list(self.known.values()):
                s = ref()
                if s is not None:
                    self._evict(s)

    def _evict(self, s: Evictable, beside: bool = False) -> bool:
        """Take a storage's bytes away, the cheaper way; False: that can't be. `beside`: because of
        another that went.
        """
        if s.block is None or s.nbytes < 0:
            return False
        order = self._order(s)
        needs = None if order is None else [one for _, there in order for one in there]
        self.gone[id(s)] = s  # first, as the next: an interrupt may come
        gone = False
        try:
            if needs is not None:
                evictable.depends(s, needs)
                gone = evictable.evict(s, None, needs)
            elif s.place is not None or self.spills:
                gone = evictable.evict(s, partial(self._write, s), None)
        except OSError as error:
            self._write_no_more(error)
            return self._evict(s, beside)  # by its recipe, or where a copy was
        if not gone:
            self.gone.drop(id(s))
            return False
        if not beside:
            self.repetition.went(s, len(s), [] if order is None else [one for one, _ in order])
        self.known.pop(id(s), None)
        if order is not None:
            self._evict_beside(s)
        return True

    def _evict_beside(self, s: Evictable) -> None:
        """What is made again with what has gone goes as well, unless it was used much later, or
        something that is away is made from it. Plans need not know: it goes when they have `s` go.
        """
        now = perf_counter()
        for one in s.recipe[0].others(s):
            stale = now - one.used > AGED * (now - s.used)
            if stale and len(one) >= self.smallest and not evictable.is_needed(one):
                self._evict(one, beside=True)

    def _order(self, s: Evictable) -> list[tuple[Recipe, list[Evictable]]] | None:
        """What is to be followed, and held, where the bytes are better made again than read; None:
        they aren't.
        """
        if s.recipe is None or s.held or s.place is not None:
            return None
        if s.recipe[0].depth >= recipes.DEEPEST and evictable.is_needed(s):
            return None  # what is made from these bytes can't be by way of that recipe
        try:
            way = list(recipes.upstream(s.recipe[0]))
        except recipes.Lost:
            return None
        seconds = 0.0 if s.recipe[0].is_due(s) else sum([one.seconds for one, _ in way])
        if self.spills and not self.always and seconds > choice.spilling_of(s):
            return None
        return None if any([one.changing for _, there in way for one in there]) else way

    def _write_no_more(self, error: OSError) -> None:
        """Until there is room, if that is what lacks. This may be in the middle of an op."""
        self.error = error.with_traceback(None)  # whose frames have the block
        self.spills = False
        if error.errno in files.FULL:
            for ref in list(self.known.values()):
                one = ref()
                if one is not None and one.block is not None:
                    one.place = None
            self._write_again()
        if not self.spills and not self.notes:
            self._note_soon()

    def _write_again(self) -> None:
        """Where the disk was full and may have room."""
        if self.error is not None and self.error.errno in files.FULL:
            with contextlib.suppress(OSError):
                if files.file(self.directory).has_room():
                    self.spills, self.error = True, None

    def _write(self, s: Evictable, data: Any) -> files.Place:
        began = perf_counter()
        place = files.file(self.directory).write(data)
        counts.wrote(s.op, s.made_at, data.nbytes, perf_counter() - began)
        return place
