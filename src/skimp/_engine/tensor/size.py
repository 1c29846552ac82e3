"""torch.Size: the shape of a tensor, a tuple of ints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, SupportsIndex, overload


class Size(tuple[int, ...]):
    """A shape. Slices and sums of it are shapes too, as in PyTorch."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)

    @overload
    def __getitem__(self, i: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, i: slice) -> Size: ...
    def __getitem__(self, i: Any) -> Any:
        item = tuple.__getitem__(self, i)
        return Size(item) if isinstance(i, slice) else item

    def __add__(self, other: Iterable[int]) -> Size:  # type: ignore[override]
        return Size((*self, *other))

    def __radd__(self, other: Iterable[int]) -> Size:
        return Size((*other, *self))

    def __mul__(self, n: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__
