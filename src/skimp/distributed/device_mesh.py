"""torch.distributed.device_mesh: ranks in a grid of one or two dims, with a group per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.memory.call_site import warn
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import tensor
from skimp.distributed.groups import ProcessGroup, default, is_initialized
from skimp.distributed.joining import init_process_group as _init
from skimp.distributed.subgroups import new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in a grid, whose dims may have names. Making one makes a group per line of each dim, so
    all ranks must.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> None:
        if not is_initialized():
            _init()
        grid = np.asarray(getattr(mesh, "tolist", lambda: mesh)())
        if grid.ndim not in (1, 2):
            raise RuntimeError(f"skimp has meshes of one and two dims, not of {grid.ndim}")
        groups = [_lines(grid, d, default().rank()) for d in range(grid.ndim)]
        strides = contiguous_strides(grid.shape)
        self._set(device_type, grid, groups, _names(mesh_dim_names), strides)

    def _set(
        self,
        device_type: str,
        grid: Any,
        groups: list[Any],
        names: tuple[str, ...] | None,
        strides: tuple[int, ...],
    ) -> None:
        self.device_type, self.mesh_dim_names = device_type, names
        self._grid, self._groups, self._strides = grid, groups, strides
        self._flat: dict[str, DeviceMesh] = {}  # by name, of the mesh and of its lines
        rank = default().rank()
        self._at = tuple(np.argwhere(grid == rank)[0].tolist()) if rank in grid else None

    @classmethod
    def _line(cls, device_type: str, group: Any, name: str | None, stride: int = 1) -> DeviceMesh:
        """The mesh of one dim of a group's ranks."""
        made = cls.__new__(cls)
        made._set(device_type, np.array(group.ranks), [group], _names(name), (stride,))
        return made

    @classmethod
    def from_group(
        cls, group: ProcessGroup, device_type: str, *, mesh_dim_names: Any = None
    ) -> DeviceMesh:
        """The mesh of one dim of a group's ranks."""
        return cls._line(device_type, group, mesh_dim_names)

    @classmethod
    def _of_two(cls, first: ProcessGroup, last: ProcessGroup, device_type: str) -> DeviceMesh:
        """The mesh of two dims of this rank's groups along them: all lines are as its own."""
        grid = np.add.outer(first.ranks, last.ranks) - default().rank()
        made = cls.__new__(cls)
        made._set(device_type, grid, [first, last], None, contiguous_strides(grid.shape))
        return made

    @property
    def mesh(self) -> Tensor:
        """The ranks: int32[shape]."""
        return tensor(self._grid.tolist(), dtype=dtypes.int32)

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return int(self._grid.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self._grid.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks it has, in all or along a dim."""
        return int(self._grid.size if mesh_dim is None else self._grid.shape[mesh_dim])

    def __repr__(self) -> str:
        names, one = self.mesh_dim_names, len(self.shape) == 1
        sizes = [str(n) for n in self.shape]
        if names is not None:
            sizes = [f"{name}={n}" for name, n in zip(names, sizes, strict=True)]
        elif one:
            sizes.append("")
        steps = [str(s) if n > 1 else "()" for n, s in zip(self.shape, self._strides, strict=True)]
        shape = ", ".join(sizes).rstrip(" ")
        stride = ", ".join(steps) + ("," if one else "")
        return f"DeviceMesh(({shape}), {self.device_type!r}, stride=({stride}))"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        ranks = tuple(self._grid.reshape(-1).tolist())
        return self.shape, ranks, self.device_type, self.mesh_dim_names

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                    "needs to be specified when device_mesh.ndim > 1."
                )
            return 0
        return self._of_names((mesh_dim,))[0] if isinstance(mesh_dim, str) else mesh_dim

    def _of_names(self, names: tuple[str, ...]) -> list[int]:
        """The dims of these names, which must be in their order."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        known, said = self.mesh_dim_names, f"Invalid mesh_dim_names {names} specified."
        if not set(names) <= set(known):
            raise KeyError(f"{said} Valid mesh_dim_names are {[*known, *self._flat]}.")
        found = [known.index(name) for name in names]
        if found != sorted(set(found)):
            raise KeyError(f"{said} Mesh dim indices should be in ascending order.")
        return found

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The line of a dim that this rank is in, as a mesh of one dim; all dims: the mesh. A name
        given to `_flatten` is of all its ranks.
        """
        names = _names(mesh_dim_names) or ()
        if len(names) == 1 and names[0] in self._flat:
            warn(
                "Slicing a flattened dim from root mesh will be deprecated in PT 2.11. Users need "
                "to bookkeep the flattened mesh directly. ",
                UserWarning,
            )
            return self._flat[names[0]]
        dims = self._of_names(names)
        if len(dims) == self.ndim:
            return self
        d = dims[0]
        return self._line(self.device_type, self._groups[d], names[0], self._strides[d])

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:  # PyTorch's name
        """The mesh of one dim of all its ranks; all of them must call."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if self.mesh_dim_names == (name,):
            return self
        if name not in self._flat:
            group = self._groups[0] if self.ndim == 1 else _group(self._grid.reshape(-1).tolist())
            self._flat[name] = self._line(self.device_type, group, name)
        return self._flat[name]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank's line along a dim."""
        found: ProcessGroup = self._groups[self._dim(mesh_dim)]
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """This rank's groups, by dim."""
        return list(self._groups)

    def get_rank(self) -> int:
        """This process's global rank."""
        return default().rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's place along a dim."""
        return self.get_group(mesh_dim).rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This process's place; None if it is not in the mesh."""
        return self._at


def _names(given: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Names of dims; one name may be alone."""
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


def _group(ranks: list[int]) -> Any:
    """The group of these ranks."""
    return default() if ranks == default().ranks else new_group(ranks)


def _lines(grid: Any, dim: int, rank: int) -> Any:
    """Groups of all lines along a dim; this rank's."""
    if grid.ndim == 1:
        return _group(grid.tolist())
    mine = None
    for line in np.moveaxis(grid, dim, -1).reshape(-1, grid.shape[dim]).tolist():
        made = new_group(line)
        if rank in line:
            mine = made
    return mine


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of all ranks, in rows; the default group is made if there is none.

    Raises: RuntimeError for names that are not one for each dim or repeat themselves, and for sizes
    that don't multiply to the number of ranks.
    """
    if mesh_dim_names is not None and len(mesh_dim_names) != len(mesh_shape):
        raise RuntimeError(
            "mesh_shape and mesh_dim_names should have same length! Found "
            f"len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}."
        )
    if not is_initialized():
        _init()
    n = int(np.prod(mesh_shape))
    if n > default().size():
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {default().size()}, but found {n} "
            "ranks!"
        )
    return DeviceMesh(device_type, np.arange(n).reshape(mesh_shape), mesh_dim_names=mesh_dim_names)
