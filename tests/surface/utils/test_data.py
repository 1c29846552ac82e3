"""Datasets, samplers and DataLoader: PyTorch's items, orders, seeds and errors; workers leave
nothing behind.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.utils.data as theirs
from hypothesis import given, settings

import skimp
import skimp.utils.data as ours
from skimp.utils.data._utils import worker

SIDES = ((skimp, ours), (torch, theirs))
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts many processes")


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


# -- workers --------------------------------------------------------------------------------------


class Seeds(Numbers):
    """What a worker's random numbers are."""

    def __getitem__(self, i: int) -> Any:
        for lib in (skimp, torch):
            info = lib.utils.data.get_worker_info()
            if info is not None:
                return [
                    i,
                    info.id,
                    info.num_workers,
                    info.seed,
                    random.random(),
                    np.random.rand(),
                    lib.rand(2).tolist(),
                ]
        raise AssertionError("no worker")


@forks
@pytest.mark.parametrize(
    "words", [{}, {"shuffle": True}, {"persistent_workers": True, "shuffle": True}]
)
def test_workers_draw_as_torchs_do(words: Any) -> None:
    def passes(lib: Any, d: Any) -> Any:
        loader = d.DataLoader(Seeds(7), 2, num_workers=2, collate_fn=list, **words)
        return [list(loader), list(loader), lib.rand(1)]

    alike(passes)


def test_numpys_seed() -> None:
    from torch.utils.data._utils.worker import _generate_state

    for seed, i in ((0, 0), (123456789012345, 3), (1 << 62, 1)):
        assert worker.numpy_seed(seed, i) == _generate_state(seed, i)


class Tensors(Numbers):
    def __getitem__(self, i: int) -> Any:
        return skimp.full((1 << 14,), float(i)), i


def segments() -> set[str]:
    if not os.path.isdir("/dev/shm"):
        return set()
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


@forks
def test_tensors_come_in_shared_memory() -> None:
    before = segments()
    seen = []
    for x, i in ours.DataLoader(Tensors(12), 4, num_workers=2):
        assert x.is_shared()
        assert not i.is_shared()
        seen.append(x)
    assert [x[:, 5].tolist() for x in seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    seen[0].add_(1)
    assert seen[0][0, 0].item() == 1
    assert segments() - before == set()


class Shards(skimp.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        info = ours.get_worker_info()
        assert info is not None
        yield from range(info.id, 9, info.num_workers)


@forks
@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_workers(persistent: bool) -> None:
    loader = ours.DataLoader(Shards(), 2, num_workers=2, persistent_workers=persistent)
    expected = [[0, 2], [1, 3], [4, 6], [5, 7], [8]]
    assert [b.tolist() for b in loader] == expected
    assert [b.tolist() for b in loader] == expected


class Failing(Numbers):
    def __getitem__(self, i: int) -> Any:
        if i == 3:
            raise KeyError("item three is broken")
        if i == 5:
            return [lambda: 1]
        if i == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        if i == 11:
            time.sleep(60)
        return i


@forks
def test_worker_errors_carry_their_traceback() -> None:
    it = iter(ours.DataLoader(Failing(5), num_workers=1))
    assert [next(it).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(
        KeyError,
        match=(
            r"(?s)Caught KeyError in DataLoader worker process 0.*Original Traceback.*item "
            "three is broken"
        ),
    ):
        next(it)
    assert next(it).item() == 4
    with pytest.raises(StopIteration):
        next(it)

    def fails(i: int) -> None:
        raise ValueError(f"init {i}")

    with pytest.raises(
        ValueError, match=r"(?s)Caught ValueError in DataLoader worker process 0.*init 0"
    ):
        list(ours.DataLoader(Numbers(5), num_workers=1, worker_init_fn=fails))
    with pytest.raises(
        (AttributeError, TypeError, RuntimeError), match="in DataLoader worker process 0"
    ):
        list(ours.DataLoader(Failing(7), sampler=[5], num_workers=1, collate_fn=lambda b: b))


@forks
def test_dead_and_slow_workers() -> None:
    with pytest.raises(RuntimeError, match=r"is killed by signal: Killed. .*exited unexpectedly"):
        list(ours.DataLoader(Failing(20), sampler=[9], num_workers=1))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.3 seconds"):
        list(ours.DataLoader(Failing(20), sampler=[11], num_workers=1, timeout=0.3))


@forks
def test_leaving_early_ends_the_workers() -> None:
    loader = ours.DataLoader(Tensors(100), 2, num_workers=2)
    it = iter(loader)
    next(it)
    processes = it._pool.processes
    del it
    assert not any(p.is_alive() for p in processes)


@forks
def test_workers_of_an_iterator_in_a_cycle_end_by_themselves() -> None:
    it = iter(ours.DataLoader(Tensors(100), 2, num_workers=2))
    next(it)
    processes = it._pool.processes
    cycle = [it]
    cycle.append(cycle)
    del it, cycle
    gc.collect()
    assert [p.exitcode for p in processes] == [0, 0]


@forks
def test_unordered_batches_are_all_there() -> None:
    loader = ours.DataLoader(Numbers(20), 3, num_workers=2, in_order=False)
    assert sorted(n for b in loader for n in b.tolist()) == [10 * i for i in range(20)]


@forks
def test_large_indices_and_large_results_do_not_block() -> None:
    loader = ours.DataLoader(Numbers(40000), 20000, num_workers=1, collate_fn=list)
    assert [len(b) for b in loader] == [20000, 20000]


def test_too_many_workers_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="This DataLoader will create 1000 worker processes"):
        ours.DataLoader(Numbers(3), num_workers=1000)


ORPHANS = """
    import os, sys, time
    import skimp
    from skimp.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 1000
        def __getitem__(self, i):
            time.sleep(0.01)
            return skimp.ones(1 << 15)

    it = iter(DataLoader(Slow(), 2, num_workers=2))
    next(it)
    try:
        print(*[p.pid for p in it._pool.processes], flush=True)
        while True:
            next(it)
    except KeyboardInterrupt:
        sys.exit(3)
"""


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_orphans(how: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(dedent(ORPHANS))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    pids = [int(n) for n in process.stdout.readline().split()]
    assert len(pids) == 2
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.kill()
    process.wait(20)
    if how == signal.SIGINT:
        assert process.returncode == 3, process.stderr.read()
    end = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    if how == signal.SIGINT:  # Python itself may say that a finalizer was interrupted
        assert "DataLoader" not in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


@forks
def test_other_start_methods() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = ours.DataLoader(Numbers(4), 2, num_workers=1, multiprocessing_context="spawn")
    assert [b.tolist() for b in loader] == [[0, 10], [20, 30]]
