"""The functions that record and run the nodes of ops, written out: no loops over names and slots.

A small op spends more time in such loops than in its kernel. What runs the nodes of a plan is
written when the first of them runs; what records those of a rule, after a few uses of it:
until then, and for what it doesn't cover, there is the general way in `record`. Both are compiled
text, with its lines in tracebacks and debuggers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from skimp._engine.autograd import engine, errors, modes, node_lines as lines, saving
from skimp._engine.autograd.nodes import Extra, Grads, Node, accumulate_of, sequence, shape_of
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rules import (
    ARG,
    ARG_META,
    CONSTANT,
    RESULT,
    RESULT_META,
    Plan,
    Rule,
    Slot,
    Step,
)
from skimp._engine.generated import compiled
from skimp._engine.tensor.tensor import Tensor

USES: Final = 16  # of a rule before it is written out: compiling takes as long as 50 to 100 uses

Recorder = Callable[[dict[str, Any], Any, Any], bool]
Runner = Callable[[Any, Grads, set[Node] | None], Any]


def recorder_of(rule: Rule) -> Recorder | None:
    """The recorder of a rule that has none; None until it has been used for a while."""
    rule.uses += 1
    if rule.uses < USES or not rule.masks:
        return None
    rule.recorder = made = recorder(rule)
    return made


def several_of(rule: Rule, count: int, nondiff: tuple[int, ...]) -> Recorder | None:
    """`recorder_of`, of a rule whose op has several outputs."""
    rule.uses += 1
    if rule.uses < USES or not rule.masks:
        return None
    rule.several = made = recorder(rule, _of_outputs(count, nondiff))
    return made


# a recorder's first lines, those that give each output its history, and an output's name
_Outputs = tuple[list[str], list[str], str]
_OF_OUTPUT: Final[_Outputs] = (
    ["def record(given, out, frame):"],
    ["node._extra = None", "out._rg = True", "out._node = node", "out._index = 0"],
    "out",
)


def _of_outputs(count: int, nondiff: tuple[int, ...]) -> _Outputs:
    head = [
        "def record(given, outs, frame):",
        f"    if len(outs) != {count}:",
        "        return False",
        "    out = outs[0]",
    ]
    tail = [
        "node._extra = extra = Extra()",
        "extra.metas = tuple([(shape_of(t), t._dtype) for t in outs])",
    ]
    for i in range(count):
        if i not in nondiff:
            tail += [
                f"t = outs[{i}]",
                "if 1 < t._dtype.category < 4:",
                "    t._rg = True",
                "    t._node = node",
                f"    t._index = {i}",
            ]
    return head, tail, "outs[{}]"


def recorder(rule: Rule, outputs: _Outputs = _OF_OUTPUT) -> Recorder:
    """`record` for one fresh output, or a tuple of them: f(bindings, output, frame of the call or
    above).

    It knows the plans that the rule has had by now. False, with nothing done, where it is asked for
    another one, for lists of tensors, or where an input's gradient has nowhere to go.
    """
    head, tail, results = outputs
    plans = dict(sorted(rule.masks.items(), reverse=True))
    kept = {s.of for plan in plans.values() for s in plan.slots if s.kind in (ARG, ARG_META)}
    local = {name: f"x{i}" for i, name in enumerate(dict.fromkeys([*rule.names, *sorted(kept)]))}
    space: dict[str, Any] = {
        "Extra": Extra,
        "Tensor": Tensor,
        "accumulate_of": accumulate_of,
        "cls": rule.node_class(),
        "keep": saving.keep,
        "meta_of": saving.meta_of,
        "next_number": sequence.__next__,
        "node_of_view": node_of_view,
        "outside": lines.outside,
        "recorder_of": recorder_of,
        "shape_of": shape_of,
        "users": lines.OUTSIDE,
    }
    text = [*head, *[f"    {x} = given.get({name!r})" for name, x in local.items()], "    bits = 0"]
    for i, name in enumerate(rule.names):
        x = local[name]
        text += [
            f"    if isinstance({x}, Tensor):",
            f"        if {x}._rg:",
            f"            bits |= {1 << i}",
            f"    elif isinstance({x}, (list, tuple)):",
            "        return False",
        ]
        if name in rule.numbers and outputs is _OF_OUTPUT:
            space[f"of_{x}"] = rule.numbers[name]
            text += [
                f"    elif {x} is not None:",
                f"        f = of_{x}.recorder or recorder_of(of_{x})",
                "        return f is not None and f(given, out, frame)",
            ]
    text.append("    if not bits:")
    text.append("        return True")
    for bits, plan in plans.items():
        space[f"plan{bits}"] = plan
        text += [f"    {'elif' if bits != next(iter(plans)) else 'if'} bits == {bits}:"]
        text += [f"        {line}" for line in _of_plan(plan, bits, local, space, results)]
    text += [
        "    else:",
        "        return False",
        "    node._number = next_number()",
        "    node._shape = shape_of(out)",
        "    node._dtype = out._dtype",
        "    code = frame.f_code",
        "    if code.co_filename in users:",
        "        node._code = code",
        "        node._lasti = frame.f_lasti",
        "    else:",
        "        node._code, node._lasti = outside(frame)",
        *[f"    {line}" for line in tail],
        "    return True",
    ]
    return compiled("record", text, space, f"{rule.name} ")  # type: ignore[no-any-return]


def _of_plan(
    plan: Plan, bits: int, local: dict[str, str], space: dict[str, Any], results: str
) -> list[str]:
    """The lines that make a plan's node, with its edges and what it keeps; `results`: how the text
    names an output, by its number.
    """
    text = []
    edges = []
    given = [name for name, wanted in zip(plan.rule.names, plan.mask, strict=True) if wanted]
    for name in plan.rule.names:
        x = local[name]
        if name not in given:
            edges.append("None, 0")
            continue
        edges.append(f"n{x}, {x}._index")
        text += [
            f"n{x} = {x}._node if {x}._base is None else node_of_view({x})",
            f"if n{x} is None:",
            f"    if {x}._inherits:",
            "        return False",
            f"    n{x} = accumulate_of({x})",
        ]
    pairs = []
    for i, slot in enumerate(plan.slots):
        if slot.kind == CONSTANT:
            space[f"c{bits}_{i}"] = slot.of
        of_result = slot.kind in (RESULT, RESULT_META)
        x = results.format(slot.of) if of_result else local.get(slot.of, "")
        pairs.append(_kept(slot, f"c{bits}_{i}", x, of_result or slot.of in given))
    return [
        *text,
        "node = cls()",
        f"node._edges = ({', '.join(edges)},)",
        f"node._plan = plan{bits}",
        f"node._saved = [{', '.join(pairs)}]" if pairs else "node._saved = ()",
    ]


def _kept(slot: Slot, constant: str, x: str, known: bool) -> str:
    """The text of a slot's (value, version), of what `x` names. `known`: it is a tensor."""
    if slot.kind == ARG:
        return f"*keep(node, {x})"
    if slot.kind == RESULT:
        return f"*keep(node, {x}, {slot.of})"
    if slot.kind in (ARG_META, RESULT_META):
        if slot.meta == "_shape" and known:
            return f"shape_of({x}), None"
        return f"meta_of({x}, {slot.meta!r}), None"
    return f"{constant}, None"


# -- backward -------------------------------------------------------------------------------------


def runner_of(plan: Plan) -> Runner:
    """What runs the nodes of a plan, written when the first of them runs."""
    plan.runner = made = runner(plan)
    return made


def runner(plan: Plan) -> Runner:
    """Gradients of the inputs from those of the outputs: f(node, gradients, wanted nodes).

    Where an argument is a list of tensors, or an in-place op left no trace, edges and names don't
    go together (`listed`): then all formulas run, and `spread` puts their gradients in order.
    """
    names = sorted({str(r) for step in plan.steps for r in step.reads if not isinstance(r, int)})
    results = [f"r{p}" for p in range(len(plan.rule.names))]
    text = [
        "def run(node, grads, wanted):",
        "    edges = node._edges",
        *[f"    {line}" for line in _gradients(names)],
        "    extra = node._extra",
        "    listed = extra is not None and (extra.spans is not None or extra.zeroed)",
    ]
    if plan.slots:
        text += ["    kept = node._saved", "    if kept is None:", "        raise freed(node)"]
    if any([slot.kind == RESULT for slot in plan.slots]):
        text.append("    revive = state.grad")
    for i, slot in enumerate(plan.slots):
        text += [f"    {line}" for line in _unpacked(i, slot)]
    if results:
        text.append(f"    {' = '.join(results)} = None")
    if plan.rule.releases_early:
        text += ["    if not listed and large(node, g):", "        node._saved = kept = t = None"]
        text += [f"        {line}" for line in _shedding(plan)]
        text.append(f"        return [{', '.join(results)}]")
    for i, step in enumerate(plan.steps):
        text += [f"    {line}" for line in _run(i, step, "listed or ")]
    text += [
        "    if listed:",
        f"        return spread(node, grads, [{', '.join(results)}])",
        f"    return [{', '.join(results)}]",
    ]
    space: dict[str, Any] = {f"f{i}": step.formula for i, step in enumerate(plan.steps)}
    space |= {
        "SPECIAL": saving.SPECIAL,
        "check": saving.check,
        "freed": errors.freed,
        "large": _is_large,
        "revived": saving.revived,
        "slots": plan.slots,
        "spread": _spread,
        "state": modes.state,
        "with_zeros": saving.with_zeros,
    }
    asked = "".join(["x" if wanted else "-" for wanted in plan.mask])
    return compiled("run", text, space, f"{plan.rule.name} {asked} ")  # type: ignore[no-any-return]


def _gradients(names: list[str]) -> list[str]:
    """The lines that give the formulas' gradients their names; none run where none arrived."""
    nothing = "    return (None,) * (len(edges) >> 1)"
    if not [n for n in names if n != "g"]:
        return ["g = grads[0]", "if g is None:", nothing]
    text = ["if not any([g is not None for g in grads]):", nothing]
    text += [f"{n} = grads[{n[1:] or 0}]" for n in names if n != "grads"]
    return [*text, "grads = with_zeros(node, grads)"] if "grads" in names else text


def _unpacked(i: int, slot: Slot) -> list[str]:
    """The lines that take a saved value out, checked."""
    text = [f"v{i} = kept[{2 * i}]"]
    if slot.kind not in (ARG, RESULT):
        return text
    text += [
        f"version = kept[{2 * i + 1}]",
        "if version is None:",
        f"    if type(v{i}) in SPECIAL:",
        f"        v{i} = v{i}.unpack(node)",
        "else:",
        f"    t = v{i}",
        "    if t._storage.version != version or t._cut is not None or t._marked:",
        f"        check(node, slots[{i}], t, version)",
    ]
    if slot.kind == RESULT:
        text += ["    if revive:", f"        v{i} = revived(v{i}, node, {slot.of})"]
    return text


def _run(i: int, step: Step, unless: str = "") -> list[str]:
    """The lines that run a formula if a gradient that it gives is wanted."""
    ends = [
        f"(edges[{2 * p}] is not None and (wanted is None or edges[{2 * p}] in wanted))"
        for p in step.positions
    ]
    call = f"f{i}({', '.join([f'v{r}' if isinstance(r, int) else r for r in step.reads])})"
    made = ", ".join([f"r{p}" for p in step.positions])
    return [f"if {unless}{' or '.join(ends)}:", f"    {made}{',' if step.joint else ''} = {call}"]


def _shedding(plan: Plan) -> list[str]:
    """The lines that run the formulas from the last to the first, each followed by letting go of
    what no other will read.
    """
    text = []
    for i, step in reversed(list(enumerate(plan.steps))):
        later = {r for other in plan.steps[:i] for r in other.reads}
        text += _run(i, step)
        text += [f"v{r} = None" for r in step.reads if isinstance(r, int) and r not in later]
    return text


def _is_large(node: Any, g: Tensor) -> bool:
    """Whether to let go of what was saved formula by formula, not when all have run.

    A product's gradients are as large as its factors. Where the first factor is made again for
    backward (`rematerialize`), its bytes and those of its gradient would be there at once: in a
    transformer that is the peak of the step. So the gradient of the second factor, the small one in
    most programs, is computed first, and what only it reads goes before the next one is made.
    """
    return g._np is None and not g._hollow and bool(node._saved) and not engine.retains()


def _spread(node: Node, grads: Grads, found: list[Any]) -> list[Any]:
    """The gradients by edge, of those by name, where a list of tensors has an edge for each of
    them, or an in-place op left no trace of what it wrote to.
    """
    extra = node.more()
    out: list[Any] = []
    for name, r in zip(node._plan.rule.names, found, strict=True):
        n = 1 if extra.spans is None else extra.spans[name]
        out.extend([None] * n if r is None else r if isinstance(r, (list, tuple)) else [r])
    if extra.zeroed:
        like = next(g for g in grads if g is not None)
        out.append(like.new_zeros((), dtype=node._dtype).expand(node._shape))
    return out
