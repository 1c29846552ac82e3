"""What a tensor's rows on this rank are a part of: `DTensor`'s names on plain tensors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor, empty
from skimp.distributed import transfers
from skimp.distributed.arguments import outgoing
from skimp.distributed.collectives import start
from skimp.distributed.tensor.placements import Placement, Replicate, Shard
from skimp.distributed.work import Label


class Spec(NamedTuple):
    """The whole tensor's shape, and which dim is dealt out (None: each rank has all): over the last
    dim of the mesh; along another one ranks have the same.
    """

    mesh: Any
    shape: tuple[int, ...]
    dim: int | None

    @property
    def group(self) -> Any:
        """The ranks that have other parts."""
        return self.mesh.get_group(self.mesh.ndim - 1)

    @property
    def rank(self) -> int:
        """This process's place among them."""
        return int(self.group.rank())

    @property
    def first(self) -> bool:
        """Whether this process is, of those that have the same part, the first."""
        return not any(self.mesh.get_coordinate()[:-1])

    def placements(self) -> tuple[Placement, ...]:
        """How it lies, by the mesh's dims."""
        last = Replicate() if self.dim is None else Shard(self.dim)
        return (*[Replicate()] * (self.mesh.ndim - 1), last)

    def folded(self) -> tuple[int, ...]:
        """The shape, of at least one dim."""
        return self.shape or (1,)

    def rows(self, rank: int) -> tuple[int, int]:
        """The first and the last of a rank's rows: as `chunk` deals them out."""
        n = self.folded()[0]
        each = -(-n // self.group.size())
        return min(rank * each, n), min((rank + 1) * each, n)

    def local(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
        first, last = self.rows(rank)
        return (last - first, *self.folded()[1:])


def attach(t: Tensor, spec: Spec) -> Tensor:
    """Let a tensor answer as a DTensor: `device_mesh`, `placements`, `to_local`, `full_tensor`."""
    made: Any = t
    same = t.detach()  # not the tensor itself, which would hold itself
    made._spec = spec
    made.device_mesh = spec.mesh
    made.placements = spec.placements()
    made.to_local = lambda **_: same.detach()
    made.full_tensor = lambda **_: _gathered(same, spec)
    return t


def spec_of(t: Any) -> Spec | None:
    """What the tensor is a part of; None: of nothing."""
    found: Spec | None = getattr(t, "_spec", None)
    return found


def full_tensor(t: Tensor) -> Tensor:
    """The whole tensor, from all ranks' parts: all ranks must ask."""
    spec = spec_of(t)
    return t.detach().clone() if spec is None else _gathered(t.detach(), spec)


def _gathered(t: Tensor, spec: Spec) -> Tensor:
    if spec.dim is None:
        return t.clone()
    group, width = spec.group, math.prod(spec.shape[1:])
    with no_grad():
        made = empty(spec.shape, t._dtype)
    bounds = [spec.rows(r) for r in range(group.size())]
    counts = [width * (last - first) for first, last in bounds]
    given = outgoing(t)
    target = made._storage.view(made._skimp_layout_of(), t._dtype.np)

    def begin(_: Any) -> Any:
        return transfers.all_gather(group, given, target, t._dtype, counts)

    start(group, Label("full_tensor", (made,)), begin, [made], None, False)
    return made
