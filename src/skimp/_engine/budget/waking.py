"""When a budget knows storages and notes recipes: both cost every op some time."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any, Final

from skimp._engine.budget import choice, evictable, recording, telling
from skimp._engine.budget.calm import Calm
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.repetition import Period, Repetition
from skimp._engine.budget.statistics import counts
from skimp._engine.interrupts import WeakValues
from skimp._engine.memory import allocator, call_site
from skimp._engine.memory.caching import POOLED, pool
from skimp._engine.memory.ledger import host
from skimp._engine.memory.pending import LOCK, pending
from skimp._engine.memory.storage import Storage
from skimp._engine.memory.users import alive
from skimp._engine.tensor.tensor import Tensor

_MANY: Final = 1 << 10
BEFORE: Final = call_site.Site("", 0, "made before")  # the line of what nobody looked at
TRIAL: Final = 2  # backwards that recipes are noted before they are judged
WORTH: Final = 8  # of evicted bytes: where less go because of recipes, these are not worth noting
RESTS: Final = 8  # half of the backwards for which they are not noted then; each time twice as many
CLOSE: Final = 16  # of the budget: with less left, pages that nobody uses are given back
SCATTERED: Final = 6 << 20  # if so many bytes more are resident than when that was last done
LITTLE: Final = 32  # of the budget: where less is written between two backwards, nothing is noted


class Waking:
    """A budget that is asleep or awake.

    One that nothing breaks wants to know nothing. So one that spills is asleep until it has to make
    room: it writes storages to the file, large ones first; once much is written between two
    backwards, it notes recipes, as long as they are used. One that may not spill needs all of it
    but while the program repeats itself, or nothing goes (calm.py).

    `least`: bytes from which a storage may be evicted.
    """

    def __init__(self, nbytes: int, spills: bool, always: bool, least: int | None) -> None:
        self.nbytes: Final = nbytes
        self.spills = spills
        self.always: Final = always
        if least is None:
            least = 1 if always else choice.goes_from(nbytes)
        self.smallest: Final = least  # what `least` is when all that may go is known
        self.notes = self.knows = always or not spills  # recipes; storages
        self.least = least if self.knows else max(least, POOLED)
        self.repetition: Final = Repetition()
        self.calm: Final = Calm()
        self.notes_soon = False  # notes are due
        self._under_way: FrameType | None = None  # the op in which it was seen that notes are due
        self._written = counts.written  # when backward last began
        self._others = -SCATTERED  # resident bytes beside those counted, when some were given back
        self.known: Final[choice.Known] = {}  # whose bytes are here, or were
        self.gone: Final = WeakValues[int, Evictable]()
        self.clock: Final = telling.Clock()
        self._backwards = 0  # that have begun
        self._trial = 0, 0, 0  # of them, dropped and evicted bytes when noting began
        self._rests = RESTS
        self._rest = 0  # backwards in which much was written, until recipes are tried once more
        self._many = _MANY  # known ones, from which the dead among them are looked for

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
        """A large allocation, or an expression that waits from now on (`-nbytes`): the one that is
        expected, or one to be remembered.
        """
        repetition = self.repetition
        expected = repetition.expected
        if expected is None:
            if self.knows:
                repetition.remember(nbytes, owner)
        elif not repetition.goes_on(nbytes, owner):
            self._depart()
        elif expected.stretches and repetition.notes():
            if not self.notes:
                self._note_soon()
        elif self.notes or self.notes_soon:
            self._note_no_more()

    def _near(self, held: int) -> None:
        """Nothing goes, as a rule: ops are noted where so much is held that something may."""
        if held > self.calm.wakes_at:
            if not (self.notes or self.notes_soon):
                self._note_soon()
        elif held < self.calm.sleeps_at and (self.notes or self.notes_soon):
            self._note_no_more()

    def _depart(self) -> None:
        """What was expected does not come. Where there is a file, whatever has to go can."""
        self.repetition.depart()
        if self.spills:
            self._tell()
        else:
            self._note_soon()

    def after_backward(self) -> None:
        """Backward has ended: what comes may be known, if nothing is away but in the file."""
        self.clock.ends_step()
        self._give_back()
        pool.renew()
        if self.always:
            return
        with LOCK():  # nobody makes bytes again, or has them go, of which this would know no more
            self._after_step()

    def _after_step(self) -> None:
        repetition = self.repetition
        if self._forget_returned():
            if self.calm.on:
                self._unexpected()
            return
        if repetition.expected is not None:
            after = repetition.after()
            if after is None:
                self._depart()
                return
        elif self.calm.on or self.knows:
            after = self._unexpected()
            if after is None:
                return
        else:
            return
        evictable.leave_all(list(self.known.values()))
        self.known.clear()
        repetition.follow(after)
        if repetition.notes():
            self._note_now()
        elif self.notes or self.knows:
            self._note_no_more()
        else:
            self._tell()

    def _forget_returned(self) -> bool:
        """Whether something is away because of its recipe; `gone` has only what is away."""
        found = self.gone.values()
        for s in found:
            if s.block is not None:
                self.gone.drop(id(s))
        return any([s.block is None and s.needs is not None for s in found])

    def _unexpected(self) -> Period | None:
        """A period that was not expected has ended: the one that comes after it, if it is known.
        None: the next one is noted, or as much of it as is needed where nothing goes.
        """
        was, after = self.calm.on, None
        if not was:
            after = self.repetition.turn(self.nbytes)
        if after is None and not self.spills:
            self.calm.ends(self.nbytes)
            if was and self.calm.on:
                self._know_no_more()
            elif was:
                self.repetition.forget()
                self.note()
            elif self.calm.on and not self._sleep():
                self.calm.on = False
            return None
        return after if after is not None and self._sleep() else None

    def _know_no_more(self) -> None:
        self.repetition.forget()
        if self.notes or self.notes_soon:
            self._note_no_more()
        evictable.leave_all(list(self.known.values()))
        self.known.clear()

    def _give_back(self) -> None:
        """Have the C library give back what kernels' temporaries were in: their ends are no
        tensors', which would have it do so.
        """
        held = pool.measure()
        if held > self.nbytes - self.nbytes // CLOSE:
            others = allocator.resident() - held
            if others >= self._others + SCATTERED:
                allocator.trim()
                self._others = allocator.resident() - held

    def _sleep(self) -> bool:
        """Know no storages any more, and note nothing; False: something is away."""
        if call_site.elsewhere():
            return False
        with LOCK():
            known = evictable.all_known()
            if evictable.needs_any(known):
                return False
            self._note_no_more()
            evictable.leave_all(known)
            self.known.clear()
        return True

    def _tell(self) -> None:
        """What tensors may keep is another (`kept_below`)."""
        budget: Any = self
        host.spend(budget)

    def _note_no_more(self) -> None:
        recording.end()
        self.notes = self.knows = self.notes_soon = False
        self._under_way = None
        self.least = max(self.smallest, POOLED)
        self._tell()

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
        if self.repetition.expected is None and not self.calm.on:
            self.note()
            return
        self.least = self.smallest
        self.knows = self.notes = True
        self.notes_soon, self._under_way = False, None
        recording.begin()
        self._tell()

    def note(self) -> None:
        """Know all storages and note recipes, from now on. Nothing is under way."""
        self.least = self.smallest
        self.knows = self.notes = True
        self.notes_soon, self._under_way = False, None
        self._trial = self._backwards, counts.dropped, counts.evicted
        self.begin()
        self._tell()

    def _wake(self) -> bool:
        """Know more storages, in the middle of an op; False: all are known."""
        if self.knows and self.least == self.smallest:
            return False
        if self.knows:
            self.least = self.smallest
        self.knows = True
        self.enrol_all(settled=False)
        self._tell()
        return True

    def enrol_all(self, settled: bool) -> None:
        """Know the storages that were there before. `settled`: no op writes to them now."""
        for s in pending():
            evictable.enrol(s)
        for s in alive(Storage):
            if s.nbytes >= self.least:
                made_at = getattr(s, "made_at", None) or BEFORE
                if self._know(s, made_at) and settled:
                    s.settled = True
        for t in alive(Tensor):
            if t._np is not None and t._storage.loose:
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
            if not new and s.block is not None:  # what is made again may fail to be
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
