"""A loop that carries a state and keeps a result of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._ops.shape.joining import stack
from skimp.utils import _pytree as trees

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """(the last state, the results stacked along dim 0) of `combine_fn(state, x)`, which gives (the
    next state, a result), for each x along `dim`.
    """
    leaves, spec = trees.tree_flatten(xs)
    if not leaves:
        return init, []
    steps = range(leaves[0].shape[dim])
    carry, made = init, []
    for i in reversed(steps) if reverse else steps:
        carry, y = combine_fn(carry, trees.tree_unflatten([x.select(dim, i) for x in leaves], spec))
        made.append(y)
    if reverse:
        made.reverse()
    return carry, trees.tree_map(lambda *ys: stack(ys), made[0], *made[1:])
