"""torch.distributed's collectives on tensors, each one non-blocking operation of MPI."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

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
    room,
    root,
)
from skimp.distributed.debug import wanted
from skimp.distributed.errors import DistError
from skimp.distributed.fingerprints import compare
from skimp.distributed.groups import ProcessGroup, chosen, outside
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.stores import PrefixStore
from skimp.distributed.work import Label, Work, submit

Array = np.ndarray[Any, Any]
Finish = Callable[[], None] | None


def start(
    group: ProcessGroup,
    label: Label,
    begin: Callable[[Any], Any],
    results: list[Any],
    finish: Finish,
    async_op: bool,
) -> Work | None:
    """Begin an operation on the group's communicator; wait for it unless `async_op`."""
    group.sequence += 1
    if wanted():
        compare(group, label)
    return submit(Work(group, label, [begin(group.comm)], results, finish), async_op)


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


def _multiplied(array: Array, factor: Any) -> Array:
    if factor is None:
        return array
    number = factor.item() if isinstance(factor, Tensor) else factor
    scaled: Array = (array * number).astype(array.dtype)
    return scaled


# -- one tensor -----------------------------------------------------------------------------------


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
    array = _multiplied(joined(tensors), factor)

    def begin(_: Any) -> Any:
        return transfers.all_reduce(group, array, kind, op)

    finish = _chain(_divided(array, op, group), lambda: deal(array, tensors))
    label = Label("all_reduce_coalesced", tuple(tensors), op.name)
    return start(group, label, begin, list(tensors), finish, async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """The tensor of rank `src` goes to all."""
    one_tensor(tensor, "tensor")
    if outside(group, "broadcast"):
        return None
    group = chosen(group)
    source = root("broadcast", group, src, group_src)
    array, copied = incoming(tensor)
    kind = tensor._dtype
    label = Label("broadcast", (tensor,), f"from rank {group.ranks[source]}")
    return start(
        group,
        label,
        lambda _: transfers.broadcast(group, array, kind, source),
        [tensor],
        copied,
        async_op,
    )


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


# -- gathering ------------------------------------------------------------------------------------


def _same_sizes(name: str, tensors: Sequence[Tensor], tensor: Tensor, group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise RuntimeError(
            f"ProcessGroupMPI::{name}: invalid output tensor list at index 0 (expected length "
            f"{group.size()}, got {len(tensors)})"
        )
    for i, t in enumerate(tensors):
        if t.shape != tensor.shape:
            raise RuntimeError(
                f"ProcessGroupMPI::{name}: invalid tensor size at index {i} (expected "
                f"{_shown(tensor)}, got {_shown(t)})"
            )


def _shown(t: Tensor) -> str:
    return f"({', '.join([str(n) for n in t.shape])})"


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Each rank's tensor, of one shape, to all: into the list, in the order of ranks."""
    many_tensors(tensor_list, "tensor_list")
    one_tensor(tensor, "tensor")
    one_dtype(*tensor_list, tensor)
    if outside(group, "all_gather"):
        return None
    group, kind = chosen(group), tensor._dtype
    _same_sizes("allgather", tensor_list, tensor, group)
    array, found = outgoing(tensor), room(tensor_list)
    return start(
        group,
        Label("all_gather", (tensor,)),
        lambda _: transfers.all_gather(group, array, found, kind, [array.size] * group.size()),
        list(tensor_list),
        lambda: deal(found, tensor_list),
        async_op,
    )


def all_gather_single(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Each rank's tensor, of one shape, to all: one after another in `output_tensor`, whose first
    dim is that times the ranks, or which has another one, of the ranks, before.
    """
    one_tensor(input_tensor, "input_tensor")
    one_tensor(output_tensor, "output_tensor")
    if outside(group, "all_gather_single"):
        return None
    group, kind = chosen(group), input_tensor._dtype
    one_dtype(output_tensor, input_tensor)
    if output_tensor.numel() != input_tensor.numel() * group.size():
        raise RuntimeError("output tensor size must be equal to world_size times input tensor size")
    array, (target, copied) = outgoing(input_tensor), incoming(output_tensor)
    counts = [array.size] * group.size()

    def begin(_: Any) -> Any:
        return transfers.all_gather(group, array, target, kind, counts)

    label = Label("all_gather_single", (input_tensor,))
    return start(group, label, begin, [output_tensor], copied, async_op)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """`all_gather` of several tensors: `output_tensor_lists[rank][i]` gets that rank's i-th."""
    many_tensors(input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for each in output_tensor_lists:
        many_tensors(each, "output_tensor_lists")
    if outside(group, "all_gather_coalesced"):
        return None
    works = []
    for i, tensor in enumerate(input_tensor_list):
        works.append(all_gather([each[i] for each in output_tensor_lists], tensor, group, True))
    last = [w for w in works if w is not None][-1]
    if async_op:
        return last
    for work in works:
        if work is not None:
            work.wait()
    return None


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Each rank's tensor, of one shape, to rank `dst`: into its list."""
    one_tensor(tensor, "tensor")
    tensors = gather_list or []
    if tensors:
        many_tensors(tensors, "gather_list")
    one_dtype(tensor, *tensors)
    if outside(group, "gather"):
        return None
    group, kind = chosen(group), tensor._dtype
    target = root("gather", group, 0 if dst is None and group_dst is None else dst, group_dst)
    here = target == group.rank()
    if here and not tensors:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if tensors and not here:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if here:
        _same_sizes("gather", tensors, tensor, group)
    array, found = outgoing(tensor), room(tensors) if here else None
    label = Label("gather", (tensor,), f"to rank {group.ranks[target]}")

    def begin(comm: Any) -> Any:
        into = None if found is None else mpi.buffer(found, kind)
        return comm.Igather(mpi.buffer(array, kind), into, target)

    finish = None if found is None else lambda: deal(found, tensors)
    return start(group, label, begin, tensors, finish, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Rank `src` sends each rank one of its list's tensors, all of one shape."""
    one_tensor(tensor, "tensor")
    tensors = scatter_list or []
    if tensors:
        many_tensors(tensors, "scatter_list")
    one_dtype(tensor, *tensors)
    if outside(group, "scatter"):
        return None
    group, kind = chosen(group), tensor._dtype
    source = root("scatter", group, 0 if src is None and group_src is None else src, group_src)
    here = source == group.rank()
    if here and not tensors:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if tensors and not here:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if here:
        _same_sizes("scatter", tensors, tensor, group)
    given = joined(tensors) if here else None
    target, copied = incoming(tensor)
    label = Label("scatter", (tensor,), f"from rank {group.ranks[source]}")

    def begin(comm: Any) -> Any:
        ours = None if given is None else mpi.buffer(given, kind)
        return comm.Iscatter(ours, mpi.buffer(target, kind), source)

    return start(group, label, begin, [tensor], copied, async_op)


# -- combining and dealing out --------------------------------------------------------------------


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


# -- from all to all ------------------------------------------------------------------------------


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Part i of each rank's input (of its first dim) goes to rank i, which puts what comes one
    after another. Sizes default to equal parts.
    """
    one_tensor(output, "output")
    one_tensor(input, "input")
    one_dtype(output, input)
    if outside(group, "all_to_all_single"):
        return None
    group, kind = chosen(group), input._dtype
    sent = _counts(input, input_split_sizes, group)
    taken = _counts(output, output_split_sizes, group)
    given, (target, copied) = outgoing(input), incoming(output)
    if np.may_share_memory(given, target):
        given = given.copy()

    def begin(comm: Any) -> Any:
        ours, theirs = mpi.buffer(given, kind), mpi.buffer(target, kind)
        return comm.Ialltoallv([ours[0], sent, ours[1]], [theirs[0], taken, theirs[1]])

    return start(group, Label("all_to_all_single", (input,)), begin, [output], copied, async_op)


def _counts(t: Tensor, sizes: list[int] | None, group: ProcessGroup) -> list[int]:
    """How many elements each rank sends or gets."""
    rows = t.shape[0] if t.dim() else 1
    if not sizes:
        if rows % group.size():
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return [t.numel() // group.size()] * group.size()
    if len(sizes) != group.size():
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != rows:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    row = t.numel() // rows if rows else 0
    return [n * row for n in sizes]


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Each rank's i-th tensor goes to rank i, which gets one from each."""
    many_tensors(output_tensor_list, "output_tensor_list")
    many_tensors(input_tensor_list, "input_tensor_list")
    one_dtype(*output_tensor_list, *input_tensor_list)
    if outside(group, "all_to_all"):
        return None
    group = chosen(group)
    for name, tensors in (("input", input_tensor_list), ("output", output_tensor_list)):
        if len(tensors) != group.size():
            raise RuntimeError(
                f"ProcessGroupMPI::alltoall: {name}_tensor_list has {len(tensors)} tensors, and "
                f"the group {group.size()} ranks"
            )
    kind = input_tensor_list[0]._dtype
    given, found = joined(input_tensor_list), room(output_tensor_list)
    sent = [t.numel() for t in input_tensor_list]
    taken = [t.numel() for t in output_tensor_list]

    def begin(comm: Any) -> Any:
        ours, theirs = mpi.buffer(given, kind), mpi.buffer(found, kind)
        return comm.Ialltoallv([ours[0], sent, ours[1]], [theirs[0], taken, theirs[1]])

    return start(
        group,
        Label("all_to_all", tuple(input_tensor_list)),
        begin,
        list(output_tensor_list),
        lambda: deal(found, output_tensor_list),
        async_op,
    )


# -- barriers -------------------------------------------------------------------------------------


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Return when all ranks have come here."""
    if outside(group, "barrier"):
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    return start(chosen(group), Label("barrier"), lambda c: c.Ibarrier(), [], None, async_op)


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that names who has not come within the time: on rank 0 the first of them, or all
    (`wait_all_ranks`).
    """
    if outside(group, "monitored_barrier"):
        return
    group = chosen(group)
    seconds = (group.timeout if timeout is None else timeout).total_seconds()
    group.sequence += 1
    store = PrefixStore(f"monitored_barrier/{group.sequence}", group.store)
    if group.rank():
        store.set(str(group.rank()), "1")
        try:
            store.wait(["all"], timedelta(seconds=seconds))
        except DistError as error:
            raise RuntimeError(
                f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors "
                "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
            ) from error
        return
    missing, end = list(range(1, group.size())), time.monotonic() + seconds
    while missing and time.monotonic() < end:
        missing = [r for r in missing if not store.check([str(r)])]
        time.sleep(0.001 if missing else 0)
    if missing:
        shown = ", ".join([str(r) for r in (missing if wait_all_ranks else missing[:1])])
        raise RuntimeError(
            f"[Rank 0]: Rank{'s' * wait_all_ranks} {shown} failed to pass monitoredBarrier in "
            f"{round(seconds * 1000)} ms"
        )
    store.set("all", "1")
