"""torch.Size: the shape of a tensor, a tuple of ints."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, Self, SupportsIndex, overload

_tuple = tuple.__new__
_item: Any = tuple.__getitem__


def _integer(place: int, value: Any) -> Any:
    """An integer of any kind as it is, what has `__index__` as the int that it says."""
    if isinstance(value, int):
        return value
    kind = type(value)
    if not hasattr(kind, "__index__"):
        found = f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{found}')")
    return operator.index(value)


class Size(tuple[int, ...]):
    """A shape. Slices and sums of it are shapes too, as in PyTorch."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = (), /) -> Self:
        made = _tuple(cls, sizes)
        for size in made:
            if type(size) is not int:
                return _tuple(cls, [_integer(i, v) for i, v in enumerate(made)])
        return made

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, map(int, self)))}])"

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)

    @overload
    def __getitem__(self, i: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, i: slice) -> Size: ...
    def __getitem__(self, i: Any) -> Any:
        item = _item(self, i)
        return _tuple(Size, item) if type(item) is tuple else item

    def __add__(self, other: object) -> Size:
        if not isinstance(other, tuple):
            kind = type(other).__name__
            raise TypeError(f"can only concatenate tuple (not {kind}) to torch.Size")
        return Size((*self, *other))

    def __radd__(self, other: object) -> Size:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, n: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__
