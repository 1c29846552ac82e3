"""The one place where a call of an op meets what may change its meaning.

A wrapper asks `active` (anything that is on for whole regions: autocast, a mode, a profiler) and
whether the types of its arguments are ordinary. Where both are as usual, nothing more is asked.
Otherwise `dispatch` asks the transforms, outermost first:

    overrides   __torch_function__ of modes, of tensor subclasses, of classes that are no tensors
    profiling   the call lies between two looks at the clock
    autocast    arguments cast, then the op
    batching    tensors under vmap: the row's batching rule
    sparse      sparse tensors: the row's sparse rule
    meta        tensors without bytes: refused beside others; the row's `meta` answers for the body
    budget      how the results were made is noted, so that they can be made again

A transform that is done with its part goes on with `Call.below`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

from skimp._engine.dispatch.numpy_words import NUMPY_WORDS, put_spoken
from skimp._engine.dispatch.row import KNOWN, Form, Op, signature
from skimp._engine.tensor import regions
from skimp._engine.tensor.tensor import Tensor

active = regions.active  # the transforms that are on for a region, in any thread


class Call:
    """One call that is on its way down the transforms."""

    __slots__ = ("args", "form", "kwargs", "place", "usual")

    def __init__(
        self,
        form: Form,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: int = 0,
        usual: bool = False,
    ) -> None:
        self.form = form
        self.args = args
        self.kwargs = kwargs
        self.place = place
        self.usual = usual  # only the transforms of regions need be asked

    @property
    def op(self) -> Op:
        return self.form.op

    def values(self) -> tuple[Any, ...]:
        return (*self.args, *self.kwargs.values()) if self.kwargs else self.args

    def given(self) -> dict[str, Any]:
        """The arguments by name, as the op's signature has them; defaults included."""
        usual, least, most = _parameters(self.form.f)
        count, words = len(self.args), self.kwargs
        if count <= most:
            given = usual | dict(zip(usual, self.args, strict=False))
            if not words and count >= least:
                return given
            late = [*usual][count:]
            if words.keys() <= set(late) and words.keys() >= set(late[: max(least - count, 0)]):
                return given | words
        spoken = {word: words[word] for word in NUMPY_WORDS.keys() & words.keys() - usual.keys()}
        named = {word: value for word, value in words.items() if word not in spoken}
        bound = signature(self.form.f).bind(*self.args, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        put_spoken(self.form.name, given, spoken, usual)
        return given

    def below(self, args: tuple[Any, ...] | None = None, kwargs: Any = None) -> Any:
        """The call, with other arguments perhaps, seen from the next transform."""
        return _down(
            Call(
                self.form,
                self.args if args is None else args,
                self.kwargs if kwargs is None else kwargs,
                self.place + 1,
                self.usual,
            )
        )


@cache
def _parameters(f: Any) -> tuple[dict[str, Any], int, int]:
    """Defaults by name; the fewest and the most arguments that a call without words has. A starred
    one, or one that must be named or must not be, leaves no number between these."""
    found = signature(f).parameters.values()
    by_place = [p for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
    others = [p for p in found if p.kind is not p.KEYWORD_ONLY or p.default is p.empty]
    least = sum([p.default is p.empty for p in by_place])
    most = len(by_place) if len(others) == len(by_place) else -1
    return {p.name: p.default for p in found}, least, most


class Transform(Protocol):
    """What can change the meaning of a call."""

    def concerns(self, call: Call) -> bool:
        """Whether this call is to be run by this transform."""

    def run(self, call: Call) -> Any:
        """The call's result."""


class Rows(Transform, Protocol):
    """A transform of tensors without bytes of their own: it knows how pointwise rows run."""

    def pointwise(
        self, row: Any, args: tuple[Any, ...], params: tuple[Any, ...], out: Any, inplace: bool
    ) -> Any:
        """The row on these arguments."""


class Batches(Rows, Protocol):
    """The transform of tensors under vmap: it knows how what is no op's call runs there."""

    def draw(self, level: Any, name: str, f: Any, given: dict[str, Any]) -> Any:
        """A call of a function that draws numbers, while the vmap `level` is the innermost."""


# by place: filled by the rooms that the transforms live in, when they are imported; by profiles and
# budgets while there is one
TRANSFORMS: list[Transform | None] = [None] * 7
NOTED = ["budget"]  # what is active while a budget is obeyed and nothing else
OVERRIDES, PROFILING, AUTOCAST, BATCHING, SPARSE, META, BUDGET = range(7)
REGIONS = frozenset({"autocast", "budget", "profile"})  # which of `active` make no tensor unusual


class Straight(threading.local):
    """Whether this thread makes something again, which no transform concerns."""

    now = False


straight = Straight()


def dispatch(form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with something unusual about it: its transforms, then the general way of the op."""
    if straight.now:
        return form.run(*args, **kwargs)
    # in such regions, arguments that concern no other transform need not be shown to them
    noted = active == NOTED
    usual = noted or REGIONS.issuperset(active)
    bare = not kwargs or (kwargs.get("out", args) is None and len(kwargs) == 1)
    if not (usual and _usual(args) and (bare or _usual(kwargs.values()))):
        return _down(Call(form, args, kwargs))
    if noted and (budget := TRANSFORMS[BUDGET]) is not None:
        return budget.note(form, args, {} if bare else kwargs)  # type: ignore[attr-defined]
    return _down(Call(form, args, kwargs, PROFILING, True))


def _usual(values: Any) -> bool:
    kinds = set(map(type, values))
    if not KNOWN.issuperset(kinds):
        return False
    if list in kinds or tuple in kinds:
        return all([KNOWN.issuperset(map(type, v)) for v in values if type(v) in (list, tuple)])
    return True


def _down(call: Call) -> Any:
    while (place := call.place) < len(TRANSFORMS):
        if place == BATCHING and call.usual:
            place = call.place = BUDGET
        transform = TRANSFORMS[place]
        if transform is not None and transform.concerns(call):
            return transform.run(call)
        call.place = place + 1
    return call.form.run(*call.args, **call.kwargs)


def rows_of(args: tuple[Any, ...]) -> Rows:
    """The transform whose tensors are among the operands of a pointwise row."""
    for place in (BATCHING, SPARSE, META):
        transform: Any = TRANSFORMS[place]
        if transform is not None and transform.owns(args):
            return transform  # type: ignore[no-any-return]
    raise RuntimeError("a tensor without bytes that no transform knows")


def unusual(values: Any) -> bool:
    """Whether a list or tuple among arguments holds something that a transform may concern."""
    return type(values) in (list, tuple) and not KNOWN.issuperset(map(type, values))


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among values, and in lists, tuples and dicts among them."""
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif type(v) is not str and isinstance(v, (list, tuple)):
            yield from tensors_in(v)
        elif isinstance(v, dict):
            yield from tensors_in(v.values())
