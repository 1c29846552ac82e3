"""Blocks, threads, registers and donation never change a bit of what plain NumPy gives."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._engine.eval.expr import COPY, Expr, Kernel, Leaf, walk
from skimp._engine.eval.reader import boxes
from skimp._engine.eval.run import evaluate, evaluate_many, threads_for
from skimp.config import config
from tests.support.frames import frames_of

F4, BOOL = np.dtype(np.float32), np.dtype(np.bool_)
FLOATS = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]


def _where(condition: Any, a: Any, b: Any, out: Any) -> None:
    np.copyto(out, b)  # before `a` is read: wrong if out were a's memory
    np.copyto(out, a, where=condition)


UNARY = [Kernel(f.__name__, f) for f in (np.exp, np.sin, np.tanh, np.sqrt, np.negative, np.log1p)]
BINARY = [Kernel(f.__name__, f) for f in (np.add, np.multiply, np.subtract, np.maximum, np.power)]
LESS, WHERE = Kernel("less", np.less), Kernel("where", _where)


def reference(root: Expr) -> Any:
    """One NumPy call per node over whole contiguous arrays."""
    values: dict[int, Any] = {}
    for node in walk((root,)):
        args = []
        for arg in node.args:
            if isinstance(arg, Leaf):
                args.append(np.array(np.broadcast_to(arg.array, node.shape), order="C"))
            else:
                args.append(values[id(arg)] if isinstance(arg, Expr) else arg)
        values[id(node)] = out = np.empty(node.shape, node.dtype)
        with np.errstate(all="ignore"):
            node.kernel.fn(*args, out=out)
    return values[id(root)]


def same_bits(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def make_leaf(draw: Any, shape: tuple[int, ...], dtype: np.dtype[Any], rng: Any) -> Leaf:
    kind = draw(
        st.sampled_from(["plain", "transposed", "strided", "broadcast", "expanded", "rows"])
    )
    values = rng.standard_normal(shape).astype(dtype)
    if kind == "transposed":
        order = draw(st.permutations(range(len(shape))))
        values = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
    elif kind == "strided":
        wide = np.zeros([2 * size for size in shape], dtype)
        wide[tuple(slice(None, None, 2) for _ in shape)] = values
        values = wide[tuple(slice(None, None, 2) for _ in shape)]
    elif kind in ("broadcast", "expanded"):
        keep = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        values = values[tuple(slice(None) if k else slice(0, 1) for k in keep)].copy()
        if kind == "expanded":
            values = np.broadcast_to(values, shape)
    elif kind == "rows":
        wide = np.zeros((*shape[:-1], shape[-1] + 3), dtype)
        wide[..., 1:-2] = values
        values = wide[..., 1:-2]
    return Leaf(object(), values)


@st.composite
def dags(draw: Any) -> list[Expr]:
    shape = tuple(draw(st.lists(st.integers(1, 23), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    dtypes = draw(st.sampled_from([[f] for f in FLOATS] + [FLOATS[:2]]))
    pool: list[Any] = [
        make_leaf(draw, shape, draw(st.sampled_from(dtypes)), rng)
        for _ in range(draw(st.integers(1, 3)))
    ]
    nodes: list[Expr] = []

    def dtype_of(item: Any) -> np.dtype[Any]:
        return item.array.dtype if isinstance(item, Leaf) else item.dtype

    def add(kernel: Kernel, args: tuple[Any, ...], dtype: np.dtype[Any]) -> Expr:
        nodes.append(Expr(kernel, args, shape, dtype))
        return nodes[-1]

    def typed(item: Any, dtype: np.dtype[Any]) -> Any:
        return item if dtype_of(item) == dtype else add(COPY, (item,), dtype)

    for _ in range(draw(st.integers(1, 7))):
        a = draw(st.sampled_from(pool))
        dtype = dtype_of(a)
        what = draw(st.sampled_from(["unary", "binary", "scalar", "where"]))
        if what == "unary":
            made = add(draw(st.sampled_from(UNARY)), (a,), dtype)
        elif what == "scalar":
            number = np.float64(draw(st.sampled_from([0.5, 2.0, -1.0]))).astype(dtype)
            made = add(draw(st.sampled_from(BINARY)), (a, number), dtype)
        else:
            b = typed(draw(st.sampled_from(pool)), dtype)
            if what == "binary":
                made = add(draw(st.sampled_from(BINARY)), (a, b), dtype)
            else:
                made = add(WHERE, (add(LESS, (a, b), BOOL), a, b), dtype)
        pool.append(made)
    return nodes


modes = st.fixed_dictionaries(
    {
        "block": st.sampled_from([64, 100, 1000]),
        "threads": st.integers(1, 3),
        "threads_from": st.just(0),
        "defer": st.sampled_from(["always", "auto"]),
    }
)


@settings(max_examples=150, deadline=None)
@given(dags(), modes)
def test_any_dag_gives_the_bits_of_whole_array_numpy(
    nodes: list[Expr], mode: dict[str, Any]
) -> None:
    root = nodes[-1]
    out = np.empty(root.shape, root.dtype)
    with config.using(**mode):
        evaluate(root, out)
    assert same_bits(out, reference(root))


@settings(max_examples=60, deadline=None)
@given(dags(), modes, st.data())
def test_several_roots_at_once(nodes: list[Expr], mode: dict[str, Any], data: Any) -> None:
    roots = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
    outs = tuple(np.empty(root.shape, root.dtype) for root in roots)
    with config.using(**mode):
        evaluate_many(tuple(roots), outs)
    for root, out in zip(roots, outs, strict=True):
        assert same_bits(out, reference(root))


@settings(max_examples=100, deadline=None)
@given(dags(), modes, st.data())
def test_the_result_may_take_the_memory_of_a_leaf(
    nodes: list[Expr], mode: dict[str, Any], data: Any
) -> None:
    roots = [nodes[-1], data.draw(st.sampled_from(nodes))]
    want = [reference(root) for root in roots]
    outs = []
    free = sorted(roots[0].leaves | roots[1].leaves, key=id)
    for root in roots:
        fits = [
            leaf
            for leaf in free
            if leaf.array.flags.c_contiguous
            and leaf.array.flags.writeable
            and (leaf.array.shape, leaf.array.dtype) == (root.shape, root.dtype)
        ]
        outs.append(fits[0].array if fits else np.empty(root.shape, root.dtype))
        free = [leaf for leaf in free if leaf not in fits[:1]]
    with config.using(**mode):
        evaluate_many(tuple(roots), tuple(outs))
    for out, value in zip(outs, want, strict=True):
        assert same_bits(out, value)


@pytest.mark.parametrize("defer", ["always", "auto"])
def test_a_leaf_in_another_layout_over_the_results_memory_is_read_first(defer: str) -> None:
    values = np.arange(90 * 90, dtype=np.float32).reshape(90, 90)
    want = values + values.T
    root = Expr(BINARY[0], (Leaf(None, values), Leaf(None, values.T)), values.shape, F4)
    with config.using(defer=defer, block=100):
        evaluate(root, values)
    assert same_bits(values, want)


@pytest.mark.parametrize("defer", ["always", "auto"])
@pytest.mark.parametrize("block", [1000, 1 << 16])
def test_bits_do_not_depend_on_the_layout_of_what_is_read(defer: str, block: int) -> None:
    values = np.random.default_rng(0).standard_normal((64, 2048)).astype(np.float16)
    twos = np.full((64, 1), 2, F4)
    floats = np.abs(values).astype(F4)
    roots = [
        Expr(UNARY[0], (Leaf(None, values[:, ::2]),), (64, 1024), values.dtype),
        Expr(UNARY[1], (Leaf(None, values.T),), (2048, 64), values.dtype),
        Expr(BINARY[4], (Leaf(None, floats), Leaf(None, twos)), floats.shape, F4),
    ]
    for root in roots:
        out = np.empty(root.shape, root.dtype)
        with config.using(defer=defer, block=block):
            evaluate(root, out)
        assert same_bits(out, reference(root))


@pytest.mark.parametrize("rows", [1, 16, 17])  # a block, several, the last one shorter
@pytest.mark.parametrize("column", [False, True])
def test_what_is_computed_over_a_leaf_comes_with_the_calls_that_belong_to_it(
    rows: int, column: bool
) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 300, 128)).astype(F4)
    y = np.random.default_rng(1).normal(size=(1, 300, 1) if column else x.shape).astype(F4)
    product = Expr(Kernel("mul", np.multiply), (Leaf(None, x), Leaf(None, y)), x.shape, F4)
    root = Expr(Kernel("sub", np.subtract), (product, product), x.shape, F4)
    root = Expr(Kernel("add", np.add), (root, product), x.shape, F4)
    expected = x * y
    done: list[int] = []
    evaluate(root, x, [(done.append, 1), (done.append, 2)])
    assert done == [1, 2]
    assert same_bits(x, expected)


def test_a_result_that_waits_for_a_leaf_is_not_overwritten_meanwhile() -> None:
    array = np.random.default_rng(0).standard_normal(500).astype(F4)
    x = Leaf(None, array)
    first = Expr(UNARY[0], (x,), (500,), F4)
    node = Expr(UNARY[4], (Expr(BINARY[0], (first, x), (500,), F4),), (500,), F4)
    roots = (first, Expr(BINARY[0], (node, x), (500,), F4))
    want = [reference(root) for root in roots]
    outs = (array, np.empty(500, F4))
    with config.using(defer="always", block=64):
        evaluate_many(roots, outs)
    assert all(same_bits(out, value) for out, value in zip(outs, want, strict=True))


def test_roots_of_different_shapes_that_swap_memory() -> None:
    a, b = np.arange(200, dtype=np.float32), np.arange(200, dtype=np.float32)[::-1].copy()
    want = (-b).reshape(10, 20), -a
    roots = (
        Expr(UNARY[4], (Leaf(None, b.reshape(10, 20)),), (10, 20), F4),
        Expr(UNARY[4], (Leaf(None, a),), (200,), F4),
    )
    evaluate_many(roots, (a.reshape(10, 20), b))
    assert same_bits(a.reshape(10, 20), want[0])
    assert same_bits(b, want[1])


def test_a_node_without_leaves() -> None:
    root = Expr(BINARY[0], (np.float32(1), np.float32(2)), (3, 50), F4)
    with config.using(defer="always", block=64):
        out = np.empty((3, 50), F4)
        evaluate(root, out)
    assert (out == 3).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
@pytest.mark.parametrize("defer", ["always", "auto"])
def test_no_elements(shape: tuple[int, ...], defer: str) -> None:
    root = Expr(UNARY[0], (Leaf(None, np.empty(shape, F4)),), shape, F4)
    with config.using(defer=defer):
        evaluate(root, np.empty(shape, F4))


def test_a_scalar() -> None:
    out = np.empty((), F4)
    with config.using(defer="always"):
        evaluate(Expr(UNARY[4], (Leaf(None, np.array(2, F4)),), (), F4), out)
    assert out == -2


def test_deep_chains_do_not_recurse() -> None:
    node: Any = Leaf(None, np.zeros(100, F4))
    for _ in range(20_000):
        node = Expr(BINARY[0], (node, np.float32(1)), (100,), F4)
    for defer in ("auto", "always"):
        out = np.empty(100, F4)
        with config.using(defer=defer):
            evaluate(node, out)
        assert (out == 20_000).all()


def test_out_must_be_contiguous() -> None:
    root = Expr(UNARY[0], (Leaf(None, np.zeros(100, F4)),), (100,), F4)
    with config.using(defer="always"), pytest.raises(ValueError, match="C-contiguous"):
        evaluate(root, np.empty(200, F4)[::2])


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_in_kernels_reach_the_caller_and_the_next_call_works(threads: int) -> None:
    def fail(array: Any, out: Any) -> None:
        if array[0] > 2000:
            raise ArithmeticError("no")

    leaf = Leaf(None, np.arange(10_000, dtype=np.float32))
    out = np.empty(10_000, F4)
    with config.using(defer="always", threads=threads, threads_from=0, block=100):
        with pytest.raises(ArithmeticError, match="no"):
            evaluate(Expr(Kernel("fail", fail), (leaf,), (10_000,), F4), out)
        evaluate(Expr(UNARY[4], (leaf,), (10_000,), F4), out)
    assert same_bits(out, -leaf.array)


@pytest.mark.parametrize("defer", ["auto", "always"])
def test_nothing_keeps_the_leaves_alive(defer: str) -> None:
    array = np.zeros((100, 100), F4)
    alive = weakref.ref(array)
    root = Expr(BINARY[0], (Leaf(None, array), Leaf(None, array.T)), array.shape, F4)
    with config.using(defer=defer, threads=3, threads_from=0, block=100):
        evaluate(root, np.empty((100, 100), F4))
    del root, array
    assert alive() is None


def test_many_callers_at_once() -> None:
    values = np.random.default_rng(0).standard_normal(50_000).astype(F4)
    root = Expr(
        UNARY[0], (Expr(UNARY[4], (Leaf(None, values),), values.shape, F4),), values.shape, F4
    )
    want = reference(root)
    wrong: list[int] = []

    def call() -> None:
        for _ in range(10):
            out = np.empty_like(values)
            evaluate(root, out)
            if not same_bits(out, want):
                wrong.append(1)

    with config.using(defer="always", threads=3, threads_from=0, block=1000):
        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not wrong


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 40), st.data())
@settings(max_examples=100, deadline=None)
def test_boxes_cover_a_run_in_order(domain: list[int], most: int, data: Any) -> None:
    numbers = np.arange(np.prod(domain)).reshape(domain)
    start = data.draw(st.integers(0, numbers.size))
    stop = data.draw(st.integers(start, numbers.size))
    found: list[int] = []
    for corner, shape in boxes(tuple(domain), start, stop, most):
        part = numbers[tuple(slice(a, a + n) for a, n in zip(corner, shape, strict=True))]
        assert part.shape == shape
        assert part.size <= most
        found += part.ravel().tolist()
    assert found == list(range(start, stop))


# Functions whose bits must not depend on where in an array an element is: what blocks rely on.
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sqrt",
        "expm1",
        "log1p",
        "log2",
        "arctan",
        "power",
    ],
)
def test_numpy_gives_the_same_bits_at_every_place(name: str, dtype: Any) -> None:
    ufunc = getattr(np, name)
    rng = np.random.default_rng(1)
    arrays = [(3 * rng.standard_normal(3000)).astype(dtype) for _ in range(ufunc.nin)]
    with np.errstate(all="ignore"):
        whole = ufunc(*arrays)
        for length in (1, 37, 1000):
            parts = [
                ufunc(*[a[at : at + length] for a in arrays])
                for at in range(0, 30 * length if length < 100 else 3000, length)
            ]
            joined = np.concatenate(parts)[:3000]
            assert same_bits(joined, whole[: len(joined)])


def test_threads_are_worth_more_elements_where_steps_are_brief() -> None:
    with config.using(threads=2, threads_from=1000):
        assert [threads_for(n) for n in (999, 1000)] == [1, 2]
        assert [threads_for(n, 1) for n in (7999, 8000)] == [1, 2]
        assert [threads_for(n, 4) for n in (1999, 2000)] == [1, 2]
        assert [threads_for(n, 20) for n in (999, 1000)] == [1, 2]


def test_many_threads_share_what_is_worth_all_of_them() -> None:
    with config.using(threads=16, threads_from=1000):
        assert [threads_for(n) for n in (0, 999, 1000, 2400, 8000, 10**6)] == [1, 1, 2, 4, 16, 16]
        assert [threads_for(n, 1) for n in (7999, 8000)] == [1, 16]
    with config.using(threads=16, threads_from=0):
        assert [threads_for(n) for n in (0, 1, 3, 8)] == [1, 2, 6, 16]


def test_a_few_brief_steps_stay_on_their_thread() -> None:
    seen: set[int] = set()

    def note(x: Any, *, out: Any) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)  # in which a helper comes
        np.negative(x, out=out)

    x = np.ones(100_000, np.float32)
    for brief, most in ((True, 1), (False, 2)):
        kernel = Kernel("note", note, aliases=True, strided=True, brief=brief)
        root = Expr(kernel, (Expr(kernel, (Leaf(None, x),), x.shape, x.dtype),), x.shape, x.dtype)
        with config.using(threads=2, threads_from=50_000, block=1000, small_below=0):
            evaluate(root, np.empty_like(x))
        assert len(seen) == most


# -- strided memory -------------------------------------------------------------------------------

VIEWS: dict[str, Any] = {
    "long runs": lambda x: x[:, 1],
    "short rows": lambda x: x[:, :, 1],
    "turned rows": lambda x: x.permute(1, 0, 2, 3)[1],
    "columns": lambda x: x[:, :, :, 1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["float32", "float16", "int64"])
def test_writes_to_strided_memory(view: str, kind: str) -> None:
    """In place and into new memory, beside what is dense, broadcast, strided, or the target."""
    found = []
    for lib in (torch, skimp):
        x = (lib.arange(64 * 20 * 12 * 16) % 5).reshape(64, 20, 12, 16).to(getattr(lib, kind))
        own = VIEWS[view](x)
        dense = own.clone()
        made = [own * dense, own + own, own * dense[:1], own - VIEWS[view](x.clone())]
        own.mul_(dense).add_(own[:1]).sub_(own)
        own.add_(dense).add_(2)
        lib.add(dense, own, out=own)
        found.append([each.numpy() for each in (x, *made)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_kernel_into_strided_memory_makes_no_plan() -> None:
    x, y = skimp.ones(16, 4, 512, 16), skimp.ones(16, 512, 16)
    for view in (x[:, 1], x.reshape(16, 512, 4, 16)[:, :, 1]):
        with config.using(threads=1, defer="auto"):
            names = frames_of(lambda view=view: view.mul_(y), warm=5)  # type: ignore[misc]
        assert not {"prepare", "map_rows"} & set(names)
