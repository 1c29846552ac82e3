"""Ops that write into some places of their first argument, declared by the write; the other forms
follow from it.

    @writer(rule=Rule("IndexAddBackward0", {...}))
    def index_add(input, dim, index, source, *, alpha=1) -> None: ...

The body checks (what overlaps, too), and then writes to `input._skimp_writable()`. `index_add_`
runs it on the tensor itself, `index_add` on a copy, `index_add(out=)` on `out` after the input was
copied there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import OPS, Function, Op, spread, wrapper
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.recorded import needs_of, recording_of
from skimp._engine.dispatch.runners import call, move
from skimp._engine.dispatch.transforms import tensors_in
from skimp._engine.dispatch.view_forms import held_array, small_array
from skimp._engine.dispatch.wrappers import Parameters, plain_call
from skimp._engine.memory import layout as layouts, layout_overlap as overlap
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import formats
from skimp._engine.tensor.tensor import Tensor, alias, empty, fresh, mark, wrap
from skimp._ops.shape.copies import clone


def writer(
    name: str | None = None,
    *,
    rule: Rule | None = None,
    out: bool = True,
    function: bool = True,
    row_major: bool | None = True,
    namespaces: tuple[str, ...] = ("",),
    fast: Function | None = None,
    **known: Any,
) -> Callable[[Function], Function]:
    """Declare `name`, `name_` and `name(out=)` by the body that writes into its first argument.

    `row_major`: the copy is, as where PyTorch's op allocates its result; else it is laid out as the
    input, and with None has the input's very strides, dense or not.
    `function=False`: there are only the methods and, in place, no function.
    `fast` writes to the row-major ndarray of its first argument, of which it changes few elements,
    and says True; or it writes nothing, where a call is not for it.
    """

    def declare(raw: Function) -> Function:
        title = name or raw.__name__
        o = Op(title, raw, "general", rule, (), namespaces if function else (), **known)
        OPS[title] = o
        copy = _row_major if row_major else _like_input
        if row_major is None:
            copy = _same_strides
        of_copy, of_own = _fast_paths(fast, row_major is True)
        main = wrapper(title, o, lambda given, out: _run_on_copy(o, given, out, copy), out, of_copy)
        spread(o, title, main, ())
        o.namespaces = ("",) if f"{title}_" in _FUNCTIONS else ()
        own = wrapper(f"{title}_", o, lambda given, _: _run_in_place(o, given), False, of_own)
        spread(o, f"{title}_", own, ())
        o.namespaces = namespaces if function else ()
        return main

    return declare


def _fast_paths(fast: Function | None, row_major: bool) -> tuple[Any, Any]:
    """What writes the fast paths of a writer's two wrappers: on a copy, which is `row_major`
    whatever the input is or else one of what is, and in place.
    """
    if fast is None:
        return None, None

    def on_copy(lines: list[str], space: dict[str, Any], o: Op, p: Parameters) -> None:
        rest = _shared_names(space, fast, o, p)
        first = p.names()[0]
        lines += [
            f"    if {' and '.join(plain_call(p, 'ordinary'))}:",
            f"        x = {first}._np if {first}._np is not None else small_array({first})",
            f"        if x is not None{'' if row_major else ' and x.flags.c_contiguous'}:",
            "            x = x.copy()",
            f"            if fast(x, {rest}):",
            f"                result = fresh(x, {first}._dtype)",
            f"                if state.grad and {needs_of(space, None, p.names())}:",
            f"                    given = {p.given()}",
            "                    record(rule_for(op, given), given, result)",
            "                return result",
        ]

    def in_place(lines: list[str], space: dict[str, Any], o: Op, p: Parameters) -> None:
        rest = _shared_names(space, fast, o, p)
        first = p.names()[0]
        lines += [
            f"    if {' and '.join(plain_call(p, 'ordinary'))}:",
            f"        x = {first}._np if {first}._np is not None else held_array({first})",
            "        if x is not None and x.flags.c_contiguous:",
            f"            if {_recorded(space, o, p)}:",
            f"                given = {p.given()}",
            f"                return run_in_place(op, given, lambda: fast(x, {rest}))",
            f"            before_inplace({first})",
            f"            {first}._storage.will_write()",
            f"            if fast(x, {rest}):",
            f"                {first}._skimp_bump()",
            f"                return {first}",
        ]

    return on_copy, in_place


def _recorded(space: dict[str, Any], o: Op, p: Parameters) -> str:
    """The condition that a call is recorded, whose first argument is known to be a tensor."""
    return recording_of(needs_of(space, o.rule, p.names(), p.names()[0]))


def _shared_names(space: dict[str, Any], fast: Function, o: Op, p: Parameters) -> str:
    """Give the text of a fast path its names; the arguments after the first, as passed on."""
    space.update(
        small_array=small_array, held_array=held_array, fast=fast, op=o, state=modes.state,
        record=record, rule_for=_rule_for, fresh=fresh, before_inplace=history.before_inplace,
        run_in_place=_run_in_place,
    )  # fmt: skip
    return p.passed((p.names()[0], "out"))


_FUNCTIONS = frozenset(
    {"index_put_", "masked_fill_"}
)  # in-place forms that PyTorch has as functions too


def _row_major(input: Tensor) -> Tensor:
    return clone(input, memory_format=formats.contiguous_format)


def _like_input(input: Tensor) -> Tensor:
    return clone(input)


def _same_strides(input: Tensor) -> Tensor:
    layout = input._skimp_layout_of()
    overlaps = overlap.has_internal_overlap(layout) is overlap.Overlap.YES
    if overlaps or layouts.is_non_overlapping_and_dense(layout):
        return clone(input)
    n = layouts.nbytes_needed(layout, 1) - layout.offset
    memory = empty((n,), input._dtype)
    made = alias(memory, Layout(layout.shape, layout.strides, 0))
    move(made, input)
    return made


Copy = Callable[[Tensor], Tensor]


def _run_on_copy(o: Op, given: dict[str, Any], out: Any, copy: Copy) -> Tensor:
    first = next(iter(given))
    input: Any = given[first]
    require_tensor(o.name, "input", input)
    if out is not None:
        return _run_on_out(o, given, first, out)
    tracked = (
        o.rule is not None and modes.state.grad and any([t._rg for t in tensors_in(given.values())])
    )
    result: Tensor = quiet(lambda: _on_copy(o, given, first, copy(input)))
    if tracked:
        assert o.rule is not None
        record(_rule_for(o, given), given, result)
    return result


def _rule_for(o: Op, given: dict[str, Any]) -> Any:
    return o.rule(given) if o.rule is not None and not isinstance(o.rule, Rule) else o.rule


def quiet(f: Callable[[], Any]) -> Any:
    """f(), unrecorded."""
    state = modes.state
    before = state.grad
    state.grad = False
    try:
        return f()
    finally:
        state.grad = before


def _on_copy(o: Op, given: dict[str, Any], first: str, result: Tensor) -> Tensor:
    call(o, {**given, first: result})
    result._storage.version = 0
    return result


def _run_on_out(o: Op, given: dict[str, Any], first: str, out: Any) -> Tensor:
    input = given[first]
    if not isinstance(out, Tensor):
        raise TypeError(f"{o.name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    outs.refuse_grad(o.name, out, tensors_in(given.values()))
    if out._dtype is not input._dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {input._dtype}, but got {out._dtype} instead"
        )
    if o.overlap:
        outs.check_shared(o.overlap, out, given)
    else:  # `input` is copied over `out`, then the others are read
        outs.check_overlap(out, (input,))
        outs.check_shared("apart", out, {n: v for n, v in given.items() if n != first})
    shared = any([t._storage is out._storage for t in tensors_in(given.values())])
    result = _on_copy(o, given, first, _row_major(input)) if shared else None
    outs.resize_out(o.name, out, tuple(input.shape))
    if result is not None:
        move(out, result)
        return out
    move(out, input)
    _write(o, {**given, first: out}, out)
    return out


def _run_in_place(o: Op, given: dict[str, Any], fast: Callable[[], bool] | None = None) -> Tensor:
    """Write into the first argument, by `fast` if there is one and it says True."""
    target = next(iter(given.values()))

    def write() -> None:
        if fast is not None:
            target._storage.will_write()
            if fast():
                target._skimp_bump()
                return
        _write(o, given, target)

    return in_place(target, _rule_for(o, given), given, write)


def _write(o: Op, given: dict[str, Any], target: Tensor) -> None:
    """Have the body write into the first argument, the target. What holds the conjugate, or the
    negative, of its elements holds themselves meanwhile: bodies know nothing of either.
    """
    if target._hollow or not (target._conj or target._skimp_neg):
        call(o, given)
        return
    storage, layout = target._storage, target._skimp_layout_of()
    plain = wrap(storage, layout, target._dtype)
    if target._skimp_counter is not None:
        mark(plain, _skimp_counter=target._skimp_counter)
    storage.will_write()
    target._skimp_written(storage.view(layout, target._dtype.np))
    try:
        call(o, {**given, next(iter(given)): plain})
    finally:
        storage.will_write()
        target._skimp_written(storage.view(layout, target._dtype.np))


def in_place(
    target: Tensor, rule: Rule | None, given: dict[str, Any], write: Callable[[], Any]
) -> Tensor:
    """Run `write`, which changes `target`, and record it as `rule` on `given`."""
    state = modes.state
    tracked = state.grad and any([t._rg for t in tensors_in(given.values())])
    history.before_inplace(target)
    kept = history.prepare(target, rule, given) if tracked and rule is not None else None
    quiet(write)
    if target._hollow:
        target._skimp_bump()
    if kept is not None:
        history.rebase(target, kept)
    return target
