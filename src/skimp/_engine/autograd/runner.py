"""What runs the nodes of a plan, written out: no loops over names, slots and formulas.

It is written when the first of the nodes runs: it takes what was saved out, checks it, runs the
formulas whose gradients are wanted, and lets what was saved go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.autograd import errors, modes, saving
from skimp._engine.autograd.nodes import Grads, Node
from skimp._engine.autograd.ops import zero
from skimp._engine.autograd.rules import ARG, OF_NODE, RESULT, Plan, Slot, Step, passes_on
from skimp._engine.generated import function_of
from skimp._engine.interrupts import insist
from skimp._engine.memory.ledger import host
from skimp._engine.tensor.tensor import Tensor

Runner = Callable[[Any, Grads, set[Node] | None, bool], Any]


def give(plan: Plan) -> None:
    """Set `plan.run`, which is written when it is called first."""

    def first(node: Any, grads: Grads, wanted: set[Node] | None, keep: bool) -> Any:
        plan.run = runner(plan)
        return plan.run(node, grads, wanted, keep)

    plan.run = first


def runner(plan: Plan) -> Runner:
    """Gradients of the inputs from those of the outputs: f(node, gradients, wanted nodes, whether
    what was saved stays).

    Where an argument is a list of tensors, or an in-place op left no trace, edges and names don't
    go together: then all formulas run, and `spread` puts their gradients in order.
    """
    read = {r for step in plan.steps for r in step.reads}
    names = sorted([r for r in read if isinstance(r, str) and r not in OF_NODE])
    results = [f"r{p}" for p in range(len(plan.rule.names))]
    made = f"[{', '.join(results)}]"
    text = ["def function(node, grads, wanted, keep):", "    edges = node._skimp_edges"]
    if plan.slots or plan.frees:
        text += [
            "    saved = node._skimp_saved",
            "    if saved is None:",
            "        raise freed(node)",
        ]
    text += [f"    {line}" for line in _gradients(names, _released(plan))]
    folded = plan.rule.unfolds is not None
    if folded:
        text += ["    if state.grad or type(g) is not Tensor:"]
        text += [f"        {line}" for line in _UNFOLDED]
    if any([slot.kind == RESULT for slot in plan.slots]):
        text.append("    revive = state.grad")
    for i, slot in enumerate(plan.slots):
        text += [f"    {line}" for line in _unpacked(i, slot, folded)]
    if results:
        text.append(f"    {' = '.join(results)} = None")
    unless = ""
    if not plan.lists:
        text.append("    traceless = node._skimp_extra is not None and node._skimp_extra.zeroed")
        unless = "traceless or "
        text += [f"    {line}" for i, slot in enumerate(plan.slots) for line in _narrowed(i, slot)]
        if plan.rule.releases_early and plan.slots:
            text += _early(plan, made, names)
    for i, step in enumerate(plan.steps):
        text += [f"    {line}" for line in _run(plan, i, step, None if plan.lists else unless)]
    text += [f"    {line}" for line in _released(plan)]
    if plan.lists:
        text.append(f"    return spread(node, grads, {made})")
    else:
        text += ["    if traceless:", f"        return spread(node, grads, {made})"]
        text.append(f"    return {made}")
    space: dict[str, Any] = {f"f{i}": step.formula for i, step in enumerate(plan.steps)}
    space |= {
        "SPECIAL": saving.SPECIAL,
        "Tensor": Tensor,
        "check": saving.check,
        "freed": errors.freed,
        "host": host,
        "insist": insist,
        "names": tuple(plan.rule.names),
        "revived": saving.revived,
        "slots": plan.slots,
        "spread": _spread,
        "state": modes.state,
        "with_zeros": saving.with_zeros,
    }
    return function_of(f"run_{plan.rule.name}", text, space)


def _gradients(names: list[str], released: list[str]) -> list[str]:
    """The lines that give the formulas' gradients their names; none run where none arrived."""
    nothing = [f"    {line}" for line in (*released, "return (None,) * (len(edges) >> 1)")]
    if not [n for n in names if n != "g"]:
        return ["g = grads[0]", "if g is None:", *nothing]
    text = ["if not any([g is not None for g in grads]):", *nothing]
    text += [f"{n} = grads[{n[1:] or 0}]" for n in names if n != "grads"]
    return [*text, "grads = with_zeros(node, grads)"] if "grads" in names else text


def _released(plan: Plan) -> list[str]:
    """The lines of `OpNode._skimp_release`, unless what was saved is to stay."""
    if plan.frees:
        return ["if not keep:", "    node._skimp_saved = None"]
    if not plan.frees_if_tensor:
        return []
    held = [
        f"saved[{i + 1}] is not None or type(saved[{i}]) in SPECIAL" for i in plan.frees_if_tensor
    ]
    return [f"if not keep and ({' or '.join(held)}):", "    node._skimp_saved = None"]


# where a node that stands for several is not as usual
_UNFOLDED = ("node._skimp_unfold(wanted)", "return node._skimp_plan.run(node, grads, wanted, keep)")


def _unpacked(i: int, slot: Slot, folded: bool) -> list[str]:
    """The lines that take a saved value out, checked."""
    text = [f"v{i} = saved[{2 * i}]"]
    if slot.kind not in (ARG, RESULT):
        return text
    text += [
        f"version = saved[{2 * i + 1}]",
        "if version is None:",
        f"    if type(v{i}) in SPECIAL:",
        f"        v{i} = v{i}.unpack(node)",
        "else:",
        f"    t = v{i}",
        "    if t._storage.version != version or t._skimp_cut is not None or t._skimp_marked:",
        *[f"        {line}" for line in _UNFOLDED if folded],
        f"        check(node, slots[{i}], t, version)",
    ]
    if slot.kind == RESULT:
        text += ["    if revive:", f"        v{i} = revived(v{i}, node, {slot.of})"]
    return text


def _narrowed(i: int, slot: Slot) -> list[str]:
    """The lines that leave those `needs` whose gradients this backward wants."""
    if slot.name != "needs":
        return []
    return [
        "if wanted is not None and not traceless:",
        f"    v{i} = v{i}.intersection([n for n, to in zip(names, edges[::2]) if to in wanted])",
    ]


def _run(plan: Plan, i: int, step: Step, unless: str | None = "") -> list[str]:
    """The lines that run a formula if a gradient that it gives is wanted; `unless` None: always."""
    if passes_on(step.formula):
        call = "g"
    else:
        call = f"f{i}({', '.join([f'v{r}' if isinstance(r, int) else r for r in step.reads])})"
    made = ", ".join([f"r{p}" for p in step.positions])
    given = [f"{made}{',' if step.joint else ''} = {call}"]
    if plan.rule.at_once:
        given = _working(plan, step, given[0])
    if unless is None:
        return given
    ends = [
        f"(edges[{2 * p}] is not None and (wanted is None or edges[{2 * p}] in wanted))"
        for p in step.positions
    ]
    return [f"if {unless}{' or '.join(ends)}:", *[f"    {line}" for line in given]]


def _working(plan: Plan, step: Step, run: str) -> list[str]:
    """The lines that have all that a formula reads there before it begins, and until it is over:
    else it would have the first in use while the others are made again.
    """
    slots = plan.slots
    read = [r if isinstance(r, str) else f"v{r}" for r in step.reads
            if r != "node" and (isinstance(r, str) or slots[r].kind in (ARG, RESULT))]  # fmt: skip
    given = f"({', '.join(read)},)"
    return [
        f"working = None if host.budget is None else host.budget.working({given})",
        "try:",
        "    if working is not None:",
        f"        working.gather({given})",
        f"    {run}",
        "finally:",
        "    if working is not None:",
        "        insist(working.end)",
    ]


def _early(plan: Plan, made: str, grads: list[str]) -> list[str]:
    """The lines that let go of what was saved formula by formula, not when all have run.

    A product's gradients are as large as its factors. Where the first factor is made again for
    backward (`rematerialize`), its bytes and those of its gradient would be there at once: in a
    transformer that is the peak of the step. So the gradient of the second factor, the small one in
    most programs, is computed first, and what only it reads goes before the next one is made. A
    formula for several arguments may find that it is the last reader of a value
    (`last_reader.py`).
    """
    slots = [i for i, slot in enumerate(plan.slots) if slot.kind in (ARG, RESULT)]
    large = [f"(type({g}) is Tensor and {g}._np is None)" for g in grads]
    large += [f"(type(v{i}) is Tensor and v{i}._np is None)" for i in slots]
    unless = ["keep", "traceless", *[f"({g} is not None and {g}._hollow)" for g in grads]]
    return [
        f"    if saved and ({' or '.join(large)}) and not ({' or '.join(unless)}):",
        "        node._skimp_saved = saved = t = None",
        *[f"        {line}" for line in _shedding(plan)],
        f"        return {made}",
    ]


def _shedding(plan: Plan) -> list[str]:
    """The lines that run the formulas from the last to the first, each followed by letting go of
    what no other will read.
    """
    text = []
    for i, step in reversed(list(enumerate(plan.steps))):
        later = {r for other in plan.steps[:i] for r in other.reads}
        text += _run(plan, i, step)
        text += [f"v{r} = None" for r in step.reads if isinstance(r, int) and r not in later]
    return text


def _spread(node: Any, grads: Grads, found: list[Any]) -> list[Any]:
    """The gradients by edge, of those by name, where a list of tensors has an edge for each of
    them, or an in-place op left no trace of what it wrote to.
    """
    out: list[Any] = []
    plan = node._skimp_plan
    for name, r in zip(plan.rule.names, found, strict=True):
        n = node._skimp_spans[name] if name in plan.lists else 1
        out.extend([None] * n if r is None else r if isinstance(r, (list, tuple)) else [r])
    if node._skimp_extra is not None and node._skimp_extra.zeroed:
        like = next(g for g in grads if g is not None)
        out.append(zero(like, node._skimp_shape, node._skimp_dtype))
    return out
