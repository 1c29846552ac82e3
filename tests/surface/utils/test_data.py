"""Datasets, samplers and DataLoader: PyTorch's items, orders, seeds and errors; workers leave
nothing behind.
"""

from __future__ import annotations

import collections
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.utils.data as theirs
from hypothesis import given, settings

import skimp
import skimp.utils.data as ours

SIDES = ((skimp, ours), (torch, theirs))


def plain(x: Any) -> Any:
    if isinstance(x, (skimp.Tensor, torch.Tensor)):
        return (str(x.dtype), x.tolist())
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return (type(x).__name__, *[plain(v) for v in x])
    return [type(x).__name__, *[plain(v) for v in x]] if isinstance(x, (list, tuple)) else x


def alike(f: Any, refused: type[Exception] | None = None) -> Any:
    """f of our module and of theirs: equal results; or both are `refused` with this class of error
    and one message.
    """
    found = []
    for lib, data in SIDES:
        lib.manual_seed(5)
        if refused is None:
            found.append(plain(f(lib, data)))
            continue
        with pytest.raises(refused) as told:
            f(lib, data)
        assert told.type is refused
        found.append(str(told.value))
    assert found[0] == found[1]
    return found[0]


class Numbers(skimp.utils.data.Dataset):
    """Known to both libraries: they look at no base class of a map-style dataset."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return i * 10


# -- datasets -------------------------------------------------------------------------------------


def test_datasets() -> None:
    alike(
        lambda lib, d: [
            d.TensorDataset(lib.arange(6).view(3, 2), lib.arange(3))[i] for i in range(3)
        ]
    )
    alike(lambda lib, d: d.TensorDataset(lib.zeros(2), lib.zeros(3)), AssertionError)
    alike(lambda lib, d: [d.ConcatDataset([Numbers(3), Numbers(2)])[i] for i in (0, 3, 4, -1, -5)])
    alike(lambda lib, d: d.ConcatDataset([Numbers(3)])[-4], ValueError)
    alike(lambda lib, d: d.ConcatDataset([]), AssertionError)
    alike(lambda lib, d: d.StackDataset(Numbers(3), Numbers(3))[1])
    alike(lambda lib, d: d.StackDataset(a=Numbers(3), b=Numbers(3)).__getitems__([0, 2]))
    alike(lambda lib, d: d.StackDataset(Numbers(3), Numbers(2)), ValueError)
    alike(lambda lib, d: d.StackDataset(), ValueError)
    alike(lambda lib, d: [d.Subset(Numbers(9), [8, 2])[i] for i in (0, 1)])
    alike(lambda lib, d: d.Subset(Numbers(9), [8, 2]).__getitems__([1, 0]))
    alike(lambda lib, d: len(d.TensorDataset(lib.zeros(2)) + d.TensorDataset(lib.zeros(3))))
    alike(lambda lib, d: d.Dataset()[0], NotImplementedError)


@pytest.mark.filterwarnings("ignore:Length of split")  # [0, 1] are fractions, of which one is 0
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 99))
def test_random_split(lengths: list[int], seed: int) -> None:
    def split(lib: Any, d: Any) -> Any:
        generator = lib.Generator().manual_seed(seed)
        parts = d.random_split(Numbers(sum(lengths)), lengths, generator)
        return [list(p.indices) for p in parts]

    alike(split)


def test_random_split_of_fractions() -> None:
    alike(lambda lib, d: [list(p.indices) for p in d.random_split(Numbers(11), [0.3, 0.3, 0.4])])
    alike(lambda lib, d: d.random_split(Numbers(11), [1.5, -0.5]), ValueError)
    alike(lambda lib, d: d.random_split(Numbers(11), [5, 5]), ValueError)


# -- samplers -------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 50),
    st.booleans(),
    st.none() | st.integers(1, 90),
    st.booleans(),
    st.integers(0, 99),
)
def test_random_sampler(n: int, replacement: bool, k: int | None, own: bool, seed: int) -> None:
    def draw(lib: Any, d: Any) -> Any:
        lib.manual_seed(seed)
        generator = lib.Generator().manual_seed(seed + 1) if own else None
        sampler = d.RandomSampler(range(n), replacement, k, generator)
        return [list(sampler), list(sampler), len(sampler), lib.rand(2)]

    alike(draw)


@pytest.mark.parametrize("replacement", [True, False])
def test_more_samples_than_anybody_takes_cost_nothing(replacement: bool) -> None:
    """Programs ask for 10**10 and stop when they like."""

    def first(lib: Any, d: Any) -> Any:
        sampler = d.RandomSampler(range(5), replacement, 10**10)
        batches = d.BatchSampler(sampler, 4, drop_last=True)
        loader = d.DataLoader(list(range(5)), batch_size=3, sampler=sampler)
        taken = [next(iter(sampler)), next(iter(batches)), next(iter(loader)).tolist()]
        return taken, len(sampler), len(batches)

    tracemalloc.start()
    try:
        first(skimp, ours)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    alike(first)


def test_other_samplers() -> None:
    weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
    alike(lambda lib, d: list(d.SequentialSampler(range(3))))
    alike(lambda lib, d: list(d.SubsetRandomSampler([5, 7, 9, 11])))
    alike(lambda lib, d: list(d.WeightedRandomSampler(weights, 5, replacement=True)))
    alike(lambda lib, d: list(d.WeightedRandomSampler(weights, 5, replacement=False)))
    alike(lambda lib, d: d.WeightedRandomSampler([weights], 5), ValueError)
    alike(lambda lib, d: d.WeightedRandomSampler(weights, 0), ValueError)
    alike(lambda lib, d: d.RandomSampler(range(0)), ValueError)
    alike(lambda lib, d: d.RandomSampler(range(3), replacement=1), TypeError)
    for drop in (True, False):
        alike(
            lambda lib, d, drop=drop: [
                list(d.BatchSampler(range(7), 3, drop)),
                len(d.BatchSampler(range(7), 3, drop)),
            ]
        )
    alike(lambda lib, d: d.BatchSampler(range(7), 0, False), ValueError)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.booleans(), st.booleans(), st.integers(0, 3))
def test_distributed_sampler(
    n: int, replicas: int, shuffle: bool, drop_last: bool, epoch: int
) -> None:
    def draw(lib: Any, d: Any) -> Any:
        found = []
        for rank in range(replicas):
            sampler = d.DistributedSampler(range(n), replicas, rank, shuffle, 3, drop_last)
            sampler.set_epoch(epoch)
            found.append([len(sampler), list(sampler)])
        return found

    alike(draw)


# -- collating ------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "x y")


def samples(lib: Any) -> list[Any]:
    return [
        [1, 2],
        [1.5, 2.5],
        [True, False],
        ["a", "b"],
        [b"a", b"b"],
        [lib.ones(2), lib.zeros(2)],
        [np.ones(2, np.float32), np.zeros(2, np.float32)],
        [np.float64(1), np.float64(2)],
        [np.int32(1), np.int32(2)],
        [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
        [(1, "x"), (2, "y")],
        [Point(1, 2.0), Point(3, 4.0)],
        [[1, 2], [3, 4]],
        [collections.OrderedDict(k=1), collections.OrderedDict(k=2)],
        [[1], [1, 2]],
        [np.array(["a"]), np.array(["b"])],
        [None, None],
        [{1}, {2}],
        [lib.ones(2), lib.ones(3)][:1],
    ]


@pytest.mark.parametrize("i", range(len(samples(skimp))))
def test_collate(i: int) -> None:
    refused = {14: RuntimeError, 15: TypeError, 16: TypeError, 17: TypeError}.get(i)
    alike(lambda lib, d: d.default_collate(samples(lib)[i]), refused)
    alike(lambda lib, d: d.default_convert(samples(lib)[i]))


def test_collate_makes_its_containers_anew() -> None:
    batch = [collections.defaultdict(int, a=1), collections.defaultdict(int, a=2)]
    found = ours.default_collate(batch)
    assert type(found) is collections.defaultdict
    assert batch[0]["a"] == 1


# -- loading --------------------------------------------------------------------------------------

ARGUMENTS = [
    {},
    {"batch_size": 4},
    {"batch_size": 4, "drop_last": True},
    {"batch_size": 3, "shuffle": True},
    {"batch_size": None},
    {"batch_size": None, "shuffle": True},
    {"sampler": [3, 1, 2], "batch_size": 2},
    {"batch_sampler": [[1, 2], [0]]},
    {"collate_fn": tuple, "batch_size": 3},
    {"batch_size": 2, "in_order": False},
]
REFUSED = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"drop_last": True, "batch_size": None},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_size": 0},
    {"multiprocessing_context": "fork"},
]


@pytest.mark.parametrize("i", range(len(ARGUMENTS)))
def test_loader(i: int) -> None:
    def passes(lib: Any, d: Any) -> Any:
        loader = d.DataLoader(Numbers(10), **ARGUMENTS[i])
        return [list(loader), list(loader), len(loader), lib.rand(1)]

    alike(passes)


@pytest.mark.parametrize("words", REFUSED, ids=str)
def test_loader_refuses(words: Any) -> None:
    alike(lambda lib, d: d.DataLoader(Numbers(10), **words), ValueError)


def test_own_generator() -> None:
    def passes(lib: Any, d: Any) -> Any:
        generator = lib.Generator().manual_seed(3)
        loader = d.DataLoader(Numbers(10), 3, shuffle=True, generator=generator)
        return [list(loader), list(loader), lib.rand(1), lib.rand(1, generator=generator)]

    alike(passes)


def counting(base: Any, n: int = 7) -> Any:
    class Counting(base):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(range(n))

        def __len__(self) -> int:
            return n

    return Counting()


def test_iterable_datasets() -> None:
    for words in ({"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}):
        alike(lambda lib, d, words=words: list(d.DataLoader(counting(d.IterableDataset), **words)))
    for words in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        alike(
            lambda lib, d, words=words: d.DataLoader(counting(d.IterableDataset), **words),
            ValueError,
        )
    alike(lambda lib, d: list(counting(d.IterableDataset) + counting(d.IterableDataset)))
    alike(lambda lib, d: len(d.DataLoader(counting(d.IterableDataset), 2)))


def test_settings_are_fixed() -> None:
    alike(lambda lib, d: setattr(d.DataLoader(Numbers(3)), "batch_size", 3), ValueError)


def test_pinning_is_accepted() -> None:
    loader = ours.DataLoader(Numbers(3), pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert len(list(loader)) == 3
