"""Recording: from a rule, an op's arguments and its outputs, the node that will differentiate it.

`record` takes any op. In-place ops begin before the write and finish after it (`begin`, `finish`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from skimp._engine.autograd import node_lines as lines, saving, unrolled
from skimp._engine.autograd.nodes import Extra, Node, accumulate_of, init, shape_of
from skimp._engine.autograd.op_node import OpNode
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rules import ARG, ARG_META, CONSTANT, RESULT, RESULT_META, Plan, Rule
from skimp._engine.autograd.saving import meta_of
from skimp._engine.tensor.tensor import Tensor

_new = object.__new__
_frame = sys._getframe
_guarded = saving.GUARDED
_DIFFERENTIABLE = (2, 3)  # categories FLOAT and COMPLEX


def edge(t: Tensor) -> tuple[Node | None, int]:
    """Where the gradient of `t` goes."""
    if not t._rg:
        return None, 0
    if t._base is not None:
        node = node_of_view(t)
    else:
        node = t._node
    if node is not None:
        return node, t._index
    return (None, 0) if t._inherits else (accumulate_of(t), 0)


def record(
    rule: Rule, bindings: dict[str, Any], outputs: Any, nondiff: tuple[int, ...] = ()
) -> None:
    """Make `outputs` (a tensor or a tuple) results of an op on `bindings`, to be differentiated by
    `rule`.
    """
    if type(outputs) is Tensor:
        if outputs._dtype.category not in _DIFFERENTIABLE:
            return
        if not (nondiff or _guarded):
            written = rule.recorder or unrolled.recorder_of(rule)
            if written is not None and written(bindings, outputs, _frame(2)):
                return
    elif type(outputs) is tuple and not _guarded:
        written = rule.several or unrolled.several_of(rule, len(outputs), nondiff)
        if written is not None and written(bindings, outputs, _frame(2)):
            return
    node = begin(rule, bindings)
    if node is not None:
        finish(node, outputs, nondiff)


def begin(rule: Rule, bindings: dict[str, Any], target: Tensor | None = None) -> OpNode | None:
    """A node with its edges and saved inputs; None where no input that the rule knows requires
    grad.

    `target`: the first argument, if the op is about to write to it.
    """
    for name, other in rule.numbers.items():
        if not isinstance(bindings.get(name), (Tensor, type(None))):
            return begin(other, bindings, target)
    edges: list[Any] = []
    mask = []
    needed = False
    alone = len(rule.names) == 1
    spans: dict[str, int] | None = None
    for name in rule.names:
        value = bindings.get(name)
        if isinstance(value, Tensor):
            e = edge(value)
            edges += e
            needed |= value._rg
            # An input that requires grad may have nowhere to send it: a view made under no_grad.
            # PyTorch then saves for it only where it is the op's only input.
            mask.append(e[0] is not None or (alone and value._rg))
        elif isinstance(value, (list, tuple)):
            pairs = [edge(t) if isinstance(t, Tensor) else (None, 0) for t in value]
            edges += [x for e in pairs for x in e]
            mask.append(any([e[0] is not None for e in pairs]))
            needed |= any([isinstance(t, Tensor) and t._rg for t in value])
            spans = {**(spans or {}), name: len(value)}
        else:
            edges += (None, 0)
            mask.append(False)
    if not needed and (target is None or not target._rg):
        return None
    plan = rule.plan(tuple(mask), bindings)
    node: OpNode = _new(plan.cls)  # type: ignore[assignment]
    init(node, tuple(edges), (), None)  # type: ignore[arg-type]
    node._plan = plan
    node._code, node._lasti = lines.here(2)
    if spans is not None:
        node.more().spans = {n: spans.get(n, 1) for n in rule.names}
    if target is not None:
        bindings = _for_write(node, bindings, target)
    if plan.slots:
        _save_inputs(node, plan, bindings)
    return node


def _for_write(node: OpNode, bindings: dict[str, Any], target: Tensor) -> dict[str, Any]:
    """The bindings of an in-place op: with a clone of the old values where a formula reads them."""
    own = next(iter(bindings))
    plan = node._plan
    extra = node.more()
    if own in plan.rule.names:
        spans = extra.spans or {}
        extra.own = sum([spans.get(n, 1) for n in plan.rule.names[: plan.rule.names.index(own)]])
    else:
        extra.own = len(node._edges) >> 1
        extra.zeroed = True
        node._edges += edge(target)
    if any([s.kind == ARG and s.of == own for s in plan.slots]):
        return {**bindings, own: target.clone()}
    return bindings


def _save_inputs(node: OpNode, plan: Plan, bindings: dict[str, Any]) -> None:
    kept: list[Any] = []
    for kind, _, of, meta in plan.slots:
        if kind == ARG:
            kept += saving.keep(node, bindings[of])
        elif kind == ARG_META:
            kept += (meta_of(bindings[of], meta), None)
        elif kind == CONSTANT:
            kept += (of, None)
        else:
            kept += (None, None)  # a result: when there is one
    node._saved = kept


def finish(node: OpNode, outputs: Any, nondiff: tuple[int, ...] = ()) -> None:
    """Save what the formulas read of the outputs, and make the node their grad_fn."""
    several = isinstance(outputs, (tuple, list))
    results = outputs if several else (outputs,)
    first = results[0]
    node._shape, node._dtype = shape_of(first), first._dtype
    if several:
        extra = node._extra = node._extra or Extra()
        extra.metas = tuple([(shape_of(t), t._dtype) for t in results])
    for i, t in enumerate(results):
        if t._dtype.category in _DIFFERENTIABLE and i not in nondiff:
            t._rg = True
            t._node = node
            t._index = i
    save_results(node, results)
    if lines.TRACE:
        node.more().trace = lines.trace()


def save_results(node: OpNode, results: Sequence[Tensor]) -> None:
    """Save what the formulas read of the outputs."""
    kept = node._saved
    for i, (kind, _, of, meta) in enumerate(node._plan.slots):
        if kind == RESULT:
            kept[2 * i : 2 * i + 2] = saving.keep(node, results[of], of)
        elif kind == RESULT_META:
            kept[2 * i] = meta_of(results[of], meta)
