"""What records the calls of an op, written out: no loops over names and slots.

A small op would spend more time in such loops than in its kernel. The text is written for the plans
that the rule has had by now (which inputs need gradients, which are lists), after a few uses; until
then, and for what it doesn't cover, there is the general way, `Recording.loops`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from skimp._engine.autograd import node_lines as lines, saving
from skimp._engine.autograd.nodes import FOLDED, accumulate_of, shape_of
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rematerialize import AGAIN_FROM, is_made_again
from skimp._engine.autograd.rules import ARG_META, CONSTANT, RESULT, RESULT_META, Plan, Rule, Slot
from skimp._engine.generated import function_of
from skimp._engine.memory.storage import sequence
from skimp._engine.tensor.tensor import Tensor, aliasing, ghost, mark_version

if TYPE_CHECKING:
    from skimp._engine.autograd.record import Recording

Lines = list[str]
# Types of arguments that are no tensors.
_NO_TENSORS: Final = frozenset({type(None), bool, int, float, str})


def written(recording: Recording, count: int | None) -> Any:
    """`recording.record` as text, for one output (`count` is None) or a tuple of so many."""
    rule = recording.rule
    names = recording.names
    local = {name: f"x{i}" for i, name in enumerate(names)}
    every = f"out, {', '.join(local.values())}"
    wanted = (1 << len(rule.names)) - 1
    plans = {b: plan for b, plan in sorted(rule.masks.items(), reverse=True) if b & wanted}
    space = _SPACE | {
        "cls": rule.node_class(),
        "loops": recording.loops,
        "others": recording.others,
    }
    text = [f"def function({every}):", *_outputs(count, every), "    bits = 0"]
    for name, other in rule.numbers.items():
        if name in local:
            space[f"of_{local[name]}"] = recording.of_number(other)
    text += _bits(rule, list(plans.values()), local, every)
    for n, (bits, plan) in enumerate(plans.items()):
        space[f"plan{bits}"] = plan
        text.append(f"    {'elif' if n else 'if'} bits == {bits}:")
        made = _of_plan(plan, bits, local, space, count, every, recording.nondiff)
        text += [f"        {line}" for line in made]
    text += [f"    {'elif' if plans else 'if'} bits & {wanted}:", f"        return loops({every})"]
    first = "out" if count is None else "out0"
    text += ["    else:", "        return"]
    if rule.unfolds is not None:
        text += ["    next_number()"] * FOLDED
    text += [*_PLACE.format(first=first).splitlines(), *_LINE.splitlines()]
    text += [f"    {line}" for line in _histories(count, recording.nondiff)]
    return function_of(f"record_{rule.name}", text, space)


# what the text calls by name, whichever rule it is for
_SPACE: Final[dict[str, Any]] = {
    "Tensor": Tensor,
    "accumulate_of": accumulate_of,
    "caller": lines.caller,
    "ghost": ghost,
    "make": object.__new__,
    "mark_version": mark_version,
    "guarded": saving.GUARDED,
    "here": sys._getframe,
    "inside": lines.INSIDE,
    "is_made_again": is_made_again,
    "keep": saving.save,
    "meta_of": saving.meta_of,
    "next_number": sequence.__next__,
    "node_of_view": node_of_view,
    "numbers": frozenset({int, float, bool, slice, type(None), type(...)}).issuperset,
    "outside": lines.outside,
    "plain": _NO_TENSORS,
    "shape_of": shape_of,
    "strides_of": saving.strides_of,
    "tensors": frozenset({Tensor}).issuperset,
    "users": lines.OUTSIDE,
}


def _outputs(count: int | None, every: str) -> Lines:
    """The lines that look whether the outputs are what the text is for."""
    if count is None:
        return [
            "    if guarded or type(out) is not Tensor:",
            f"        return loops({every})",
            "    if out._dtype.category < 2:",
            "        return",
        ]
    return [
        "    if guarded or not isinstance(out, tuple):",
        f"        return loops({every})",
        f"    if len(out) != {count}:",
        f"        return others({every})",
        f"    {''.join([f'out{i}, ' for i in range(count)])} = out",
    ]


def _bits(rule: Rule, plans: list[Plan], local: dict[str, str], every: str) -> Lines:
    """The lines that look which arguments need gradients; a number goes to the rule for it."""
    text: Lines = []
    masks = [zip(rule.names, plan.mask, strict=True) for plan in plans]
    needing = {name for mask in masks for name, yes in mask if yes}
    for i, name in enumerate(rule.names):
        if name not in local:
            continue
        x = local[name]
        listed = any([name in plan.lists for plan in plans])
        needs = _needs(x, i, len(rule.names) + i if listed else None, every)
        if name in rule.numbers:
            text += [*needs, f"    elif {x} is not None:", f"        return of_{x}.record({every})"]
        elif name in needing:
            text += needs
        else:  # a bias that is None
            text += [f"    if type({x}) not in plain:", *[f"    {line}" for line in needs]]
    return text


def _needs(x: str, at: int, listed: int | None, every: str) -> Lines:
    """The lines that set a bit if the argument `x` needs a gradient; of a list, its edges."""
    text = [
        f"    if isinstance({x}, Tensor):",
        f"        if {x}._rg:",
        f"            bits |= {1 << at}",
    ]
    text.append(f"    elif type({x}) not in plain and isinstance({x}, (list, tuple)):")
    if listed is None:
        return [*text, f"        return loops({every})"]
    return [
        *text,
        f"        bits |= {1 << listed}",
        f"        ends_{x} = []",
        f"        for t in {x}:",
        "            if isinstance(t, Tensor) and t._rg:",
        f"                bits |= {1 << at}",
        *[f"                {line}" for line in _end("t", "n", every)],
        f"                ends_{x} += (n, t._skimp_index)",
        "            else:",
        f"                ends_{x} += (None, 0)",
    ]


def _end(x: str, node: str, every: str) -> Lines:
    """The lines that find where the gradient of a tensor goes."""
    return [
        f"if {x}._base is None or ({x}._skimp_stale == {x}._storage.version"
        f" and {x}._skimp_counter is None):",  # `node_of_view` of what nobody wrote to, written out
        f"    {node} = {x}._skimp_node",
        "else:",
        f"    {node} = node_of_view({x})",
        f"if {node} is None:",
        f"    if {x}._skimp_inherits:",  # nowhere: a view made under no_grad
        f"        return loops({every})",
        f"    {node} = {x}._skimp_accumulate",  # `accumulate_of`, of one that is there, written out
        f"    {node} = {node} and {node}() or accumulate_of({x})",
    ]


def _of_plan(
    plan: Plan,
    bits: int,
    local: dict[str, str],
    space: dict[str, Any],
    count: int | None,
    every: str,
    nondiff: tuple[int, ...],
) -> Lines:
    """The lines that make a plan's node, with its edges and what it keeps."""
    text: Lines = []
    edges = []
    wanted = {n for n, yes in zip(plan.rule.names, plan.mask, strict=True) if yes}
    tensors = wanted - set(plan.lists)
    for name in plan.rule.names:
        if name in plan.lists:
            edges.append(f"*ends_{local[name]}")
        elif name in wanted:
            x = local[name]
            text += _end(x, f"n{x}", every)
            edges.append(f"n{x}, {x}._skimp_index")
        else:
            edges.append("None, 0")
    text += [
        "node = cls()",
        f"node._skimp_edges = ({', '.join(edges)},)",
        f"node._skimp_plan = plan{bits}",
    ]
    if plan.lists:
        spans = ", ".join([f"{name!r}: len({local[name]})" for name in plan.lists])
        text.append(f"node._skimp_spans = {{{spans}}}")
    pairs = []
    for i, slot in enumerate(plan.slots):
        if slot.kind == CONSTANT:
            space[f"c{bits}_{i}"] = slot.of
            pairs.append(f"c{bits}_{i}, None")
            continue
        x = f"out{slot.of}" if count is not None else "out"
        x = x if slot.kind in (RESULT, RESULT_META) else local[slot.of]
        # without a history, which would keep the node alive, a result is saved as it is
        bare = slot.kind == RESULT and slot.of in nondiff
        found, pair = _kept(slot, i, x, slot.of in tensors or bare, slot.of in plan.lists, bare)
        text += found
        pairs.append(pair)
    text.append(f"node._skimp_saved = [{', '.join(pairs)}]" if pairs else "node._skimp_saved = ()")
    return text


def _kept(
    slot: Slot, i: int, x: str, is_tensor: bool, listed: bool, bare: bool
) -> tuple[Lines, str]:
    """The lines that keep a slot's value, and the text of its (value, version).

    A small plain tensor is saved here, any other by `saving.save`.
    """
    if slot.kind in (ARG_META, RESULT_META):
        known = is_tensor or slot.kind == RESULT_META
        general = f"meta_of({x}, {slot.meta!r})"
        if slot.meta == "_shape" and listed:
            shape = "t._skimp_layout.shape if t._np is None else t._np.shape"
            return [], f"[{shape} for t in {x}] if tensors(map(type, {x})) else {general}, None"
        if slot.meta == "_shape" and known:
            return [], f"shape_of({x}) if {x}._np is None else {x}._np.shape, None"
        if slot.meta == "_strides" and known:  # of a leaf it is there after the first time
            return [], f"{x}._skimp_layout.strides if {x}._skimp_layout else strides_of({x}), None"
        return [], f"{general}, None"
    result = slot.kind == RESULT
    general = f"keep(node, {x}{f', {slot.of}' if result else ''})"
    plain = ["    s = " + x + "._storage", "    s.saved = True", f"    w{i} = s.version"]
    if result and not bare:
        alias = aliasing(
            f"ghost({x})", f"k{i}", x, f"{x}._np", f"{x}._skimp_layout", f"{x}._skimp_turned"
        )
        plain += [f"    {line}" for line in alias]
    else:
        plain.append(f"    k{i} = {x}")
    text = [
        f"if {x}._np is None or ({x}._skimp_marked and"
        f" ({x}._skimp_counter is not None or {x}._skimp_inference))"
        f"{'' if result else f' or ({x}._np.nbytes >= {AGAIN_FROM} and is_made_again({x}))'}:",
        f"    k{i}, w{i} = {general}",
        "else:",
        *plain,
    ]
    if not (is_tensor or result):
        text = [
            f"k{i} = {x}",
            f"w{i} = None",
            f"if type({x}) not in plain:",
            f"    if isinstance({x}, Tensor):",
            *[f"        {line}" for line in text],
            f"    elif isinstance({x}, (list, tuple)) and not numbers(map(type, {x})):",
            f"        k{i}, w{i} = {general}",
        ]
    return text, f"k{i}, w{i}"


# the number, and what the first output is like
_PLACE = """\
    node._skimp_number = next_number()
    a = {first}._np
    node._skimp_shape = a.shape if a is not None else {first}._skimp_layout.shape
    node._skimp_dtype = {first}._dtype"""
# the user's line
_LINE_IN_C = """\
    node._skimp_code, node._skimp_lasti = caller(here(2), inside, users) or outside(here(2))"""
_LINE_IN_PYTHON = """\
    frame = here(2)
    code = frame.f_code
    name = code.co_filename
    if name in users:
        node._skimp_lasti = frame.f_lasti
    else:
        while name in inside and (back := frame.f_back) is not None:
            frame = back
            code = frame.f_code
            name = code.co_filename
        if name in users:
            node._skimp_lasti = frame.f_lasti
        else:
            code, node._skimp_lasti = outside(frame)
    node._skimp_code = code"""
_LINE = _LINE_IN_PYTHON if lines.caller is None else _LINE_IN_C


def _histories(count: int | None, nondiff: tuple[int, ...]) -> Lines:
    """The lines that make the node the history of each output."""
    if count is None:
        return [
            "node._skimp_extra = None",
            "node._skimp_outputs = None",
            "out._rg = True",
            "out._skimp_node = node",
            "out._skimp_index = 0",
        ]
    text = ["node._skimp_extra = None"]
    for i in range(count):
        t = f"out{i}"
        if i:
            text += [
                f"a = {t}._np",
                f"m{i} = (a.shape if a is not None else {t}._skimp_layout.shape, {t}._dtype)",
            ]
        else:
            text.append("m0 = (node._skimp_shape, node._skimp_dtype)")
        if i not in nondiff:
            text += [
                f"if {t}._dtype.category > 1:",
                f"    {t}._rg = True",
                f"    {t}._skimp_node = node",
                f"    {t}._skimp_index = {i}",
            ]
    text.append(f"node._skimp_outputs = ({''.join([f'm{i}, ' for i in range(count)])})")
    return text
