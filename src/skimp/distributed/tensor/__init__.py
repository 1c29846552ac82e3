"""torch.distributed.tensor: the names of tensors that ranks hold together. A rank's part is a plain
tensor of its own shape that answers `to_local`, `full_tensor`, `placements` and `device_mesh`.
"""

from __future__ import annotations

from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.collectives import broadcast
from skimp.distributed.tensor import norms
from skimp.distributed.tensor.placements import Partial, Placement, Replicate, Shard
from skimp.distributed.tensor.spec import Spec, attach, spec_of

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor", "norms"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


class _Parts(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and spec_of(value) is not None


class DTensor(metaclass=_Parts):
    """For `isinstance`: a tensor of which this rank has a part."""

    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: Any, placements: Any, **_: Any) -> Tensor:
        """The rank's part, as a part: of equal parts of dim 0, or of the whole on each rank."""
        dim = _dealt("DTensor.from_local", placements)
        made = local_tensor.detach()
        if dim == 0:
            rows = local_tensor.shape[0] * device_mesh.size()
            return attach(made, Spec(device_mesh, (rows, *local_tensor.shape[1:]), 0))
        return attach(made, Spec(device_mesh, tuple(local_tensor.shape), None))


def distribute_tensor(tensor: Tensor, device_mesh: Any, placements: Any = None) -> Tensor:
    """This rank's part of rank 0's tensor: rows of dim 0 (`Shard(0)`), or all (`Replicate()`).

    Shape: rank 0's, or for `Shard(0)` this rank's rows of it.
    Dtypes: any.
    Raises: RuntimeError for other placements than these two.
    Memory: a new tensor of this rank's part.
    """
    dim = _dealt("distribute_tensor", placements)
    whole = tensor.detach().clone()
    broadcast(whole, group=device_mesh.get_group(), group_src=0)
    if dim is None:
        return attach(whole, Spec(device_mesh, tuple(tensor.shape), None))
    spec = Spec(device_mesh, tuple(tensor.shape), 0)
    first, last = spec.rows(device_mesh.get_local_rank())
    return attach(whole[first:last].clone(), spec)


def _dealt(op: str, placements: Any) -> int | None:
    """The dim that ranks have parts of: 0, or None where each has all."""
    how = tuple(placements or [Replicate()])
    if how == (Replicate(),):
        return None
    if how == (Shard(0),):
        return 0
    raise RuntimeError(
        f"{op}: placements {how}: skimp has tensors in rows of dim 0, (Shard(0),), or whole on each"
        " rank, (Replicate(),), over a mesh of one dim"
    )
