"""A function of each element along the first dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._ops.shape.joining import stack
from skimp.utils import _pytree as trees

__all__ = ["map"]


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each x along the first dim of `xs`, stacked."""
    leaves, spec = trees.tree_flatten(xs)
    made = [f(trees.tree_unflatten(x, spec), *args) for x in zip(*leaves, strict=True)]
    return trees.tree_map(lambda *ys: stack(ys), made[0], *made[1:])
