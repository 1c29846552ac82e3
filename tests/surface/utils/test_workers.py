"""Workers of a DataLoader: random numbers, shared memory, errors, ends."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

import skimp
import skimp.utils.data as ours
from skimp.utils.data._utils import worker
from tests.surface.utils.test_data import Numbers, alike

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts many processes")


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
        # a range: a dataset of this file would have the worker import PyTorch
        numbers = range(0, 40, 10)
        loader = ours.DataLoader(numbers, 2, num_workers=1, multiprocessing_context="spawn")
    assert [b.tolist() for b in loader] == [[0, 10], [20, 30]]
