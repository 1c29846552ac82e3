"""Datasets: what has items by number, or gives them one after the other."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.random.generator import Generator, default_generator
from skimp._ops.random.makers import randperm

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Dataset(Generic[T_co]):
    """Items by number: a subclass has `__getitem__`, and `__len__` where it has an end.

    `__getitems__(indices)`, where there is one, gives a whole batch at once.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Items one after the other: a subclass has `__iter__`.

    Each worker of a loader iterates over a copy of its own: `get_worker_info()` inside of
    `__iter__` says which part to give, else every item comes once from each worker.
    """

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of tensors that have equally many, as tuples of views; nothing is copied.

    AssertionError for tensors of different lengths.
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.size(0) != tensors[0].size(0) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Items of several datasets side by side, as a tuple or, of keyword arguments, as a dict.

    ValueError for both kinds, for none, and for datasets of different lengths. A batch is asked of
    each with `__getitems__` where it has that, ValueError where it gives another number of items.
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) "
                "like input, not both."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        parts = self._skimp_parts()
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise ValueError("Size mismatch between datasets")

    def _skimp_parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _skimp_joined(self, items: list[Any]) -> Any:
        return (
            dict(zip(self.datasets, items, strict=True))
            if isinstance(self.datasets, dict)
            else tuple(items)
        )

    def __getitem__(self, index: Any) -> Any:
        return self._skimp_joined([part[index] for part in self._skimp_parts()])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        columns = [_items(part, indices) for part in self._skimp_parts()]
        return [self._skimp_joined(list(items)) for items in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: list[Any]) -> list[Any]:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[i] for i in indices]
    items = dataset.__getitems__(indices)
    if len(items) != len(indices):
        raise ValueError(
            f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}"
        )
    return cast("list[Any]", items)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other, as one; negative numbers count from the end.

    AssertionError for no dataset, and for an iterable one. Lengths are asked for once, here.
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Where each dataset ends: the sums of the lengths up to it."""
        return list(itertools.accumulate(len(d) for d in sequence))

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: Any) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - before]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other; AssertionError, on the way, for others."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _skimp_checked(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield d

    def __iter__(self) -> Iterator[Any]:
        for d in self._skimp_checked():
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self._skimp_checked())


class Subset(Dataset[T_co]):
    """The items of a dataset at `indices`, in their order; both are kept, not copied."""

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> T_co:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        chosen = [self.indices[i] for i in indices]
        whole = getattr(self.dataset, "__getitems__", None)
        if callable(whole):
            return cast("list[T_co]", whole(chosen))
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T],
    lengths: Sequence[int | float],
    generator: Generator | None = default_generator,
) -> list[Subset[T]]:
    """Parts of given lengths, or of given fractions that sum up to 1, drawn from `generator`.

    Fractions are rounded down, and what is left over goes to the first parts. ValueError for
    lengths that don't sum up to the dataset's; a warning for a part without items. The parts are
    `Subset`s, which copy nothing.

        >>> [len(part) for part in torch.utils.data.random_split(range(10), [0.5, 0.25, 0.25])]
        [6, 2, 2]

    Raises: ValueError for lengths that don't sum up to the dataset's, and fractions that don't sum
    up to 1.
    """
    total = len(cast("Sized", dataset))
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _fractions(lengths, total)
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    whole = cast("Sequence[int]", lengths)
    order: list[int] = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(whole)
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, whole, strict=True)]


def _fractions(fractions: Sequence[float], total: int) -> list[int]:
    """Lengths rounded down, and what is left over given to the first ones, one each in turn."""
    for i, part in enumerate(fractions):
        if part < 0 or part > 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [math.floor(total * part) for part in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, n in enumerate(lengths):
        if n == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return lengths
