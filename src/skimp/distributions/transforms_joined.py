"""Transforms side by side along a dimension."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.transform import Transform
from skimp.distributions.utils import sum_rightmost
from skimp.nn import ops


class _Joined(Transform):
    """Several transforms, each of its part of dimension `dim`."""

    def _skimp_hold(self, tseq: list[Any], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("every member of tseq must be a Transform")
        Transform.__init__(self, cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _skimp_parts(self, x: Tensor) -> Any:
        """Each transform with its part of x."""
        raise NotImplementedError

    def _skimp_join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _skimp_sized(self, x: Tensor, size: int) -> None:
        if x.size(self.dim) != size:
            raise AssertionError(f"size {x.size(self.dim)} of dim {self.dim} is not {size}")

    def _call(self, x: Tensor) -> Tensor:
        return self._skimp_join([t(part) for t, part in self._skimp_parts(x)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._skimp_join([t.inv(part) for t, part in self._skimp_parts(y)])

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)


class CatTransform(_Joined):
    """Transforms side by side along `dim`, each of its own one of `lengths`, by default 1.

    AssertionError for other numbers of lengths than transforms, or an x whose size is not their
    sum.
    """

    _skimp_arguments = ("transforms", "dim", "lengths")

    def __init__(
        self, tseq: list[Any], dim: int = 0, lengths: list[int] | None = None, cache_size: int = 0
    ) -> None:
        self._skimp_hold(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.transforms)} transforms, {len(self.lengths)} lengths")

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of dimension `dim`."""
        return sum(self.lengths)

    def _skimp_parts(self, x: Tensor) -> Any:
        self._skimp_sized(x, self.length)
        return zip(self.transforms, x.split(self.lengths, self.dim), strict=True)

    def _skimp_join(self, parts: list[Tensor]) -> Tensor:
        return ops.cat(parts, dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slopes = []
        for (t, a), (_, b) in zip(self._skimp_parts(x), self._skimp_parts(y), strict=True):
            slope = t.log_abs_det_jacobian(a, b)
            if t.event_dim < self.event_dim:
                slope = sum_rightmost(slope, self.event_dim - t.event_dim)
            slopes.append(slope)
        dim = self.dim if self.dim < 0 else self.dim - x.dim()
        dim += self.event_dim
        return ops.cat(slopes, dim=dim) if dim < 0 else sum(slopes)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """Transforms side by side along `dim`, each of one position.

    AssertionError for an x whose size there is not their number.
    """

    _skimp_arguments = ("transforms", "dim")

    def __init__(self, tseq: list[Any], dim: int = 0, cache_size: int = 0) -> None:
        self._skimp_hold(tseq, dim, cache_size)

    def _skimp_parts(self, x: Tensor) -> Any:
        self._skimp_sized(x, len(self.transforms))
        return zip(self.transforms, x.unbind(self.dim), strict=True)

    def _skimp_join(self, parts: list[Tensor]) -> Tensor:
        return ops.stack(parts, dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        both = zip(self._skimp_parts(x), self._skimp_parts(y), strict=True)
        return self._skimp_join([t.log_abs_det_jacobian(a, b) for (t, a), (_, b) in both])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
