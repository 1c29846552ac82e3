"""Tensors in other processes: shared where they are large, and nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import FrameType
from typing import Any

import pytest

import skimp
import skimp.multiprocessing as mp
from skimp._engine.memory.ledger import host
from skimp._ops.create import sharing

LARGE = 1 << 15
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts many processes")


def segments() -> list[str]:
    found = (
        [n for n in os.listdir("/dev/shm") if not n.startswith("sem.")]
        if os.path.isdir("/dev/shm")
        else []
    )
    links = []
    for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sorted(found) + sorted(link for link in links if "skimp" in link)


@pytest.fixture(autouse=True)
def no_segments_left() -> Iterator[None]:
    before = segments()
    yield
    gc.collect()
    assert segments() == before


def twice(x: Any) -> Any:
    return x * 2


def write(x: Any) -> bool:
    x[0] = 5
    return bool(x.is_shared())


def view_of(x: Any) -> Any:
    return x, x[1:]


# -- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [skimp.float32, skimp.bfloat16, skimp.bool])
def test_share_memory(dtype: Any) -> None:
    x = skimp.arange(1000).to(dtype)
    y = x.view(10, 100).t()
    values = y.tolist()
    before = host.allocated
    assert not x.is_shared()
    assert x.share_memory_() is x
    assert host.allocated == before - 1000 * dtype.itemsize
    assert x.is_shared()
    assert y.is_shared()
    assert y.untyped_storage().is_shared()
    assert y.tolist() == values
    x[0] = 1
    assert y[0, 0].item() == 1
    assert x.data_ptr() == y.data_ptr()
    assert (x + x).tolist() == [2 * v if dtype is not skimp.bool else v for v in x.tolist()]


def test_share_memory_of_deferred_small_and_empty_tensors() -> None:
    x = skimp.ones(1 << 17) * 2
    y = x + 1
    x.share_memory_()
    x.zero_()
    assert y[3].item() == 3
    s = skimp.tensor(1.0).share_memory_()
    assert s.add_(1).item() == 2
    assert skimp.empty(0).share_memory_().tolist() == []


def test_children_see_writes_to_shared_memory() -> None:
    x = skimp.zeros(4).share_memory_()
    p = mp.Process(target=write, args=(x,))
    p.start()
    p.join()
    assert x.tolist() == [5, 0, 0, 0]


@pytest.mark.parametrize("kept", [False, True])
def test_backward_sees_writes_to_shared_memory(kept: bool) -> None:
    """Also where it would make a result again that the program has no more."""
    x = skimp.ones(2, 200_000, requires_grad=True)
    w = skimp.ones(2, 2, requires_grad=True)
    y = skimp.nn.functional.gelu(x)
    z = w @ y
    y.share_memory_()
    p = mp.Process(target=write, args=(y.detach(),))
    p.start()
    p.join()
    want = y.detach().sum(1).tolist()
    held = y if kept else None
    del y
    z.sum().backward()
    assert want[0] != want[1]
    assert w.grad.tolist() == [pytest.approx(want, 1e-3)] * 2
    del held


def test_parameters_and_modules_share() -> None:
    net = skimp.nn.Linear(3, 2)
    before = net.weight.tolist()
    net.weight.share_memory_()
    assert net.weight.is_shared()
    assert net.weight.tolist() == before
    net(skimp.ones(1, 3)).sum().backward()
    assert net.weight.grad.tolist() == [[1, 1, 1]] * 2


# -- pools and queues -----------------------------------------------------------------------------


def test_plain_multiprocessing_as_in_the_article() -> None:
    x = skimp.rand(300, 300)
    with multiprocessing.Pool(1) as pool:
        z = pool.apply_async(twice, [x])
        assert skimp.equal(z.get(60), x * 2)
        assert z.get().is_shared()
    with multiprocessing.Pool(1) as pool:
        pool.apply_async(twice, [x])


class Slow:
    """Takes its time to arrive in another process."""

    def __reduce__(self) -> Any:
        return slowly, (os.getpid(),)


def slowly(sender: int) -> None:
    if os.getpid() != sender:
        time.sleep(60)


def test_a_tensor_that_a_terminated_worker_never_fetched_is_freed() -> None:
    x = skimp.rand(300, 300).share_memory_()
    ours = len(segments())
    with multiprocessing.Pool(1) as pool:
        pool.apply_async(print, [Slow(), x])
        end = time.monotonic() + 20
        while len(segments()) == ours and time.monotonic() < end:
            time.sleep(0.01)
        assert len(segments()) == ours + 1  # the copy that lies ready for the worker
        time.sleep(0.2)
    del pool
    gc.collect()
    assert len(segments()) == ours


def test_a_pool_writes_where_we_read() -> None:
    x = skimp.zeros(LARGE)
    with mp.Pool(1) as pool:
        assert pool.apply(write, (x,))
        assert not pool.apply(write, (skimp.zeros(8),))
    assert x[0].item() == 5


def test_views_of_one_message_share() -> None:
    x = skimp.arange(LARGE)
    with mp.Pool(1) as pool:
        a, b = pool.apply(view_of, (x,))
    assert skimp.shares_memory(a, b)
    a[1] = 77
    assert b[0].item() == 77
    assert x[1].item() == 77


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_queues(method: str) -> None:
    context = mp.get_context(method)
    here, there = context.Queue(), context.Queue()
    p = context.Process(target=echo, args=(here, there))
    p.start()
    try:
        for x in (
            skimp.rand(LARGE),
            skimp.rand(3),
            skimp.nn.Parameter(skimp.rand(LARGE)),
            skimp.rand(0),
            skimp.rand(200, 200).t(),
        ):
            here.put(x)
            y = there.get(timeout=60)
            assert y.tolist() == x.tolist()
            assert type(y) is type(x)
            assert y.stride() == x.stride()
            assert y.requires_grad == x.requires_grad
            if x.numel() >= LARGE:
                y.detach()[0] = -1
                assert x.detach()[0].tolist() == y.detach()[0].tolist()
    finally:
        here.put(None)
        p.join(60)


def echo(inbox: Any, outbox: Any) -> None:
    while (x := inbox.get()) is not None:
        outbox.put(x)
        del x
    outbox.close()
    outbox.join_thread()
    import time

    time.sleep(0.2)  # tensors that are on their way come from here


def test_results_of_gradients_are_refused() -> None:
    from multiprocessing.reduction import ForkingPickler

    x = skimp.ones(3, requires_grad=True) * 2
    with pytest.raises(
        RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"
    ):
        ForkingPickler.dumps(x)


# -- spawn ----------------------------------------------------------------------------------------


def at_rank(i: int, x: Any) -> None:
    x[i] = i + 1


def fails(i: int) -> None:
    if i == 1:
        raise ValueError("number one")


def leaves(i: int) -> None:
    os._exit(7)


def test_spawn() -> None:
    x = skimp.zeros(2).share_memory_()
    assert mp.spawn(at_rank, (x,), nprocs=2) is None
    assert x.tolist() == [1, 2]
    with pytest.raises(
        mp.ProcessRaisedException,
        match=r"(?s)Process 1 terminated with the following error.*number one",
    ):
        mp.start_processes(fails, nprocs=2, start_method="fork")
    with pytest.raises(mp.ProcessExitedException, match="exit code 7"):
        mp.start_processes(leaves, start_method="fork")
    context = mp.start_processes(at_rank, (x,), join=False, start_method="fork")
    assert context is not None
    assert len(context.pids()) == 1
    while not context.join():
        continue


def test_names() -> None:
    for name in (
        "Pool",
        "Process",
        "Queue",
        "SimpleQueue",
        "Event",
        "Lock",
        "Manager",
        "get_context",
        "set_start_method",
        "cpu_count",
        "current_process",
        "Pipe",
    ):
        assert getattr(mp, name) is getattr(multiprocessing, name)
    mp.set_sharing_strategy(mp.get_sharing_strategy())
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    assert sharing.SHARE_FROM > 0


# -- nothing is left ------------------------------------------------------------------------------

PROGRAM = """
    import multiprocessing, os
    import skimp

    def f(x):
        return x * 2

    if __name__ == "__main__":
        x = skimp.rand(1000, 1000)
        with multiprocessing.Pool(2) as pool:
            kept = [pool.apply_async(f, [x]) for _ in range(4)]
            print([one.get().shape for one in kept][0])
        x.share_memory_()
        {end}
"""


@pytest.mark.parametrize("end", ["pass", "os._exit(0)"])
def test_a_program_leaves_no_segments_and_says_nothing(end: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(dedent(PROGRAM.format(end=end)))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "torch.Size([1000, 1000])\n" or end != "pass"
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_no_interrupt_is_lost_in_a_fork() -> None:
    """Python prints what a handler raises in functions that are called around one, and goes on."""
    parent, called = os.getpid(), set[str]()

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and os.getpid() == parent:
            called.add(f"{frame.f_code.co_filename} {frame.f_code.co_name}")

    gc.collect()
    sys.setprofile(seen)
    child = os.fork()
    sys.setprofile(None)
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert not [name for name in called if f"{os.sep}skimp{os.sep}_" in name]
