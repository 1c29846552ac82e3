"""Rules: the derivative of an op as data beside the op, and the plan that is made of it for the
inputs that need one.

    Rule("MulBackward0", {"input": lambda g, other: g * other, "other": lambda g, input: g * input})

The names of a formula's parameters say what is saved for it:

    g, g0, g1, ...      gradients of the outputs (None where nothing arrived)
    grads               all of them as a list, zeros where nothing arrived
    result, result0 ... outputs
    NAME_shape, NAME_strides, NAME_dtype, NAME_layout
                        of a tensor argument or of the result, which is not saved
    NAME_noted          a tensor argument that is not saved either: `rematerialize` has it, as long
                        as somebody keeps it and nobody has written to it; of a list, the notes
    needs               the names of the arguments whose gradient this backward wants
    node                the node itself: its edges lead to the inputs
    edges               these edges, for a list whose tensors don't all need a gradient
    any other name      the argument's value (tensors are saved), else the parameter's default

With `rematerialize`, a function of such parameters that makes the first result once more for little
work, that result has no bytes of its own where it is large and another node saves it
(`rematerialize.py`); as `result` it is given that itself, which nobody need keep, and of what
formulas don't read it is given what keeps no bytes (`NAME_noted`, `NAME_shape`, ...). With
`releases_early`, the last formula runs first, and large values go with the last one that reads them
(`runner.py`). With `unfolds`, which makes one into them, nodes stand for those of views too
(`folded.py`).

A key may be a tuple of names: its formula then returns that many gradients. A formula of a list
argument returns a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from skimp._engine.autograd.nodes import Node

Formula = Callable[..., Any]
Key = str | tuple[str, ...]

META = ("_shape", "_strides", "_dtype", "_layout", "_noted")
ARG, RESULT, ARG_META, RESULT_META, CONSTANT = range(5)
OF_NODE = frozenset({"node", "edges"})


class Slot(NamedTuple):
    """One value that formulas read: what it is, of which argument or output."""

    kind: int
    name: str  # the formula's parameter
    of: Any  # argument's name, output's index, or the constant itself
    meta: str = ""


class Step(NamedTuple):
    """One formula to run: whose gradients it gives, and which values it takes."""

    positions: tuple[int, ...]  # of its names among the rule's names
    formula: Formula
    reads: tuple[int | str, ...]  # slots' places; "g", "grads", "g0" and on
    joint: bool  # returns one gradient for each name


class Plan:
    """What one call of an op keeps and computes, given which of its inputs need gradients."""

    __slots__ = (
        "cls", "frees", "frees_if_tensor", "keeps", "lists", "mask", "rule", "run", "slots",
        "steps",
    )  # fmt: skip

    def __init__(
        self, rule: Rule, mask: tuple[bool, ...], lists: tuple[str, ...], bound: Iterable[str]
    ) -> None:
        self.rule = rule
        self.mask = mask
        self.lists = lists  # the names of the arguments that are lists, with an edge for each item
        self.cls = rule.node_class()
        wanted = frozenset(n for n, w in zip(rule.names, mask, strict=True) if w)
        used = [(key, f) for key, f in rule.formulas.items() if wanted & set(_tuple(key))]
        bound = set(bound)
        slots: dict[str, Slot] = {}
        self.steps = tuple([self._step(key, f, slots, bound, wanted) for key, f in used])
        if not wanted:
            for name in _read_twice(rule):
                slots[name] = Slot(ARG, name, name)
        elif rule.rematerialize is not None:  # what keeps no bytes is noted for it
            read = [self._slot(p, bound, wanted, {}) for p in parameters(rule.rematerialize)]
            slots |= {s.name: s for s in read if s.meta}
        self.slots = tuple(slots.values())
        self.keeps = any(s.kind in (ARG, RESULT) for s in self.slots)
        # a formula that reads the node stands for PyTorch's, which reads an input
        self.frees = any(
            s.kind == RESULT or (s.kind == ARG and s.of in rule.names) for s in self.slots
        ) or any("node" in step.reads for step in self.steps)
        # Whether another argument is a tensor (a mask, an index) or a number is known at the call.
        self.frees_if_tensor = (
            ()
            if self.frees
            else tuple([2 * i for i, s in enumerate(self.slots) if s.kind in (ARG, CONSTANT)])
        )
        # what runs its nodes (`runner.py`): f(node, gradients, wanted nodes, whether it keeps)
        self.run: Callable[..., Any]

    def _step(
        self, key: Key, f: Formula, slots: dict[str, Slot], bound: set[str], wanted: frozenset[str]
    ) -> Step:
        reads: list[int | str] = []
        given = parameters(f)
        defaults = f.__defaults__ or ()
        optional = dict(zip(given[len(given) - len(defaults) :], defaults, strict=True))
        for p in given:
            if _is_grad(p) or p in OF_NODE:
                reads.append(p)
            else:
                if p not in slots:
                    slots[p] = self._slot(p, bound, wanted, optional)
                reads.append(list(slots).index(p))
        positions = tuple([self.rule.names.index(n) for n in _tuple(key)])
        return Step(positions, f, tuple(reads), isinstance(key, tuple))

    def _slot(
        self, p: str, bound: set[str], wanted: frozenset[str], optional: dict[str, Any]
    ) -> Slot:
        if p in bound:
            return Slot(ARG, p, p)
        if p == "needs":
            return Slot(CONSTANT, p, wanted)
        if p.startswith("result") and (p == "result" or p[6:].isdigit()):
            return Slot(RESULT, p, int(p[6:] or 0))
        for meta in META:
            if p.endswith(meta):
                of = p[: -len(meta)]
                if of in bound:
                    return Slot(ARG_META, p, of, meta)
                if of.startswith("result") and (of == "result" or of[6:].isdigit()):
                    return Slot(RESULT_META, p, int(of[6:] or 0), meta)
        if p in optional:
            return Slot(CONSTANT, p, optional[p])
        raise TypeError(
            f"{self.rule.name}: a formula reads {p!r}, which is no argument of the op "
            f"({sorted(bound)})"
        )


class Choice:
    """The rule of an op that depends on arguments: `pick(*values)` of those named in `by`, `usual`
    where these are None.

    All rules that it may answer differentiate by `names`: no other argument is looked at.
    """

    __slots__ = ("by", "names", "pick", "usual")

    def __init__(self, pick: Callable[..., Rule], by: tuple[str, ...], usual: Rule) -> None:
        self.pick = pick
        self.by = by
        self.usual = usual
        self.names = usual.names

    def __call__(self, given: Mapping[str, Any]) -> Rule:
        """The rule for arguments by name."""
        return self.pick(*[given.get(name) for name in self.by])


class Rule:
    """The derivative of an op: a name, and a formula for each argument that has a gradient, by its
    name; one formula for several stands in a dict before these, by the tuple of their names.

    `at_once`: a formula works on the arrays of several tensors, not by ops that read one after the
    other: within a budget all of them are there before it takes the first.
    `shows`: what PyTorch's node has as an attribute and this one finds out when somebody asks.
    """

    __slots__ = (
        "_class",
        "at_once",
        "formulas",
        "masks",
        "name",
        "names",
        "numbers",
        "recordings",
        "releases_early",
        "rematerialize",
        "shows",
        "unfolds",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        formulas: Mapping[Any, Formula] | None = None,
        /,
        *,
        rematerialize: Formula | None = None,
        releases_early: bool = False,
        at_once: bool = False,
        numbers: Mapping[str, Rule] | None = None,
        unfolds: Callable[[Any], None] | None = None,
        shows: Mapping[str, Callable[[Any], Any]] | None = None,
        **named: Formula,
    ) -> None:
        self.name = name
        self.rematerialize = rematerialize
        self.releases_early = releases_early
        self.at_once = at_once
        self.unfolds = unfolds
        self.shows = shows or {}
        self.formulas: dict[Any, Formula] = {**(formulas or {}), **named}
        self.names: tuple[str, ...] = tuple([n for key in self.formulas for n in _tuple(key)])
        self.numbers = numbers or {}
        # what records calls of its ops (`record.py`), by the names of their arguments
        self.recordings: dict[Any, Any] = {}
        # by which inputs need gradients, as a number: the first name's bit is the lowest; above
        # these, a bit for each that is a list
        self.masks: dict[int, Plan] = {}
        self._class: type[Node] | None = None

    def __repr__(self) -> str:
        return f"Rule({self.name!r}, {list(self.formulas)})"

    def node_class(self) -> type[Node]:
        """The class of this rule's nodes: `type(y.grad_fn).__name__` is the rule's name."""
        if self._class is None:
            from skimp._engine.autograd.op_node import FoldedNode, OpNode  # which run rules

            space = {
                "__slots__": (),
                "_skimp_label": _label(self.name),
                "_skimp_again": self.rematerialize is not None,
                "rule": self,
                "__module__": "skimp.autograd.graph",
            }
            self._class = type(self.name, (FoldedNode if self.unfolds else OpNode,), space)
        return self._class

    def plan(
        self, mask: tuple[bool, ...], bound: Iterable[str], lists: tuple[str, ...] = ()
    ) -> Plan:
        """The plan for the inputs in `mask` (in the order of `names`), some of which are lists."""
        bits = sum([1 << i for i, wanted in enumerate(mask) if wanted])
        if lists:
            bits |= sum([1 << len(mask) + i for i, n in enumerate(self.names) if n in lists])
        found = self.masks.get(bits)
        if found is None:
            found = self.masks[bits] = Plan(self, mask, lists, bound)
            for recording in self.recordings.values():  # which do not know this plan
                recording.forget()
        return found


def _label(name: str) -> str:
    """What `node.name()` says: PyTorch qualifies the few nodes that it writes by hand."""
    return f"torch::autograd::{name}" if name in ("CopyBackwards", "NotImplemented") else name


def parameters(f: Formula) -> tuple[str, ...]:
    """The names of a formula's parameters."""
    code = f.__code__
    return code.co_varnames[: code.co_argcount]


def _read_twice(rule: Rule) -> list[str]:
    """The inputs that two formulas read: PyTorch saves them, and so refuses a second backward and
    one after a write, even where no gradient has anywhere to go (the inputs are views made under
    no_grad).
    """
    reads = [p for f in rule.formulas.values() for p in parameters(f)]
    return [name for name in rule.names if reads.count(name) > 1]


def passes_on(f: Formula) -> bool:
    """Whether a formula is `lambda g: g`: then nobody needs to call it."""
    return parameters(f) == ("g",) and f.__code__.co_code == _same.__code__.co_code


def _same(g: Any) -> Any:
    return g


def _is_grad(p: str) -> bool:
    return p in ("g", "grads") or (p[0] == "g" and p[1:].isdigit())


def _tuple(key: Key) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)
