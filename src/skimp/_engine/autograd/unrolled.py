"""The two functions that every call of an op with a rule goes through, written out for a plan.

What records a node and what runs it is a loop over the rule's names and the plan's slots; a small
op spends more time in these loops than in its kernel. A plan that has been used a few times gets
both as text without loops, compiled. What they don't cover is left to the general way in `record`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from skimp._engine.autograd import errors, modes, saving
from skimp._engine.autograd import node_lines as lines
from skimp._engine.autograd.nodes import accumulate_of, sequence
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rules import ARG, ARG_META, RESULT, RESULT_META, Plan, Slot
from skimp._engine.generated import compiled
from skimp._engine.tensor.tensor import Tensor

USES: Final = 16  # of a plan before it is written out: compiling takes as long as 50 to 100 uses

Recorder = Callable[[dict[str, Any], Tensor, Any], bool]
Runner = Callable[[Any, Any, Any], Any]


def recorder(plan: Plan) -> Recorder:
    """`record` for one fresh output: f(bindings, output, frame of the call).

    False, with nothing done, where an input's gradient has nowhere to go.
    """
    names = plan.rule.names
    given = [n for n, wanted in zip(names, plan.mask, strict=True) if wanted]
    read = {s.of for s in plan.slots if s.kind in (ARG, ARG_META)}
    local = {name: f"x{i}" for i, name in enumerate(dict.fromkeys([*given, *sorted(read)]))}
    edges = []
    text = ["def record(given, out, frame):"]
    for name, x in local.items():
        text.append(f"    {x} = given.get({name!r})")
        if name in given:
            text += [
                f"    n{x} = {x}._node if {x}._base is None else node_of_view({x})",
                f"    if n{x} is None:",
                f"        if {x}._inherits:",
                "            return False",
                f"        n{x} = accumulate_of({x})",
            ]
    for name, wanted in zip(names, plan.mask, strict=True):
        edges.append(f"n{local[name]}, {local[name]}._index" if wanted else "None, 0")
    text += [
        "    node = cls()",
        f"    node._edges = ({', '.join(edges)},)",
        "    node._plan = plan",
        "    node._extra = None",
        "    node._number = next_number()",
        "    array = out._np",
        "    node._shape = array.shape if array is not None else out._layout.shape",
        "    node._dtype = out._dtype",
        "    node._code, node._lasti = outside(frame)",
    ]
    pairs = [
        _kept(i, slot, local.get(slot.of, ""), slot.of in given, text)
        for i, slot in enumerate(plan.slots)
    ]
    text += [
        f"    node._saved = [{', '.join(pairs)}]",
        "    out._rg = True",
        "    out._node = node",
        "    out._index = 0",
        "    return True",
    ]
    space = {
        "Tensor": Tensor,
        "accumulate_of": accumulate_of,
        "cls": plan.cls,
        "constants": [slot.of for slot in plan.slots],
        "ghost": saving.ghost,
        "keep": saving.keep,
        "meta_of": saving.meta_of,
        "next_number": sequence.__next__,
        "node_of_view": node_of_view,
        "outside": lines.outside,
        "plan": plan,
    }
    return compiled("record", text, space)  # type: ignore[no-any-return]


def _kept(i: int, slot: Slot, x: str, known: bool, text: list[str]) -> str:
    """Write what keeps a slot; the text of its (value, version). `known`: it is a tensor."""
    if slot.kind == ARG:
        plain = f"{x}._np is not None and not {x}._marked"
        plain = plain if known else f"isinstance({x}, Tensor) and {plain}"
        text += [
            f"    if {plain}:",
            f"        s = {x}._storage",
            "        s.kept = True",
            f"        k{i}, v{i} = {x}, s.version",
            "    else:",
            f"        k{i}, v{i} = keep(node, {x})",
        ]
        return f"k{i}, v{i}"
    if slot.kind == RESULT:
        text += [
            "    if out._marked:",
            f"        k{i}, v{i} = keep(node, out, 0)",
            "    else:",
            "        s = out._storage",
            "        s.kept = True",
            f"        k{i}, v{i} = ghost(out), s.version",
        ]
        return f"k{i}, v{i}"
    if slot.kind in (ARG_META, RESULT_META):
        t = x if slot.kind == ARG_META else "out"
        if slot.meta == "_shape" and (known or t == "out"):
            text += [
                f"    array = {t}._np",
                f"    k{i} = array.shape if array is not None else {t}._layout.shape",
            ]
            return f"k{i}, None"
        return f"meta_of({t}, {slot.meta!r}), None"
    return f"constants[{i}], None"


def runner(plan: Plan, general: Runner) -> Runner:
    """`OpNode.apply` for nodes of one output.

    Those with lists among their inputs, without a gradient, or that shed, go to `general`; so do
    all where the formulas want more than the gradient of one output.
    """
    if not plan.single:
        return general
    count = len(plan.rule.names)
    large = " or g._np is None" if plan.rule.sheds else ""
    text = [
        "def run(node, grads, wanted):",
        "    g = grads[0]",
        "    edges = node._edges",
        f"    if g is None or len(edges) != {2 * count}{large}:",
        "        return general(node, grads, wanted)",
    ]
    if plan.slots:
        text += [
            "    kept = node._saved",
            "    if kept is None:",
            "        raise freed(node)",
        ]
        if any([slot.kind == RESULT for slot in plan.slots]):
            text.append("    revive = state.grad")
    for i, slot in enumerate(plan.slots):
        text.append(f"    v{i} = kept[{2 * i}]")
        if slot.kind not in (ARG, RESULT):
            continue
        text += [
            f"    version = kept[{2 * i + 1}]",
            "    if version is None:",
            f"        if type(v{i}) in SPECIAL:",
            f"            v{i} = v{i}.unpack(node)",
            "    else:",
            f"        t = v{i}",
            "        if t._storage.version != version or t._cut is not None or t._marked:",
            f"            check(node, slots[{i}], t, version)",
        ]
        if slot.kind == RESULT:
            text += ["        if revive:", f"            v{i} = revived(v{i}, node, {slot.of})"]
    results = ["None"] * count
    for i, step in enumerate(plan.steps):
        ends = [
            f"(edges[{2 * p}] is not None and (wanted is None or edges[{2 * p}] in wanted))"
            for p in step.positions
        ]
        call = f"f{i}({', '.join(['g' if r == 0 else f'v{r - 1}' for r in step.reads])})"
        made = [f"r{p}" for p in step.positions]
        for p, r in zip(step.positions, made, strict=True):
            results[p] = r
        text += [f"    {' = '.join(made)} = None", f"    if {' or '.join(ends)}:"]
        if step.joint:
            text.append(f"        {', '.join(made)}, = {call}")
        else:
            text += [
                f"        {made[0]} = {call}",
                f"        if type({made[0]}) is list:",
                f"            {made[0]} = {made[0]}[0]",
            ]
    text.append(f"    return [{', '.join(results)}]")
    space: dict[str, Any] = {f"f{i}": step.formula for i, step in enumerate(plan.steps)}
    space |= {
        "SPECIAL": saving.SPECIAL,
        "check": saving.check,
        "freed": errors.freed,
        "general": general,
        "revived": saving.revived,
        "slots": plan.slots,
        "state": modes.state,
    }
    return compiled("run", text, space)  # type: ignore[no-any-return]
