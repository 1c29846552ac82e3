"""Distances and similarities as modules."""

from __future__ import annotations

from skimp._engine.tensor.options import InitVar, options
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Raises: RuntimeError in forward for shapes that don't broadcast."""


@options
class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps, row by row; p is kept as `norm`.

    Equal rows are not at distance 0, since eps is added to the difference:

    >>> torch.nn.PairwiseDistance()(torch.zeros(1, 4), torch.zeros(1, 4))
    tensor([2.0000e-06])

    Shape: (N, D) or (D,), both broadcast; the result has no last dimension, or 1 with `keepdim`.
    Dtypes: integers, floating point and complex numbers; integers count as the default float type.
    Memory: a new tensor.
    """

    p: InitVar[float] = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def _skimp_set_up(self, p: float) -> None:
        self.norm = p

    forward = calling("pairwise_distance", "x1, x2", "norm, eps, keepdim")


@options
class CosineSimilarity(Module):
    """The cosine of the angle between vectors; norms below eps count as eps.

    Shape: x1 and x2 broadcast; the result lacks `dim`.
    Dtypes: floating point.
    Memory: a new tensor.
    """

    dim: int = 1
    eps: float = 1e-8

    forward = calling("cosine_similarity", "x1, x2", "dim, eps")
