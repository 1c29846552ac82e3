"""Loops and branches as functions (torch._higher_order_ops): they run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.shape.joining import cat, stack
from skimp.utils import _pytree as trees

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]

Leaves = list[Any]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """What one of two functions makes of the operands; the other one is not called.

    Shape: both functions return the same.
    Dtypes: as the functions'.
    Raises: RuntimeError for a predicate of several elements.
    Memory: as the function's that is called.
    """
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(
            "Expected pred to be bool or single-element tensor, but got "
            f"a tensor of shape {list(pred.shape)}"
        )
    return (true_fn if bool(pred) else false_fn)(*operands)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each x along the first dim of `xs`, stacked."""
    leaves, spec = trees.tree_flatten(xs)
    made = [f(trees.tree_unflatten(x, spec), *args) for x in zip(*leaves, strict=True)]
    return trees.tree_map(lambda *ys: stack(ys), made[0], *made[1:])


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


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> tuple[Any, ...]:
    """The state after `body_fn(*state) -> state` ran for as long as `cond_fn(*state)`."""
    state = tuple(carried_inputs)
    while cond_fn(*state):
        found = body_fn(*state)
        state = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    return state


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Element i along `dim` is combine_fn(... combine_fn(x0, x1) ..., xi), in trees as `xs` is.

    Pairs are combined as Blelloch (1990) does it: `combine_fn` gets many elements at a time.
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves, spec = trees.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    leaves = [x.movedim(dim, 0) for x in leaves]
    if any(len(x) != len(leaves[0]) or not len(x) for x in leaves):
        raise ValueError(f"xs leaves must have one length along dim {dim}, and it must not be 0")
    if reverse:
        leaves = [x.flip(0) for x in leaves]

    def combine(a: Leaves, b: Leaves) -> Leaves:
        both = combine_fn(trees.tree_unflatten(a, spec), trees.tree_unflatten(b, spec))
        return trees.tree_leaves(both)

    found = _scan(combine, leaves)
    if reverse:
        found = [x.flip(0) for x in found]
    return trees.tree_unflatten([x.movedim(0, dim) for x in found], spec)


def _scan(combine: Callable[[Leaves, Leaves], Leaves], xs: Leaves) -> Leaves:
    """The odd places are the scan of pairs; each even place is one combination further."""
    n = len(xs[0])
    if n < 2:
        return xs
    pairs = combine([x[:-1:2] for x in xs], [x[1::2] for x in xs])
    odd = _scan(combine, pairs)
    before = [x[: (n - 1) // 2] for x in odd]
    even = combine(before, [x[2::2] for x in xs]) if n > 2 else [x[:0] for x in xs]
    even = [cat([x[:1], e]) for x, e in zip(xs, even, strict=True)]
    return [_alternate(e, o) for e, o in zip(even, odd, strict=True)]


def _alternate(even: Any, odd: Any) -> Any:
    """even[0], odd[0], even[1], ...; `even` may have one more."""
    paired = stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return paired if len(even) == len(odd) else cat([paired, even[-1:]])
