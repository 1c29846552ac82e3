"""Running results of an associative function, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._ops.shape.joining import cat, stack
from skimp.utils import _pytree as trees

__all__ = ["associative_scan"]

Leaves = list[Any]


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
