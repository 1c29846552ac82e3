"""A program within a budget: the same bits, never a byte more, and nothing lost."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import places, setting, spending, spill
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.verify import checking
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, N, held, is_away, numbers
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode


def test_what_does_not_fit_goes_and_comes_back() -> None:
    base = held()
    with torch.memory.budget(base + 4 * MIB):
        made = [numbers(i) for i in range(8)]
        assert sum(map(is_away, made)) >= 4
        assert host.allocated <= base + 4 * MIB
        for i, t in enumerate(made):
            assert np.array_equal(t.numpy(), numbers(i).numpy())
        assert pool.reserved <= base + 4 * MIB


def test_the_bytes_stay_where_they_went_after_the_budget() -> None:
    with torch.memory.budget(held() + 2 * MIB):
        made = [numbers(i) for i in range(5)]
    assert any(map(is_away, made))
    for i, t in enumerate(made):
        assert (t == numbers(i)).all()


def test_storages_of_before_are_known() -> None:
    made = [numbers(i) for i in range(4)]
    setting.set_budget(held() - 2 * MIB)
    assert sum(map(is_away, made)) >= 2
    assert torch.memory.get_budget() == host.bound
    for i, t in enumerate(made):
        assert (t == numbers(i)).all()


def test_budgets_nest() -> None:
    with torch.memory.budget("1GiB"):
        with torch.memory.budget("512MiB"):
            assert torch.memory.get_budget() == 512 * MIB
        assert torch.memory.get_budget() == 1024 * MIB
    assert torch.memory.get_budget() is None
    assert host.bound is None


def test_budgets_may_end_in_the_order_in_which_they_began() -> None:
    def within(size: str) -> Iterator[None]:
        with torch.memory.budget(size):
            yield

    one, other = within("1GiB"), within("512MiB")
    next(one)
    next(other)
    assert list(one) == []
    assert torch.memory.get_budget() == 512 * MIB
    assert list(other) == []
    assert torch.memory.get_budget() is None


def test_each_budget_verifies_or_does_not() -> None:
    with torch.memory.budget("1GiB", verify=True):
        with torch.memory.budget("512MiB"):
            assert not checking
        assert checking
    assert not checking


def test_what_goes_when_a_budget_begins_is_verified() -> None:
    made = [numbers(i) for i in range(4)]
    with torch.memory.budget(held() - 2 * MIB, verify=True):
        away = [t for t in made if is_away(t)]
        assert away  # and gone before anything was computed
        assert all([t._storage.checksum is not None for t in away])  # type: ignore[attr-defined]
    assert all([(t == numbers(i)).all() for i, t in enumerate(made)])


def test_the_limit_stays_what_it_is() -> None:
    torch.memory.set_limit(held() + 3 * MIB)
    try:
        with torch.memory.budget("1GiB"), pytest.raises(OutOfMemoryError):
            torch.zeros(8 * N)
        made = [numbers(0), numbers(1)]
        with pytest.raises(OutOfMemoryError):
            made += [numbers(2), numbers(3)]
    finally:
        torch.memory.set_limit(None)


def test_an_op_that_needs_more_than_the_budget_is_refused() -> None:
    a = numbers(0)
    with torch.memory.budget(held() + 2 * MIB):
        with pytest.raises(OutOfMemoryError):
            torch.zeros(4 * N)
        assert (a == numbers(0)).all()


def test_what_numpy_holds_is_pinned() -> None:
    a = numbers(0)
    seen = a.numpy()
    with torch.memory.budget(held() + 2 * MIB):
        made = [numbers(i) for i in range(1, 5)]
        assert not is_away(a)
        seen[:] = 7
        assert (a == 7).all()
        assert any(map(is_away, made))


@pytest.mark.parametrize("spill", [True, False])
def test_small_storages_go(spill: bool) -> None:
    """They are no tensor's ndarray while a budget is obeyed, nor is what a view of a part reads."""
    first = torch.arange(2048.0)
    with torch.memory.budget(held() + (MIB >> 2), spill=spill):
        made = [first + i for i in range(80)]
        rows = [t.view(32, 64)[3] for t in made]
        seen = host.allocated
        assert sum(map(is_away, made)) > 40
        assert all([r[5] == 3 * 64 + 5 + i for i, r in enumerate(rows)])
        assert max(seen, host.allocated) <= host.bound  # type: ignore[operator]
    for i, t in enumerate(made):
        assert np.array_equal(t.numpy(), np.arange(2048, dtype=np.float32) + np.float32(i))


def test_tensors_of_before_lend_no_arrays() -> None:
    made = [torch.arange(2048.0) + i for i in range(80)]
    with torch.memory.budget(held() - (MIB >> 2)):
        assert sum(map(is_away, made)) >= 30
        assert all([t[7] == 7 + i for i, t in enumerate(made)])


@pytest.mark.parametrize("earlier", [False, True])
def test_small_arrays_find_no_room_in_what_is_cached(earlier: bool) -> None:
    """What a large tensor leaves is cached, and counts at once."""
    made = [numbers(0, 4 * N)] if earlier else []
    base = held() - 4 * MIB * earlier
    with torch.memory.budget(base + 5 * MIB):
        made += [] if earlier else [numbers(0, 4 * N)]
        made.clear()
        small = []
        for _ in range(4 * 64):
            small.append(torch.ones(4096))
            assert pool.measure() <= base + 5 * MIB


def test_an_address_pins_for_ever() -> None:
    with torch.memory.budget(held() + 3 * MIB):
        a = numbers(0)
        address = a.data_ptr()
        made = [numbers(i) for i in range(1, 6)]
        assert any(map(is_away, made))
        assert a.data_ptr() == address
        assert not is_away(a)


def test_views_share_what_comes_back() -> None:
    with torch.memory.budget(held() + 3 * MIB):
        a = numbers(0).view(512, 512)
        rows, turned = a[10:20], a.t()
        others = [numbers(i) for i in range(1, 6)]
        assert is_away(a)
        rows.mul_(2)
        assert turned[3, 12] == a[12, 3]
        want = numbers(0).view(512, 512)
        want[10:20] *= 2
        assert (a == want).all()
        assert a._version == 1
        assert (others[0] == numbers(1)).all()


def test_a_write_makes_the_copy_in_the_file_stale() -> None:
    with torch.memory.budget(held() + 3 * MIB):
        a = numbers(0)
        for _ in range(3):
            others = [numbers(i) for i in range(1, 5)]
            assert is_away(a)
            a.add_(1)
            del others
        want = numbers(0).add_(1).add_(1).add_(1)
        assert (a == want).all()


def test_data_that_changes_under_from_numpy_is_left_alone() -> None:
    array = np.zeros(N, np.float32)
    a = torch.from_numpy(array)
    with torch.memory.budget(held() + 2 * MIB):
        others = [numbers(i) for i in range(1, 5)]
        array[:] = 3
        assert (a == 3).all()
        assert not isinstance(a._storage, Evictable)
        del others


def train(steps: int = 2) -> list[bytes]:
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    net = torch.nn.Sequential(*layers, torch.nn.LayerNorm(128))
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(2048, 128)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    return [
        loss.detach().numpy().tobytes(),
        *[p.detach().numpy().tobytes() for p in net.parameters()],
    ]


@pytest.mark.parametrize("size", [20 * MIB, 12 * MIB, 8 * MIB, "always"])
def test_training_gives_the_same_bits(size: Any) -> None:
    want = train()
    gc.collect()
    torch.memory.reset_peak_memory_stats()
    base = held()
    bound = size if size == "always" else base + size
    with torch.memory.budget(bound):
        found = train()
        if size != "always":
            assert host.peak <= bound
    assert found == want


def test_a_batch_of_twice_the_limit_trains() -> None:
    """With what a program has at most at half of its own peak."""
    torch.memory.reset_peak_memory_stats()
    base = held()
    want = train(1)
    peak = host.peak - base
    torch.memory.reset_peak_memory_stats()
    with torch.memory.budget(base + peak // 2):
        assert train(1) == want
        assert host.peak <= base + peak // 2


# -- the file -------------------------------------------------------------------------------------


def test_no_file_stays(tmp_path: Path) -> None:
    with torch.memory.budget(held() + 2 * MIB, spill_dir=f"tmpfs:{tmp_path}"):
        made = [numbers(i) for i in range(6)]
        assert any(map(is_away, made))
        assert list(tmp_path.iterdir()) == []


def test_each_budget_spills_to_its_own_directory(tmp_path: Path) -> None:
    with torch.memory.budget(held() + 2 * MIB):
        kept = [numbers(i) for i in range(4)]
        assert any(map(is_away, kept))
    with pytest.raises(OSError, match="there is no directory"):
        torch.memory.set_budget("1GiB", spill_dir=str(tmp_path / "none"))
    there = f"tmpfs:{tmp_path}"
    with torch.memory.budget(held() + 2 * MIB, spill_dir=there):
        kept += [numbers(i) for i in range(4, 8)]
        assert spill.file(there).directory == str(tmp_path)
        assert spill.file(there).end >= 2 * MIB
    assert [float(t[0]) for t in kept] == [float(numbers(i)[0]) for i in range(8)]


def test_a_tmpfs_is_refused_unless_told(tmp_path: Path) -> None:
    mounts = ["1 0 0:1 / / rw - ext4 /dev/a rw", f"2 1 0:2 / {tmp_path} rw shared:1 - tmpfs t rw"]
    assert places._kind_of(str(tmp_path / "x"), mounts) == "tmpfs"
    assert places._kind_of("/var", mounts) == "ext4"
    if places.in_memory("/dev/shm"):
        with pytest.raises(OSError, match=r"is a tmpfs, which is memory.*'tmpfs:/dev/shm'"):
            places.directory("/dev/shm")
        assert places.directory("tmpfs:/dev/shm") == "/dev/shm"
    with pytest.raises(OSError, match="there is no directory"):
        places.directory(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="name another directory with SKIMP_SPILL_DIR"):
        spill._open(str(tmp_path / "none"))  # what a directory that can't be written to says


def test_without_spilling_nothing_is_written() -> None:
    before = spill.rates.written
    with torch.memory.budget(held() + 2 * MIB, spill=False):
        made = [numbers(0)]
        with pytest.raises(OutOfMemoryError):
            made += [numbers(i) for i in range(1, 5)]
    assert spill.rates.written == before


def test_a_full_disk_loses_nothing() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    spill.seal()
    made: list[Any] = []
    try:
        with torch.memory.budget(held() + 3 * MIB):
            resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
            with pytest.raises(OutOfMemoryError):
                made.extend(numbers(i) for i in range(9))
            assert isinstance(host.budget, spending.Spending)
            assert host.budget.error is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        spill.seal()
    assert len(made) >= 3
    for i, t in enumerate(made):
        assert (t == numbers(i)).all()


def test_places_are_used_again() -> None:
    spill.seal()
    with torch.memory.budget(held() + 2 * MIB):
        a, b, c = numbers(0), numbers(1), numbers(2)
        for _ in range(20):
            assert a.sum() + b.sum() + c.sum() > 0
        assert spill.file(None).end <= 4 * MIB


def test_what_backward_wants_next_is_read_ahead(monkeypatch: Any) -> None:
    spill.seal()
    told: list[str] = []
    expect, read = spill.Place.expect, spill.Place.read
    monkeypatch.setattr(
        spill.Place, "expect", lambda p: (told.append(f"ahead {p.number}"), expect(p))[1]
    )
    monkeypatch.setattr(
        spill.Place, "read", lambda p, into: (told.append(f"read {p.number}"), read(p, into))[1]
    )
    with torch.memory.budget(held() + 3 * MIB):
        made = [numbers(i) for i in range(8)]
        away = [t for t in made if is_away(t)]
        for t in reversed(away):
            t.sum()
    reads = [one for one in told if one.startswith("read")]
    assert len(reads) == len(away) >= 5
    for one in reads[1:]:  # all but the first were asked for before, and once
        ahead = one.replace("read", "ahead")
        assert told.index(ahead) < told.index(one)
        assert told.count(ahead) == 1


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import os, signal, skimp as torch\n"
        f"torch.memory.set_budget('3MiB', spill_dir='tmpfs:{tmp_path}')\n"
        "made = [torch.ones(1 << 18) for _ in range(9)]\n"
        "assert any(t._storage.block is None for t in made)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_both_sides_of_a_fork_have_all_bytes() -> None:
    with torch.memory.budget(held() + 3 * MIB):
        made = [numbers(i) for i in range(8)]
        child = os.fork()
        if child == 0:
            ok = False
            try:
                for _ in range(2):
                    ok = all([bool((t == numbers(i)).all()) for i, t in enumerate(made)])
                    made = [t + 0 for t in made]
            finally:
                os._exit(0 if ok else 1)
        made = [t * 2 for t in made]
        for i, t in enumerate(made):
            assert (t == numbers(i) * 2).all()
        assert os.waitpid(child, 0)[1] == 0


def test_threads_share_a_budget() -> None:
    base = held()
    wrong: list[Any] = []

    def work(seed: int) -> None:
        mine = [numbers(seed + i) for i in range(4)]
        for _ in range(6):
            for t in mine:
                t.add_(1)
        for i, t in enumerate(mine):
            want = numbers(seed + i)
            for _ in range(6):
                want.add_(1)
            if not bool((t == want).all()):
                wrong.append((seed, i))

    with torch.memory.budget(base + 12 * MIB):
        threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert host.allocated <= base + 12 * MIB


@pytest.mark.parametrize("n", [N, N // 8])
def test_room_that_another_thread_has_taken_is_made_once_more(n: int, monkeypatch: Any) -> None:
    with torch.memory.budget(held() + 4 * MIB):
        made = [numbers(i) for i in range(4)]
        budget: Any = host.budget
        make_room = budget.make_room
        taken: list[Any] = []

        def lose(nbytes: int) -> bool:
            there = make_room(nbytes)
            if not taken:
                taken.append(None)
                taken.append(numbers(7))
            return bool(there)

        monkeypatch.setattr(budget, "make_room", lose)
        made.append(numbers(4, n))
        assert len(taken) == 2
        for i, t in enumerate(made):
            assert np.array_equal(t.numpy(), numbers(i, len(t)).numpy())


INTERRUPTED = """
import gc, signal, sys, time
import numpy as np
import skimp as torch
from skimp._engine.memory.ledger import host

def numbers(seed):
    return torch.from_numpy(np.random.default_rng(seed).random(1 << 18, np.float32)).clone()

def stop(*_):
    raise KeyboardInterrupt

def interrupted(after):
    with torch.memory.budget(4 << 20):
        made = [numbers(i) for i in range(8)]
        for _ in range(25):
            try:
                signal.setitimer(signal.ITIMER_REAL, after)
                end = time.monotonic() + 20
                while time.monotonic() < end:
                    for t in made:
                        t.sum()
                return "an interrupt was lost"
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
        return all([bool((t == numbers(i)).all()) for i, t in enumerate(made)])

signal.signal(signal.SIGALRM, stop)
same = interrupted(float(sys.argv[1]))
gc.collect()
print(same, host.allocated)
"""


@pytest.mark.parametrize("after", [0.002, 0.01, 0.03])
def test_interrupts_lose_nothing(after: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(after)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "0"], done.stderr


def test_a_program_from_outside() -> None:
    program = (
        "import torch; a = [torch.ones(1 << 18) for _ in range(9)]; print(sum(a).sum().item())"
    )
    done = subprocess.run(
        [sys.executable, "-m", "skimp", "run", "--quiet", "--budget", "5MiB", "/dev/stdin"],
        input=program, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str(float(9 << 18)), done.stderr


def test_the_variable() -> None:
    program = "import skimp; print(skimp.memory.get_budget())"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "SKIMP_BUDGET": "300MiB"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(300 * MIB)


def test_a_variable_that_is_no_size_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import skimp"], env={**os.environ, "SKIMP_BUDGET": "junk"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ValueError: SKIMP_BUDGET: a size is bytes or text like" in done.stderr
