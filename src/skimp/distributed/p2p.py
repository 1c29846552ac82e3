"""From one rank to another: `send`, `recv`, and those that don't wait."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.docstrings import complete_functions
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed import mpi
from skimp.distributed.arguments import incoming, one_tensor, outgoing, place
from skimp.distributed.groups import ProcessGroup, chosen, get_global_rank, get_rank, outside
from skimp.distributed.work import Label, Work, submit


def _peer(group: ProcessGroup, rank: int | None, group_rank: int | None, word: str) -> int:
    found = place(group, rank, group_rank)
    if found == group.rank():
        raise ValueError(
            f"Invalid {word} rank: {word} rank should not be the same as the rank of the current "
            "process."
        )
    if not 0 <= found < group.size():
        raise ValueError(f"Invalid {word} rank {found}: the group has {group.size()} ranks")
    return found


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send; the tensor must not change until the work is done."""
    return _send("isend", tensor, dst, group, tag, group_dst)


def _send(
    name: str, tensor: Tensor, dst: int | None, group: Any, tag: int, group_dst: int | None
) -> Work | None:
    one_tensor(tensor, "tensor")
    if outside(group, name):
        return None
    group = chosen(group)
    peer = _peer(group, dst, group_dst, "destination")
    array = outgoing(tensor)
    request = group.comm.Isend(mpi.buffer(array, tensor._dtype), peer, tag)
    label = Label(name, (tensor,), f"to rank {group.ranks[peer]}")
    return submit(Work(group, label, [request], [tensor]), name == "isend")


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive into the tensor, from any rank if `src` is None."""
    one_tensor(tensor, "tensor")
    if outside(group, "irecv"):
        return None
    group = chosen(group)
    return _irecv(tensor, group, src, group_src, tag, True)


def _irecv(
    tensor: Tensor,
    group: ProcessGroup,
    src: int | None,
    group_src: int | None,
    tag: int,
    async_op: bool,
) -> Work | None:
    any_rank = src is None and group_src is None
    peer = mpi.load().ANY_SOURCE if any_rank else _peer(group, src, group_src, "source")
    array, copied = incoming(tensor)
    received = _Received(group.comm.Irecv(mpi.buffer(array, tensor._dtype), peer, tag))
    source = "any rank" if any_rank else f"rank {group.ranks[peer]}"
    work = Work(
        group,
        Label("irecv" if async_op else "recv", (tensor,), f"from {source}"),
        [received],
        [tensor],
        copied,
    )
    received.work = work
    return submit(work, async_op)


class _Received:
    """A request that tells its work who sent."""

    def __init__(self, request: Any) -> None:
        self.request, self.status = request, mpi.load().Status()
        self.work: Work | None = None

    def Test(self) -> bool:  # MPI's name
        """Whether it has arrived."""
        if not self.request.Test(self.status):
            return False
        if self.work is not None:
            self.work._source = self.status.Get_source()
        return True


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send, and return when the tensor may change."""
    _send("send", tensor, dst, group, tag, group_dst)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into the tensor, from any rank if `src` is None; the sender's global rank."""
    one_tensor(tensor, "tensor")
    if outside(group, "recv"):
        return -1
    group = chosen(group)
    if src is not None or group_src is not None:
        _irecv(tensor, group, src, group_src, tag, False)
        return get_global_rank(group, place(group, src, group_src))
    work = _irecv(tensor, group, None, None, tag, True)
    assert work is not None
    work.wait()
    return get_global_rank(group, work.source_rank())


class P2POp:
    """A send or a receive, for `batch_isend_irecv`."""

    def __init__(
        self,
        op: Any,
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        one_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = chosen(group)
        self.group_peer = place(self.group, peer, group_peer)
        self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        me, other = get_rank(self.group), self.group_peer
        source, target = (me, other) if self.op is isend else (other, me)
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={source}, "
            f"group_dst={target},  {self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: Any) -> list[Work]:
    """Begin them all; their order matters only between the same two ranks.

    Raises: ValueError for what is no list of P2POp, and for ops of different groups.
    """
    if not isinstance(p2p_op_list, list) or not all(isinstance(o, P2POp) for o in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type "
            "``torch.distributed.P2POp``."
        )
    if any(o.group is not p2p_op_list[0].group for o in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    for o in p2p_op_list:
        peer = {"group_dst" if o.op is isend else "group_src": o.group_peer}
        works.append(o.op(o.tensor, group=o.group, tag=o.tag, **peer))
    return works


SAYS = """\
Shape: that of the other side's tensor, or of as many elements.
Dtypes: any, alike on both sides.
Raises: TypeError for what is no tensor, ValueError for this rank itself and for one that is not in
the group; DistBackendError where a rank has gone.
Memory: received in place; tensors that are not contiguous go by way of a copy."""
complete_functions(globals())
