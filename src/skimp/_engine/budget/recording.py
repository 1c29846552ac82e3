"""Noting how ops made their results, while a budget is obeyed: a transform, the innermost one.

Pointwise work notes itself when it is materialized (`recipes.of_expression`). Here it is calls of
other ops, by their arguments; what reads no tensor is in filling.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import perf_counter
from types import FrameType
from typing import Any, Final, NamedTuple

from skimp._engine.autograd import saving
from skimp._engine.autograd.rules import parameters
from skimp._engine.budget import evictable, filling, recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.filling import AS_IS, as_it_was, here
from skimp._engine.budget.statistics import counts
from skimp._engine.budget.telling import floor
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import BUDGET, NOTED, TRANSFORMS, Call, active, dispatch
from skimp._engine.interrupts import insist
from skimp._engine.memory import call_site, storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import KEPT, host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, wrap


class Recording:
    """The transform. `ready` is asked at each call until it says that noting may begin."""

    def __init__(self, ready: Callable[[], bool] | None) -> None:
        self._ready = ready

    def concerns(self, call: Call) -> bool:
        """All but what computes nothing; inside a call that is noted, what draws or is cast."""
        if self._ready is not None and not self._ready():
            return False
        op = call.form.op
        if here.inside:
            if hasattr(op.raw, "draws") or (here.casts and op.autocast is not None):
                here.again = False
            return False
        _begins()
        if op.composite:  # its parts are noted
            return call.form.writes or op.makes
        return not (op.looks or op.kind == "view" or hasattr(op.raw, "draws"))

    def run(self, call: Call) -> Any:
        """The call; its results know afterwards how they were made."""
        if call.form.writes:
            return _writing(call)
        if call.op.makes:
            return filling.make(call)
        read = _read(call)
        if not read:
            return call.below()
        before = _states(read)
        age = evictable.age()
        held: list[Evictable] = []
        try:
            evictable.gather(read, held)
            result, seconds = _as_one(call, read)
        finally:
            if held:
                insist(evictable.let_go, held)
        made = [] if evictable.age() == age else _made(result, age)
        noted = here.again and any([s is not None for s in made])
        if noted and _states(read) == before:
            _note(call, read, made, seconds, result)
        for s in made:
            if s is not None:
                s.settled = True
        return result


def _begins() -> None:
    """Have it known how far the program was when an op began that is part of no other: there
    noting can begin when the program is there again.
    """
    budget: Any = host.budget
    if budget is not None:
        repetition = budget.repetition
        if repetition.started != repetition.at and is_only_op(None):
            repetition.started = repetition.at


def _as_one(call: Call, read: Sequence[Storage]) -> tuple[Any, float]:
    """The call, whose parts are not noted, and the seconds that it took, without the budget's. What
    it needs at once is seen, unless something goes or comes meanwhile.
    """
    budget: Any = host.budget
    before, gone = host.total - host.freed, counts.evictions
    if budget is not None:
        budget.highest = before
    form, now = call.form, here.__dict__
    casts = len(active) > 1 and form.op.autocast is None
    spent, began = counts.seconds, perf_counter()
    now["inside"], now["again"], now["casts"] = True, True, casts
    try:
        result = form.run(*call.args, **call.kwargs)  # this transform is the innermost one
    finally:
        now["inside"] = False
    seconds = perf_counter() - began
    if counts.seconds != spent:
        seconds -= counts.seconds - spent
    elif budget is not None and gone == counts.evictions:
        floor.see(sum([s.size or len(s) for s in read]) + budget.highest - before)
    return result, seconds


def _states(found: list[Storage]) -> list[int]:
    """What grows when the bytes change."""
    return [s.version + getattr(s, "writes", 0) for s in found]


def _read(call: Call) -> list[Storage]:
    """The storages of a call's tensors; none where it can't be noted."""
    out = call.kwargs and call.kwargs.get("out") is not None
    if out or call.op.unset or not AS_IS.issuperset(active):
        return []
    found: dict[int, Storage] = {}
    for value in (*call.args, *call.kwargs.values()) if call.kwargs else call.args:
        kind = type(value)
        if kind in _SIMPLE:
            continue
        for t in value if kind is list or kind is tuple else (value,):
            if isinstance(t, Tensor):
                if t._hollow:
                    return []
                s: Any = t._storage
                if type(s) is not Evictable:  # from now on its writes are counted
                    evictable.enrol(s)
                found[id(s)] = s
    return list(found.values())


_SIMPLE: Final = frozenset({int, float, bool, str, type(None)})


def _results(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _made(result: Any, age: int) -> list[Evictable | None]:
    """The storages of results that were made by this call, and know no recipe; then those that
    are `_beneath` them.
    """
    found: list[Evictable | None] = []
    waits = False
    for t in _results(result):
        s: Any = t._storage if isinstance(t, Tensor) and not t._hollow else None
        if type(s) is not Evictable or s.block is None:
            waits = waits or (s is not None and s.deferred is not None)
            s = None
        new = s is not None and s.born > age and s.recipe is None and s not in found
        found.append(s if new else None)
    return [*found, *_beneath(result, age)] if waits else found


def _beneath(result: Any, age: int) -> list[Evictable | None]:
    """The storages made by this call that are no results, but that expressions of results read: the
    product below a sum with a bias. In the order in which they were made, None for one that is
    away: the same call made again finds them there.
    """
    found: dict[int, Evictable] = {}
    for t in _results(result):
        expression = t._storage.deferred if isinstance(t, Tensor) and not t._hollow else None
        for leaf in () if expression is None else expression.leaves:
            s: Any = leaf.storage
            if type(s) is Evictable and s.born > age:
                found[s.born] = s
    return [s if s.block is not None else None for _, s in sorted(found.items())]


# -- calls ----------------------------------------------------------------------------------------


class _Slot(NamedTuple):
    """Where a call has a tensor."""

    source: int
    layout: Layout
    dtype: dtypes.dtype


class _Repeated(recipes.Recipe):
    """A call that can be made again: results, and what is `_beneath` them."""

    def __init__(
        self,
        name: str,
        sources: list[recipes.Source],
        run_it: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(sources)
        self.name = name
        self.run_it: Final = run_it
        self.args: Final = args
        self.kwargs: Final = kwargs

    def make(self, given: list[Storage], waits: bool) -> list[Storage | None]:
        age = evictable.age()
        result = self.run(given)
        return [*[t._storage for t in _results(result)], *_beneath(result, age)]

    def run(self, given: Sequence[Storage]) -> Any:
        """The call on storages with the sources' bytes."""
        with as_it_was():
            return self.run_it(
                *[_filled(a, given) for a in self.args],
                **{k: _filled(a, given) for k, a in self.kwargs.items()},
            )


def _repeated(
    name: str, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], read: list[Any]
) -> _Repeated | None:
    """The call of `f`, which reads these storages; None where it can't be made again."""
    numbers = {id(s): i for i, s in enumerate(read)}
    try:
        packed = tuple([a if type(a) in _SIMPLE else _packed(a, numbers) for a in args])
        named = {k: _packed(a, numbers) for k, a in kwargs.items()} if kwargs else kwargs
    except _NotPlain:
        return None
    sources = recipes.sources_of(read)
    return None if sources is None else _Repeated(name, sources, f, packed, named)


def _note(
    call: Call, read: list[Storage], made: list[Evictable | None], seconds: float, result: Any
) -> None:
    """Have the results know the call; and those that can be made `apart`, that alone."""
    form = call.form
    recipe = _repeated(form.name, form.run, call.args, call.kwargs, read)
    if recipe is None:
        return
    recipe.seconds = recipes.usual(form.name, [*made, *read], seconds)
    apart = _apart(call, result, made) if form.op.apart else None
    if apart:
        recipes.give(recipe, [None if i in apart else s for i, s in enumerate(made)])
        for i, (f, args) in apart.items():
            _note_apart(form.name, f, args, made[i])
    else:
        recipes.give(recipe, made)


Apart = tuple[Callable[..., Any], list[Any]]  # a function, and what it is given


def _apart(call: Call, result: Any, made: list[Evictable | None]) -> dict[int, Apart]:
    """How large results are made of others and of arguments, by their numbers. Small ones go beside
    the others, and come back with them: where a program repeats they would go last by themselves.
    """
    op, results = call.op, _results(result)
    values = dict(zip([name for name, _, _ in op.parameters], call.args, strict=False))
    values |= call.kwargs
    values |= {f"result{i}": t for i, t in enumerate(results)}
    return {
        i: (f, [values[name] for name in parameters(f)])
        for i, f in op.apart.items()
        if (s := made[i]) is not None and len(s) >= KEPT
    }


def _note_apart(name: str, f: Callable[..., Any], args: list[Any], s: Any) -> None:
    recipe = _repeated(name, f, args, {}, list({id(t._storage): t._storage for t in args}.values()))
    if recipe is not None:
        recipe.seconds = len(s) / recipes.RATE
        recipes.give(recipe, [s])


class _NotPlain(Exception):
    """An argument that a recipe can't keep."""


_tuple: Final = tuple.__new__  # a named one's own is a function of Python's
_IMMUTABLE: Final = frozenset(
    {int, float, bool, complex, str, type(None), dtypes.dtype, slice, range}
)


def _packed(value: Any, numbers: dict[int, int]) -> Any:
    kind = type(value)
    if kind in ORDINARY:
        if value._conj or value._skimp_neg:
            raise _NotPlain
        layout = value._skimp_layout or value._skimp_layout_of()
        return _tuple(_Slot, (numbers[id(value._storage)], layout, value._dtype))
    if kind in (list, tuple):
        return kind([_packed(v, numbers) for v in value])
    if isinstance(value, tuple) and not any([isinstance(v, Tensor) for v in value]):
        for v in value:
            _packed(v, numbers)
        return value
    settings = getattr(kind, "__dataclass_params__", None)
    if settings is not None and settings.frozen and kind.__module__.startswith("skimp._kernels"):
        return value
    if kind in _IMMUTABLE or kind.__module__.startswith("skimp._engine.tensor"):
        if isinstance(value, Tensor):
            raise _NotPlain
        return value
    raise _NotPlain


def _filled(value: Any, given: Sequence[Storage]) -> Any:
    kind = type(value)
    if kind is _Slot:
        return wrap(given[value.source], value.layout, value.dtype)
    return kind([_filled(v, given) for v in value]) if kind in (list, tuple) else value


# -- writes ---------------------------------------------------------------------------------------


def _writing(call: Call) -> Any:
    """An op in place; one that fills a whole tensor with random numbers can do so again."""
    target = call.args[0] if call.args else None
    drawing = getattr(call.op.raw, "draws", None)
    noted = None
    if drawing is None and (again := _before_write(call, target)) is not None:
        return _written(call, *again)
    began = perf_counter()
    if drawing is not None and filling.fills(call, target):
        result, noted = filling.drawn(call)
    else:
        result = call.below()
    s = None if getattr(target, "_hollow", True) else target._storage  # type: ignore[union-attr]
    if type(s) is Evictable:
        s.settled = True
        if noted is not None:
            filling.note_draw(call, target, noted, perf_counter() - began)
    return result


_WRITES: Final = 4  # of one storage that are noted: what is written to at each step has no end


def _before_write(
    call: Call, target: Any
) -> tuple[Evictable, recipes.Called, list[Storage]] | None:
    """The recipe of what a large target will be: what it was, and the call once more."""
    if type(target) not in ORDINARY or target._hollow:
        return None
    s = target._storage
    if type(s) is not Evictable or s.recipe is None or s.deferred is not None:
        return None
    if s.writes >= _WRITES or len(s) < host.kept_below:
        return None
    read = _read(call)
    if s not in read:
        return None
    form, at = call.form, read.index(s)
    repeated = _repeated(form.name, form.run, call.args, call.kwargs, read)
    if repeated is None or repeated.sources[at].origin is None:
        return None

    def again(given: Sequence[Storage]) -> list[Storage | None]:
        new = storages.empty(len(given[at]))
        new.flat()[:] = given[at].flat()
        repeated.run([new if i == at else one for i, one in enumerate(given)])
        return [new]

    recipe = recipes.Called(call.form.name, repeated.sources, again)
    return s, recipe, [one for one in read if one is not s]


def _written(call: Call, s: Evictable, recipe: recipes.Called, others: list[Storage]) -> Any:
    """The call, after which its target knows how it was made, if nothing else has changed."""
    before = _states(others)
    result, recipe.seconds = _as_one(call, [s, *others])
    s.settled = True
    same = s.recipe is None and here.again and _states(others) == before
    # what was written may be read from here from now on: it can't be made from that
    if same and not any([o.deferred is not None and s.is_read_by(o.deferred) for o in others]):
        recipes.give(recipe, [s])
    return result


def begin(ready: Callable[[], bool] | None = None) -> None:
    """Note from now on, or from when it is `ready`."""
    TRANSFORMS[BUDGET] = Recording(ready)
    if NOTED[0] not in active:
        active.append(NOTED[0])


# where code of this package is no op that may have begun: what calls ops and programs' functions,
# what runs backward (formulas are not among these), and ops' first lines
_SURFACE: Final = ["nn", "optim", "amp", "lens", "cli", "__main__", "autograd", "func", "utils"]
_BACKWARD: Final = [
    "calls", "captures", "engine", "graph_hooks", "hooks", "methods", "modes", "nodes", "op_node",
    "tasks",
]  # fmt: skip
_CALLERS: Final = tuple(
    [call_site.OWN_CODE[0] + name for name in _SURFACE]
    + [
        call_site.OWN_CODE[0] + os.path.join("_engine", *names)
        for names in (("budget",), ("dispatch",), *[("autograd", name) for name in _BACKWARD])
    ]
    + [call_site.OWN_CODE[1]]
)


# backward asks for what was saved before a formula begins. What saves is not among the callers: an
# op may have taken an array to write to by then
_UNPACKS: Final = frozenset({saving.Packed.unpack.__code__, saving.one.__code__})


@lru_cache(4096)
def _may_call(filename: str) -> bool:
    """Whether a file's code is no op that may have begun."""
    return not call_site.is_ours(filename) or filename.startswith(_CALLERS)


def is_only_op(earlier: FrameType | None) -> bool:
    """Whether the op whose call is asked about is the only one of this thread: `earlier` is over,
    and none has begun that it is a part of.
    """
    frame: FrameType | None = sys._getframe(1)
    calls = 0
    while frame is not None:
        code = frame.f_code
        calls += code is dispatch.__code__
        if frame is earlier or calls > 1:
            return False
        if not (_may_call(code.co_filename) or code in _UNPACKS):
            return False
        frame = frame.f_back
    return True


def end() -> None:
    """Note no longer."""
    TRANSFORMS[BUDGET] = None
    if NOTED[0] in active:
        active.remove(NOTED[0])
