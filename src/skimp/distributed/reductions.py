"""torch.distributed's collectives that combine the ranks' tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.dispatch.docstrings import complete_functions
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed import mpi, transfers
from skimp.distributed.arguments import (
    deal,
    incoming,
    joined,
    many_tensors,
    one_dtype,
    one_tensor,
    outgoing,
    reduction,
    root,
)
from skimp.distributed.collectives import Array, Finish, start
from skimp.distributed.groups import ProcessGroup, chosen, outside
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.work import Label, Work


def _chain(*steps: Finish) -> Finish:
    given = [step for step in steps if step is not None]
    if len(given) < 2:
        return given[0] if given else None

    def run() -> None:
        for step in given:
            step()

    return run


def _divided(array: Array, op: ReduceOp, group: ProcessGroup) -> Finish:
    """What an average needs after the sum."""
    if op is not ReduceOp.AVG:
        return None

    def divide() -> None:
        array[...] = (array / group.size()).astype(array.dtype)

    return divide


def _number(factor: Any) -> Any:
    return factor.item() if isinstance(factor, Tensor) else factor


def _multiplied(array: Array, factor: Any) -> Array:
    if factor is None:
        return array
    scaled: Array = (array * _number(factor)).astype(array.dtype)
    return scaled


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine the ranks' tensors; all get the result, in place."""
    one_tensor(tensor, "tensor")
    if outside(group, "all_reduce"):
        return None
    op, factor = reduction(op, tensor, "all_reduce")
    group = chosen(group)
    kind = tensor._dtype
    array, copied = incoming(tensor)
    if factor is not None:
        array[...] = _multiplied(array, factor)

    def begin(_: Any) -> Any:
        return transfers.all_reduce(group, array, kind, op)

    finish = _chain(_divided(array, op, group), copied)
    label = Label("all_reduce", (tensor,), op.name)
    return start(group, label, begin, [tensor], finish, async_op)


def all_reduce_coalesced(
    tensors: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors of one dtype, as one."""
    many_tensors(tensors, "tensor")
    one_dtype(*tensors)
    if outside(group, "all_reduce_coalesced"):
        return None
    op, factor = reduction(op, tensors[0], "all_reduce_coalesced")
    group, kind = chosen(group), tensors[0]._dtype
    label = Label("all_reduce_coalesced", tuple(tensors), op.name)
    if transfers.sends_apart(group, sum([t.nbytes for t in tensors])):
        begin, finish = _apart(tensors, factor, op, group)
        return start(group, label, begin, list(tensors), finish, async_op)
    array = _multiplied(joined(tensors), factor)

    def together(_: Any) -> Any:
        return transfers.all_reduce(group, array, kind, op)

    finish = _chain(_divided(array, op, group), lambda: deal(array, tensors))
    return start(group, label, together, list(tensors), finish, async_op)


def _apart(
    tensors: list[Tensor], factor: Any, op: ReduceOp, group: ProcessGroup
) -> tuple[Callable[[Any], Any], Finish]:
    """How tensors are combined from where they lie, and what is done afterwards."""
    arrays, steps, number = [], [], _number(factor)
    for t in tensors:
        array, copied = incoming(t)
        arrays.append(array)
        steps += [_divided(array, op, group), copied]
    kind = tensors[0]._dtype
    return lambda _: transfers.all_reduce_apart(group, arrays, kind, op, number), _chain(*steps)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the ranks' tensors; rank `dst` gets the result, in place."""
    one_tensor(tensor, "tensor")
    if outside(group, "reduce"):
        return None
    op, factor = reduction(op, tensor, "reduce")
    group, kind = chosen(group), tensor._dtype
    target = root("reduce", group, dst, group_dst)
    label = Label("reduce", (tensor,), f"{op.name} to rank {group.ranks[target]}")
    here = target == group.rank()
    array, copied = incoming(tensor) if here else (outgoing(tensor), None)
    if factor is not None:
        sent = _multiplied(array, factor)
        if here:
            array[...] = sent
        else:
            array = sent

    def begin(comm: Any) -> Any:
        ours = mpi.buffer(array, kind)
        how = mpi.operation(op, kind)
        if here:
            return comm.Ireduce(mpi.load().IN_PLACE, ours, how, target)
        return comm.Ireduce(ours, None, how, target)

    finish = _chain(_divided(array, op, group), copied) if here else None
    return start(group, label, begin, [tensor], finish, async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the ranks' i-th tensors; rank i gets the result. Sizes may differ by rank."""
    one_tensor(output, "output")
    many_tensors(input_list, "input_list")
    one_dtype(output, *input_list)
    if outside(group, "reduce_scatter"):
        return None
    op, factor = reduction(op, output, "reduce_scatter")
    group, kind = chosen(group), output._dtype
    if len(input_list) != group.size():
        raise RuntimeError(
            f"ProcessGroupMPI::reduce_scatter: invalid input tensor list at index 0 (expected "
            f"length {group.size()}, got {len(input_list)})"
        )
    counts = [t.numel() for t in input_list]
    if counts[group.rank()] != output.numel():
        raise RuntimeError(
            f"ProcessGroupMPI::reduce_scatter: output has {output.numel()} elements, and the "
            f"input for this rank {counts[group.rank()]}"
        )
    given = _multiplied(joined(input_list), factor)
    target, copied = incoming(output)

    def begin(_: Any) -> Any:
        return transfers.reduce_scatter(group, given, target, kind, op, counts)

    finish = _chain(_divided(target, op, group), copied)
    label = Label("reduce_scatter", tuple(input_list), op.name)
    return start(group, label, begin, [output], finish, async_op)


def reduce_scatter_single(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine the ranks' tensors; rank i gets the i-th of as many equal parts."""
    one_tensor(output, "output")
    one_tensor(input, "input")
    if outside(group, "reduce_scatter_single"):
        return None
    op, factor = reduction(op, input, "reduce_scatter_single")
    group, kind = chosen(group), input._dtype
    one_dtype(output, input)
    if input.numel() != output.numel() * group.size():
        raise RuntimeError("input tensor must be the same size as output size times world size")
    given = _multiplied(outgoing(input), factor)
    target, copied = incoming(output)
    counts = [target.size] * group.size()

    def begin(_: Any) -> Any:
        return transfers.reduce_scatter(group, given, target, kind, op, counts)

    finish = _chain(_divided(target, op, group), copied)
    label = Label("reduce_scatter_single", (input,), op.name)
    return start(group, label, begin, [output], finish, async_op)


SAYS = """\
Shape: alike on all ranks where nothing else is said.
Dtypes: alike on all ranks; bitwise operations are for integers and bools, MIN and MAX not for
complex numbers.
Raises: TypeError for what is no tensor or no operation, ValueError for several dtypes and a rank
that is not in the group, RuntimeError for sizes that don't fit and sparse tensors;
DistBackendError where a rank has gone.
Memory: results are written in place; tensors that are not contiguous go by way of a copy."""
complete_functions(globals())
