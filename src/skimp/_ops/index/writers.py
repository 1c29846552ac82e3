"""Ops that write into some places of their first argument, declared by the write; the other forms
follow from it.

    @writer(rule=Rule("IndexAddBackward0", {...}))
    def index_add(input, dim, index, source, *, alpha=1) -> None: ...

The body checks, and then writes to `input.writable()`. `index_add_` runs it on the tensor itself,
`index_add` on a copy, `index_add(out=)` on `out` after the input was copied there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.autograd import alias as history
from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import OPS, Function, Op, spread, wrapper
from skimp._engine.dispatch.runners import call, move, tensors_in
from skimp._engine.memory import layout as layouts
from skimp._engine.memory import layout_overlap as overlap
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import formats
from skimp._engine.tensor.tensor import Tensor, alias, empty
from skimp._ops.shape.copies import clone


def writer(
    name: str | None = None,
    *,
    rule: Rule | None = None,
    out: bool = True,
    function: bool = True,
    row_major: bool | None = True,
    namespaces: tuple[str, ...] = ("",),
    **known: Any,
) -> Callable[[Function], Function]:
    """Declare `name`, `name_` and `name(out=)` by the body that writes into its first argument.

    `row_major`: the copy is, as where PyTorch's op allocates its result; else it is laid out as the
    input, and with None has the input's very strides, dense or not.
    `function=False`: there are only the methods and, in place, no function.
    """

    def declare(raw: Function) -> Function:
        title = name or raw.__name__
        o = Op(title, raw, "general", rule, (), namespaces if function else (), **known)
        OPS[title] = o
        copy = _row_major if row_major and out else _like_input
        if row_major is None:
            copy = _same_strides
        main = wrapper(title, o, lambda given, out: _run_on_copy(o, given, out, copy), out)
        spread(o, title, main, ())
        o.namespaces = ("",) if f"{title}_" in _FUNCTIONS else ()
        own = wrapper(f"{title}_", o, lambda given, _: _run_in_place(o, given))
        spread(o, f"{title}_", own, ())
        o.namespaces = namespaces if function else ()
        return main

    return declare


_FUNCTIONS = frozenset(
    {"index_put_", "masked_fill_"}
)  # in-place forms that PyTorch has as functions too


def _row_major(input: Tensor) -> Tensor:
    return clone(input, memory_format=formats.contiguous_format)


def _like_input(input: Tensor) -> Tensor:
    return clone(input)


def _same_strides(input: Tensor) -> Tensor:
    layout = input.layout_of()
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
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{o.name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
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
    others = [
        t
        for t in tensors_in([v for n, v in given.items() if n != first])
        if t._storage is out._storage
    ]
    outs.check_no_overlap(out, others)
    result = (
        _on_copy(o, given, first, _row_major(input)) if out._storage is input._storage else None
    )
    outs.resize_out(o.name, out, tuple(input.shape))
    if result is not None:
        move(out, result)
        return out
    move(out, input)
    call(o, {**given, first: out})
    return out


def _run_in_place(o: Op, given: dict[str, Any]) -> Tensor:
    return in_place(next(iter(given.values())), _rule_for(o, given), given, lambda: call(o, given))


def in_place(
    target: Tensor, rule: Rule | None, given: dict[str, Any], write: Callable[[], Any]
) -> Tensor:
    """Run `write`, which changes `target`, and record it as `rule` on `given`."""
    state = modes.state
    tracked = state.grad and any([t._rg for t in tensors_in(given.values())])
    history.before_inplace(target)
    layout = target.layout_of()
    if not layouts.is_contiguous(layout):
        overlap.assert_no_internal_overlap(layout)
    kept = history.prepare(target, rule, given) if tracked and rule is not None else None
    quiet(write)
    if kept is not None:
        history.rebase(target, kept)
    return target
