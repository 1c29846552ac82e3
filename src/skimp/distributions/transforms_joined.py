"""Transforms side by side along a dimension."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.transform import Transform
from skimp.distributions.utils import sum_rightmost
from skimp.nn import whole


class CatTransform(Transform):
    """Transforms side by side along `dim`, each on its own length."""

    def __init__(
        self, tseq: list[Any], dim: int = 0, lengths: list[int] | None = None, cache_size: int = 0
    ) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("every member of tseq must be a Transform")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.transforms)} transforms, {len(self.lengths)} lengths")
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, x: Tensor) -> Any:
        if x.size(self.dim) != self.length:
            raise AssertionError(f"size {x.size(self.dim)} of dim {self.dim} is not {self.length}")
        return zip(self.transforms, x.split(self.lengths, self.dim), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return whole.cat([t(part) for t, part in self._parts(x)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return whole.cat([t.inv(part) for t, part in self._parts(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slopes = []
        for (t, a), (_, b) in zip(self._parts(x), self._parts(y), strict=True):
            slope = t.log_abs_det_jacobian(a, b)
            if t.event_dim < self.event_dim:
                slope = sum_rightmost(slope, self.event_dim - t.event_dim)
            slopes.append(slope)
        dim = self.dim if self.dim < 0 else self.dim - x.dim()
        dim += self.event_dim
        return whole.cat(slopes, dim=dim) if dim < 0 else sum(slopes)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(Transform):
    """Transforms side by side along `dim`, each on one position."""

    def __init__(self, tseq: list[Any], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("every member of tseq must be a Transform")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, x: Tensor) -> Any:
        if x.size(self.dim) != len(self.transforms):
            raise AssertionError(
                f"size {x.size(self.dim)} of dim {self.dim} is not {len(self.transforms)}"
            )
        return zip(self.transforms, x.unbind(self.dim), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return whole.stack([t(part) for t, part in self._parts(x)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return whole.stack([t.inv(part) for t, part in self._parts(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        both = zip(self._parts(x), self._parts(y), strict=True)
        slopes = [t.log_abs_det_jacobian(a, b) for (t, a), (_, b) in both]
        return whole.stack(slopes, dim=self.dim)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
