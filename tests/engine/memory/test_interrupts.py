"""Exceptions that signal handlers raise, at every moment where one can come.

The moments are those of CPython: a function begins, or a call has returned (interpreter.py). The
profiler's hook runs at just these, so the n-th of them is a place that a test can name.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import skimp
from skimp._engine.autograd import anomaly, modes, saving
from skimp._engine.dispatch import overrides
from skimp._engine.dispatch.batched import Level, outside
from skimp._engine.interrupts import finalizer, once_more
from skimp._engine.memory import copies, stats
from skimp._engine.memory.caching import Pool, pool
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.regions import region
from skimp._engine.tensor import regions
from skimp._engine.tensor.printing import get_printoptions, printoptions
from skimp._kernels import blas
from skimp._kernels.random.mt19937 import Engine
from skimp.amp.state import state as autocast
from skimp.autograd import checkpoint, forward_ad
from skimp.config import config
from skimp.distributed.fsdp import wrap
from skimp.optim import waiting
from tests.support.books import Owner

SIDE = 384  # a float32 matrix of 576 KiB: a block of the pool, and work for threads
MANY = int(os.environ.get("SKIMP_MOMENTS", 80))  # of one program that are tried, at most


class Moments:
    """Counts the moments of a program in skimp's own code, and interrupts it at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.seen = 0
        self.at = at
        self.interrupted = False

    def run(self, program: Callable[[], Any]) -> Any:
        sys.setprofile(self._hook)
        try:
            return program()
        except KeyboardInterrupt:
            return None
        finally:
            sys.setprofile(None)

    def _hook(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "c_call" or "tests" in code.co_filename:
            return
        if "skimp" not in code.co_filename and code.co_filename != contextlib.__file__:
            return
        if event == "call" and not asks_at_its_beginning(code):
            return
        if event == "call" and frame.f_lasti > 2 and code.co_flags & CO_GENERATOR:
            return  # perhaps to be closed
        if event == "return" and (code.co_name == "__del__" or code.co_flags & CO_GENERATOR):
            return  # to CPython itself, which asks nothing then
        if event == "return" and code.co_name == "__enter__":
            return  # to `with`, or to a function: neither asks
        self.seen += 1
        if self.seen == self.at:
            sys.setprofile(None)
            self.interrupted = True
            raise KeyboardInterrupt


@cache
def asks_at_its_beginning(code: CodeType) -> bool:
    for found in dis.get_instructions(code):
        if found.opname == "RESUME":
            return found.arg is not None and found.arg & 3 < 2
    return True


def values() -> Any:
    return np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE) % 7 - 3


def chain() -> None:
    x = skimp.tensor(values())
    assert ((x * 2 + 1).relu() - x).sum().item() == (
        np.maximum(values() * 2 + 1, 0) - values()
    ).sum()


def small() -> None:
    x = skimp.ones(3, 4)
    y = (x + x).mul_(3)
    assert (y[1:] - x[1:]).sum().item() == 40


def backward() -> None:
    x = skimp.tensor(values(), requires_grad=True)
    w = skimp.ones(5, requires_grad=True)
    loss = (x.relu() * 3).sum() * w.exp().sum()
    loss.backward()
    assert x.grad is not None
    assert w.grad is not None


def counters() -> None:
    with region() as r:
        x = skimp.tensor(values())
        y = x + 1
        stats.reset_peak_memory_stats()
        assert stats.memory_allocated() >= 2 * x.nbytes
        y.untyped_storage().resize_(300_000)
    assert r.peak >= r.kept
    stats.empty_cache()


def limited() -> None:
    skimp.memory.set_limit(host.allocated + (8 << 20))
    try:
        held = [skimp.ones(SIDE, SIDE) + 1 for _ in range(3)]
        with pytest.raises(skimp.OutOfMemoryError):
            skimp.ones(4 * SIDE, 4 * SIDE)
        held.clear()
    finally:
        skimp.memory.set_limit(None)


def everything_is_right(base: int) -> None:
    """After an interrupt: nothing is counted that is gone, every block is free or somebody's."""
    skimp.memory.set_limit(None)
    gc.collect()
    assert stats.memory_allocated() == base
    free = sum(pool.blocks())
    assert pool.held.current == pool.leased.current + free
    assert skimp.is_grad_enabled()
    chain()
    small()
    assert stats.memory_allocated() == base


def each_moment(program: Callable[[], Any]) -> list[int]:
    """The numbers of the moments to try, spread over the program."""
    program()  # what is made once is made
    counting = Moments()
    counting.run(program)
    assert counting.seen > 20
    step = max(counting.seen // MANY, 1)
    return list(range(1, counting.seen + 1, step))


# What comes while a storage dies that somebody observes is printed, and the observer told.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", [chain, small, backward, counters, limited])
def test_after_an_interrupt_everything_is_right(program: Callable[[], Any]) -> None:
    gc.collect()
    base = stats.memory_allocated()
    came = 0
    for at in each_moment(program):
        moments = Moments(at)
        moments.run(program)
        came += moments.interrupted
        everything_is_right(base)
    assert came > 20


@pytest.mark.parametrize("steps", ["ufuncs", "others"])
@pytest.mark.parametrize("look", [lambda x: x.sum(), lambda x: x.data_ptr()])
def test_a_result_that_takes_over_a_block_is_right_after_an_interrupt(
    look: Callable[[Any], Any], steps: str
) -> None:
    """Its input is written over on the way: half of it would be lost. Ufuncs are called by one call
    of C; what else is left when an exception comes, another thread does.
    """
    array = np.maximum(values() @ values() * 2 + 1, 0)
    expected = (array if steps == "ufuncs" else np.where(array > 6, array, 3)).sum()

    def make() -> list[Any]:
        x = skimp.tensor(values())
        made = (skimp.mm(x, x) * 2 + 1).relu()
        return [made if steps == "ufuncs" else skimp.nn.functional.threshold(made, 6, 3)]

    for at in each_moment(lambda: look(make()[0])):
        held = make()
        Moments(at).run(lambda held=held: look(held[0]))
        assert held[0].sum().item() == expected


@pytest.mark.parametrize("start", ["resident", "deferred"])
def test_a_write_is_whole_or_has_not_happened(start: str) -> None:
    def make() -> Any:
        x = skimp.tensor(values())
        return x if start == "resident" else x + 0

    def write(x: Any) -> None:
        x[:] = x * 2 + 1
        x.sum()

    for at in each_moment(lambda: write(make())):
        x = make()
        Moments(at).run(lambda x=x: write(x))
        found = x.numpy()
        assert np.array_equal(found, values()) or np.array_equal(found, values() * 2 + 1)


@pytest.mark.parametrize(("before", "n"), [(0, 3), (622, 5), (624, 9), (700, 2000), (3, 1 << 17)])
@pytest.mark.parametrize("moved", [False, True])
def test_a_stream_goes_on_where_a_draw_was(before: int, n: int, moved: bool) -> None:
    """At a place that the draw passes, of which its state tells; `moved`: it began from a state
    within what mt19937 makes at once.
    """
    skipped = 100 * moved
    stream = Engine(5)
    stream.skip(skipped)
    words = stream.random32(before + n + 5000)

    def engine() -> Engine:
        made = Engine(5)
        made.skip(skipped)
        made = made.clone() if moved else made
        made.skip(before)
        return made

    whole, counting = engine(), Moments()
    counting.run(lambda: whole.random32(n))
    assert counting.seen > 1
    for at in range(1, counting.seen + 1):
        for looked in (False, True):
            cut = engine()
            Moments(at).run(lambda cut=cut: cut.random32(n))
            twin = cut.clone() if looked else None
            left = cut.random32(900)
            place = np.flatnonzero(words[before : before + n + 1] == left[0])[0] + before
            assert np.array_equal(left, words[place : place + 900])
            assert twin is None or np.array_equal(left, twin.random32(900))
            assert np.array_equal(cut.clone().random32(4000), cut.random32(4000))


@pytest.mark.parametrize("program", [small, backward])
def test_no_interrupt_is_lost_while_somebody_observes(program: Callable[[], Any]) -> None:
    """Storages die inside of what is observed, and Python prints what `__del__` raises."""

    def run() -> str:
        program()
        return "done"

    profile = skimp.profiler.profile(profile_memory=True)
    profile.start()
    try:
        for at in each_moment(run):
            moments = Moments(at)
            try:
                ended = moments.run(run) is not None
                for _ in range(2):
                    repr(at)  # in the last finalizer: it comes here
            except KeyboardInterrupt:
                ended = False
            assert not (ended and moments.interrupted), at
    finally:
        profile.stop()


class Late(Exception):
    """An ordinary exception of a handler's, which wants an argument."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


class Ends:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @finalizer
    def __del__(self) -> None:
        raise self.error


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("error", [Late(3), KeyboardInterrupt("now")])
def test_what_a_handler_raises_in_a_finalizer_comes_after_it(
    error: BaseException, inside: bool
) -> None:
    """The very one, also while another is handled."""

    def end() -> None:
        made = [Ends(error)]
        made.clear()
        repr(made)

    def end_inside() -> None:
        try:
            raise OSError
        except OSError:
            end()

    with pytest.raises(type(error)) as found:
        (end_inside if inside else end)()
    assert found.value is error
    assert isinstance(error.__context__, OSError) == inside
    error.__context__ = None


@pytest.mark.parametrize(
    ("module", "printed"), [("skimp.x", True), ("multiprocessing.pool", True), ("__main__", False)]
)
def test_an_error_of_a_finalizers_own_is_printed(module: str, printed: bool) -> None:
    scope: dict[str, Any] = {"__name__": module}
    exec("def fail(): raise ValueError('own')", scope)
    with pytest.raises(ValueError, match="own") as found:
        scope["fail"]()
    trace = found.value.__traceback__
    assert trace is not None
    assert (once_more(found.value.with_traceback(trace.tb_next)) is None) == printed


class Mode(skimp.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def twice(value: int) -> int:
    return 2 * value


REGIONS: dict[str, Callable[[], Any]] = {
    "no_grad": skimp.no_grad,
    "enable_grad": skimp.enable_grad,
    "inference_mode": skimp.inference_mode,
    "autocast": lambda: skimp.autocast("cpu", skimp.bfloat16),
    "autocast off": lambda: skimp.autocast("cpu", enabled=False),
    "budget": lambda: skimp.memory.budget(host.allocated + (64 << 20)),
    "no budget": lambda: skimp.memory.budget(None),
    "no_copies": skimp.memory.no_copies,
    "device": lambda: skimp.device("meta"),
    "device back": lambda: skimp.device("cpu"),
    "mode": Mode,
    "no subclasses": skimp._C.DisableTorchFunctionSubclass,
    "no overrides": skimp._C.DisableTorchFunction,
    "hooks": lambda: skimp.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "no hooks": lambda: skimp.autograd.graph.disable_saved_tensors_hooks("none here"),
    "nothing saved": skimp.autograd.graph.disable_saved_tensors_hooks,
    "mutation": skimp.autograd.graph.allow_mutation_on_saved_tensors,
    "no anomaly": lambda: skimp.autograd.detect_anomaly(False),
    "dual": skimp.autograd.forward_ad.dual_level,
    "early stop": lambda: skimp.utils.checkpoint.set_checkpoint_early_stop(False),
    "debug": lambda: skimp.utils.checkpoint.set_checkpoint_debug_enabled(True),
    "fork": skimp.random.fork_rng,
    "printing": lambda: printoptions(precision=7, linewidth=99),
    "safe": lambda: skimp.serialization.safe_globals([twice]),
    "settings": lambda: config.using(defer="never", block=1 << 9, threads=3),
    "one thread": blas.one_thread,
    "flags": lambda: skimp.backends.cudnn.flags(enabled=not skimp.backends.cudnn.enabled),
    "attention": lambda: skimp.nn.attention.sdpa_kernel(skimp.nn.attention.SDPBackend.MATH),
    "wrapping": lambda: wrap.enable_wrap(wrapper_cls=dict),
    "vmap": lambda: Level(3, "error"),
    "outside": lambda: outside(Level(3, "error")),
}


def what_is_on() -> list[Any]:
    """All that a region can change."""
    state, over = modes.state, overrides.state
    return [
        *(state.grad, state.inference, state.vmaps, state.hooks, state.hooks_off),
        *(state.save_nothing, list(regions.active), len(saving.GUARDED), list(anomaly.ON)),
        *(over.subclasses, over.everything, over.modes, skimp.Tensor._skimp_watched),
        *(host.budget, copies._forbidden.get()),
        *(skimp.is_autocast_enabled("cpu"), skimp.get_autocast_dtype("cpu")),
        *(skimp.is_autocast_cache_enabled(), autocast.nesting, skimp.get_default_device()),
        *(forward_ad._levels, vars(checkpoint._Settings).get("early_stop")),
        *(vars(checkpoint._Settings).get("debug"), skimp.get_rng_state().tolist()),
        *(get_printoptions(), skimp.serialization.get_safe_globals()),
        *(
            repr(config),
            list(blas._inside),
            (blas._functions() or (int,))[0](),
            skimp.backends.cudnn.enabled,
        ),
        *(skimp.backends.cuda.flash_sdp_enabled(), list(wrap._wrapper)),
    ]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("around", ["nothing", "autocast", "device", "no_grad", "budget"])
@pytest.mark.parametrize("name", REGIONS)
def test_a_region_ends_whole(name: str, around: str) -> None:
    """Whichever moment of its beginning or its end is interrupted; alone, and inside another."""
    region = REGIONS[name]
    outer = REGIONS.get(around, contextlib.nullcontext)

    def program() -> None:
        with region():
            entered.append(None)

    entered: list[None] = []
    with outer():
        before = what_is_on()
        counting = Moments()
        counting.run(program)
        assert what_is_on() == before
        assert entered
        for at in range(1, counting.seen + 1):
            moments = Moments(at)
            moments.run(program)
            assert what_is_on() == before, at
    assert counting.seen or name in ("vmap", "outside", "no subclasses", "no overrides")


def test_an_optimizers_step_that_is_interrupted_is_over() -> None:
    """Gradients are on, and no update waits for others that never come."""
    p = skimp.nn.Parameter(skimp.ones(3))
    p.grad = skimp.ones(3)
    optimizer = skimp.optim.SGD([p], lr=0.1)
    before = what_is_on()
    for at in each_moment(lambda: optimizer.step(lambda: 0.0)):
        Moments(at).run(lambda: optimizer.step(lambda: 0.0))
        assert what_is_on() == before, at
        assert waiting.here.waiting is None, at


def test_a_pool_loses_no_block() -> None:
    book = Ledger("test")
    mine = Pool(ledger=book, total=lambda: 1 << 32)

    def use() -> None:
        a, b = mine.take(1 << 20), mine.take(3 << 20, zeroed=True)
        del a
        c = mine.take(5 << 20)
        mine.empty_cache()
        del b, c
        mine.take(1 << 20)

    for at in each_moment(use):
        Moments(at).run(use)
        gc.collect()
        assert mine.leased.current == mine.leases.current == mine.asked.current == 0
        assert mine.held.current == sum(mine.blocks())
    mine.empty_cache()
    assert mine.held.current == sum(mine.blocks()) == 0


def test_peaks_survive_interrupts() -> None:
    def fold(book: Ledger) -> None:
        for _ in range(4):
            book.fold()

    for at in each_moment(lambda: fold(Ledger("test"))):
        book = Ledger("test")
        gauges = [book.open_gauge() for _ in range(3)]
        owner = Owner(100, book)
        del owner
        Moments(at).run(lambda book=book: fold(book))
        late = book.open_gauge()
        assert [gauge.peak for gauge in (*gauges, late)] == [100, 100, 100, 0]


_SIGNALS = """
import gc, random, signal, sys, time
import faulthandler
import skimp

faulthandler.dump_traceback_later(60, exit=True)
skimp.set_num_threads(3)
signal.signal(signal.SIGALRM, signal.default_int_handler)
draw = random.Random(int(sys.argv[1]))
x = skimp.ones(700, 700)
w = skimp.ones(40, 40, requires_grad=True)
x.sum()
gc.collect()
base = skimp.cuda.memory_allocated()

def step():
    y = (x * 2 + 1).relu()
    z = (x @ x[:, :40]).relu_()
    (y.sum() + z.sum() + (z[:40] @ w).exp().sum() * 0).backward()
    w.grad = None
    skimp.ones(10).add_(1).sum()

step()
came, end = 0, time.monotonic() + 5
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0002, 0.004))
        while time.monotonic() < end:
            step()
    except KeyboardInterrupt:
        came += 1
signal.setitimer(signal.ITIMER_REAL, 0)
w.grad = None
gc.collect()
assert skimp.cuda.memory_allocated() == base, (skimp.cuda.memory_allocated(), base)
assert x.sum().item() == 490_000 and ((x * 2 + 1).relu().sum().item()) == 3 * 490_000
step()
print(came)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer that sends signals")
@pytest.mark.parametrize("seed", [1, 2])
def test_signals_at_random_moments(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALS, str(seed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert int(done.stdout) > 100
