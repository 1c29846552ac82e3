"""What torch.distributed's functions check, in PyTorch's words, and the bytes that they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, adopt
from skimp.distributed.groups import ProcessGroup, get_group_rank
from skimp.distributed.reduce_ops import BITWISE, ORDERED, PremulSum, ReduceOp

Array = np.ndarray[Any, Any]


# -- checks ---------------------------------------------------------------------------------------


def one_tensor(value: Any, name: str) -> None:
    """TypeError unless it is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def many_tensors(value: Any, name: str) -> None:
    """TypeError unless it is a list of tensors."""
    start = (
        f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
        f"             but got {type(value)}"
    )
    if not isinstance(value, list):
        raise TypeError(f"{start} instead.")
    if not all(isinstance(t, Tensor) for t in value):
        raise TypeError(f"{start} with elements of type {[type(t) for t in value]}.")


def one_dtype(*tensors: Tensor) -> None:
    """ValueError unless all have one dtype (a complex one counts as its parts')."""
    last: dtypes.dtype | None = None
    for t in tensors:
        kind = t.dtype
        if kind.is_complex:
            kind = dtypes.float32 if kind is dtypes.complex64 else dtypes.complex128
        if last is not None and last is not kind:
            raise ValueError(
                f"Invalid usage of tensors with different dtypesFound {last} and  {t.dtype}"
            )
        last = kind


def reduction(op: Any, tensor: Tensor, name: str) -> tuple[ReduceOp, Any]:
    """The operation and the factor before it (None: none)."""
    if isinstance(op, PremulSum):
        return ReduceOp.SUM, op.factor
    if not isinstance(op, ReduceOp) or op is ReduceOp.PREMUL_SUM:
        raise TypeError(f"{name}(): incompatible function arguments: {op!r} is no ReduceOp")
    if tensor.dtype.is_complex and op in ORDERED:
        raise ValueError(f"{name} does not support {op} on complex tensors")
    if op in BITWISE and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if tensor.is_sparse:
        raise RuntimeError(f"{name}: skimp sends no sparse tensors; use to_dense()")
    return op, None


def place(group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """A place in the group, from a global rank or from itself."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        return group_rank
    if rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return get_group_rank(group, rank)


def root(name: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The place of the rank from or to which everything goes."""
    found = place(group, rank, group_rank)
    if not 0 <= found < group.size():
        raise RuntimeError(f"ProcessGroupMPI::{name}: invalid root rank: {found}")
    return found


def first(rank: int | None, group_rank: int | None) -> int | None:
    """The rank that was said, or the first where nobody said one."""
    return 0 if rank is None and group_rank is None else rank


def at_root_only(given: Any, here: bool, name: str, side: str) -> None:
    """ValueError unless the rank that is the source or destination has the list, and no other."""
    if here and not given:
        raise ValueError(f"Argument ``{name}`` must be specified on {side} rank.")
    if given and not here:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{side} ranks.")


# -- bytes ----------------------------------------------------------------------------------------


def outgoing(t: Tensor) -> Array:
    """A tensor's elements, row-major: its own bytes where they are so already."""
    array = t.detach()._skimp_array() if t._rg else t._skimp_array()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def incoming(t: Tensor) -> tuple[Array, Callable[[], None] | None]:
    """Where to write a tensor's elements, row-major, and what to do afterwards: its own bytes and
    nothing, or other bytes and a copy. PyTorch counts no version here.
    """
    plain = not (t._conj or t._skimp_neg) and t.is_contiguous()
    t._storage.will_write()
    if plain:
        array = t._np
        if array is None:
            array = t._storage.view(t._skimp_layout_of(), t._dtype.np)
        return array, None
    staged = np.array(t._skimp_array(), order="C")

    def finish() -> None:
        version = t._skimp_version
        with no_grad():
            t.detach().copy_(adopt(staged, t._dtype))
        _set_version(t, version)

    return staged, finish


def _set_version(t: Tensor, version: int) -> None:
    if t._skimp_counter is not None:
        t._skimp_counter.version = version
    else:
        t._storage.version = version


def joined(tensors: Sequence[Tensor]) -> Array:
    """The elements of several tensors, one after another, in new bytes."""
    return np.concatenate([outgoing(t).reshape(-1) for t in tensors])


def together(tensors: Sequence[Tensor]) -> Tensor:
    """A new tensor of one dim with the elements of several."""
    return adopt(joined(tensors), tensors[0]._dtype)


def room(tensors: Sequence[Tensor]) -> Array:
    """Bytes for the elements of several tensors, one after another."""
    return np.empty(sum([t.numel() for t in tensors]), tensors[0]._dtype.np)


def deal(array: Array, tensors: Sequence[Tensor]) -> None:
    """Copy elements that lie one after another into the tensors."""
    start = 0
    for t in tensors:
        n = t.numel()
        target, finish = incoming(t)
        target.reshape(-1)[...] = array[start : start + n]
        if finish is not None:
            finish()
        start += n
