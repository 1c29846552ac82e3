"""autograd.Function under vmap: by its own `vmap`, or sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._engine.dispatch.batched import Level, is_of, outside, wrap
from skimp._ops.batching.call import Call, by_samples, innermost, wrapped


class VmapInfo(NamedTuple):
    """What a Function's `vmap` is told."""

    batch_size: int
    randomness: str


def apply_samples(apply: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """`apply` on each sample, stacked."""
    level = _level(args)
    with outside(level):
        return wrapped(by_samples(Call("apply", apply, {"args": args}, level)), level)


def apply_vmap(cls: Any, args: tuple[Any, ...]) -> Any:
    """What `cls.vmap` makes of the whole batch."""
    level = _level(args)
    dims = tuple([0 if is_of(a, level) else None for a in args])
    with outside(level):
        info = VmapInfo(level.size, level.randomness)
        output, out_dims = cls.vmap(info, dims, *[a._held if is_of(a, level) else a for a in args])
    if not _fits(output, out_dims):
        raise RuntimeError(
            f"{cls.__name__}.vmap: out_dims {out_dims} don't have the structure of the outputs; "
            "return an int or None for each"
        )
    return _samples(output, out_dims, level)


def _level(args: tuple[Any, ...]) -> Level:
    level = innermost(args)
    assert level is not None
    return level


def _fits(output: Any, dim: Any) -> bool:
    """Whether there is one dimension for all outputs, or one for each."""
    if not isinstance(dim, (tuple, list)):
        return True
    several = isinstance(output, (tuple, list)) and len(output) == len(dim)
    return several and all(map(_fits, output, dim))


def _samples(output: Any, dim: Any, level: Level) -> Any:
    """The outputs as what samples of the batch see; None is for what they share."""
    if isinstance(output, (tuple, list)):
        dims = dim if isinstance(dim, (tuple, list)) else [dim] * len(output)
        parts = [_samples(t, d, level) for t, d in zip(output, dims, strict=True)]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    return output if dim is None else wrap(output.movedim(dim, 0), level)
