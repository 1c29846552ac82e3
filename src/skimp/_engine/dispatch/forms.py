"""An op is declared once; its function, method, `name_`, `out=` and NumPy-style keywords are
derived here.

    @rowwise(inplace=True, out=True, rule=Rule("CumsumBackward0", {"input": lambda g, dim: ...}))
    def cumsum(input, dim, *, dtype=None): ...

`rule` makes an op primitive: its body runs unrecorded and the rule is its derivative. Without one
the op is composite: its body is made of ops that record themselves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present, recorded
from skimp._engine.dispatch import outs, overrides, runners  # noqa: F401  (a transform)
from skimp._engine.dispatch.arguments import look
from skimp._engine.dispatch.fast_path import put_small, takes_apart
from skimp._engine.dispatch.numpy_words import in_python
from skimp._engine.dispatch.older import in_order
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.recorded import needs_of, recorded_by, recorded_fast, recording_of
from skimp._engine.dispatch.row import (
    FORMS,
    METHODS,
    NAMESPACES,
    OPS,
    AnyRule,
    Form,
    Function,
    Op,
    publish,
)
from skimp._engine.dispatch.runners import move
from skimp._engine.dispatch.signatures import Late
from skimp._engine.dispatch.view_forms import write_view, write_views
from skimp._engine.dispatch.wrappers import (
    PLAIN_NAMES,
    Parameters,
    behind,
    explaining,
    exported,
    forwarding,
    judged,
    plain_call,
    space_of,
)
from skimp._engine.generated import function_of
from skimp._engine.tensor import formats
from skimp._engine.tensor.tensor import Tensor

__all__ = [
    "METHODS", "NAMESPACES", "OPS", "Function", "Op", "copy_twin", "export", "general", "hidden",
    "move", "reduction", "rowwise", "spread", "view", "watching", "wrapper",
]  # fmt: skip

R = TypeVar("R")


def watching(choice: Callable[[dict[str, Any]], Rule], *names: str) -> AnyRule:
    """`choice`, all of whose rules differentiate by these arguments: no other is looked at."""
    choice.names = names  # type: ignore[attr-defined]
    return choice


# -- declarations ---------------------------------------------------------------------------------


_made: dict[Function, Function] = {}  # what `export` has made, by the function behind it


def export(
    name: str,
    f: Function,
    namespaces: tuple[str, ...] = ("",),
    method: bool = True,
    *,
    composite: bool = True,
    quick: bool = False,
    fast: Function | None = None,
    answer: str | None = None,
    **known: Any,
) -> Function:
    """Declare a function that looks at its arguments itself: the function behind a name in
    `namespaces`, and the method. `known`: more fields of its row.

    `quick`: small programs call it, so its wrapper is written out. So is that of a `fast` one,
    whose results are recorded by its `fast_rule`, or by itself, and of one with an `answer`: an
    expression of `a`, the small array of the first argument, that says the same where nothing else
    is given.

    `composite`: it is made of ops, each of which meets its tensors' transforms itself.
    """
    f = _made.get(f, f)
    if f in FORMS:  # another name for it
        publish(FORMS[f].op, name, f, namespaces, method)
        return f
    o = OPS.get(name)
    if o is None or o.raw is not f:
        kind = "composite" if composite else "general"
        o = Op(name, f, kind, namespaces=namespaces, method=method, composite=composite, **known)
        OPS.setdefault(name, o)
    form = Form(o, name, f, name.endswith("_") and not name.endswith("__"))
    form.run = behind(form, f)
    quick = quick or fast is not None or answer is not None
    made = form.f = exported(form, f, fast, answer) if quick else forwarding(form, f)
    FORMS[made] = form
    _made[f] = made
    publish(o, name, made, namespaces, method)
    return made


def general(
    name: str | None = None,
    *,
    kind: str = "general",
    rule: AnyRule | None = None,
    nondiff: tuple[int, ...] = (),
    inplace: bool = False,
    out: bool | str | Callable[..., Any] = False,
    method: bool = True,
    namespaces: tuple[str, ...] = ("",),
    aliases: tuple[str, ...] = (),
    composite: bool = True,
    copy: bool = False,
    **known: Any,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Declare an op by its body. `out`: derive `out=` by copying the result (a body that takes
    `out` writes itself).

    `out="layout"`: an empty one takes the result's strides too.
    `out="own"`: into a tensor of the result's own type; `"own layout"` is both, and `"same"`:
    one that shares no byte with an input besides.
    `out=f`: f(arguments by name, `out`) gives the arguments of the call whose result it takes.
    `out="real"`: into floating point alone, though complex numbers could hold it.
    `nondiff`: indices of outputs that carry no gradient (indices, masks).
    `composite=False`: the body, though it has no rule, is not made of ops alone.
    `copy`: it answers views, and `NAME_copy` copies them.
    """

    def declare(raw: Callable[..., R]) -> Callable[..., R]:
        title = name or raw.__name__
        o = Op(title, raw, kind, rule, nondiff, namespaces, method, out=out, **known)
        o.composite = composite and rule is None
        OPS[title] = o
        main = wrapper(
            title, o, lambda given, out: runners.run(o, given, out), bool(out), _fast_run
        )
        spread(o, title, main, aliases)
        if inplace:
            own = wrapper(f"{title}_", o, lambda given, _: runners.run_inplace(o, given))
            spread(o, f"{title}_", own, tuple(f"{a}_" for a in aliases))
        if copy:
            copy_twin(title, main)
        return main

    return declare


reduction = functools.partial(general, kind="reduction")
rowwise = functools.partial(general, kind="row-wise")


def hidden(name: str | None = None, **known: Any) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Declare an op that others are made of."""
    return general(name, method=False, namespaces=(), **known)


def view(
    name: str | None = None,
    *,
    rule: AnyRule | None = None,
    multi: bool = False,
    inplace: AnyRule | None = None,
    fast_view: str | None = None,
    otherwise: Function | None = None,
    function: bool = True,
    method: bool = True,
    aliases: tuple[str, ...] = (),
    copy: bool = False,
    **known: Any,
) -> Callable[[Function], Function]:
    """Declare a view op by its arithmetic: `f(layout, ...)` gives the view's Layout (`multi`: a
    list of them).

    With `inplace`, its rule, there is a form in which the tensor itself takes the new layout
    (`transpose_`). `fast_view` is an expression of the same view of `a`, a small tensor's ndarray;
    None, or an error, sends it the general way. `otherwise` is asked there first, and may answer a
    call of another kind (`x.view(dtype)`). With `copy` there is `NAME_copy` too.
    """

    def declare(raw: Function) -> Function:
        title = name or raw.__name__
        spaces = ("",) if function else ()
        o = Op(title, raw, "view", rule, (), spaces, method, multi, **known)
        o.fast_view, o.otherwise, o.inplace_rule = fast_view, otherwise, inplace
        OPS[title] = o
        fast = write_views if multi else write_view
        main = wrapper(title, o, lambda given, _: _run_view(o, given), False, fast)
        spread(o, title, main, aliases)
        if inplace:
            own = wrapper(f"{title}_", o, lambda given, _: runners.run_view_inplace(o, given))
            spread(o, f"{title}_", own, tuple(f"{a}_" for a in aliases))
        if copy:
            copy_twin(title, main)
        return main

    return declare


_COPIES = """

Shape: the view's.
Dtypes: those of the view.
Raises: what the view raises, and RuntimeError for an `out` of another dtype.
Memory: a new tensor, or `out`."""


def copy_twin(name: str, view: Function, method: bool = False) -> None:
    """Declare `NAME_copy`: what `view` shows, in memory of its own; into `out` if there is one."""
    own = inspect.signature(view)
    parameters = own.parameters.values()
    # what only methods take one by one, and its names where it is given by name
    listed = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    instead = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is None}

    def twin(input: Tensor, *args: Any, out: Any = None, **words: Any) -> Any:
        if (
            listed
            and args
            and (len(args) > 1 or isinstance(args[0], int) or instead & words.keys())
        ):
            raise TypeError(f"{title}() takes its numbers as one list, got {args}")
        seen = view(input, *args, **words)
        several = isinstance(seen, tuple)
        made: Any = tuple([_dense(v) for v in seen]) if several else _dense(seen)
        if out is None:
            _show_as_one(made, seen, input, title)
            return made
        targets, results = (out, made) if several else ((out,), (made,))
        for target, source in zip(targets, results, strict=True):
            outs.refuse_grad(title, target, [input])
            outs.check_same(target, source._dtype)
        for target, source in zip(targets, results, strict=True):
            outs.resize_out(title, target, tuple(source.shape))
            target.copy_(source)
        return None if several else out

    title = f"{name}_copy"
    twin.__signature__ = _of_copy(own)  # type: ignore[attr-defined]
    export(title, named(twin, title, f"`{name}` that copies.{_COPIES}"), method=method)


def _of_copy(own: inspect.Signature) -> inspect.Signature:
    """The view's arguments, without those that only methods take one by one, and `out`."""
    shown, star = [], False
    for p in own.parameters.values():
        if p.kind is not p.VAR_POSITIONAL:  # what follows it is the same as one list
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if star else p.kind
            shown.append(p.replace(kind=kind))
        star = p.kind is p.VAR_POSITIONAL
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    return own.replace(parameters=[*shown, out], return_annotation="Any")


def _show_as_one(made: Any, seen: Any, input: Tensor, title: str) -> None:
    """Two nodes, the view's and the copy's, are one to programs that walk the graph."""
    if isinstance(seen, tuple) and not seen:
        return
    view = seen[0] if isinstance(seen, tuple) else seen
    if recorded(input) and (view is input or view._skimp_node is not None):
        usual = "" if view is input else f"{view._skimp_node._skimp_label}_copy"
        name = {
            "narrow_copy": "NarrowCopyBackward0",
            "alias_copy": "AliasBackward0_copy",
            "detach_copy": "DetachBackward0_copy",
        }.get(title, usual)
        present(made, name, [input], [input])


def _dense(view: Tensor) -> Tensor:
    return view.clone(memory_format=formats.contiguous_format)


def _run_view(o: Op, given: dict[str, Any]) -> Any:
    if o.otherwise is not None and isinstance(given["input"], Tensor):
        positional = [v for n, v in given.items() if n not in _keyword_only(o)]
        words = {n: v for n, v in given.items() if n in _keyword_only(o)}
        starred = [n for n, kind, _ in o.parameters if kind is kind.VAR_POSITIONAL]
        if starred:
            i = list(given).index(starred[0])
            positional[i : i + 1] = positional[i]
        new = o.otherwise(*positional, **words)
        if new is not None:
            return new
    return runners.run_view(o, given)


def _keyword_only(o: Op) -> set[str]:
    return {n for n, kind, _ in o.parameters if kind is inspect.Parameter.KEYWORD_ONLY}


def spread(o: Op, title: str, f: Function, aliases: tuple[str, ...]) -> None:
    """Publish a form under its name and its aliases."""
    for known in (title, *aliases):
        publish(o, known, f, o.namespaces, o.method)


# -- wrappers -------------------------------------------------------------------------------------

Fast = Callable[[list[str], dict[str, Any], Op, Parameters], None]


def wrapper(
    title: str,
    o: Op,
    runner: Callable[[dict[str, Any], Any], Any],
    add_out: bool = False,
    fast: Fast | None = None,
) -> Function:
    """A public function with the body's signature: the fast path of its kind, then `dispatch`, and
    behind that runner(arguments by name, out).
    """
    arguments = o.arguments
    takes = {a.name for a in arguments}
    words = not takes.isdisjoint(("dim", "keepdim")) and not in_python(title, o.namespaces)
    writes = add_out or "out" in takes
    p = Parameters(arguments, add_out, words, o.older)

    def general(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None and not writes:
            kwargs["out"] = out  # a word as unknown as any other
        given = runners.bind(o, title, args, kwargs)
        kinds = tuple(map(type, given.values()))
        if kinds not in form.fine:
            look(form, given, kinds)
        return runner(given, out)

    form = Form(o, title, general, title.endswith("_") and not title.endswith("__"))
    space = space_of(form)
    lines = [p.header()]
    if o.older:
        space["in_order"] = in_order
        lines += [
            "    if older:",
            f"        return in_order(form, {p.handed().replace(')', ', *older)', 1)})",
        ]
    if fast is not None:
        fast(lines, space, o, p)
    if fast not in (_fast_run, write_view) and not p.is_open():
        _usual_run(lines, space, p, runner)
    lines.append(f"    return {p.general()}")
    f = function_of(title, explaining(lines, p.told()), space)
    p.give_defaults(f)
    form.f = f
    FORMS[f] = form
    f.__doc__ = o.raw.__doc__
    f.__module__ = o.raw.__module__
    f.__signature__ = Late(_shown, o, title, add_out)  # type: ignore[attr-defined]
    return f


def _shown(o: Op, title: str, add_out: bool) -> inspect.Signature:
    """The signature that callers see: a body knows neither `out=` nor that a view or a write
    answers a tensor.
    """
    parameters = list(o.signature.parameters.values())
    result = o.signature.return_annotation
    if o.kind == "view":
        result = "tuple[Tensor, ...]" if o.multi else "Tensor"
    elif title.endswith("_") or result in (None, "None"):
        result = "Tensor"
    if add_out:
        kind = "Tensor | None" if result == "Tensor" else "Any"
        parameters.append(
            inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        )
    return o.signature.replace(parameters=parameters, return_annotation=result)


def _fast_run(lines: list[str], space: dict[str, Any], o: Op, p: Parameters) -> None:
    """The body, unrecorded where a rule differentiates it, then the record of it."""
    space.update(raw=o.raw, state=modes.state, Tensor=Tensor)
    if o.fast is not None and p.takes_out:
        space.update(apart=takes_apart, put=put_small, fast=o.fast)
        read = "".join([f"{name}, " for name in p.names() if name not in PLAIN_NAMES])
        usual = plain_call(p, "ordinary", f"apart(out, ({read}))")
        lines += [
            f"    if out is not None and {' and '.join(usual)}:",
            f"        if put(out, fast({p.handed_to(o.fast)})):",
            "            return out",
        ]
    usual = plain_call(p, "known" if o.fast is None else "ordinary")
    lines.append(f"    if {' and '.join(usual)}:")
    call = f"raw({p.passed()})"
    if o.fast is not None:
        space["fast"] = o.fast
        lines.append(f"        result = fast({p.handed_to(o.fast)})")
    if o.rule is None:
        if o.fast is not None:
            lines.append("        if result is not None:")
            if o.fast_rule is not None:
                lines += [
                    f"            {line}" for line in recorded_fast(space, o.fast_rule, p.names())
                ]
            lines.append("            return result")
        lines += [*_indented(judged(space, p)), f"        return {call}"]
        return
    first = p.all[0].name
    asked = f"type({first}) in ordinary" in usual
    needs = needs_of(space, o.rule, p.names(), first if asked else None)
    recorded = recorded_by(space, o.rule, o.nondiff, p.names())
    if o.fast is not None:
        lines += [
            "        if result is not None:",
            f"            if {recording_of(needs)}:",
            *[f"                {line}" for line in recorded],
            "            return result",
        ]
    lines += [
        *_indented(judged(space, p)),
        f"        if not ({recording_of(needs)}):",
        f"            return {call}",
        "        state.grad = False",
        "        try:",
        f"            result = {call}",
        "        finally:",
        "            state.grad = True",
        *[f"        {line}" for line in recorded],
        "        return result",
    ]


def _usual_run(
    lines: list[str],
    space: dict[str, Any],
    p: Parameters,
    runner: Callable[[dict[str, Any], Any], Any],
) -> None:
    """The general way of a call that no transform concerns, without asking each of them."""
    space.update(run=runner, look=look, fine=space["form"].fine)
    lines += [
        f"    if {' and '.join(plain_call(p))}:",
        f"        given = {p.given()}",
        "        kinds = tuple(map(type, given.values()))",
        "        if kinds not in fine:",
        "            look(form, given, kinds)",
        "        return run(given, None)",
    ]


def _indented(lines: list[str]) -> list[str]:
    return [f"        {line}" for line in lines]
