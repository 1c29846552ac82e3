"""Samplers: in which order the items of a dataset come. They draw as PyTorch's do, number for
number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, empty
from skimp._ops.create.creation import as_tensor
from skimp._ops.random.generator import Generator
from skimp._ops.random.makers import multinomial, randint, randperm

T_co = TypeVar("T_co", covariant=True)


def drawn_seed(generator: Generator | None) -> int:
    """A seed drawn from a stream."""
    seed: int = empty((), dtypes.int64).random_(generator=generator).item()
    return seed


def _positive(num_samples: Any) -> bool:
    return isinstance(num_samples, int) and not isinstance(num_samples, bool) and num_samples > 0


class Sampler(Generic[T_co]):
    """Indices one after the other: a subclass has `__iter__`, and `__len__` where it is known."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """From the first item to the last."""

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """In random order, again and again until `num_samples` are drawn; or, with replacement, anew
    each time.

    Without a generator each pass has one of its own, seeded from the default one.
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not _positive(self.num_samples):
            raise ValueError(
                "num_samples should be a positive integer value, but got "
                f"num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """How many indices a pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator or Generator().manual_seed(drawn_seed(None))
        if self.replacement:
            yield from self._skimp_drawn(n, generator)
            return
        for _ in range(self.num_samples // n):
            yield from randperm(n, generator=generator).tolist()
        yield from randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def _skimp_drawn(self, n: int, generator: Generator) -> Iterator[int]:
        """Thirty-two at a time: a program may ask for more than it ever takes."""
        for start in range(0, self.num_samples + 1, 32):  # with a last draw of none, as PyTorch's
            size = (min(32, self.num_samples - start),)
            yield from randint(high=n, size=size, dtype=dtypes.int64, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with given weights, which need not sum up to 1."""

    weights: Tensor
    num_samples: int
    replacement: bool

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        if not _positive(num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        found = as_tensor(weights, dtype=dtypes.float64)
        if len(found.shape) != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(found.shape)}"
            )
        self.weights = found
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        yield from multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        ).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Another sampler's indices in lists of `batch_size`, the last one shorter or dropped."""

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        if not _positive(batch_size):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
