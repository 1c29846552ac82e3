"""The collectives with gradients: each gives new tensors, and its backward is the collective that
brings the gradients back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.dispatch.docstrings import complete_functions
from skimp._engine.tensor.tensor import Tensor
from skimp.autograd.function import Function
from skimp.distributed import collectives, reductions
from skimp.distributed.groups import chosen, group
from skimp.distributed.reduce_ops import ReduceOp

__all__ = [
    "ReduceOp", "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast",
    "gather", "group", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def _like(t: Tensor) -> Tensor:
    made: Tensor = t.new_empty(t.shape)
    return made


def _zeros(t: Tensor) -> Tensor:
    made: Tensor = t.new_zeros(t.shape)
    return made


class _AllReduce(Function):
    """The sum's gradient is the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, op: Any, where: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, where
        made = tensor.clone()
        reductions.all_reduce(made, op, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, where: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, where
        made = tensor.clone()
        collectives.broadcast(made, src, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grad)
        return None, None, found if chosen(ctx.group).rank() == ctx.src else _zeros(found)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, where: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, where
        made = tensor.clone()
        reductions.reduce(made, dst, op, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, where: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, where
        here = chosen(where).rank() == dst
        made = [_zeros(tensor) for _ in range(chosen(where).size())]
        collectives.gather(tensor.contiguous(), made if here else None, dst, where)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, where: Any, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, where
        made = _zeros(tensors[0])
        here = chosen(where).rank() == src
        collectives.scatter(made, list(tensors) if here else None, src, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grad)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, where: Any, *tensors: Tensor) -> Tensor:
        ctx.group = where
        made = _like(tensors[chosen(where).rank()])
        reductions.reduce_scatter(made, [t.contiguous() for t in tensors], op, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *_AllGather.apply(ctx.group, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, where: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = where
        made = [_like(tensor) for _ in range(chosen(where).size())]
        collectives.all_gather(made, tensor.contiguous(), where)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, *grads)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, where: Any, shapes: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = where, [tuple(t.shape) for t in tensors]
        made = [tensors[0].new_empty(shape) for shape in shapes]
        collectives.all_to_all(made, [t.contiguous() for t in tensors], where)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, where: Any, shape: Any, taken: Any, sent: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.shape, ctx.taken, ctx.sent = where, tuple(tensor.shape), taken, sent
        made = tensor.new_empty(shape)
        collectives.all_to_all_single(made, tensor.contiguous(), taken, sent, where)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = _AllToAllSingle.apply(ctx.group, ctx.shape, ctx.sent, ctx.taken, grad)
        return None, None, None, None, found


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The combination of all ranks' tensors, on each."""
    return _AllReduce.apply(op, group, tensor)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Any:
    """Rank `src`'s tensor, on each."""
    return _Broadcast.apply(src, group, tensor)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The combination of all ranks' tensors, on rank `dst`."""
    return _Reduce.apply(dst, op, group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> Any:
    """All ranks' tensors, on rank `dst`; zeros on others."""
    return _Gather.apply(dst, group, tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Any:
    """One of rank `src`'s tensors, on each; the others give tensors of the same shape."""
    return _Scatter.apply(src, group, *tensors)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Any:
    """The combination of all ranks' i-th tensors, on rank i; `output` says a shape only."""
    return _ReduceScatter.apply(op, group, *input_list)


def all_gather(tensor: Tensor, group: Any = None) -> Any:
    """All ranks' tensors, on each."""
    return _AllGather.apply(group, tensor)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> Any:
    """Each rank's i-th tensor, on rank i; the outputs say shapes only."""
    shapes = [tuple(t.shape) for t in output_tensor_list]
    return _AllToAll.apply(group, shapes, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
) -> Any:
    """Part i of each rank's tensor, on rank i; `output` says a shape only."""
    shape = tuple(output.shape)
    return _AllToAllSingle.apply(group, shape, output_split_sizes, input_split_sizes, input)


SAYS = """\
Shape: alike on all ranks where nothing else is said.
Dtypes: floating point and complex numbers where gradients are needed; alike on all ranks.
Raises: what the collective of that name raises.
Memory: new tensors."""
complete_functions(globals())
