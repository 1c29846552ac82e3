"""torch.distributed's collectives that bring tensors from rank to rank, each one non-blocking
operation of MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.dispatch.docstrings import complete_functions
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed import mpi, transfers
from skimp.distributed.arguments import (
    at_root_only,
    deal,
    first,
    incoming,
    joined,
    many_tensors,
    one_dtype,
    one_tensor,
    outgoing,
    room,
    root,
)
from skimp.distributed.debug import wanted
from skimp.distributed.fingerprints import compare
from skimp.distributed.groups import ProcessGroup, chosen, outside
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


class _Rooted(NamedTuple):
    """A gather or scatter whose arguments are right."""

    group: ProcessGroup
    place: int  # of the rank that has the list
    here: bool  # whether it is this one


def _rooted(
    name: str, tensor: Tensor, tensors: list[Tensor], side: str, where: tuple[Any, Any, Any]
) -> _Rooted | None:
    """Check a tensor and the list that one rank alone gives; None outside the group, which `where`
    is, with that rank as a global one and as a place in it.
    """
    one_tensor(tensor, "tensor")
    if tensors:
        many_tensors(tensors, f"{name}_list")
    one_dtype(tensor, *tensors)
    if outside(where[0], name):
        return None
    group = chosen(where[0])
    found = root(name, group, first(*where[1:]), where[2])
    here = found == group.rank()
    at_root_only(tensors, here, f"{name}_list", side)
    if here:
        _same_sizes(name, tensors, tensor, group)
    return _Rooted(group, found, here)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Each rank's tensor, of one shape, to rank `dst`: into its list."""
    tensors = gather_list or []
    rooted = _rooted("gather", tensor, tensors, "destination", (group, dst, group_dst))
    if rooted is None:
        return None
    (group, target, here), kind = rooted, tensor._dtype
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
    tensors = scatter_list or []
    rooted = _rooted("scatter", tensor, tensors, "source", (group, src, group_src))
    if rooted is None:
        return None
    (group, source, here), kind = rooted, tensor._dtype
    given = joined(tensors) if here else None
    target, copied = incoming(tensor)
    label = Label("scatter", (tensor,), f"from rank {group.ranks[source]}")

    def begin(comm: Any) -> Any:
        ours = None if given is None else mpi.buffer(given, kind)
        return comm.Iscatter(ours, mpi.buffer(target, kind), source)

    return start(group, label, begin, [tensor], copied, async_op)


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


SAYS = """\
Shape: alike on all ranks where nothing else is said.
Dtypes: any, alike on all ranks.
Raises: TypeError for what is no tensor or no list of them, ValueError for several dtypes, a rank
that is not in the group, and a list on the wrong rank; RuntimeError for sizes that don't fit;
DistBackendError where a rank has gone.
Memory: results are written in place; tensors that are not contiguous go by way of a copy."""
complete_functions(globals())
