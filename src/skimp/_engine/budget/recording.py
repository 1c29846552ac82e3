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
from skimp._engine.budget.filling import AS_IS, here
from skimp._engine.budget.quick import twins
from skimp._engine.budget.reading import SIMPLE, Read, is_in_place, may_be_in_place, reading
from skimp._engine.budget.repetition import Repetition
from skimp._engine.budget.statistics import counts
from skimp._engine.budget.telling import floor
from skimp._engine.dispatch.row import ORDINARY, Form, Op
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
        return self._sort_of(call.form, call.args, call.kwargs) != _PASSED

    def run(self, call: Call) -> Any:
        """The call; its results know afterwards how they were made."""
        if is_in_place(call.form, call.args, call.kwargs):
            return _writing(call)
        if call.op.makes:
            return filling.make(call)
        if not AS_IS.issuperset(active):
            return call.below()
        return _noted(call.form, call.form.run, call.args, call.kwargs)

    def note(self, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that no other transform concerns, by the quick way."""
        sort = self._sort_of(form, args, kwargs)
        if sort == _PASSED:
            op = form.op  # the short way of a composite one is made of no ops, which would be noted
            short = op.kind == "view" or op.looks or (here.inside and not op.composite)
            return (twins[form] if short else form.run)(*args, **kwargs)
        if sort == _NOTED:
            return _noted(form, twins[form], args, kwargs)
        call = Call(form, args, kwargs, BUDGET, True)
        return _writing(call) if sort == _WRITING else filling.make(call)

    def _sort_of(self, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """How a call of a form is to be noted, now."""
        if self._ready is not None and not self._ready():
            return _PASSED
        sort = _sorts.get(form)
        if sort is None:
            sort = _sorts[form] = _sort(form)
        if here.inside:
            if sort & _DRAWING or (here.casts and form.op.autocast is not None):
                here.again = False
            return _PASSED
        budget: Any = host.budget
        if budget is not None and budget.repetition.started != budget.repetition.at:
            _begins(budget.repetition)
        if sort & _ASKING:
            return _WRITING if is_in_place(form, args, kwargs) else sort & ~_ASKING
        return sort & ~_DRAWING


# how a call is noted: not, as an op, as a write, as a maker; whether it draws; may say it writes
_PASSED, _NOTED, _WRITING, _MAKING, _DRAWING, _ASKING = 0, 1, 2, 3, 4, 8
_sorts: Final[dict[Form, int]] = {}


def _sort(form: Form) -> int:
    op = form.op
    draws = _DRAWING if hasattr(op.raw, "draws") else 0
    if op.row is not None and not draws and may_be_in_place(form):
        return _ASKING | (_PASSED if op.composite else _NOTED)
    if op.composite:  # its parts are noted
        return draws | (_WRITING if form.writes else _MAKING if op.makes else _PASSED)
    if op.looks or op.kind == "view" or draws:
        return draws
    return _WRITING if form.writes else _MAKING if op.makes else _NOTED


def _begins(repetition: Repetition) -> None:
    """Have it known how far the program was when an op began that is part of no other: there
    noting can begin when the program is there again.
    """
    if is_only_op(None):
        repetition.started = repetition.at


def _noted(form: Form, way: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """A call, whose results know afterwards how they were made: `way`, with these arguments."""
    if kwargs and kwargs.get("out") is not None:
        return way(*args, **kwargs)
    read = reading(args, kwargs)
    if read is None or not read.storages or form.op.unset:
        return way(*args, **kwargs)
    age = evictable._known[0]
    if read.away:
        held: list[Evictable] = []
        try:
            evictable.gather(read.storages, held)
            result, seconds = _as_one(form, way, args, kwargs, read)
        finally:
            if held:
                insist(evictable.let_go, held)
    else:
        result, seconds = _as_one(form, way, args, kwargs, read)
    if evictable._known[0] == age:
        return result
    made = _made(result, age)
    if made.count(None) < len(made) and read.noted and here.again and read.stays():
        _note(form, way, args, kwargs, read, made, seconds, result)
    for s in made:
        if s is not None:
            s.settled = True
    return result


def _as_one(
    form: Form, way: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, read: Read
) -> tuple[Any, float]:
    """The call, whose parts are not noted, and the seconds that it took, without the budget's. What
    it needs at once is seen, unless something goes or comes meanwhile.
    """
    budget: Any = host.budget
    before, gone = host.total - host.freed, counts.evictions
    if budget is not None:
        budget.highest = before
    casts = len(active) > 1 and form.op.autocast is None
    now = here.__dict__
    spent, began = counts.seconds, perf_counter()
    now["inside"], now["again"], now["casts"] = True, True, casts
    try:
        result = way(*args, **kwargs)  # this transform is the innermost one
    finally:
        now["inside"] = False
    seconds = perf_counter() - began
    if counts.seconds != spent:
        seconds -= counts.seconds - spent
    elif budget is not None and gone == counts.evictions:
        nbytes = read.nbytes + budget.highest - before
        if nbytes > floor.nbytes:
            floor.see(nbytes, read.storages, budget.highest)
    return result, seconds


def _results(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _made(result: Any, age: int) -> list[Evictable | None]:
    """The storages of results that were made by this call, and know no recipe; then those that
    are `_beneath` them.
    """
    if type(result) is Tensor:
        s: Any = result._storage
        if type(s) is Evictable and s.block is not None:
            return [s if s.born > age and s.recipe is None else None]
    found: list[Evictable | None] = []
    waits = False
    for t in _results(result):
        s = t._storage if isinstance(t, Tensor) and not t._hollow else None
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

    __slots__ = ("args", "holes", "kwargs", "run_it")

    run_it: Callable[..., Any]
    args: list[Any]
    holes: list[int]  # which of `args` are no plain values
    kwargs: dict[str, Any]

    def make(self, given: list[Storage], waits: bool) -> list[Storage | None]:
        age = evictable._known[0]
        result = self.run(given)
        if type(result) is Tensor and result._storage.deferred is None:
            return [result._storage]
        return [*[t._storage for t in _results(result)], *_beneath(result, age)]

    def run(self, given: Sequence[Storage]) -> Any:
        """The call on storages with the sources' bytes."""
        args = [*self.args]
        for i in self.holes:
            a = args[i]
            args[i] = wrap(given[a[0]], a[1], a[2]) if type(a) is _Slot else _filled(a, given)
        words = self.kwargs
        if words:
            words = {k: _filled(a, given) for k, a in words.items()}
        return self.run_it(*args, **words)


def _repeated(
    name: str, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], read: list[Any]
) -> _Repeated | None:
    """The call of `f`, which reads these storages; None where it can't be made again."""
    sources = recipes.sources_of(read)
    if sources is None:
        return None
    packed = [*args]
    holes: list[int] = []
    named = kwargs
    try:
        for i, a in enumerate(args):
            kind = type(a)
            if kind in SIMPLE or (kind is tuple and SIMPLE.issuperset(map(type, a))):
                continue
            holes.append(i)
            if kind in ORDINARY and not a._skimp_marked:
                layout = a._skimp_layout or a._skimp_layout_of()
                packed[i] = _tuple(_Slot, (read.index(a._storage), layout, a._dtype))
            else:
                packed[i] = _packed(a, read)
        if kwargs:
            named = {k: _packed(a, read) for k, a in kwargs.items() if a is not None or k != "out"}
    except _NotPlain:
        return None
    made = _Repeated(sources, name)
    made.run_it, made.args, made.holes, made.kwargs = f, packed, holes, named
    return made


def _note(
    form: Form,
    way: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    read: Read,
    made: list[Evictable | None],
    seconds: float,
    result: Any,
) -> None:
    """Have the results know the call; and those that can be made `apart`, that alone."""
    recipe = _repeated(form.name, way, args, kwargs, read.storages)
    if recipe is None:
        return
    sizes = read.sizes
    for s in made:
        sizes.append(-1 if s is None else s.size or 0)
    recipe.seconds = recipes.usual((form.name, *sizes), seconds)
    apart = _apart(form.op, args, kwargs, result, made) if form.op.apart else None
    if apart:
        recipes.give(recipe, [None if i in apart else s for i, s in enumerate(made)])
        for i, (f, given) in apart.items():
            _note_apart(form.name, f, given, made[i])
    else:
        recipes.give(recipe, made)


Apart = tuple[Callable[..., Any], list[Any]]  # a function, and what it is given


def _apart(
    op: Op, args: Sequence[Any], kwargs: dict[str, Any], result: Any, made: list[Evictable | None]
) -> dict[int, Apart]:
    """How large results are made of others and of arguments, by their numbers. Small ones go beside
    the others, and come back with them: where a program repeats they would go last by themselves.
    """
    results = _results(result)
    values = dict(zip([name for name, _, _ in op.parameters], args, strict=False))
    values |= kwargs
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


def _packed(value: Any, read: list[Any]) -> Any:
    """An argument without its bytes: those are of one of the storages that the call reads."""
    kind = type(value)
    if kind in ORDINARY:
        if value._conj or value._skimp_neg:
            raise _NotPlain
        layout = value._skimp_layout or value._skimp_layout_of()
        return _tuple(_Slot, (read.index(value._storage), layout, value._dtype))
    if kind in (list, tuple):
        if SIMPLE.issuperset(map(type, value)):
            return kind(value)
        return kind([_packed(v, read) for v in value])
    if isinstance(value, tuple) and not any([isinstance(v, Tensor) for v in value]):
        for v in value:
            _packed(v, read)
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


def _before_write(call: Call, target: Any) -> tuple[Evictable, recipes.Called, Read] | None:
    """The recipe of what a large target will be: what it was, and the call once more."""
    if type(target) not in ORDINARY or target._hollow:
        return None
    s = target._storage
    if type(s) is not Evictable or (s.recipe is None and s.deferred is None):
        return None
    if s.writes >= _WRITES or len(s) < host.kept_below:
        return None
    form = call.form
    if form.op.unset or call.kwargs.get("out") is not None or not AS_IS.issuperset(active):
        return None
    read = reading(call.args, call.kwargs)
    if read is None or s not in read.storages:
        return None
    at = read.storages.index(s)
    repeated = _repeated(form.name, form.run, call.args, call.kwargs, read.storages)
    if repeated is None or repeated.sources[at].origin is None:
        return None

    def again(given: Sequence[Storage]) -> list[Storage | None]:
        new = storages.empty(len(given[at]))
        new.flat()[:] = given[at].flat()
        repeated.run([new if i == at else one for i, one in enumerate(given)])
        return [new]

    recipe = recipes.Called(call.form.name, repeated.sources, again)
    return s, recipe, read


def _written(call: Call, s: Evictable, recipe: recipes.Called, read: Read) -> Any:
    """The call, after which its target knows how it was made, if nothing else has changed."""
    form, others = call.form, [one for one in read.storages if one is not s]
    result, recipe.seconds = _as_one(form, form.run, call.args, call.kwargs, read)
    s.settled = True
    same = s.recipe is None and s.deferred is None and here.again and read.stays(but=s)
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
    "runner", "tasks",
]  # fmt: skip
_CALLERS: Final = tuple(
    [call_site.OWN_CODE[0] + name for name in _SURFACE]
    + [
        call_site.OWN_CODE[0] + os.path.join("_engine", name)
        for name in ("budget", "dispatch", "generated")
    ]
    + [call_site.OWN_CODE[0] + os.path.join("_engine", "autograd", name) for name in _BACKWARD]
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
