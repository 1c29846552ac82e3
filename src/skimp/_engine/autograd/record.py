"""Recording: from a rule, an op's arguments and its outputs, the node that will differentiate it.

A `Recording` is how the calls of one op are recorded: it gets an output and the arguments by place,
and is loops until it has been used for a while, then text without loops (`recorder.py`), or C where
that is compiled (`described.py`). `record`
takes arguments by name. In-place ops begin before the write and finish after it (`begin`,
`finish`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from skimp._engine.autograd import described, node_lines as lines, recorder, runner, saving
from skimp._engine.autograd.nodes import FOLDED, init, shape_of
from skimp._engine.autograd.op_node import OpNode
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.refresh import edge
from skimp._engine.autograd.rules import ARG, ARG_META, CONSTANT, RESULT, RESULT_META, Plan, Rule
from skimp._engine.autograd.saving import meta_of
from skimp._engine.memory.storage import sequence
from skimp._engine.tensor.tensor import Tensor

_new = object.__new__
_DIFFERENTIABLE = (2, 3)  # categories FLOAT and COMPLEX
_COUNTS: Final = 16  # numbers of outputs for which one rule is written out
USES: Final = 16  # of a recording before it is written out: compiling takes as long as 50 to 100


class Recording:
    """How calls of an op are recorded, whose arguments have these names.

    `record(outputs, *arguments)` makes `outputs` (a tensor or a tuple) results of an op on the
    arguments, to be differentiated by the rule; it is another function once this has been used.
    """

    __slots__ = ("_uses", "_written", "names", "nondiff", "record", "rule")

    def __init__(self, rule: Rule, names: tuple[str, ...], nondiff: tuple[int, ...]) -> None:
        self.rule = rule
        self.names = names
        self.nondiff = nondiff  # indices of outputs without a gradient
        self.forget()

    def forget(self) -> None:
        """Count from the beginning: the rule has a plan that what was written does not know."""
        self._uses = 0
        self._written: dict[int | None, Any] = {}  # by the number of outputs
        self.record = self._counted

    def _counted(self, outputs: Any, *values: Any) -> None:
        self.loops(outputs, *values)
        self._uses += 1
        if self._uses >= USES and (self.rule.masks or self.rule.numbers):
            self._write(outputs)

    def _write(self, outputs: Any) -> Any:
        count = len(outputs) if isinstance(outputs, tuple) else None
        made = recorder.written if described.IN_C is None else described.in_c
        self.record = self._written[count] = made(self, count)
        return self.record

    def others(self, outputs: Any, *values: Any) -> None:
        """`record` for another number of outputs than the last time: of a few, each has a text."""
        written = self._written.get(len(outputs))
        if written is None and len(self._written) < _COUNTS:
            written = self._write(outputs)
        (self.loops if written is None else written)(outputs, *values)

    def loops(self, outputs: Any, *values: Any) -> None:
        """`record` for any arguments and outputs."""
        if isinstance(outputs, Tensor) and outputs._dtype.category not in _DIFFERENTIABLE:
            return
        node = begin(self.rule, dict(zip(self.names, values, strict=True)))
        if node is not None:
            finish(node, outputs, self.nondiff)

    def of_number(self, rule: Rule) -> Recording:
        """The same op where an argument is a number, with the rule for that."""
        return recording(rule, self.names, self.nondiff)


def recording(rule: Rule, names: tuple[str, ...], nondiff: tuple[int, ...] = ()) -> Recording:
    """The one recording of a rule for arguments of these names."""
    key = names if not nondiff else (names, nondiff)
    found: Recording | None = rule.recordings.get(key)
    if found is None:
        found = rule.recordings[key] = Recording(rule, names, nondiff)
    return found


def record(
    rule: Rule, bindings: dict[str, Any], outputs: Any, nondiff: tuple[int, ...] = ()
) -> None:
    """Make `outputs` (a tensor or a tuple) results of an op on `bindings`, to be differentiated by
    `rule`.
    """
    names = tuple(bindings)
    found = rule.recordings.get(names if not nondiff else (names, nondiff))
    (found or recording(rule, names, nondiff)).record(outputs, *bindings.values())


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
    lists: dict[str, int] = {}
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
            lists[name] = len(value)
        else:
            edges += (None, 0)
            mask.append(False)
    if not needed and (target is None or not target._rg):
        return None
    plan = rule.plan(tuple(mask), bindings, tuple(lists))
    if not hasattr(plan, "run"):
        runner.give(plan)
    if rule.unfolds is not None:
        for _ in range(FOLDED):
            next(sequence)
    node: OpNode = _new(plan.cls)  # type: ignore[assignment]
    init(node, tuple(edges), (), None)  # type: ignore[arg-type]
    node._skimp_plan = plan
    node._skimp_code, node._skimp_lasti = lines.here()
    if lists:
        node._skimp_spans = lists
    if target is not None:
        bindings = _for_write(node, bindings, target)
    if plan.slots:
        _save_inputs(node, plan, bindings)
    return node


def _for_write(node: OpNode, bindings: dict[str, Any], target: Tensor) -> dict[str, Any]:
    """The bindings of an in-place op: with a clone of the old values where a formula reads them."""
    own = next(iter(bindings))
    plan = node._skimp_plan
    names = plan.rule.names
    extra = node._skimp_more()
    if own in names:
        extra.own = names.index(own)
        if plan.lists and extra.own:
            extra.own = sum([node._skimp_spans.get(n, 1) for n in names[: extra.own]])
    else:
        extra.own = len(node._skimp_edges) >> 1
        extra.zeroed = True
        node._skimp_edges += edge(target)
    for kind, _, of, _ in plan.slots:
        if kind == ARG and of == own:
            return {**bindings, own: ops.clone(target)}
    return bindings


def _save_inputs(node: OpNode, plan: Plan, bindings: dict[str, Any]) -> None:
    saved: list[Any] = []
    for kind, _, of, meta in plan.slots:
        if kind == ARG:
            saved += saving.save(node, bindings[of])
        elif kind == ARG_META:
            saved += (meta_of(bindings[of], meta), None)
        elif kind == CONSTANT:
            saved += (of, None)
        else:
            saved += (None, None)  # a result: when there is one
    node._skimp_saved = saved


def finish(node: OpNode, outputs: Any, nondiff: tuple[int, ...] = ()) -> None:
    """Save what the formulas read of the outputs, and make the node their grad_fn."""
    several = isinstance(outputs, (tuple, list))
    results = outputs if several else (outputs,)
    first = results[0]
    node._skimp_shape, node._skimp_dtype = shape_of(first), first._dtype
    if several:
        node._skimp_outputs = tuple([(shape_of(t), t._dtype) for t in results])
    for i, t in enumerate(results):
        if t._dtype.category in _DIFFERENTIABLE and i not in nondiff:
            t._rg = True
            t._skimp_node = node
            t._skimp_index = i
    save_results(node, results)
    if lines.TRACE:
        node._skimp_more().trace = lines.trace()


def save_results(node: OpNode, results: Sequence[Tensor]) -> None:
    """Save what the formulas read of the outputs."""
    saved = node._skimp_saved
    for i, (kind, _, of, meta) in enumerate(node._skimp_plan.slots):
        if kind == RESULT:
            saved[2 * i : 2 * i + 2] = saving.save(node, results[of], of)
        elif kind == RESULT_META:
            saved[2 * i] = meta_of(results[of], meta)
