"""When a leaf has received all that a backward will send it: then it goes before every other node.

A leaf's gradient is accumulated, and freed or used up by a hook, while the rest of backward has yet
to run. The graph is not counted for that: a leaf to which one edge leads has everything with its
first gradient, and how many lead to it is its node's reference count, which the edges make. Only
where something else holds the node too (a second use, an earlier step's loss) are the edges counted
that this backward will go along, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from skimp._engine.autograd.nodes import Node
from skimp._engine.interpreter import HELD_BY_VARIABLE


def edges_to_leaves(roots: list[Node], wanted: set[Node] | None) -> dict[Node, int]:
    """How many gradients each leaf (and each other node) will receive: from outside, and along the
    edges of all nodes that will run.
    """
    counts: dict[Node, int] = {}
    todo = list(roots)
    put = todo.append
    for to in todo:  # which grows
        if wanted is not None and to not in wanted:
            continue
        if to in counts:
            counts[to] += 1
            continue
        counts[to] = 1
        edges = to._skimp_edges  # of few inputs, as most nodes have, written out
        if len(edges) == 4:
            first, _, second, _ = edges
            if first is not None:
                put(first)
            if second is not None:
                put(second)
        elif edges:
            todo += filter(None, edges[::2])
    return counts


def reached(roots: list[Node]) -> set[Node]:
    """The nodes that gradients of the roots get to."""
    seen: set[Node] = set()
    todo = list(roots)
    for to in todo:  # which grows
        if to not in seen:
            seen.add(to)
            todo += filter(None, to._skimp_edges[::2])
    return seen


count: Callable[[object], int] = sys.getrefcount
HELD_BY_ONE = HELD_BY_VARIABLE + 2  # a leaf of one edge, in the engine's variable: and its buffers
