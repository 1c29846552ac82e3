"""How a tensor lies over ranks: plain values, which say nothing of how it gets there."""

from __future__ import annotations

from dataclasses import dataclass


class Placement:
    """One dim of a mesh: what its ranks have of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each has a part (of that dim)."""
        return False

    def is_replicate(self) -> bool:
        """Whether each has all."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the sum of what each has (or that reduction of it) is the tensor."""
        return False


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part of a dim."""

    dim: int

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has all."""

    def is_replicate(self) -> bool:
        return True

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """Each rank has a term, all of its shape; `reduce_op` makes the tensor of them.

    Programs name it in their plans. No tensor of skimp's lies so.
    """

    reduce_op: str = "sum"

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return reduce_op is None or reduce_op == self.reduce_op

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
