"""torch.distributed._functional_collectives: collectives that give new tensors, on a group, a mesh,
a mesh and its dim, or a list of ranks. They are done when they return, and have gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.shape.joining import cat
from skimp.distributed.groups import ProcessGroup, chosen, world
from skimp.distributed.nn import functional
from skimp.distributed.reduce_ops import ReduceOp

__all__ = [
    "all_gather_single", "all_gather_single_autograd", "all_gather_tensor",
    "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "reduce_scatter_single",
    "reduce_scatter_single_autograd", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
    "wait_tensor",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


def _group(given: Any) -> ProcessGroup:
    if given is None or isinstance(given, ProcessGroup):
        return chosen(given)
    if isinstance(given, tuple) and not isinstance(given[0], int):
        return _group(given[0].get_group(given[1]))
    if hasattr(given, "get_group"):
        if given.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together")
        return _group(given.get_group())
    for each in world.groups:
        if given == each.group_name or list(given) == each.ranks:
            return each
    raise ValueError(f"there is no group of {given!r}: make it with new_group")


def _operation(name: str) -> ReduceOp:
    return ReduceOp[name.upper()]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: it is there already."""
    return tensor


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Any:
    """Rank `src`'s tensor, on each."""
    return functional.broadcast(self, src, _group(group))


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Any:  # noqa: N803
    """The combination of all ranks' tensors ("sum", "avg", "max", ...), on each."""
    return functional.all_reduce(self, _operation(reduceOp), _group(group))


def all_reduce_coalesced(
    self: Sequence[Tensor],
    reduceOp: str,  # noqa: N803
    group: Any,
    tag: str = "",
) -> list[Any]:
    """`all_reduce` of each."""
    return [all_reduce(t, reduceOp, group) for t in self]


def all_gather_single(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Any:
    """All ranks' tensors, one after another along a dim, on each."""
    return cat(functional.all_gather(self, _group(group)), gather_dim)


def reduce_scatter_single(
    self: Tensor,
    reduceOp: str,  # noqa: N803
    scatter_dim: int,
    group: Any,
    tag: str = "",
) -> Any:
    """The combination of all ranks' tensors; rank i gets the i-th part along a dim."""
    where = _group(group)
    if self.shape[scatter_dim] % where.size():
        raise AssertionError(
            f"input dimension {scatter_dim} ({self.shape[scatter_dim]} must be a multiple of "
            f"group_size {where.size()}"
        )
    parts = self.chunk(where.size(), scatter_dim)
    return functional.reduce_scatter(parts[0], list(parts), _operation(reduceOp), where)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: list[int] | None,
    input_split_sizes: list[int] | None,
    group: Any,
    tag: str = "",
) -> Any:
    """Part i of each rank's tensor, on rank i. Sizes: of both sides, or of none for equal parts."""
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError(
            "output_split_sizes and input_split_sizes must either be specified together or both "
            "set to None"
        )
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    made = self.new_empty((rows, *self.shape[1:]))
    where = _group(group)
    return functional.all_to_all_single(made, self, output_split_sizes, input_split_sizes, where)


all_gather_single_autograd = all_gather_single
reduce_scatter_single_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single


def _older(name: str, newer: Callable[..., Any]) -> Callable[..., Any]:
    home = "torch.distributed._functional_collectives"

    def function(*args: Any, **words: Any) -> Any:
        warn(
            f"`{home}.{name}` is deprecated. Please use `{home}.{newer.__name__}` instead.",
            FutureWarning,
        )
        return newer(*args, **words)

    function.__name__, function.__doc__ = name, f"`{newer.__name__}` under its older name."
    return function


all_gather_tensor = _older("all_gather_tensor", all_gather_single)
all_gather_tensor_autograd = _older("all_gather_tensor_autograd", all_gather_single)
reduce_scatter_tensor = _older("reduce_scatter_tensor", reduce_scatter_single)
reduce_scatter_tensor_autograd = _older("reduce_scatter_tensor_autograd", reduce_scatter_single)
