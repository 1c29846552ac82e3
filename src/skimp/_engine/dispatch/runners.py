"""How each kind of form runs once no transform concerns its call any more."""

from __future__ import annotations

import inspect
from typing import Any

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.fast_path import put_small, takes_apart
from skimp._engine.dispatch.meta import body
from skimp._engine.dispatch.numpy_words import put_spoken
from skimp._engine.dispatch.row import REQUIRED, Op
from skimp._engine.dispatch.transforms import tensors_in
from skimp._engine.eval.copy import copy
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.meta import exist
from skimp._engine.tensor.meta import among
from skimp._engine.tensor.tensor import Tensor, alias


def bind(op: Op, title: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, which came through a wrapper, by the names of the op's body.

    PyTorch takes NumPy's names of arguments too (axis, keepdims).
    """
    given: dict[str, Any] = {}
    own = {name: default for name, _, default in op.parameters}
    rest = list(args)
    for name, kind, default in op.parameters:
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given[name] = tuple(rest)
            rest = []
        elif kind is not inspect.Parameter.KEYWORD_ONLY and rest:
            given[name] = rest.pop(0)
        elif name != "out":
            given[name] = kwargs.pop(name, default)
    put_spoken(title, given, kwargs, own)
    for name, value in given.items():
        if value is REQUIRED:
            raise TypeError(f'{title}() missing 1 required positional arguments: "{name}"')
    return given


def call(op: Op, given: dict[str, Any]) -> Any:
    """The body with its arguments by position (starred ones spread)."""
    positional, keywords = _passed(op, given)
    if exist[0] and any([True for _ in among(given.values())]):
        return body(op)(*positional, **keywords)
    return op.raw(*positional, **keywords)


def _passed(op: Op, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for name, kind, _ in op.parameters:
        if name not in given:
            continue
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(given[name])
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[name] = given[name]
        else:
            positional.append(given[name])
    return positional, keywords


def rule_for(op: Op, given: dict[str, Any]) -> Rule:
    """The op's rule, which may depend on the form of the call."""
    rule = op.rule
    assert rule is not None
    return rule if isinstance(rule, Rule) else rule(given)


def unrecorded(op: Op, given: dict[str, Any]) -> Any:
    """The body, with nothing recorded of what it is made of."""
    state = modes.state
    before = state.grad
    state.grad = False
    try:
        return call(op, given)
    finally:
        state.grad = before


# -- functions ------------------------------------------------------------------------------------


def run(op: Op, given: dict[str, Any], out: Any) -> Any:
    """A function that is not pointwise: into a new tensor, or into `out`."""
    tensors = list(tensors_in(given.values()))
    if out is not None:
        return run_out(op, given, out, tensors)
    if op.rule is None or not (modes.state.grad and any([t._rg for t in tensors])):
        return call(op, given)
    result = unrecorded(op, given)
    record(rule_for(op, given), given, result, op.nondiff)
    return result


def run_out(op: Op, given: dict[str, Any], out: Any, tensors: list[Tensor]) -> Any:
    """`out=` of an op that is not pointwise: checked, computed, then moved into place."""
    if op.fast is not None and takes_apart(out, tensors):
        positional, keywords = _passed(op, given)
        if put_small(out, op.fast(*positional, **keywords)):
            return out
    targets = out if isinstance(out, (tuple, list)) else (out,)
    for t in targets:
        if not isinstance(t, Tensor):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(t).__name__}")
        if op.rule is None and not op.composite:
            history.before_unwatched(t)
        else:
            outs.refuse_grad(op.name.removeprefix("_").removesuffix("_dim"), t, tensors)
    if any([name == "out" for name, _, _ in op.parameters]):
        for t in targets if op.overlap else ():
            outs.check_shared(op.overlap, t, given)
        return call(op, {**given, "out": out})
    if callable(op.out):
        given = op.out(given, targets[0])
    result = call(op, given)
    results = result if isinstance(result, tuple) else (result,)
    if results[0] is result and out is not targets[0]:
        raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if len(results) != len(targets):
        raise TypeError(
            f"{op.name}(): expected tuple of {len(results)} elements but got {len(targets)}"
        )
    for t, r in zip(targets, results, strict=True):
        if op.out in _OWN:
            outs.check_same(t, r._dtype)
        elif op.out == "real":
            outs.check_real(op.name, t)
        else:
            outs.check_cast(r._dtype, t._dtype)
        outs.check_shared(op.overlap or ("apart" if op.out == "same" else "alone"), t, given)
    for t, r in zip(targets, results, strict=True):
        if op.out in _LAID and t.shape.numel() == 0:
            outs.resize(t, tuple(r.shape), r._skimp_layout_of().strides)
        outs.resize_out(op.name, t, tuple(r.shape))
        put(t, r)
    if isinstance(result, tuple):
        return type(result)(*targets) if hasattr(result, "_fields") else tuple(targets)
    return out


_OWN = ("same", "own", "own layout")  # the values of `out` that ask for the result's type
_LAID = ("layout", "own layout")


def move(target: Tensor, source: Tensor) -> None:
    """Write all of `source` over `target`, unrecorded, unless elements of that lie at one place."""
    outs.check_overlap(target, ())
    put(target, source)


def put(target: Tensor, source: Tensor) -> None:
    """Write all of `source` over `target`, unrecorded, whatever they share."""
    if target._hollow:
        target._skimp_bump()
        return
    array = source._skimp_array()
    written = target._skimp_writable()
    copy(written, array)
    target._skimp_written(written)


# -- in place -------------------------------------------------------------------------------------


def run_inplace(op: Op, given: dict[str, Any]) -> Tensor:
    """`name_` of an op that is not pointwise: computed beside, then moved over its argument."""
    target: Tensor = next(iter(given.values()))
    tracked = modes.state.grad and any([t._rg for t in tensors_in(given.values())])
    history.before_inplace(target)
    if op.overlap:
        outs.check_shared(op.overlap, target, given)
    if tracked and op.rule is None:  # composite: the result has a history, and is copied over
        result = call(op, given)
        outs.check_inplace(op.name, target, result._dtype, tuple(result.shape))
        target.copy_(result)
        return target
    result = unrecorded(op, given) if tracked else call(op, given)
    outs.check_inplace(op.name, target, result._dtype, tuple(result.shape))
    saved = (
        history.prepare(target, rule_for(op, given), given)
        if tracked and op.rule is not None
        else None
    )
    move(target, result)
    if saved is not None:
        history.rebase(target, saved)
    return target


# -- views ----------------------------------------------------------------------------------------


def run_view(op: Op, given: dict[str, Any]) -> Any:
    """A view, or the views of one call."""
    input = given["input"]
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{op.name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    found = _view_layout(op, given, input)
    rule = op.rule
    if not op.multi:
        if rule is not None and not isinstance(rule, Rule):
            rule = rule(given)
        new = alias(input, found)
        history.view_of(input, new, rule, given)
        return new
    views = tuple([alias(input, layout) for layout in found])
    assert isinstance(rule, Rule)
    history.views_of(input, views, rule, given)
    return views


def _view_layout(op: Op, given: dict[str, Any], input: Tensor) -> Any:
    return call(op, {**given, "input": input._skimp_layout_of()})


def run_view_inplace(op: Op, given: dict[str, Any]) -> Tensor:
    """The tensor itself takes the view's layout."""
    input: Tensor = given["input"]
    history.before_inplace(input)
    layout: Layout = _view_layout(op, given, input)
    rule = op.inplace_rule
    rule = rule(given) if rule is not None and not isinstance(rule, Rule) else rule
    saved = history.prepare(input, rule, given) if rule and modes.state.grad and input._rg else None
    input._skimp_bump()
    input._np = None
    input._skimp_layout = layout
    history.relaid(input, saved)
    return input
