"""An op is declared once; its function, method, `name_`, `out=` and NumPy-style keywords are
derived here.

    @op(inplace=True, out=True, rule=Rule("CumsumBackward0", {"input": lambda g, dim: ...}))
    def cumsum(input, dim, *, dtype=None): ...

`rule` makes an op primitive: its body runs unrecorded and the rule is its derivative. Without one
the op is composite: its body is made of ops that record themselves.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from skimp._engine.autograd import alias as history
from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.generated import compiled
from skimp._engine.memory import call_site as sites
from skimp._engine.memory import layout as layouts
from skimp._engine.memory import layout_overlap as overlap
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import Tensor, alias, mark
from skimp.config import config
from skimp.errors import WithoutBytes

Function = Callable[..., Any]
R = TypeVar("R")
# one, or the one for the arguments of a call
AnyRule: TypeAlias = Rule | Callable[[dict[str, Any]], Rule]
NUMPY_WORDS = {
    "axis": "dim",
    "axes": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


def watching(choice: Callable[[dict[str, Any]], Rule], *names: str) -> AnyRule:
    """`choice`, all of whose rules differentiate by these arguments: no other is looked at."""
    choice.names = names  # type: ignore[attr-defined]
    return choice


class _Required:
    def __repr__(self) -> str:
        return "..."


REQUIRED = _Required()


@dataclass
class Op:
    """One declared op and the names under which its forms are reached."""

    name: str
    raw: Function
    rule: AnyRule | None = None
    nondiff: tuple[int, ...] = ()
    namespaces: tuple[str, ...] = ("",)
    method: bool = True
    views: bool = False
    multi: bool = False
    out: bool | str = False
    inplace_rule: AnyRule | None = None  # of a view op's form in place, which PyTorch numbers apart
    hand: str | None = None
    otherwise: Function | None = None
    forms: dict[str, Function] = field(default_factory=dict)


OPS: dict[str, Op] = {}
# "" is the package itself; "nn.functional", "linalg", ...
NAMESPACES: dict[str, dict[str, Function]] = {"": {}}
METHODS: dict[str, Function] = {}


def export(
    name: str, f: Function, namespaces: tuple[str, ...] = ("",), method: bool = True
) -> None:
    """Make `f` reachable as a function of the namespaces and as a method."""
    for space in namespaces:
        NAMESPACES.setdefault(space, {})[name] = f
    if method:
        METHODS[name] = f
        setattr(Tensor, name, f)


def op(
    name: str | None = None,
    *,
    rule: AnyRule | None = None,
    nondiff: tuple[int, ...] = (),
    inplace: bool = False,
    out: bool | str = False,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Declare an op by its body. `out`: derive `out=` by copying the result (a body that takes
    `out` writes itself).

    `out="layout"`: an empty one takes the result's strides too.
    `out="same"`: into a tensor of the result's own type that shares no byte with an input.
    `nondiff`: indices of outputs that carry no gradient (indices, masks).
    """

    def declare(raw: Callable[..., R]) -> Callable[..., R]:
        title = name or raw.__name__
        o = Op(title, raw, rule, nondiff, namespaces, method, out=out)
        OPS[title] = o
        main = _wrapper(title, o, "_run", bool(out))
        _spread(o, title, main, aliases)
        if inplace:
            _spread(
                o,
                f"{title}_",
                _wrapper(f"{title}_", o, "_run_inplace", False),
                tuple(f"{a}_" for a in aliases),
            )
        return main

    return declare


def view(
    name: str | None = None,
    *,
    rule: AnyRule | None = None,
    multi: bool = False,
    inplace: AnyRule | None = None,
    hand: str | None = None,
    otherwise: Function | None = None,
    function: bool = True,
    method: bool = True,
    aliases: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Declare a view op by its arithmetic: `f(layout, ...)` gives the view's Layout (`multi`: a
    list of them).

    With `inplace`, its rule, there is a form in which the tensor itself takes the new layout
    (`transpose_`). `hand` is an expression of the same view of `a`, a small tensor's ndarray; None,
    or an error, sends it the general way. `otherwise` is asked there first, and may answer a call
    of another kind (`x.view(dtype)`).
    """

    def declare(raw: Function) -> Function:
        title = name or raw.__name__
        o = Op(title, raw, rule, (), ("",) if function else (), method, True, multi)
        o.hand, o.otherwise, o.inplace_rule = hand, otherwise, inplace
        OPS[title] = o
        main = _wrapper(title, o, "_run_view", False)
        _spread(o, title, main, aliases)
        if inplace:
            _spread(
                o,
                f"{title}_",
                _wrapper(f"{title}_", o, "_run_view_inplace", False),
                tuple(f"{a}_" for a in aliases),
            )
        return main

    return declare


def _spread(o: Op, title: str, f: Function, aliases: tuple[str, ...]) -> None:
    for known in (title, *aliases):
        o.forms[known] = f
        export(known, f, o.namespaces, o.method)


def _wrapper(title: str, o: Op, runner: str | Function, add_out: bool) -> Function:
    """A function with the body's signature that hands its arguments, by name, to the runner."""
    signature = inspect.signature(o.raw)
    space: dict[str, Any] = {
        "_op": o,
        "_runner": globals()[runner] if isinstance(runner, str) else runner,
        "_words": _numpy_words,
        "_required": REQUIRED,
        "_any": any,
        "_WithoutBytes": WithoutBytes,
        "_other_way": other_way,
    }
    parts, call, starred, keyword_only = [], [], False, False
    has_dim = bool({"dim", "keepdim"} & set(signature.parameters))
    for i, p in enumerate(signature.parameters.values()):
        if i == 0 and p.name == "layout":
            p = p.replace(name="input")
        if p.kind is p.KEYWORD_ONLY and not (keyword_only or starred):
            parts.append("*")
            keyword_only = True
        default = ""
        if p.default is not p.empty:
            space[f"_d{i}"] = p.default
            default = f"=_d{i}"
        elif has_dim and i > 0 and p.kind is not p.VAR_POSITIONAL:
            default = "=_required"
        if p.kind is p.VAR_POSITIONAL:
            starred = True
            parts.append(f"*{p.name}")
        else:
            parts.append(p.name + default)
        call.append(p.name)
    takes_out = add_out or "out" in signature.parameters
    if add_out:
        if not (keyword_only or starred):
            parts.append("*")
        parts.append("out=None")
    words = f"{{{', '.join(f'{c!r}: {c}' for c in call if c != 'out')}}}"
    lines = [f"def {title}({', '.join([*parts, *(['**numpy_words'] if has_dim else [])])}):"]
    if runner == "_run_view" and not o.multi:
        _short_view(lines, space, o, signature, has_dim)
    if runner == "_run":
        _short_run(lines, space, o, signature, takes_out, has_dim)
    lines.append(f"    given = {words}")
    if has_dim:
        lines.append(
            "    if numpy_words or _any([v is _required for v in given.values()]): "
            f"_words({title!r}, given, numpy_words)"
        )
    lines.append(f"    return _runner(_op, given, {'out' if takes_out else 'None'})")
    # costs nothing until it is needed: no op looks whether a tensor has bytes of its own
    lines = [lines[0], "    try:", *[f"    {line}" for line in lines[1:]]]
    known = f"given if numpy_words else {words}" if has_dim else words
    lines += [
        "    except _WithoutBytes as e:",
        f"        return _other_way({title!r}, _op.forms[{title!r}], {known}, e, "
        f"{'out' if takes_out else 'None'})",
    ]
    f: Function = compiled(title, lines, space, "op ")
    f.__doc__ = o.raw.__doc__
    f.__module__ = o.raw.__module__
    f.__signature__ = _shown(signature, o, title, add_out)  # type: ignore[attr-defined]
    return f


def _shown(signature: inspect.Signature, o: Op, title: str, add_out: bool) -> inspect.Signature:
    """The signature that callers see: a body knows neither `out=` nor that a view or a write
    answers a tensor.
    """
    parameters = list(signature.parameters.values())
    if parameters[0].name == "layout":
        parameters[0] = parameters[0].replace(name="input", annotation="Tensor")
    result = signature.return_annotation
    if o.views:
        result = "tuple[Tensor, ...]" if o.multi else "Tensor"
    elif title.endswith("_") or result in (None, "None"):
        result = "Tensor"
    if add_out:
        kind = "Tensor | None" if result == "Tensor" else "Any"
        parameters.append(
            inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        )
    return signature.replace(parameters=parameters, return_annotation=result)


# `seen` and `plain_view` of _engine/autograd/alias.py, written out: this is the path of `x.t()`.
_HAND_VIEW = """\
        a = input._np
        if a is None:
            a = _at_hand(input)
        if a is not None:
            try:
                a = {hand}
            except (TypeError, ValueError, IndexError):
                a = None
            if a is not None:
                _new = _make(_Tensor)
                _new._np = a
                _new._storage = _storage = input._storage
                _new._dtype = _dtype = input._dtype
                if {turns} and not a.flags.c_contiguous and a.ndim > 1:
                    _new._turned = True
                if 1 in a.shape:
                    _new._layout = {layout}
                if input._rg or input._marked:
                    if input._marked:
                        _mark(_new, _counter=input._counter)
                    _view_of(input, _new, _rule, {{{words}}})
                    return _new
                _base = input._base
                if _base is None:
                    _base = input
                if _dtype.category < 2:  # its base will never require grad
                    _new._base = _base
                    return _new
                _views = _base._views
                if _views is None or len(_views) > _many or not _state.grad:
                    _plain(_base, _new)
                else:
                    _new._base = _base
                    _new._stale = _storage.version
                    _views.append(_ref(_new))
                return _new"""


def _at_hand(t: Tensor) -> Any:
    """The ndarray of a small tensor whose bytes are there; None for any other."""
    layout = t._layout
    if layout is None or t._storage.promise is not None or t._conj or t._neg:
        return None
    return t.array() if layouts.numel(layout.shape) < config.small_below else None


def _short_view(
    lines: list[str], space: dict[str, Any], o: Op, signature: inspect.Signature, has_dim: bool
) -> None:
    """The short ways of a view: by its ndarray where that is at hand, and without a dict of
    arguments and a second frame where nobody differentiates it.
    """
    rest = _passed(signature)[1:]
    names = list(signature.parameters)[1:]
    words = ", ".join(["'input': input", *[f"{n!r}: {n}" for n in names]])
    space.update({
        "_raw": o.raw, "_alias": alias, "_view_of": history.view_of, "_Tensor": Tensor,
        "_rule": o.rule, "_plain": history.plain_view, "_make": object.__new__, "np": np,
        "_state": modes.state, "_ref": weakref.ref, "_at_hand": _at_hand, "_mark": mark,
        "_many": history.MANY,
    })  # fmt: skip
    unless = "not numpy_words and " if has_dim else ""
    required = [
        f" and {p.name} is not _required"
        for p in list(signature.parameters.values())[1:]
        if has_dim and p.default is p.empty and p.kind is not p.VAR_POSITIONAL
    ]
    layout = f"_raw({', '.join(['input.layout_of()', *rest])})"
    lines.append(f"    if {unless}isinstance(input, _Tensor){''.join(required)}:")
    if o.hand is not None:
        lines += _HAND_VIEW.format(
            hand=o.hand, layout=layout, words=words, turns="reshape" not in o.hand
        ).splitlines()
    if o.otherwise is not None:
        space["_otherwise"] = o.otherwise
        lines += [
            f"        _new = _otherwise({', '.join(['input', *rest])})",
            "        if _new is not None:",
            "            return _new",
        ]
    lines += [
        "        if not input._rg:",
        f"            _new = _alias(input, {layout})",
        "            _view_of(input, _new)",
        "            return _new",
    ]


def _short_run(
    lines: list[str],
    space: dict[str, Any],
    o: Op,
    signature: inspect.Signature,
    takes_out: bool,
    has_dim: bool,
) -> None:
    """The short way of a call without `out=` and NumPy's words: the body, unrecorded where a rule
    differentiates it, then the record of it.
    """
    space.update({
        "_raw": o.raw, "_needed": _needed, "_state": modes.state, "_rule": o.rule,
        "_Tensor": Tensor,
    })  # fmt: skip
    unless = ["out is None"] if takes_out else []
    if has_dim:
        unless.append("not numpy_words")
        unless += [f"{p.name} is not _required" for p in list(signature.parameters.values())[1:]
                   if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]  # fmt: skip
    names = [p.name for p in signature.parameters.values() if p.name != "out"]
    passed = ", ".join([p for p in _passed(signature) if p != "out=out" and p != "out"])
    indent = ""
    if unless:
        lines.append(f"    if {' and '.join(unless)}:")
        indent = "    "
    if o.rule is None:
        lines.append(f"    {indent}return _raw({passed})")
        return
    watched = [n for n in getattr(o.rule, "names", names) if n in names]
    one = watched[0]
    needed = f"_needed({', '.join(watched)})"
    if len(watched) == 1:
        needed = f"({one}._rg if isinstance({one}, _Tensor) else {needed})"
    rule = "_rule" if isinstance(o.rule, Rule) else "_rule(_given)"
    words = ", ".join([f"{n!r}: {n}" for n in names])
    space.update({"_record": record, "_nondiff": o.nondiff})
    lines += [
        f"    {indent}if not ({needed} and _state.grad):",
        f"    {indent}    return _raw({passed})",
        f"    {indent}_state.grad = False",
        f"    {indent}try:",
        f"    {indent}    _result = _raw({passed})",
        f"    {indent}finally:",
        f"    {indent}    _state.grad = True",
        f"    {indent}_given = {{{words}}}",
        f"    {indent}_record({rule}, _given, _result, _nondiff)",
        f"    {indent}return _result",
    ]


def _needed(*values: Any) -> bool:
    """Whether a tensor among these arguments, or in a list among them, requires grad."""
    for v in values:
        if isinstance(v, Tensor):
            if v._rg:
                return True
        elif isinstance(v, (list, tuple)):
            for t in v:
                if isinstance(t, Tensor) and t._rg:
                    return True
    return False


def _passed(signature: inspect.Signature) -> list[str]:
    """How a wrapper hands the body's arguments on."""
    return [_as_passed(p.name, p.kind) for p in signature.parameters.values()]


def _as_passed(name: str, kind: Any) -> str:
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{name}"
    return f"{name}={name}" if kind is inspect.Parameter.KEYWORD_ONLY else name


def _numpy_words(title: str, given: dict[str, Any], words: dict[str, Any]) -> None:
    """PyTorch takes NumPy's names of arguments too (axis, keepdims)."""
    for word, value in words.items():
        name = NUMPY_WORDS.get(word)
        if name is None or name not in given:
            raise TypeError(f"{title}() got an unexpected keyword argument '{word}'")
        given[name] = value
    for name, value in given.items():
        if value is REQUIRED:
            raise TypeError(f'{title}() missing 1 required positional arguments: "{name}"')


def tensors_in(values: Any) -> list[Tensor]:
    found = []
    for v in values:
        if isinstance(v, Tensor):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found.extend([t for t in v if isinstance(t, Tensor)])
    return found


def _call(o: Op, given: dict[str, Any]) -> Any:
    """The body with its arguments by position (starred ones spread)."""
    signature = _parameters(o)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for name, kind in signature:
        if name not in given:
            continue
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(given[name])
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[name] = given[name]
        else:
            positional.append(given[name])
    return o.raw(*positional, **keywords)


def _parameters(o: Op) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] | None = o.__dict__.get("_parameters")
    if found is None:
        found = [(p.name, p.kind) for p in inspect.signature(o.raw).parameters.values()]
        o.__dict__["_parameters"] = found
    return found


# what runs an op that was given tensors without bytes, by the error that they raised
WAYS: dict[type[WithoutBytes], Function] = {}


def other_way(
    name: str, f: Function, given: dict[str, Any], refused: WithoutBytes, out: Any = None
) -> Any:
    """A second try of a function whose code met a tensor without bytes."""
    if out is not None:
        given = {**given, "out": out}
    return WAYS[type(refused)](name, f, given, refused)


def door(f: Function, name: str | None = None) -> Function:
    """`f`, tried another way where its code meets a tensor without bytes; for functions that are no
    row and look at their arguments themselves.
    """
    title = name or f.__name__
    signature = inspect.signature(f)

    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except WithoutBytes as e:
            given = signature.bind(*args, **kwargs).arguments
            return other_way(title, function, given, e)

    return sites.named(title)(function)


def _run(o: Op, given: dict[str, Any], out: Any) -> Any:
    tensors = tensors_in(given.values())
    if out is not None:
        return _run_out(o, given, out, tensors)
    if o.rule is None or not (modes.state.grad and any([t._rg for t in tensors])):
        return _call(o, given)
    result = unrecorded(o, given)
    record(rule_for(o, given), given, result, o.nondiff)
    return result


def rule_for(o: Op, given: dict[str, Any]) -> Rule:
    """The op's rule, which may depend on the form of the call."""
    rule = o.rule
    assert rule is not None
    return rule if isinstance(rule, Rule) else rule(given)


def unrecorded(o: Op, given: dict[str, Any]) -> Any:
    state = modes.state
    state.grad = False
    try:
        return _call(o, given)
    finally:
        state.grad = True


def _run_out(o: Op, given: dict[str, Any], out: Any, tensors: list[Tensor]) -> Any:
    """`out=` of an op that is not pointwise: checked, computed, then moved into place."""
    targets = out if isinstance(out, (tuple, list)) else (out,)
    for t in targets:
        if not isinstance(t, Tensor):
            raise TypeError(f"{o.name}(): argument 'out' must be Tensor, not {type(t).__name__}")
        outs.refuse_grad(o.name.removeprefix("_").removesuffix("_dim"), t, tensors)
    if "out" in inspect.signature(o.raw).parameters:
        return _call(o, {**given, "out": out})
    result = _call(o, given)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(targets):
        raise TypeError(
            f"{o.name}(): expected tuple of {len(results)} elements but got {len(targets)}"
        )
    for t, r in zip(targets, results, strict=True):
        if o.out == "same":
            outs.check_same(t, r._dtype)
            outs.check_no_overlap(t, tensors)
        else:
            outs.check_cast(r._dtype, t._dtype)
    for t, r in zip(targets, results, strict=True):
        if o.out == "layout" and t.shape.numel() == 0:
            outs.resize(t, tuple(r.shape), r.layout_of().strides)
        outs.resize_out(o.name, t, tuple(r.shape))
        move(t, r)
    if isinstance(result, tuple):
        return type(result)(*targets) if hasattr(result, "_fields") else tuple(targets)
    return out


def move(target: Tensor, source: Tensor) -> None:
    """Write all of `source` over `target`, unrecorded."""
    from skimp._engine.dispatch.pointwise import convert

    if not layouts.is_contiguous(target.layout_of()):
        overlap.assert_no_internal_overlap(target.layout_of())
    array = source.array()
    written = target.writable()
    convert(written, array)
    target.written(written)


def _run_inplace(o: Op, given: dict[str, Any], out: None) -> Tensor:
    """`name_` of an op that is not pointwise: computed beside, then moved over its argument."""
    target: Tensor = next(iter(given.values()))
    tracked = modes.state.grad and any([t._rg for t in tensors_in(given.values())])
    history.before_inplace(target)
    if tracked and o.rule is None:  # composite: the result has a history, and is copied over
        from skimp._ops.shape.copies import write

        result = _call(o, given)
        outs.check_inplace(o.name, target, result._dtype, tuple(result.shape))
        write(target, result)
        return target
    result = unrecorded(o, given) if tracked else _call(o, given)
    outs.check_inplace(o.name, target, result._dtype, tuple(result.shape))
    kept = (
        history.prepare(target, rule_for(o, given), given)
        if tracked and o.rule is not None
        else None
    )
    move(target, result)
    if kept is not None:
        history.rebase(target, kept)
    return target


def _run_view(o: Op, given: dict[str, Any], out: None) -> Any:
    input = given["input"]
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{o.name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    found = _view_layout(o, given, input)
    rule = o.rule
    if not o.multi:
        if rule is not None and not isinstance(rule, Rule):
            rule = rule(given)
        new = alias(input, found)
        history.view_of(input, new, rule, given)
        return new
    views = tuple([alias(input, layout) for layout in found])
    assert isinstance(rule, Rule)
    history.views_of(input, views, rule, given)
    return views


def _view_layout(o: Op, given: dict[str, Any], input: Tensor) -> Any:
    values = dict(given)
    del values["input"]
    return _call(o, {_parameters(o)[0][0]: input.layout_of(), **values})


def _run_view_inplace(o: Op, given: dict[str, Any], out: None) -> Tensor:
    input: Tensor = given["input"]
    history.before_inplace(input)
    layout: Layout = _view_layout(o, given, input)
    rule = o.inplace_rule
    rule = rule(given) if rule is not None and not isinstance(rule, Rule) else rule
    kept = history.prepare(input, rule, given) if rule and modes.state.grad and input._rg else None
    input.bump()
    input._np = None
    input._layout = layout
    history.relaid(input, kept)
    return input
