"""torch.distributed.device_mesh: ranks in a grid of one or two dims, with a group per row."""

from __future__ import annotations

from typing import Any

import numpy as np

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
        self.device_type, self.mesh_dim_names = device_type, mesh_dim_names
        self._grid = grid
        rank = default().rank()
        self._groups = [_lines(grid, d, rank) for d in range(grid.ndim)]
        self._at = tuple(np.argwhere(grid == rank)[0].tolist()) if rank in grid else None

    @classmethod
    def _part(cls, device_type: str, grid: Any, groups: Any, names: Any, at: Any) -> DeviceMesh:
        made = cls.__new__(cls)
        made.device_type, made.mesh_dim_names = device_type, names
        made._grid, made._groups, made._at = grid, groups, at
        return made

    @classmethod
    def from_group(cls, group: ProcessGroup, device_type: str) -> DeviceMesh:
        """The mesh of one dim of a group's ranks."""
        grid = np.array(group.ranks)
        return cls._part(device_type, grid, [group], None, (group.rank(),))

    @property
    def mesh(self) -> Any:
        """The ranks, as a list of lists."""
        return self._grid.tolist()

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
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._grid.tolist()}{names})"

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                    "needs to be specified when device_mesh.ndim > 1."
                )
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r} of {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def __getitem__(self, name: str) -> DeviceMesh:
        """The line of a dim that this rank is in, as a mesh of one dim."""
        d = self._dim(name)
        group = self._groups[d]
        return self._part(
            self.device_type, np.array(group.ranks), [group], (name,), (group.rank(),)
        )

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

    def get_coordinate(self) -> list[int] | None:
        """This process's place; None if it is not in the mesh."""
        return None if self._at is None else list(self._at)


def _lines(grid: Any, dim: int, rank: int) -> Any:
    """Groups of all lines along a dim; this rank's."""
    if grid.ndim == 1 and grid.tolist() == default().ranks:
        return default()
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
    """A mesh of all ranks, in rows; the default group is made if there is none."""
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
