"""Plans as data, the settings that shape them, and the threads that run them."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

from skimp._engine.eval.expr import COPY, Expr, Kernel, Leaf
from skimp._engine.eval.plan import plan
from skimp._engine.eval.program import LeafLayout, Plan, Step
from skimp._engine.eval.show import show
from skimp._kernels import threads as threads_module
from skimp._kernels.blas import get_num_threads, set_num_threads
from skimp._kernels.threads import at_once, quietly, share, whole
from skimp.config import Config, config

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
ADD, MULTIPLY, EXP, MAXIMUM = (
    Kernel(f.__name__, f) for f in (np.add, np.multiply, np.exp, np.maximum)
)
POWER = Kernel("power", np.power)
PYTHON = Kernel("python", lambda array, out: np.copyto(out, array))


def leaf(*shape: int) -> Leaf:
    return Leaf(None, np.zeros(shape, F4))


def node(kernel: Kernel, *args: Any, shape: tuple[int, ...], dtype: np.dtype[Any] = F4) -> Expr:
    return Expr(kernel, args, shape, dtype)


def test_a_whole_plan() -> None:
    x = leaf(100, 100)
    root = node(ADD, node(EXP, x, shape=(100, 100)), np.float32(1), shape=(100, 100))
    assert plan((root,), block=1000) == Plan(
        shape=(100, 100),
        domain=(10_000,),
        block=(1000,),
        tiled=False,
        leaves=(LeafLayout(F4, (4,)),),
        constants=(F4,),
        scratch=(F4,),
        outs=(F4,),
        once=(),
        steps=(Step(EXP, (0,), 2), Step(ADD, (2, 1), 3)),
        unwritten_bytes=40_000,
    )


def test_registers_are_used_again() -> None:
    root: Any = leaf(1000)
    for _ in range(50):
        root = node(EXP, node(ADD, root, root, shape=(1000,)), shape=(1000,))
    made = plan((root,))
    assert len(made.scratch) == 1
    assert made.scratch_bytes == 4 * made.block[0]


def test_kernels_that_may_not_alias_get_a_register_of_their_own() -> None:
    root = node(PYTHON, node(PYTHON, node(PYTHON, leaf(99), shape=(99,)), shape=(99,)), shape=(99,))
    assert len(plan((root,)).scratch) == 2


def test_shared_parts_run_once() -> None:
    part = node(EXP, leaf(99), shape=(99,))
    root = node(ADD, part, node(MULTIPLY, part, part, shape=(99,)), shape=(99,))
    assert [step.kernel.name for step in plan((root,)).steps] == ["exp", "multiply", "add"]


def test_equal_arrays_are_read_as_one() -> None:
    array = np.zeros(99, F4)
    root = node(ADD, Leaf(None, array), Leaf(None, array), shape=(99,))
    assert len(plan((root,)).leaves) == 1


def test_the_same_work_on_other_arrays_is_planned_once() -> None:
    def work() -> Plan:
        return plan((node(ADD, leaf(50, 60), leaf(1, 60), shape=(50, 60)),))

    assert work() is work()
    assert work() != plan((node(ADD, leaf(50, 60), leaf(50, 1), shape=(50, 60)),))


@pytest.mark.parametrize("block", [70, 3])
def test_blocks_cover_the_domain_in_its_order(block: int) -> None:
    """However many there are: a plan keeps the boxes of few."""
    made = plan((node(ADD, leaf(50, 60), leaf(50, 1), shape=(50, 60)),), block=block)
    places = np.arange(3000).reshape(made.domain)
    found = [places[box] for box, _ in made.boxes()]
    assert [part.shape for part in found] == [shape for _, shape in made.boxes()]
    assert np.concatenate([part.reshape(-1) for part in found]).tolist() == list(range(3000))
    assert (made.kept_boxes is None) is (block == 3)


def test_dims_are_collapsed_as_far_as_strides_allow() -> None:
    shape = (4, 5, 6)
    assert plan((node(EXP, leaf(*shape), shape=shape),)).domain == (120,)
    assert plan((node(ADD, leaf(*shape), leaf(1, 1, 6), shape=shape),)).domain == (20, 6)
    assert plan((node(ADD, leaf(*shape), leaf(4, 1, 1), shape=shape),)).domain == (4, 30)
    part = Leaf(None, np.zeros((4, 5, 7), F4)[..., :6])
    assert plan((node(EXP, part, shape=shape),)).domain == (20, 6)


def test_rows_of_a_broadcast_leaf_stay_whole() -> None:
    root = node(ADD, leaf(1000, 700), leaf(1, 700), shape=(1000, 700))
    assert plan((root,), block=7000).block == (10, 700)
    assert plan((root,), block=350).block == (1, 350)


def test_short_rows_are_spread_once() -> None:
    made = plan((node(ADD, leaf(1000, 3), leaf(1, 3), shape=(1000, 3)),), block=300)
    assert made.once == (Step(COPY, (1,), 2),)
    assert made.steps == (Step(ADD, (0, 2), 3),)


def test_transposed_leaves_make_tiles() -> None:
    turned = Leaf(None, np.zeros((500, 400), F4).T)
    root = node(ADD, leaf(400, 500), turned, shape=(400, 500))
    made = plan((root,), block=1 << 14)
    assert (made.tiled, made.block) == (True, (128, 128))
    assert made.steps[0] == Step(COPY, (1,), 2)
    runs = plan((root,), block=1 << 14, tiles=False)
    assert (runs.tiled, runs.block) == (False, (31, 500))


def test_columns_that_collide_in_the_cache_are_turned_by_way_of_padded_rows() -> None:
    turned = Leaf(None, np.zeros((512, 1024), F4).T)
    made = plan((node(ADD, leaf(1024, 512), turned, shape=(1024, 512)),))
    assert [step.kernel.name for step in made.steps] == ["turn", "add"]


def test_numbers_are_spread_once_for_kernels_that_are_slow_with_them() -> None:
    made = plan((node(MAXIMUM, leaf(99), np.float32(0), shape=(99,)),))
    assert made.once == (Step(COPY, (1,), 2),)
    assert made.steps == (Step(MAXIMUM, (0, 2), 3),)


def test_wide_types_make_short_blocks() -> None:
    wide = Leaf(None, np.zeros(100_000, F8))
    assert plan((node(EXP, wide, shape=(100_000,), dtype=F8),), block=10_000).block == (5000,)


def test_leaves_that_are_not_dense_are_gathered_for_kernels_that_care() -> None:
    strided = Leaf(None, np.zeros((50, 200), F4)[:, ::2])
    assert len(plan((node(POWER, leaf(50, 100), strided, shape=(50, 100)),)).scratch) == 1
    assert len(plan((node(ADD, leaf(50, 100), strided, shape=(50, 100)),)).scratch) == 0


def test_a_result_in_the_place_of_a_leaf_waits_for_the_leafs_last_reader() -> None:
    array = np.zeros(99, F4)
    x = Leaf(None, array)
    first = node(EXP, x, shape=(99,))
    second = node(ADD, first, x, shape=(99,))
    made = plan((first, second), (array, np.zeros(99, F4)))
    assert made.steps == (Step(EXP, (0,), 1), Step(ADD, (1, 0), 3), Step(COPY, (1,), 2))
    assert plan((second,), (array,)).steps == (Step(EXP, (0,), 1), Step(ADD, (1, 0), 2))
    python = node(PYTHON, x, shape=(99,))
    assert plan((python,), (array,)).steps == (Step(PYTHON, (0,), 1), Step(COPY, (1,), 2))


def test_show() -> None:
    root = node(ADD, node(EXP, leaf(100, 100), shape=(100, 100)), leaf(1, 100), shape=(100, 100))
    text = show(root)
    assert "r0 = exp(in0)" in text
    assert "out0 = add(r0, r1)" in text
    assert "once r1 = copy(in1)" in text
    assert "40,000 bytes not written" in text


def test_expressions_count_nodes_and_leaves() -> None:
    x, y = leaf(3), leaf(3)
    part = node(ADD, x, y, shape=(3,))
    root = node(ADD, part, node(MULTIPLY, part, np.float32(2), shape=(3,)), shape=(3,))
    assert root.leaves == {x, y}
    assert root.size == 4  # an upper bound: `part` counts twice
    assert part.size == 1


# -- settings --------------------------------------------------------------------------------------


def test_settings_from_the_environment() -> None:
    made = Config({"SKIMP_THREADS": "3", "SKIMP_DEFER": "always"})
    assert (made.threads, made.defer, made.defer_from, made.small_below) == (3, "always", 0, 0)
    made = Config({})
    assert (made.defer, made.threads) == ("auto", min(len(os.sched_getaffinity(0)), 64))
    assert made.defer_from == 131072


@pytest.mark.parametrize(
    ("environ", "threads"),  # of two cores; what PyTorch's build with MKL makes of them
    [
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": " 1 "}, 1),
        ({"OMP_NUM_THREADS": "2,1"}, 2),
        ({"OMP_NUM_THREADS": "7"}, 2),
        ({"OMP_NUM_THREADS": "0"}, 2),
        ({"OMP_NUM_THREADS": "many"}, 2),
        ({"MKL_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "1", "SKIMP_THREADS": "3"}, 3),
    ],
)
def test_threads_by_the_variables_of_pytorch(
    environ: dict[str, str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert Config(environ).threads == threads


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SKIMP_THREADS": "many"}, "SKIMP_THREADS must be an integer of at least 1; got 'many'"),
        ({"SKIMP_THREADS": "0"}, "threads must be an integer of at least 1; got 0"),
        ({"SKIMP_DEFER": "no"}, "defer must be one of auto, never, always; got 'no'"),
    ],
)
def test_wrong_environments(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(environ)


@pytest.mark.parametrize(
    "change", [{"defer": "yes"}, {"threads": 0}, {"block": 1.5}, {"threads_from": True}]
)
def test_wrong_settings_change_nothing(change: dict[str, Any]) -> None:
    before = repr(config)
    with (
        pytest.raises(ValueError, match=f"{next(iter(change))} must be"),
        config.using(max_nodes=7, **change),
    ):
        pass
    assert repr(config) == before


def test_unknown_settings() -> None:
    with pytest.raises(AttributeError, match="no setting 'speed'; settings are block"):
        config.speed = 1  # type: ignore[attr-defined]


def test_using_restores() -> None:
    before = repr(config)
    with config.using(defer_from=7, defer="never", threads=1):
        assert (config.defer, config.defer_from, config.threads) == ("never", 7, 1)
    assert repr(config) == before


def test_num_threads() -> None:
    with config.using():
        set_num_threads(3)
        assert get_num_threads() == 3
        with pytest.raises(RuntimeError, match="positive integer"):
            set_num_threads(0)


# -- threads ---------------------------------------------------------------------------------------


def test_work_is_shared() -> None:
    together = threading.Barrier(3, timeout=20)
    share(together.wait, 3)  # returns only when three threads are inside


def test_nested_and_concurrent_work_runs_inline() -> None:
    runs: list[int] = []
    together = threading.Barrier(2, timeout=20)

    def outer() -> None:
        together.wait()
        share(lambda: runs.append(threading.get_ident()), 4)
        together.wait()

    share(outer, 2)
    assert len(runs) == 2  # once for each of the outer two


def test_a_caller_that_finds_the_helpers_busy_does_it_all() -> None:
    began, go = threading.Event(), threading.Event()

    def busy() -> None:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            go.wait(20)

    holder = threading.Thread(target=share, args=(busy, 2))
    holder.start()
    assert began.wait(20)
    runs: list[int] = []
    share(lambda: runs.append(threading.get_ident()), 2)
    assert runs == [threading.get_ident()]
    go.set()
    holder.join()


def test_whole_work_runs_elsewhere_and_raises_here() -> None:
    runs: list[int] = []
    whole(lambda: runs.append(threading.get_ident()))
    whole(lambda: whole(lambda: runs.append(threading.get_ident())))  # already elsewhere
    assert len(set(runs)) == 1
    assert threading.get_ident() not in runs
    with pytest.raises(KeyError, match="mine"):
        whole(lambda: {}["mine"])
    together = threading.Barrier(2, timeout=20)
    whole(lambda: share(together.wait, 2))  # the helpers are the same


def test_calls_at_once_are_made_in_order_and_stop_at_an_error() -> None:
    found: list[Any] = []
    x = np.full(3, 1e30, F4)
    at_once([(found.append, 1), (np.multiply, x, x, x), (found.append, 2)])  # which overflows
    assert found == [1, 2]
    assert np.isinf(x).all()
    with pytest.raises(ValueError, match="broadcast"):
        at_once([(np.add, x, x, np.empty(2, F4)), (found.append, 3)])
    assert found == [1, 2]


def test_what_was_shared_is_held_by_nobody_afterwards() -> None:
    class Thing:
        pass

    for run in (lambda work: share(work, 3), whole):
        for _ in range(200):
            thing = Thing()
            dead = weakref.ref(thing)
            run(partial(id, thing))
            del thing
            assert dead() is None


def test_no_warnings_on_any_thread() -> None:
    def overflow() -> None:
        np.exp(np.full(10, 1e30, F4))
        np.zeros(10) / np.zeros(10)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        share(overflow, 3)
        quietly(overflow)
    with np.errstate(all="warn"):  # the caller's own setting stays
        quietly(overflow)
        with pytest.warns(RuntimeWarning):
            overflow()


def test_numpy_s_buffers_are_short_inside_only() -> None:
    before = np.getbufsize()
    sizes = []
    share(lambda: sizes.append(np.getbufsize()), 2)
    assert set(sizes) == {quietly(np.getbufsize)} != {before}
    assert np.getbufsize() == before


def test_helpers_errors_are_raised_and_helpers_live_on() -> None:
    caller = threading.get_ident()
    together = threading.Barrier(2, timeout=20)

    def fail() -> None:
        together.wait()
        if threading.get_ident() != caller:
            raise KeyError("from a helper")

    for _ in range(3):
        with pytest.raises(KeyError, match="from a helper"):
            share(fail, 2)
    assert len(threads_module._pool) >= 1


def test_where_no_thread_can_be_started_the_caller_does_it_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads_module, "_pool", [])
    monkeypatch.setattr(threads_module, "_conductor", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ran: list[int] = []
    share(lambda: ran.append(threading.get_ident()), 3)
    threads_module.whole(lambda: ran.append(threading.get_ident()))
    assert ran == [threading.get_ident()] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_its_own_threads() -> None:
    share(lambda: None, 2)
    child = os.fork()
    if child == 0:
        together = threading.Barrier(2, timeout=20)
        try:
            share(together.wait, 2)
        finally:
            os._exit(0 if not together.broken else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
