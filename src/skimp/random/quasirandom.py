"""torch.quasirandom: points that fill a cube evenly; imported when it is named, for SciPy is."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.random import sobol
from skimp._ops.create.options import dense_tensor
from skimp._ops.create.ranges import arange
from skimp._ops.random.generator import Generator
from skimp._ops.random.makers import randint

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol sequence in the unit cube, scrambled (Owen, 1998) if asked: they are
    PyTorch's for the same seed.

    >>> torch.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])

    Shape: `draw(n)` gives (n, dimension).
    Dtypes: float32 and float64.
    Raises: ValueError for a dimension below 1 or above 21201; ImportError without SciPy, whose
    direction numbers it takes.
    """

    MAXBIT = sobol.BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.seed = seed
        self.scramble = scramble
        self.dimension = dimension
        self.sobolstate = fresh(sobol.directions(dimension), dtypes.int64)
        self.shift = dense_tensor((dimension,), dtypes.int64, zeroed=True)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(
        self, n: int = 1, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next n points, in the default dtype or another."""
        dtype = promotion.get_default_dtype() if dtype is None else dtypes.asked(dtype)
        first = 1 if self.num_generated == 0 else 0
        if n - first > 0 and dtype not in dtypes.FLOATING:
            raise no_kernel("_sobol_engine_draw", dtype)
        if n < first:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n - first}: "
                f"{[n - first, self.dimension]}"
            )
        result = dense_tensor((n, self.dimension), dtype)
        result[:first] = self._first_point.to(dtype)
        self._draw_into(result, first)
        self.num_generated += n
        if out is None:
            return result
        return out.resize_as_(result).copy_(result)

    def _draw_into(self, result: Tensor, first: int) -> None:
        target = result._skimp_writable()[first:]
        drawn = self.num_generated - 1 + first
        last = sobol.draw(target, self.quasi._skimp_array(), self.sobolstate._skimp_array(), drawn)
        self.quasi = fresh(last, dtypes.int64)

    def draw_base2(
        self, m: int, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next 2**m points, where that keeps the sequence balanced."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out n points."""
        first = 1 if self.num_generated == 0 else 0
        drawn = self.num_generated - 1 + first
        numbers = self.sobolstate._skimp_array()
        self.quasi = fresh(
            sobol.skip(self.quasi._skimp_array(), numbers, drawn, max(n - first, 0)), dtypes.int64
        )
        self.num_generated += n
        return self

    def _scramble(self) -> None:
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        shift = randint(2, (self.dimension, self.MAXBIT), generator=generator)
        triangles = randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator)
        self.shift = (shift << arange(self.MAXBIT)).sum(1)
        found = sobol.scrambled(self.sobolstate._skimp_array(), triangles._skimp_array())
        self.sobolstate = fresh(found, dtypes.int64)

    def __repr__(self) -> str:
        told: list[Any] = [f"dimension={self.dimension}"]
        if self.scramble:
            told.append("scramble=True")
        if self.seed is not None:
            told.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(told)})"
