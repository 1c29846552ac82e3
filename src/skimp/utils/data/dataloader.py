"""DataLoader: batches of a dataset, made here or in worker processes. Orders and seeds are
PyTorch's.
"""

from __future__ import annotations

import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from skimp._engine.interrupts import finalizer
from skimp._engine.memory import call_site
from skimp._ops.random.generator import Generator
from skimp.config import cores
from skimp.utils.data._utils.collate import default_collate, default_convert
from skimp.utils.data._utils.fetch import Fetcher
from skimp.utils.data._utils.pool import IMPATIENCE, Pool, Schedule
from skimp.utils.data._utils.worker import ExceptionWrapper, Work, get_worker_info
from skimp.utils.data.dataset import Dataset, IterableDataset
from skimp.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    drawn_seed,
)

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
Collate = Callable[[list[Any]], Any]
WorkerInit = Callable[[int], None]
FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _InfiniteConstantSampler(Sampler[None]):
    """The indices of an iterable dataset, which has none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """An iterable of batches of a dataset, in PyTorch's order for the same seed.

    `batch_size` samples are made one batch by `collate_fn` (`default_collate`); with None samples
    come one by one, through `default_convert`. The order is the dataset's, a random one
    (`shuffle`), or that of a `sampler` or `batch_sampler`. `drop_last` drops a last batch that is
    shorter. Each pass draws one seed from `generator`.

    With `num_workers` that many processes make the batches, `prefetch_factor` each ahead; large
    tensors come back in shared memory. `in_order=False` gives batches as they arrive;
    `persistent_workers` keeps the processes for the next pass; a batch that takes longer than
    `timeout` seconds is a RuntimeError, as is a worker that died. An exception in a worker is
    raised here, with its type and traceback. `pin_memory` is accepted: there is nothing to pin to.

    ValueError for options that exclude each other, and for setting one of them later.
    """

    _skimp_ready = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: WorkerInit | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        _check_batches(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            sampler = _default_sampler(dataset, self._iterable, bool(shuffle), generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn: Collate = collate_fn or (
            default_collate if batch_sampler is not None else default_convert
        )
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        self._said: dict[str, int] = {}  # the length that an iterable dataset claimed
        self._iterator: _Workers | None = None
        self._skimp_ready = True
        _warn_of_many(num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._skimp_ready and name in FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context, the name of one, or None for the default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: Any) -> None:
        if given is not None and not self.num_workers:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers "
                f"> 0), but got num_workers={self.num_workers}"
            )
        if isinstance(given, str):
            if given not in multiprocessing.get_all_start_methods():
                raise ValueError(
                    "multiprocessing_context option should specify a valid start method in "
                    f"{multiprocessing.get_all_start_methods()!r}, but got "
                    f"multiprocessing_context={given!r}"
                )
            given = multiprocessing.get_context(given)
        elif given is not None and not isinstance(given, multiprocessing.context.BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string "
                f"specifying the start method, but got multiprocessing_context={given}"
            )
        self._context = given

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Iterator[Any]:
        if not self.num_workers:
            return _Here(self)
        if not self.persistent_workers:
            return _Workers(self)
        if self._iterator is None:
            self._iterator = _Workers(self)
        else:
            self._iterator.rematerialize()
        return self._iterator

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        n = self._said["length"] = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)


class _Iterator(Iterator[Any]):
    """One pass; PyTorch's order of draws: the workers' base seed, then what the sampler draws."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.pin_memory:
            call_site.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used."
            )
        # not the loader itself, which may hold this object: workers end when the last name goes
        self._dataset = loader.dataset
        self._said = loader._said
        self._iterable = loader._iterable
        self._index_sampler = loader._index_sampler
        self._yielded = 0
        self._indices: Iterator[Any] = iter(self._index_sampler)
        self._base_seed = drawn_seed(loader.generator)

    def _next(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next()
        self._yielded += 1
        said = self._said.get("length")
        if self._iterable and said is not None and self._yielded > said:
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {said}(when "
                f"accessing len(dataloader)), but {self._yielded} samples have been fetched. ",
                stacklevel=2,
            )
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)


class _Here(_Iterator):
    """Batches made in this process."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if loader.timeout:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._fetcher = Fetcher(
            loader.dataset,
            loader._iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )

    def _next(self) -> Any:
        return self._fetcher.fetch(next(self._indices))


class _Workers(_Iterator):
    """Batches made by worker processes, which end with the pass or, persistent ones, with this
    object.
    """

    _pool: Pool | None = None

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        work = Work(
            loader.dataset,
            loader._iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
            self._base_seed,
            loader.num_workers,
            loader.worker_init_fn,
        )
        self._persistent = loader.persistent_workers
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._pool = Pool(context, work)
        try:
            self._schedule = Schedule(
                self._pool, loader.prefetch_factor or 0, loader.in_order, loader.timeout
            )
            self._schedule.begin(self._indices)
        except BaseException:
            self._pool.close(IMPATIENCE)
            raise

    def rematerialize(self) -> None:
        """Another pass with the same workers."""
        self._indices = iter(self._index_sampler)
        self._yielded = 0
        self._schedule.resume(self._indices)

    def _next(self) -> Any:
        assert self._pool is not None
        try:
            data = self._schedule.next()
        except StopIteration:
            if not self._persistent:
                self._pool.close()
            raise
        except BaseException:  # a dead worker, an interrupt: nothing more will come
            self._pool.close(IMPATIENCE)
            raise
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    @finalizer
    def __del__(self) -> None:
        if self._pool is not None:
            self._pool.close()


# -- arguments ------------------------------------------------------------------------------------


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    wrong = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in wrong.items():
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, "
                f"but got {name}={value}"
            )


def _check_batches(
    batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                "sampler, and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def _default_sampler(
    dataset: Any, iterable: bool, shuffle: bool, generator: Generator | None
) -> Sampler[Any]:
    if iterable:
        return _InfiniteConstantSampler()
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _warn_of_many(num_workers: int) -> None:
    usable = cores()
    if num_workers > usable:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested "
            f"max number of worker in current system is {usable}, which is smaller than what this "
            "DataLoader is going to create. Please be aware that excessive worker creation might "
            "get DataLoader running slow or even freeze, lower the worker number to avoid "
            "potential slowness/freeze if necessary.",
            stacklevel=3,
        )
