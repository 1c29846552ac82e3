"""Recording: from a rule, an op's arguments and its outputs, the node that will differentiate it.

`record` takes any op; `record1` and `record2` are the short way of pointwise ops with one and two
operands. In-place ops begin before the write and finish after it (`begin`, `finish`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from skimp._engine.autograd import node_lines as lines
from skimp._engine.autograd import saving, unrolled
from skimp._engine.autograd.nodes import (
    Extra,
    Grads,
    Node,
    accumulate_of,
    init,
    sequence,
    shape_of,
)
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.release import shed, sheds
from skimp._engine.autograd.rules import ARG, ARG_META, CONSTANT, RESULT, RESULT_META, Plan, Rule
from skimp._engine.autograd.saving import meta_of
from skimp._engine.autograd.unrolled import USES
from skimp._engine.tensor.tensor import Tensor

_new = object.__new__
_frame = sys._getframe
_next = sequence.__next__
_outside = lines.OUTSIDE
_guarded = saving.GUARDED
_DIFFERENTIABLE = (2, 3)  # categories FLOAT and COMPLEX


class OpNode(Node):
    """The node of an op with a rule; each rule has a subclass of its own, named as in PyTorch."""

    __slots__ = ()
    rule: Rule

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Any:
        """Run the formulas of the inputs that need gradients."""
        plan = self._plan
        run = plan.runner
        if run is None:
            plan.uses += 1
            if plan.uses < USES:
                return self.general(grads, wanted)
            run = plan.runner = unrolled.runner(plan, OpNode.general)
        return run(self, grads, wanted)

    def general(self, grads: Grads, wanted: set[Node] | None) -> Any:
        """`apply` of any node."""
        g = grads[0]
        if g is not None and sheds(self, g):
            return shed(self, g, wanted)
        plan = self._plan
        if plan.single:
            if g is None:
                return (None,) * (len(self._edges) >> 1)
            values: list[Any] = [g]
        else:
            if not any([g is not None for g in grads]):
                return (None,) * (len(self._edges) >> 1)
            values = [
                saving.with_zeros(self, grads) if plan.zeros else grads,
                *grads[: plan.gcount],
            ]
        if plan.slots:
            saving.unpack(self, values)
        edges = self._edges
        names = plan.rule.names
        if len(edges) != 2 * len(names):
            return self._apply_lists(values, wanted)
        out: list[Any] = [None] * len(names)
        for _, positions, formula, reads, joint in plan.steps:
            p = positions[0]
            if joint:
                ends = [edges[2 * q] for q in positions]
                if not any([n is not None and (wanted is None or n in wanted) for n in ends]):
                    continue
                found = formula(*[values[i] for i in reads])
                for q, one in zip(positions, found, strict=True):
                    out[q] = one
                continue
            to = edges[2 * p]
            if to is None or (wanted is not None and to not in wanted):
                continue
            r = formula(*[values[i] for i in reads])
            out[p] = r[0] if type(r) is list else r
        return out

    def _apply_lists(self, values: list[Any], wanted: set[Node] | None) -> list[Any]:
        """The same where an argument is a list of tensors, with an edge for each, or an in-place op
        left no trace.
        """
        plan = self._plan
        extra = self.more()
        spans = extra.spans or dict.fromkeys(plan.rule.names, 1)
        found: dict[str, Any] = {}
        for names, _, formula, reads, joint in plan.steps:
            r = formula(*[values[i] for i in reads])
            found.update(zip(names, r, strict=True) if joint else {names[0]: r})
        out: list[Any] = []
        for name in plan.rule.names:
            n = spans[name]
            r = found.get(name)
            out.extend([None] * n if r is None else r if isinstance(r, (list, tuple)) else [r])
        if extra.zeroed:
            out.append(values[0].new_zeros((), dtype=self._dtype).expand(self._shape))
        return out

    def release(self) -> None:
        """Forget what was saved, if a tensor was among it: what kept only numbers and shapes can
        run again, as in PyTorch.
        """
        plan = self._plan
        if plan.frees or (plan.frees_if_tensor and saving.holds_tensor(self)):
            self._saved = None

    def __getattr__(self, name: str) -> Any:
        return saving.attribute(self, name)


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
    if (
        type(outputs) is Tensor
        and not (nondiff or _guarded or lines.TRACE)
        and outputs._dtype.category in _DIFFERENTIABLE
        and _written_out(rule, bindings, outputs)
    ):
        return
    node = begin(rule, bindings)
    if node is not None:
        finish(node, outputs, nondiff)


def _written_out(rule: Rule, bindings: dict[str, Any], out: Tensor) -> bool:
    """`record` of an op with one result, no lists among its arguments and no hooks about, by its
    plan's own function; False where there is none.
    """
    bits = 0
    bit = 1
    for name in rule.names:
        t = bindings.get(name)
        if isinstance(t, Tensor):
            if t._rg:
                bits |= bit
        elif isinstance(t, (list, tuple)):
            return False
        bit <<= 1
    if not bits:
        return True
    plan = rule.masks.get(bits)
    if plan is None:
        return False
    f = plan.recorder
    if f is None:
        plan.uses += 1
        if plan.uses < USES:
            return False
        f = plan.recorder = unrolled.recorder(plan)
    return f(bindings, out, _frame(2))  # type: ignore[no-any-return]


def begin(rule: Rule, bindings: dict[str, Any], target: Tensor | None = None) -> OpNode | None:
    """A node with its edges and saved inputs; None where no input that the rule knows requires
    grad.

    `target`: the first argument, if the op is about to write to it.
    """
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


# -- the short way ---------------------------------------------------------------------------------


def record1(rule: Rule, a: Tensor, out: Tensor) -> None:
    """`record` for an op whose only argument is a tensor that requires grad."""
    plan = rule.one
    if plan is None:
        plan = rule.one = rule.plan((True,), rule.args[:1])
    codes = plan.codes
    if codes is None or _guarded or a._base is not None:
        record(rule, {rule.args[0]: a}, out)
        return
    node: Any = plan.cls()
    to = a._node
    node._edges = (to, a._index) if to is not None else (accumulate_of(a), 0)
    node._plan = plan
    node._extra = None
    node._saved = saving.keep_fast(codes, a, a, out) if codes else ()
    node._number = _next()
    x = out._np
    node._shape = x.shape if x is not None else out._layout.shape  # type: ignore[union-attr]
    node._dtype = out._dtype
    f = _frame(2)
    code = f.f_code
    if code.co_filename in _outside:
        node._code = code
        node._lasti = f.f_lasti
    else:
        node._code, node._lasti = lines.outside(f)
    out._rg = True
    out._node = node


def record2(rule: Rule, a: Any, b: Any, out: Tensor, which: int) -> None:
    """`record` for two operands, one of which may be a number. `which` requires grad: 1 the first,
    2 the second, 3 both.
    """
    plan = rule.two[which] or _short_plan(rule, which)
    if (
        plan is None
        or _guarded
        or (which != 2 and a._base is not None)
        or (which != 1 and b._base is not None)
    ):
        record(rule, {rule.args[0]: a, rule.args[1]: b}, out)
        return
    codes = plan.codes
    node: Any = plan.cls()
    if which != 2:
        na = a._node
        if na is None:
            na = accumulate_of(a)
            ia = 0
        else:
            ia = a._index
    else:
        na = None
        ia = 0
    if which != 1:
        nb = b._node
        if nb is None:
            node._edges = (na, ia, accumulate_of(b), 0)
        else:
            node._edges = (na, ia, nb, b._index)
    else:
        node._edges = (na, ia, None, 0)
    node._plan = plan
    node._extra = None
    node._saved = saving.keep_fast(codes, a, b, out) if codes else ()
    node._number = _next()
    x = out._np
    node._shape = x.shape if x is not None else out._layout.shape  # type: ignore[union-attr]
    node._dtype = out._dtype
    f = _frame(2)
    code = f.f_code
    if code.co_filename in _outside:
        node._code = code
        node._lasti = f.f_lasti
    else:
        node._code, node._lasti = lines.outside(f)
    out._rg = True
    out._node = node


def _short_plan(rule: Rule, which: int) -> Plan | None:
    """The plan for `record2`; None for a rule that it does not suit."""
    mask = tuple([(which & 1, which & 2)[rule.args.index(n)] > 0 for n in rule.names])
    plan = rule.plan(mask, rule.args)
    if plan.codes is None or len(mask) != 2:
        return None
    rule.two[which] = plan
    return plan
