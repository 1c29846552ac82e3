"""How an op runs on tensors under vmap: by its batching rule, on the whole batch, or, where it has
none, sample by sample.

A call comes here when one of its arguments is a tensor under vmap (_engine/dispatch/batched.py).
It is looked at from the innermost vmap that one of its tensors belongs to: tensors of that vmap
have a batch dimension in front, all others are shared by its samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

from skimp._engine.dispatch import pointwise
from skimp._engine.dispatch.batched import Batched, Level, is_of, outside, sample_layout, wrap
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.row import signature
from skimp._engine.dispatch.transforms import Call as DispatchedCall
from skimp._engine.tensor.tensor import Tensor

Rule = Callable[["Call"], Any]
RANDOMNESS = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)


def shared_target(what: str = "inplace arithmetic") -> RuntimeError:
    """The refusal of a write of samples to a tensor that all of them share."""
    return RuntimeError(
        f"vmap: {what}(self, *extra_args) is not possible because there exists a Tensor `other` in "
        "extra_args that has more elements than `self`. This happened due to `other` being vmapped "
        "over but `self` not being vmapped over in a vmap. Please try to use out-of-place "
        f"operators instead of {what}. If said operator is being called inside the PyTorch "
        "framework, please file a bug report instead."
    )


def no_rule_writes(name: str, level: Level) -> RuntimeError:
    """The same refusal of ops for which PyTorch has no batching rule."""
    title = f"aten::{name}_"
    return RuntimeError(
        f"vmap: {title}(self, *extra_args) is not possible because there exists a Tensor `other` "
        "in extra_args that has more elements than `self`. This happened due to `other` being "
        f"vmapped over but `self` not being vmapped over at level {level.depth}. Please try to use "
        f"out-of-place operators instead of {title}. If said operator is being called inside the "
        "PyTorch framework, please file a bug report instead."
    )


def stack(tensors: Sequence[Tensor]) -> Tensor:
    made: Tensor = NAMESPACES[""]["stack"](tensors, 0)
    return made


class Call:
    """One call, seen from the innermost vmap of its tensors."""

    __slots__ = ("f", "given", "level", "name")

    def __init__(self, name: str, f: Any, given: dict[str, Any], level: Level) -> None:
        self.name = name
        self.f = f
        self.given = given
        self.level = level

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.level.size

    def has(self, value: Any) -> bool:
        """Whether the samples differ in this tensor."""
        return is_of(value, self.level)

    def front(self, t: Any) -> Any:
        """The tensor with the batch as its first dimension, expanded where it is shared."""
        if self.has(t):
            return t._held
        return t.unsqueeze(0).expand(self.size, *t.shape)

    def thin(self, t: Any, ndim: int | None = None) -> Any:
        """The tensor with the batch, or a dimension of 1, in front, and `ndim` dimensions behind
        it: what broadcasts beside others.
        """
        held = t._held if self.has(t) else t.unsqueeze(0)
        missing = 0 if ndim is None else ndim + 1 - held.ndim
        if missing <= 0:
            return held
        shape = tuple(held.shape)
        return held.reshape((shape[0], *(1,) * missing, *shape[1:]))

    def beside(self, t: Any, ndim: int) -> Any:
        """`thin`, but a shared tensor as it is: its dimensions line up from the last."""
        return self.thin(t, ndim) if self.has(t) else t

    def run(self, /, **changed: Any) -> Any:
        """The op with other arguments."""
        return self.apply({**self.given, **changed})

    def apply(self, given: dict[str, Any]) -> Any:
        """The op with exactly these arguments."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        skipped = False
        for name, kind in _kinds(self.f):
            if kind is _WORDS:
                keywords.update(given.get(name, {}))
            elif name not in given:
                skipped = True
            elif kind is _STARRED:
                positional.extend(given[name])
            elif kind is _KEYWORD or skipped:
                keywords[name] = given[name]
            else:
                positional.append(given[name])
        return self.f(*positional, **keywords)


_STARRED = inspect.Parameter.VAR_POSITIONAL
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_WORDS = inspect.Parameter.VAR_KEYWORD


@cache
def _kinds(f: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.kind) for p in signature(f).parameters.values()]


# -- the call -------------------------------------------------------------------------------------


def innermost(values: Any) -> Level | None:
    """The innermost vmap that a tensor among the values, or in a list among them, belongs to."""
    found: Level | None = None
    for v in values:
        if isinstance(v, Batched):
            if found is None or v._level.depth > found.depth:
                found = v._level
        elif isinstance(v, (list, tuple)):
            inner = innermost(v)
            if inner is not None and (found is None or inner.depth > found.depth):
                found = inner
        elif isinstance(v, dict):
            inner = innermost(v.values())
            if inner is not None and (found is None or inner.depth > found.depth):
                found = inner
    return found


class Calls:
    """The part of the transform that runs ops' calls."""

    def owns(self, args: Any) -> bool:
        """Whether one of these is a tensor under vmap."""
        return innermost(args) is not None

    def concerns(self, call: DispatchedCall) -> bool:
        return innermost(call.values()) is not None

    def run(self, call: DispatchedCall) -> Any:
        """By the op's batching rule; a composite op's parts meet their own; else by samples."""
        op, name = call.op, call.form.name
        rule = op.batch
        if rule is None and (op.composite or op.kind == "pointwise"):
            return call.below()
        if isinstance(rule, str):
            return call.form.run(*call.args, **call.kwargs)
        given = call.given()
        level = innermost(given.values())
        assert level is not None
        if given.get("out") is not None:
            _refuse_out(name)
        seen = Call(name, call.form.f, given, level)
        target = None
        if call.form.writes:
            target = next(iter(given.values()))
            if not seen.has(target):
                raise shared_target() if name == "copy_" else shared_target(name)
        with outside(level):
            result = (rule or by_samples)(seen)
        if target is not None:
            target._skimp_layout = sample_layout(target._held)
            return target
        return wrapped(result, level)

    def pointwise(
        self,
        row: Pointwise,
        args: tuple[Any, ...],
        params: tuple[Any, ...],
        out: Tensor | None,
        inplace: bool,
    ) -> Tensor:
        """Tensors meet in the rank of the sample that has the most dimensions."""
        level = innermost(args)
        assert level is not None
        if out is not None and not inplace:
            _refuse_out(row.name)
        ranks = [t.ndim for t in args if isinstance(t, Tensor)]
        rank = max(ranks)
        if len({t._dtype for t in args if isinstance(t, Tensor)}) > 1 and 0 in ranks:
            args = _promoted(row, args)
        if row.name == "masked_fill" and not inplace and is_of(args[2], level):
            mask, input, value = args  # one number for each sample
            return NAMESPACES[""]["where"](mask, value.to(input._dtype), input)  # type: ignore[no-any-return]
        held = tuple([_aligned(a, rank, level) for a in args])
        with outside(level):
            if not inplace:
                return wrap(pointwise.call(row, held, params), level)
            if not is_of(args[0], level):
                raise shared_target() if len(args) == 2 else no_rule_writes(row.name, level)
            pointwise.call(row, held, params, held[0], True)
        return args[0]  # type: ignore[no-any-return]


def wrapped(result: Any, level: Level) -> Any:
    """What a rule computed, as samples."""
    if isinstance(result, Tensor):
        return wrap(result, level)
    if isinstance(result, (tuple, list)):
        parts = [wrapped(r, level) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _refuse_out(name: str) -> NoReturn:
    raise RuntimeError(
        f"Batching rule not implemented for aten::{name}.out; the fallback path doesn't work on "
        "out= or view ops."
    )


# -- pointwise ops ---------------------------------------------------------------------------------


def _aligned(a: Any, rank: int, level: Level) -> Any:
    if not is_of(a, level):
        return a
    held = a._held
    missing = rank + 1 - held.ndim
    if not missing:
        return held
    shape = tuple(held.shape)
    return held.reshape((shape[0], *(1,) * missing, *shape[1:]))


def _promoted(row: Pointwise, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Samples without dimensions give way to others in promotion; their batches would not."""
    compute = row.types(args)[0]
    first = len(row.masks)
    return tuple(
        [
            a.to(compute) if i >= first and isinstance(a, Tensor) and not a.ndim else a
            for i, a in enumerate(args)
        ]
    )


# -- sample by sample -----------------------------------------------------------------------------


def by_samples(call: Call) -> Any:
    """An op that has no rule: its results for each sample, stacked; of no samples, what it makes of
    zeros.
    """
    n = call.size
    if not n:
        zeros = {name: _zeros(value, call) for name, value in call.given.items()}
        return _none_of(call.apply(zeros))
    parts = {name: _Samples(value, call) for name, value in call.given.items()}

    def one(i: int) -> Any:
        return call.apply({name: p.at(i) for name, p in parts.items()})

    return _joined(drawn_alike(one, n, call.level.randomness))


def drawn_alike(one: Callable[[int], Any], n: int, randomness: str) -> list[Any]:
    """one(0), one(1), ..., whose random numbers are what the mode says."""
    if randomness == "different":
        return [one(i) for i in range(n)]
    # up here it would be a circle: random ops have rules too
    from skimp._ops.random.generator import default_generator

    engine_ = default_generator._engine
    before = engine_.get_state()
    results = []
    for i in range(n):
        if i and randomness == "same":
            engine_.set_state(before)
        results.append(one(i))
        if i == 0 and randomness == "error" and (engine_.get_state() != before).any():
            engine_.set_state(before)
            raise RuntimeError(RANDOMNESS)
    return results


def _zeros(value: Any, call: Call) -> Any:
    if call.has(value):
        return value._held.new_zeros(tuple(value.shape))
    if isinstance(value, (list, tuple)):
        return type(value)([_zeros(v, call) for v in value])
    return value


def _none_of(result: Any) -> Any:
    """No samples of what a result is one of."""
    if isinstance(result, Tensor):
        return result.unsqueeze(0).narrow(0, 0, 0)
    if isinstance(result, (tuple, list)):
        parts = [_none_of(r) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


class _Samples:
    """An argument, sample by sample."""

    def __init__(self, value: Any, call: Call) -> None:
        self._value = value
        self._parts: Any = None
        self._list: list[_Samples] | None = None
        if call.has(value):
            held = value._held
            if call.name.endswith("_"):  # views one by one, for the op to write to
                self._parts = [held[i] for i in range(call.size)]
            else:
                self._parts = held.unbind(0)
        elif isinstance(value, (list, tuple)):
            self._list = [_Samples(v, call) for v in value]

    def at(self, i: int) -> Any:
        if self._parts is not None:
            return self._parts[i]
        if self._list is not None:
            return type(self._value)([p.at(i) for p in self._list])
        return self._value


def _joined(results: list[Any]) -> Any:
    """What the samples gave, as one: tensors stacked, anything else as the samples agree on it."""
    first = results[0]
    if isinstance(first, Tensor):
        if len({tuple(t.shape) for t in results}) > 1:
            raise RuntimeError(
                "vmap: We do not support batching operators that can output dynamic shape."
            )
        return stack(results)
    if isinstance(first, (tuple, list)):
        parts = [_joined([r[k] for r in results]) for k in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if any([r != first for r in results[1:]]):
        raise RuntimeError(f"vmap: the samples disagree: {results}")
    return first
