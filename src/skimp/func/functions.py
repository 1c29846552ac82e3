"""autograd.Function under vmap: by its own `vmap`, or sample by sample."""

from __future__ import annotations

from typing import Any, NamedTuple

from skimp._engine.dispatch.batched import is_of, outside, wrap
from skimp._ops.batching.call import Call, by_samples, innermost, wrapped
from skimp.autograd import function
from skimp.autograd.function import Function
from skimp.utils._pytree import broadcast_to_and_flatten, tree_flatten, tree_unflatten


class VmapInfo(NamedTuple):
    """What a Function's `vmap` is told."""

    batch_size: int
    randomness: str


def _function(cls: Any, args: tuple[Any, ...]) -> Any:
    """An autograd.Function: by its own `vmap`, or sample by sample."""
    level = innermost(args)
    assert level is not None
    if cls.vmap is Function.vmap:
        with outside(level):
            return wrapped(by_samples(Call("apply", cls.apply, {"args": args}, level)), level)
    dims = tuple([0 if is_of(a, level) else None for a in args])
    with outside(level):
        info = VmapInfo(level.size, level.randomness)
        output, out_dims = cls.vmap(info, dims, *[a._held if is_of(a, level) else a for a in args])
    leaves, spec = tree_flatten(output)
    places = broadcast_to_and_flatten(out_dims, spec)
    if places is None:
        raise RuntimeError(
            f"{cls.__name__}.vmap: out_dims {out_dims} don't have the structure of the outputs; "
            "return an int or None for each"
        )
    made = [
        t if d is None else wrap(t.movedim(d, 0), level)
        for t, d in zip(leaves, places, strict=True)
    ]
    return tree_unflatten(made, spec)


function.UNDER_VMAP.append(_function)
