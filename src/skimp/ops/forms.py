"""An op is declared once; its function, method, `name_`, `out=` and NumPy-style keywords are
derived here.

    @op(inplace=True, out=True, rule=Rule("CumsumBackward0", {"input": lambda g, dim: ...}))
    def cumsum(input, dim, *, dtype=None): ...

`rule` makes an op primitive: its body runs unrecorded and the rule is its derivative. Without one
the op is composite: its body is made of ops that record themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from skimp._tensor import Tensor, alias
from skimp.autograd import alias as history
from skimp.autograd import modes
from skimp.autograd.record import record
from skimp.autograd.rules import Rule
from skimp.memory import layout as layouts
from skimp.memory import layout_overlap as overlap
from skimp.memory.layout import Layout
from skimp.ops import outs

Function = Callable[..., Any]
R = TypeVar("R")
NUMPY_WORDS = {
    "axis": "dim",
    "axes": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


class _Required:
    def __repr__(self) -> str:
        return "..."


REQUIRED = _Required()


@dataclass
class Op:
    """One declared op and the names under which its forms are reached."""

    name: str
    raw: Function
    rule: Rule | Callable[[dict[str, Any]], Rule] | None = None
    nondiff: tuple[int, ...] = ()
    namespaces: tuple[str, ...] = ("",)
    method: bool = True
    views: bool = False
    multi: bool = False
    out: bool | str = False
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
    rule: Rule | Callable[[dict[str, Any]], Rule] | None = None,
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
    rule: Rule | None = None,
    multi: bool = False,
    inplace: bool = False,
    function: bool = True,
    method: bool = True,
    aliases: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Declare a view op by its arithmetic: `f(layout, ...)` gives the view's Layout (`multi`: a
    list of them).

    With `inplace` the tensor itself takes the new layout (`transpose_`).
    """

    def declare(raw: Function) -> Function:
        title = name or raw.__name__
        o = Op(title, raw, rule, (), ("",) if function else (), method, True, multi)
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
    if runner == "_run_view" and not o.multi and not has_dim:
        _short_view(lines, space, o, signature)
    if runner == "_run" and (
        o.rule is None or (isinstance(o.rule, Rule) and set(o.rule.names) == {call[0]})
    ):
        _short_run(lines, space, o, signature, takes_out, has_dim)
    lines.append(f"    given = {words}")
    if has_dim:
        lines.append(
            "    if numpy_words or _any([v is _required for v in given.values()]): "
            f"_words({title!r}, given, numpy_words)"
        )
    lines.append(f"    return _runner(_op, given, {'out' if takes_out else 'None'})")
    exec(compile("\n".join(lines), f"<skimp op {title}>", "exec"), space)
    f: Function = space[title]
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


def _short_view(
    lines: list[str], space: dict[str, Any], o: Op, signature: inspect.Signature
) -> None:
    """The short way of a view that nobody differentiates: no dict of arguments, no second frame."""
    rest = _passed(signature)[1:]
    space.update({"_raw": o.raw, "_alias": alias, "_view_of": history.view_of, "_Tensor": Tensor})
    lines += [
        "    if type(input) is _Tensor and not input._rg:",
        f"        _new = _alias(input, _raw({', '.join(['input.layout_of()', *rest])}))",
        "        _view_of(input, _new)",
        "        return _new",
    ]


def _short_run(
    lines: list[str],
    space: dict[str, Any],
    o: Op,
    signature: inspect.Signature,
    takes_out: bool,
    has_dim: bool,
) -> None:
    """The short way of an op that records itself, or whose one differentiable argument needs no
    gradient.
    """
    first = next(iter(signature.parameters))
    unless = ["out is None"] if takes_out else []
    if has_dim:
        unless.append("not numpy_words")
        unless += [f"{p.name} is not _required" for p in list(signature.parameters.values())[1:]
                   if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]  # fmt: skip
    if o.rule is not None:
        unless.append(f"type({first}) is _Tensor and not {first}._rg")
    space.update({"_raw": o.raw, "_Tensor": Tensor})
    passed = [p for p in _passed(signature) if p != "out" and p != "out=out"]
    indent = ""
    if unless:
        lines.append(f"    if {' and '.join(unless)}:")
        indent = "    "
    lines.append(f"    {indent}return _raw({', '.join(passed)})")


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
        outs.refuse_grad(o.name, t, tensors)
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
    from skimp.ops.pointwise import convert

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
        from skimp.ops.copies import write

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
        assert rule is None or isinstance(rule, Rule)
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
    layout: Layout = _view_layout(o, given, input)
    history.before_inplace(input)
    tracked = modes.state.grad and input._rg and o.rule is not None
    kept = history.prepare(input, rule_for(o, given), given) if tracked else None
    input.bump()
    input._np = None
    input._layout = layout
    history.relaid(input, kept)
    return input
