"""How a tensor lies over ranks."""

from __future__ import annotations

from typing import NamedTuple


class Placement:
    """One dim of a mesh: what its ranks have of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each has a part (of that dim)."""
        return False

    def is_replicate(self) -> bool:
        """Whether each has all."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the sum of what each has is the tensor."""
        return False


class _Shard(NamedTuple):
    dim: int


class Shard(_Shard, Placement):
    """Each rank has a part of a dim."""

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim


class Replicate(Placement):
    """Each rank has all."""

    def is_replicate(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replicate)

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Replicate()"
