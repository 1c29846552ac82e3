"""Who tells a collector what tensors are for: modules, optimizers, autograd, and who saves them.

Each is asked in one place, and none of them is asked while nobody collects: modules by their
`__call__`, optimizers by their hooks, nodes by the test that anomaly mode has anyway, and saving by
a property in place of the flag that saving sets.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from skimp._engine.autograd import watched
from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.memory import call_site, steps
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.memory.users import alive
from skimp._engine.tensor.tensor import Tensor
from skimp.lens import layouts
from skimp.lens.awaited import saved_by
from skimp.lens.collect import Collector, Role
from skimp.lens.live import Record
from skimp.lens.modules import Path, Paths
from skimp.lens.noted import Noted
from skimp.lens.routine import Routine
from skimp.lens.stacks import (
    BITS,
    MODULE,
    OUTSIDE,
    PATH,
    UNASKED,
    Here,
    Ran,
    Spot,
    Stacks,
    next_number,
)
from skimp.nn.modules.hooks import Hooked
from skimp.optim.optimizer import WATCHERS

_SAVED: Final = Noted(Storage, "saved")
DATA: Final = Role("data")
STATE: Final = "optimizer state"
NOTHING: Final[list[Record]] = []  # that a node lets go of


class Watch:
    """Everything that observes, from `start` to `stop`."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._owners = collector.live.owners
        self.stacks = Stacks()
        self._of_thread = self.stacks.of_thread
        self.paths = Paths(self._met)
        self.routine = Routine(collector, self.stacks, self)
        self.explicit = False  # the program says itself where its steps end
        self.after_step: Any = None  # called when a step was told
        self._call: Any = None
        # the parameters' owners of each optimizer
        self._optimizers: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        self._optimizing = 0.0
        self._made = 0  # allocations when it began
        self._told: set[int] = set()  # parameters whose gradients were told since the last one
        # outermost modules without parameters: what they are given may be all words of all samples
        self._losses: weakref.WeakSet[Any] = weakref.WeakSet()
        self.batch = ""  # how many samples any other outermost module was given last
        self.began = 0.0  # and when

    def start(self) -> None:
        """Listen."""
        self._call = Hooked.__call__
        call = _watched_call(self, self._call)
        self.stacks.fold_at(call.__code__)
        Hooked.__call__ = call  # type: ignore[method-assign]
        watched.OBSERVERS.append(self)
        self.attend()
        self.collector.given = layouts.of_op
        call_site.finder = self.stacks.find
        steps.LISTENERS.append(self._explicit_step)
        WATCHERS.append(self)

    def stop(self) -> None:
        """Listen no longer; everything is as it was."""
        self.routine.leave()
        Hooked.__call__ = self._call  # type: ignore[method-assign]
        self.ignore()
        watched.OBSERVERS.remove(self)
        call_site.finder = None
        steps.LISTENERS.remove(self._explicit_step)
        WATCHERS.remove(self)

    def attend(self) -> None:
        """Be told of nodes of backward, of savings and of views."""
        for s in alive(Storage):
            if s.saved and s.deferred is not None:
                self.saved_deferred(s)
        _SAVED.on(_noting(self))
        layouts.watch(self.stacks.find)
        watched.ON.append(self)
        self.stacks.unwatched = False

    def ignore(self) -> None:
        """Be told of none of them: all is as it was in the step before."""
        _SAVED.off()
        layouts.unwatch()
        watched.ON.remove(self)
        self.stacks.unwatched = True

    # -- modules ----------------------------------------------------------------------------------

    def _met(self, module: Any, root: Path) -> None:
        self._losses.add(module)
        for name, p in module.named_parameters():
            self._losses.discard(module)
            self._owned("parameter", root, name, p)
        for name, b in module.named_buffers():
            self._owned("buffer", root, name, b)

    def _owned(self, role: str, root: Path, name: str, t: Any) -> None:
        if isinstance(t, Tensor) and not t._hollow:
            s = t._storage
            owner = self.paths.number(Path(root.root, name.rpartition(".")[0]))
            self.collector.became(id(s), Role(role, id(s), owner, name))

    def entered(self, module: Any, args: tuple[Any, ...], start: float) -> None:
        """The outermost module is called with these."""
        self.began = start
        if module not in self._losses:
            self.batch = ""
        for t in args:
            if not isinstance(t, Tensor):
                continue
            if not self.batch and t.ndim:
                self.batch = str(t.shape[0])
            if not (t._hollow or t._rg) and t._skimp_node is None:  # a sample has no such fields
                owner = id(t._storage)
                record = self._owners.get(owner)
                if record is None and self.routine.follows:
                    continue  # it was allocated in this step, and has the learned role
                if record is None or record.role is None:
                    self.collector.became(owner, DATA)

    def left(self, result: Any, start: float) -> None:
        """The outermost module has returned. The mark's name is how many samples it was given."""
        if isinstance(result, Tensor) and result.requires_grad:
            self.stacks.graph_waits = True
        self.collector.marked("forward", self.batch, start, time.perf_counter())

    # -- autograd ---------------------------------------------------------------------------------

    def saved_deferred(self, s: Storage) -> None:
        """A node has saved a tensor on a storage that has no bytes yet."""
        if isinstance(s.site, Spot) and not s.site.kept:
            s.site = self.stacks.kept(s.site)

    def backward_begins(self) -> None:
        """A backward begins on this thread, perhaps inside of another's node."""
        here = self.stacks.of_thread.here
        here.outer.append((here.node, here.depth, here.saved, time.perf_counter()))
        here.node = None

    def backward_ends(self) -> None:
        """It is over."""
        here = self.stacks.of_thread.here
        if here.unended:
            self._end_unended(here)
        here.node, here.depth, here.saved, start = here.outer.pop()
        here.spot = None
        if not here.outer:
            self.stacks.graph_waits = False
            self.collector.marked("backward", "", start, time.perf_counter())

    def node_begins(self, node: Node, keep: bool) -> None:
        """A node of backward runs from now on; without `keep` it lets go of what it saved. What
        fits its gradients to their tensors is still its own.
        """
        routine = self.routine
        if routine.follows:
            return
        here = self._of_thread.here
        if here.unended:
            self._end_unended(here)
        here.node = node
        here.spot = None
        here.depth = len(here.calls)
        saved = node._skimp_saved
        here.saved = NOTHING if keep or not saved else _saved_in(saved, self._owners)
        if routine.learning is not None:
            routine.learning.node_begins(node, here.saved)

    def node_ends(self, node: Node) -> None:
        """It has run."""
        routine = self.routine
        if routine.follows:
            return
        here = self._of_thread.here
        if routine.learning is not None:
            routine.learning.node_ends(node)
        here.node = Ran(node)
        if here.saved:
            self.collector.unsaved(here.saved)
            here.saved = NOTHING
        if type(node) is AccumulateGrad:
            t = node.variable
            g = t._grad
            if g is not None and not g._hollow and not t._hollow:
                of = id(t._storage)
                self._told.add(of)
                self.collector.gradient(id(g._storage), of)

    def _end_unended(self, here: Here) -> None:
        """A node has run that began when steps were followed, and nobody was told of nodes."""
        level, node = here.unended[-1]
        if level == len(here.outer):
            here.unended.pop()
            self.node_ends(node)

    # -- optimizers -------------------------------------------------------------------------------

    def optimizer_begins(self, optimizer: Any) -> None:
        """What is allocated from now on is the optimizer's."""
        here = self.stacks.of_thread.here
        here.optimizing += 1
        if here.optimizing > 1:
            return
        self._optimizing = time.perf_counter()
        told, self._told = self._told, set()
        self._made = host.made
        if self.routine.follows:
            return
        known = self._optimizers.get(optimizer)
        if known is None or not known <= told:
            self._optimizers[optimizer] = self._gradients(optimizer, known is None, told)

    def _gradients(self, optimizer: Any, fresh: bool, told: set[int]) -> set[int]:
        """Tell of an optimizer's gradients that were not `told` of, and if it is `fresh` of its
        parameters; gives their owners.
        """
        found = set()
        for group in optimizer.param_groups:
            for p in group["params"]:
                if not isinstance(p, Tensor) or p._hollow:
                    continue
                of = id(p._storage)
                found.add(of)
                if fresh:
                    self.collector.became(of, Role("parameter", of))
                g = p._grad
                if g is not None and of not in told and not g._hollow:
                    self.collector.gradient(id(g._storage), of)
        return found

    def optimizer_ends(self, optimizer: Any, done: bool) -> None:
        """Its step is over; one that failed ends no step of the program."""
        here = self.stacks.of_thread.here
        here.optimizing -= 1
        if here.optimizing > 0:
            return
        here.optimizing = 0
        now = time.perf_counter()
        self.collector.marked("optimizer", type(optimizer).__name__, self._optimizing, now)
        if host.made != self._made and not self.routine.follows:  # else its state is what it was
            self._keep_state(optimizer)
        if done and not self.explicit:
            self.step()

    def _keep_state(self, optimizer: Any) -> None:
        became = self.collector.became
        for p, state in optimizer.state.items():
            if not isinstance(p, Tensor) or p._hollow or not isinstance(state, dict):
                continue
            of = id(p._storage)
            for t in _tensors_in(state.values()):
                owner = id(t._storage)
                record = self._owners.get(owner)
                if record is None or record.role != STATE:
                    became(owner, Role(STATE, of))

    def _explicit_step(self) -> None:
        self.explicit = True
        self.step()

    def step(self) -> None:
        """A step is over."""
        self.routine.ends()
        self.collector.step()
        self.routine.begins()
        if self.after_step is not None:
            self.after_step()


def _watched_call(watch: Watch, call: Any) -> Any:
    of_thread, path_of, modules = watch.stacks.of_thread, watch.paths.of, watch.paths.modules

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        # `Here.enter` and `leave`, written out: a module that only calls another takes 1 us
        here = of_thread.here
        calls, marks = here.calls, here.marks
        if not calls:
            return outermost(here, self, args, kwargs)
        outer = calls[-1]
        above = outer[PATH]
        known = modules.get((id(self), above))
        if known is not None and known[0]() is self:
            path = known[1]
        else:
            path = path_of(self, outer[MODULE], above)
        calls.append([self, path, UNASKED])
        marks.append(next_number() << BITS | path)
        try:
            return call(self, *args, **kwargs)
        finally:
            calls.pop()
            marks.append(next_number() << BITS | above)

    def outermost(here: Here, self: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        known = modules.get((id(self), OUTSIDE))
        if known is not None and known[0]() is self:
            here.enter(self, known[1])
        else:
            here.enter(self, path_of(self, None, OUTSIDE))
        start = time.perf_counter()
        result = None
        try:
            watch.entered(self, (*args, *kwargs.values()), start)
            result = call(self, *args, **kwargs)
        finally:
            here.leave()
            watch.left(result, start)
        return result

    return called


def _noting(watch: Watch) -> Callable[[Any, bool], None]:
    """Is told when a storage's flag `saved` is set."""
    owners, deferred, put = watch.collector.live.owners, watch.saved_deferred, _SAVED.put

    def noted(s: Any, value: bool) -> None:
        put(s, value)
        record = owners.get(id(s))
        if record is not None:
            if value:
                record.saves += 1
        elif value and s.deferred is not None:
            deferred(s)

    return noted


def _tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Those of an optimizer's state, which may be in lists (LBFGS's history)."""
    for value in values:
        if isinstance(value, Tensor):
            if not value._hollow:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _saved_in(saved: Any, owners: dict[int, Record]) -> list[Record]:
    """The records of storages that a node saved."""
    found = [owners.get(owner) for owner in saved_by(saved)]
    return [record for record in found if record is not None]
