"""One node for an op and the views of its arguments that nobody but it reads.

`linear` is a product with a weight's transpose. PyTorch's graph has a node for the transpose, and
programs that walk the graph see it; but making it, its view and its gradient's view costs as much
as recording the product. So a rule may say how its nodes unfold (`Rule(unfolds=...)`): one goes
from the arguments themselves, and becomes what PyTorch has when somebody looks at its edges or at
what it saved, hooks it, or when its backward is not the usual one: recorded, watched, of gradients
or saved values that something happened to.

The views' nodes are numbered when the op is recorded, so backward runs them in PyTorch's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skimp._engine.autograd import runner
from skimp._engine.autograd.nodes import FOLDED, Node, init
from skimp._engine.autograd.rules import Rule
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import alias

if TYPE_CHECKING:
    from skimp._engine.autograd.record import Recording

Edge = tuple[Node, int]
Kept = tuple[Any, int | None]  # a saved value, and the version of a tensor


def kept(node: Any) -> dict[str, Kept]:
    """What a node saved, with versions, by the names of its rule's formulas; nothing once freed."""
    saved = node._skimp_saved or ()
    names = [slot.name for slot in node._skimp_plan.slots]
    return dict(zip(names, zip(saved[::2], saved[1::2], strict=True), strict=False))


def pairs(node: Node) -> list[Any]:
    """The edges, one by one."""
    e = node._skimp_edges
    return list(zip(e[::2], e[1::2], strict=True))


def shape_at(edge: Edge) -> tuple[int, ...]:
    """The shape of the tensor to whose gradient an edge leads."""
    shape: tuple[int, ...] = edge[0]._skimp_metas()[edge[1]][0]
    return shape


def view_node(
    node: Node, place: int, rule: Rule, to: Edge, shape: tuple[int, ...], **given: Any
) -> Node:
    """The node of the view at this place among those that `node` stands for, in the order in which
    they would have been made; `given` is what its formula reads.
    """
    plan = rule.plan((True,), ("input",))
    made: Any = object.__new__(rule.node_class())
    init(made, to, shape, node._skimp_dtype)
    _plan(made, plan)
    made._skimp_saved = [x for slot in plan.slots for x in (given[slot.name], None)]
    made._skimp_number = node._skimp_number - FOLDED + place
    made._skimp_code, made._skimp_lasti = node._skimp_code, node._skimp_lasti
    return made  # type: ignore[no-any-return]


def seen(saved: Kept, layout: Layout | None, made_by: Node | None) -> Kept:
    """A saved tensor as a view shows it, with the version at which it was saved."""
    of, version = saved
    assert layout is not None  # the view was made when the op was recorded
    view = alias(of, layout)
    view._base = of if of._base is None else of._base
    if made_by is not None:
        view._rg = True
        view._skimp_node = made_by
        view._skimp_stale = -1 if version is None else version
    return view, version


def become(node: Any, recording: Recording, edges: list[Any], given: dict[str, Kept]) -> None:
    """Make `node` one of the rule of a recording, with these edges; `given` are the values, with
    versions, that its formulas may read.
    """
    rule = recording.rule
    plan = rule.plan(tuple([to is not None for to, _ in edges]), recording.names)
    node.__class__ = rule.node_class()
    _plan(node, plan)
    node._skimp_edges = tuple([x for edge in edges for x in edge])
    if node._skimp_saved is not None:
        node._skimp_saved = [x for slot in plan.slots for x in given[slot.name]]


def _plan(node: Any, plan: Any) -> None:
    if not hasattr(plan, "run"):
        runner.give(plan)
    node._skimp_plan = plan
