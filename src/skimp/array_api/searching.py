"""Where values are, in which order, and how many different ones there are."""

from __future__ import annotations

from typing import Any, NamedTuple

import skimp as torch
from skimp import Tensor
from skimp.array_api.types import alike


class UniqueAll(NamedTuple):
    """Different values, where each is first, which of them each element is, how often each is."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Different values, and how often each is."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Different values, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first of the largest elements."""
    return torch.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first of the smallest elements."""
    return torch.argmin(x, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of what is not zero, one vector for each dimension, of which there is one."""
    if x.dim() == 0:
        raise ValueError("nonzero: x has no dimensions; reshape it to (1,)")
    return tuple(torch.nonzero(x, as_tuple=True))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where values have their places in a sorted vector."""
    ordered, values = alike(x1, x2)
    sorter = None if sorter is None else sorter.long()
    return torch.searchsorted(ordered, values, side=side, sorter=sorter)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of one or of the other."""
    left, right = alike(x1, x2)
    chosen: Tensor = torch.where(condition, left, right)
    return chosen


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that put the elements in order along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[1]


def unique_all(x: Tensor, /) -> UniqueAll:
    """All there is to say about the different values, which are sorted."""
    values, inverse, counts = _unique(x)
    order = torch.argsort(inverse.reshape(-1), stable=True)
    first = order[torch.cumsum(counts, 0) - counts]
    return UniqueAll(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, and how often each is."""
    values, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, and which of them each element is."""
    values, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values, sorted."""
    return _unique(x)[0]


def _unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, inverse and counts; complex numbers, which `torch.unique` refuses, as pairs."""
    if not x.is_complex():
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values, inverse, counts
    pairs = torch.view_as_real(x.resolve_conj().reshape(-1))
    values, inverse, counts = torch.unique(pairs, return_inverse=True, return_counts=True, dim=0)
    return torch.view_as_complex(values), inverse.reshape(x.shape), counts
