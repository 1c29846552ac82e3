"""The loops that `skimp compile` makes C of, as they stand and compiled: NumPy's bits."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import skimp
from skimp._engine.memory.ledger import KEPT, host
from skimp._kernels import (
    activation,
    attention,
    attention_loops,
    batches_loops,
    blas,
    channels_compiled,
    compiled,
    loops,
    pointwise,
    rows,
    sharing,
    teams,
)
from skimp._kernels.random import draws, mt19937
from skimp._kernels.random.mt19937 import Engine
from skimp.cli import compiling, main
from skimp.config import config


@pytest.fixture(scope="module", params=["plain", "compiled"])
def made(request: Any, tmp_path_factory: Any) -> Any:
    """The module as it stands; and compiled, where there is a compiler."""
    if request.param == "plain":
        return loops
    pytest.importorskip("Cython")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        assert main(["compile"]) == 0
        return compiled.load(compiled.place())


@pytest.mark.parametrize("before", [0, 1, 5, 624, 1001])
@pytest.mark.parametrize(("n", "p"), [(1500, 0.9), (313, 0.25), (700, 0.0), (700, 1.0)])
def test_what_stays_is_what_numpy_and_pytorch_draw(
    made: Any, before: int, n: int, p: float
) -> None:
    one, other = Engine(3), Engine(3)
    theirs = torch.Generator().manual_seed(3)
    torch.randint(0, 2, (before,), generator=theirs)
    for engine in (one, other):
        engine.random32(before)
    out = np.empty(n, bool)
    left = one.words.size - one.at
    one.skip(left)
    other.skip(left)
    torch.randint(0, 2, (left,), generator=theirs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mt19937, "compiled", SimpleNamespace(loops=lambda: made))
        assert one.stay(out, math.ceil(math.ldexp(p, 53)))
        patch.setattr(mt19937, "compiled", SimpleNamespace(loops=lambda: None))
        assert_array_equal(out, draws.stays(n, p, other))
    assert_array_equal(out, torch.empty(n).bernoulli_(p, generator=theirs).numpy() == 1)
    assert_array_equal(one.get_state(), other.get_state())
    assert_array_equal(one.get_state(), theirs.get_state().numpy())


@pytest.mark.parametrize("before", [1, 100, 623, 700, 8000])
def test_what_stays_is_drawn_of_words_that_lie_here_too(
    made: Any, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "loops", lambda: made)
    engine, theirs = Engine(3), torch.Generator().manual_seed(3)
    for _ in range(2):
        engine.random32(before)
        torch.randint(0, 2, (before,), generator=theirs)
        out = draws.stays(500, 0.3, engine)
        want = torch.empty(500).bernoulli_(0.3, generator=theirs).numpy() == 1
        assert_array_equal(out, want)
        assert_array_equal(engine.get_state(), theirs.get_state().numpy())


@pytest.mark.parametrize("left", [624, 623, 1])
def test_a_draw_that_is_interrupted_leaves_a_state(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stays(*_: Any) -> None:
        raise KeyboardInterrupt

    engine = Engine(3)
    for n in (1, 624):
        engine.random32(n)
    engine.random32(engine.words.size - engine.at - left)
    monkeypatch.setattr(compiled, "loops", lambda: SimpleNamespace(stays=stays))
    with suppress(KeyboardInterrupt):
        engine.stay(np.empty(500, bool), 1 << 52)
    Engine().set_state(engine.get_state())
    torch.Generator().set_state(torch.from_numpy(engine.get_state()))


@pytest.mark.parametrize("std", [1.0, 0.02, 0.5, 0.0, 1e-45, 3e38])
@pytest.mark.parametrize("mean", [0.0, -3.0])
@pytest.mark.parametrize("n", [16, 17, 47, 4000])
def test_normal_numbers_have_pytorchs_bits(made: Any, n: int, mean: float, std: float) -> None:
    def run(lib: Any = skimp) -> Any:
        lib.manual_seed(5)
        found = [lib.empty(n).normal_(mean, std) for _ in range(2)]
        if (mean, std) == (0, 1):
            found += [lib.randn(n), lib.randn(n).to(lib.bfloat16).to(lib.float32)]
        return [t.numpy() for t in found]

    for one, other in zip(same_bits(made, run), run(torch), strict=True):
        assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_make_the_normal_numbers_of_one(made: Any, threads: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, 100, np.uint32)
    out, other = np.empty((2, 83), "f")
    made.normals(words, out, np.float32(2), np.float32(0.5), 1)
    made.normals(words, other, np.float32(2), np.float32(0.5), threads)
    assert_array_equal(out, other)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("before", [0, 1, 623])
def test_threads_draw_the_words_of_one(made: Any, before: int, threads: int) -> None:
    """Also where a pair's first word is that of the bound, and its second decides."""
    bits = np.random.MT19937(0)
    bits.random_raw(before)
    begun = np.array([*bits.state["state"]["key"], bits.state["state"]["pos"]], np.uint32)
    raw = bits.random_raw(3000)
    ended = np.array([*bits.state["state"]["key"], bits.state["state"]["pos"]], np.uint32)
    state, out = begun.copy(), np.empty(3000, np.uint32)
    made.words(state, out)
    assert_array_equal(out, raw)
    assert_array_equal(state, ended)
    pairs = (raw[::2] << 32 | raw[1::2]) & ((1 << 53) - 1)
    stays = np.empty(1500, np.uint8)
    for bound in (int(pairs[700]), int(pairs[700]) + 1, int(pairs[1499]), 0, 1 << 53):
        state = begun.copy()
        made.stays(state, stays, bound >> 32, bound & 0xFFFFFFFF, threads)
        assert_array_equal(stays, pairs < bound)
        assert_array_equal(state, ended)


@pytest.mark.parametrize(("n", "threads"), [(35, 48), (56, 51), (515, 44), (10, 64)])
def test_many_threads_draw_what_one_does(made: Any, n: int, threads: int) -> None:
    """Also the last pairs, and the state is that behind them."""
    bits = np.random.MT19937(0).state["state"]
    state = np.array([*bits["key"], bits["pos"]], np.uint32)
    other = state.copy()
    out, one = np.full((2, n), 7, np.uint8)
    made.stays(state, out, 1 << 20, 0, threads)
    made.stays(other, one, 1 << 20, 0, 1)
    assert_array_equal(out, one)
    assert_array_equal(state, other)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_kept_has_numpys_bits(made: Any, threads: int) -> None:
    given = np.random.default_rng(0)
    x = given.standard_normal(500).astype("f")
    x[:4] = np.inf, -np.inf, np.nan, -0.0
    stays = given.integers(0, 2, x.size, dtype=np.uint8)
    out, scale = np.empty_like(x), np.float32(1 / 0.7)
    with np.errstate(invalid="ignore"):
        made.kept(x, stays, scale, out, threads)
        assert_array_equal(out.view(np.int32), (x * (stays * scale)).view(np.int32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(2, 3, 700), (12, 5, 9)])
@pytest.mark.parametrize("hold", [None, (0.0, math.inf), (-1.0, 0.5)])
def test_lines_have_numpys_bits(made: Any, shape: Any, hold: Any, threads: int) -> None:
    """Also where they are written over what is read, or added."""
    given = np.random.default_rng(0)
    x, more = given.standard_normal((2, *shape)).astype("f")
    a, b = given.standard_normal((2, shape[1])).astype("f")
    x[0, 0, :5], b[1] = (np.inf, -np.inf, np.nan, -0.0, 0.0), -0.0
    rows = [each.reshape(-1, shape[2]) for each in (x, more)]
    for plus in (None, more):
        want = x * a[:, None] + b[:, None]
        want = want if plus is None else want + plus
        want = want if hold is None else want.clip(*hold)
        for over in (None, 0, 1):
            one, other = [each.copy() for each in rows]
            out = np.empty_like(one) if over is None else (one, other)[over]
            added = None if plus is None else other
            held = hold is not None, *(hold or (0, 0))
            made.lined(one, a, b, added, *held, out, threads)
            assert_array_equal(out.view(np.int32), want.view(np.int32).reshape(out.shape))


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("low", "high"), [(0.0, None), (-0.1, np.float64(0.7)), (1, -1)])
def test_what_is_held_has_numpys_bits(
    made: Any, low: Any, high: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).standard_normal(sharing.FROM + 5).astype("f")
    x[:6] = np.inf, -np.inf, np.nan, -0.0, 0.0, np.float32(0.7)
    out, other = np.empty_like(x), np.empty_like(x)
    counting = _Counting(made)
    for used, to in ((None, other), (counting, out)):
        monkeypatch.setattr(compiled, "loops", lambda used=used: used)
        with skimp.config.using(threads=threads):
            pointwise.clamp(x, low, high, out=to)
    assert_array_equal(out.view(np.int32), other.view(np.int32))
    assert counting.threads == {"held": threads}
    theirs = torch.from_numpy(x).clamp(low, high).numpy()
    assert_array_equal(out, theirs)


@pytest.mark.parametrize("high", [None, 1.0])
def test_what_passes_has_numpys_bits(made: Any, high: float | None) -> None:
    g, x = np.random.default_rng(1).standard_normal((2, 700)).astype("f")
    x[:6] = np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0
    g[6:8] = np.nan, -0.0
    out, other = np.empty_like(x), np.empty_like(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "loops", lambda: None)
        activation.drop_outside(g, x, 0.0, high, out=other)
        patch.setattr(compiled, "loops", lambda: made)
        activation.drop_outside(g, x, 0.0, high, out=out)
    assert_array_equal(out.view(np.int32), other.view(np.int32))
    theirs = torch.tensor(x).requires_grad_()
    y = theirs.relu() if high is None else torch.nn.functional.hardtanh(theirs, 0.0, high)
    y.backward(torch.tensor(g))
    assert theirs.grad is not None
    some = ~np.isnan(x) | (high is None)  # of which hardtanh's differs on PyTorch
    assert_array_equal(out[some], theirs.grad.numpy()[some])


def ways(made: Any, run: Any) -> Any:
    """What `run` gives with the loops, and without."""
    found = []
    for loops_ in (made, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "loops", lambda loops_=loops_: loops_)
            found.append(run())
    return found


def same_bits(made: Any, run: Any) -> Any:
    """What `run` gives either way, a list of float32 arrays."""
    one, other = ways(made, run)
    for a, b in zip(one, other, strict=True):
        assert_array_equal(a.view(np.int32), b.view(np.int32))
    return one


@pytest.mark.parametrize(("n", "width"), [(60, 1), (200, 9), (1100, 8)])
def test_added_rows_have_numpys_and_pytorchs_bits(made: Any, n: int, width: int) -> None:
    given = np.random.default_rng(2)
    target, source = [given.standard_normal((k, width)).astype("f") for k in (7, n)]
    target[0], source[:3, 0] = -0.0, (-0.0, np.inf, 1e-40)
    places = given.integers(0, 7, n)

    def run() -> Any:
        into = target.copy()
        rows.add_rows(into, places, source)
        into_too = target.copy()
        rows.merge_rows(into_too, places, rows.taking(source))
        return into, into_too

    got, _ = same_bits(made, run)
    want = torch.tensor(target).index_add_(0, torch.tensor(places), torch.tensor(source))
    assert_array_equal(got, want.numpy())


@pytest.mark.parametrize("wrong", [-3, 3, 1 << 40])
def test_places_outside_change_nothing_by_a_loop(made: Any, wrong: int) -> None:
    target, source = np.zeros((2, 4), "f"), np.ones((3, 4), "f")
    places, within = np.array([0, wrong, 1]), np.zeros(3, np.int64)
    assert not made.added(target, places, source)
    assert not made.weighed(target, places, source, within, source[:, 0].copy())
    assert not made.weighed(target, within, source, places, source[:, 0].copy())
    assert not target.any()


def test_products_of_sparse_matrices_have_numpys_bits(made: Any) -> None:
    given = np.random.default_rng(3)
    at = given.integers(0, 9, (2, 40))
    at[:, 20:] = at[:, :20]
    values, x = given.standard_normal(40).astype("f"), given.standard_normal((9, 5)).astype("f")

    def run(lib: Any = skimp) -> Any:
        given = lib.tensor(at), lib.tensor(values)
        a = lib.sparse_coo_tensor(*given, (9, 9), check_invariants=True).requires_grad_()
        b = lib.tensor(x).requires_grad_()
        y = lib.sparse.mm(a, b)
        y.backward(lib.tensor(x))
        return [t.detach().numpy() for t in (y, b.grad)]

    for a, b in zip(same_bits(made, run), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("time", [1, 5])
@pytest.mark.parametrize("kept", [False, True])
def test_recurrent_layers_have_numpys_bits(made: Any, kind: str, time: int, kept: bool) -> None:
    x = np.random.default_rng(4).standard_normal((time, 3, 4)).astype("f")

    def run(lib: Any = skimp) -> Any:
        lib.manual_seed(0)
        layer, given = getattr(lib.nn, kind)(4, 6, bidirectional=True), lib.tensor(x)
        given.requires_grad_()
        y, state = layer(given)
        loss = y.square().sum() + sum([s.sum() for s in (state if kind == "LSTM" else [state])])
        if kept:  # the gates stay where they are
            loss.backward(retain_graph=True)
        loss.backward()
        return [y.detach().numpy(), *[t.grad.numpy() for t in (given, *layer.parameters())]]

    for a, b in zip(same_bits(made, run), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_recurrent_cells_have_numpys_bits(made: Any, kind: str) -> None:
    x = np.random.default_rng(5).standard_normal((3, 4)).astype("f")

    def run(lib: Any = skimp) -> Any:
        lib.manual_seed(0)
        cell, given = getattr(lib.nn, kind)(4, 6), lib.tensor(x).requires_grad_()
        state = None
        for _ in range(3):
            state = cell(given, state)
        y = state[0] if kind == "LSTMCell" else state
        y.square().sum().backward()
        return [y.detach().numpy(), *[t.grad.numpy() for t in (given, *cell.parameters())]]

    for a, b in zip(same_bits(made, run), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [0, -math.inf, math.nan, -0.0, 1e38])
@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_what_is_filled_has_numpys_bits(made: Any, value: float, repeated: int) -> None:
    given = np.random.default_rng(6)
    x = given.standard_normal((3, 5, 300)).astype("f")
    x[0, 0, :4] = np.inf, np.nan, -0.0, 0.0
    mask = np.broadcast_to(given.integers(0, 2, x.shape[repeated:]).astype(bool), x.shape)

    def run() -> Any:
        found = np.empty_like(x), np.empty_like(x)
        pointwise.select(mask, value, x, out=found[0])
        pointwise.drop(mask, x, out=found[1])
        return found

    got, _ = same_bits(made, run)
    theirs = torch.tensor(x)
    assert_array_equal(got, theirs.masked_fill(torch.tensor(mask.copy()), value).numpy())


def test_the_file_is_one_of_this_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = compiled.place()
    changed = tmp_path / "loops"
    shutil.copytree(compiled.FOLDER, changed)
    monkeypatch.setattr(compiled, "FOLDER", str(changed))
    (changed / "._draws.py").write_bytes(b"\xff")  # another system's, and an editor's
    (changed / ".draws.py.swp").write_bytes(b"\xff")
    (changed / ".ipynb_checkpoints").mkdir()
    assert compiled.place() == before
    shutil.rmtree(changed / "__pycache__", ignore_errors=True)
    assert compiled.place() == before
    (changed / "__pycache__").mkdir()
    assert compiled.place() == before
    (changed / "draws.pxd").write_text("")
    assert compiled.place() != before
    assert Path(compiled.place()).parent == Path(before).parent == tmp_path / "skimp"


def test_a_file_that_others_may_write_to_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "_chosen", "auto")
    file = Path(compiled.place())
    file.parent.mkdir(mode=0o700)
    file.write_text("not even a module")
    for path, mode in ((file, 0o666), (file.parent, 0o777)):
        file.parent.chmod(0o700)
        file.chmod(0o600)
        path.chmod(mode)
        assert compiled._found.__wrapped__() is None
    file.parent.chmod(0o700)
    with pytest.warns(UserWarning, match="can't be loaded .*run `skimp compile` again"):  # its own
        assert compiled._found.__wrapped__() is None


def test_without_sources_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "FOLDER", "no such folder")
    assert compiled._found.__wrapped__() is None


def test_threads_that_ask_at_once_get_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def load(file: str) -> object:
        calls.append(file)
        time.sleep(0.05)  # the others come meanwhile
        return object()

    monkeypatch.setattr(compiled, "_chosen", "auto")
    monkeypatch.setattr(compiled, "is_ours", lambda file: True)
    monkeypatch.setattr(compiled, "load", load)
    monkeypatch.setattr(compiled, "_found", cache(compiled._found.__wrapped__))
    ask = cache(compiled.loops.__wrapped__)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: ask(), range(4)))) == len(calls) == 1


def test_an_interrupt_of_the_first_draw_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(bits: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mt19937, "compiled", SimpleNamespace(loops=lambda: loops))
    one, other = Engine(5), Engine(5)
    out = np.empty(700, bool)
    with monkeypatch.context() as patch:
        patch.setattr(mt19937, "_memory", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.stay(out, 1 << 52)
    for engine in (one, other):
        engine.random32(2 * mt19937.KEY_WORDS)
    assert one.stay(out, 1 << 52)
    monkeypatch.undo()
    assert_array_equal(out, draws.stays(out.size, 0.5, other))


@pytest.mark.parametrize("n", [1, 15, 16, 37, 1024, 1061, 2600])
def test_sums_of_rows_are_those_of_doubles(made: Any, n: int) -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 3, n)).astype("f")
    x[1], y[1] = 1e30, 3e20
    sums, other = np.empty((2, 2, 3))
    made.summed(x, y, sums, 1)
    assert_allclose(sums[0], x.sum(1, dtype=float), rtol=1e-13, atol=1e-13)
    assert_allclose(sums[1], (x.astype(float) * y).sum(1), rtol=1e-13, atol=1e-13)
    loops.summed(x, y, other, 1)
    assert_array_equal(sums.view(np.int64), other.view(np.int64))


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize(
    ("rows", "n", "unit"),
    [(3, 5, 0), (700, 9, 0), (3, 2048, 0), (2, 5001, 4096), (1, 12_289, 2048), (1, 4096, 4096)],
)
def test_sums_of_what_passes_make_are_those_of_arrays(
    made: Any, rows: int, n: int, unit: int, square: bool
) -> None:
    x, y = np.random.default_rng(3).standard_normal((2, rows, n)).astype("f")
    value = x * y - np.float32(0.5)
    units = [value[:, at : at + unit or None] for at in range(0, n, unit or n)]
    terms = [np.square(part, dtype=float) if square else part for part in units]
    wanted = np.stack([part.sum(1, dtype=float) for part in terms], 1).reshape(-1)
    half = np.array(0.5, "f")
    steps = ((np.multiply, 0, 1, 3), (np.subtract, 3, 2, 4))
    for threads in 1, 3:
        alone = made.shared_totals(value, 1, 0, unit, square, None, threads)
        rooms = [np.empty(2048 * threads, "f") for _ in range(2)]
        operands = x.reshape(-1), y.reshape(-1), half, *rooms
        found = made.passed_totals(steps, operands, 3, 4, rows, n, unit, square, threads)
        assert_array_equal(found, alone)
        assert_array_equal(alone, loops.shared_totals(value, 1, 0, unit, square, None, 1))
        assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_sums_of_what_is_no_float32_are_left_to_numpy() -> None:
    found = compiled.loops()
    if found is None:
        pytest.skip("nothing is compiled")
    x, room = np.ones(99), np.empty(2048)
    assert found.passed_totals(((np.negative, 0, 1),), (x, room), 1, 1, 1, 99, 0, False, 1) is None


@pytest.mark.parametrize("shape", [(3, 2, 5, 7), (1, 2, 35, 31)])
@pytest.mark.parametrize(("hold", "far"), [(None, 0.5), (None, 3e4), ("relu", 0.5), ("relu6", 30)])
def test_batch_norm_is_pytorchs(
    made: Any, hold: str | None, shape: Any, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By loops, whether they are asked for what lies in memory or for parts of what waits."""
    monkeypatch.setattr(compiled, "loops", lambda: made)
    given = np.random.default_rng(3)
    x = (given.standard_normal(shape) + far).astype("f")
    x[:, 1] -= np.float32(far)
    g, affine = given.standard_normal(shape).astype("f"), given.standard_normal((2, shape[1]))

    def run(lib: Any) -> list[Any]:
        one, line = lib.tensor(x, requires_grad=True), lib.tensor(affine, dtype=lib.float32)
        line.requires_grad_()
        old = [lib.zeros(shape[1]), lib.ones(shape[1])]
        y = z = lib.nn.functional.batch_norm(one * 1, *old, *line, True, 0.3)
        if hold is not None:
            z = getattr(lib.nn.functional, hold)(y)
        z.backward(lib.tensor(g))
        return [each.detach().numpy() for each in (z, one.grad, line.grad, *old)]

    found = []
    for defer, piece in (("always", 1 << 19), ("never", 64)):
        monkeypatch.setattr(channels_compiled, "PIECE", piece)
        with config.using(defer=defer, threads=2, threads_from=0):
            found.append(run(skimp))
    for one, other, theirs in zip(*found, run(torch), strict=True):
        assert one.tobytes() == other.tobytes()
        # what is near 0 may pass by the one and not by the other, and x * a is large, too
        assert (abs(one - theirs) > 1e-5 * max(1, far) + 1e-4 * abs(theirs)).mean() < 2e-3


@pytest.mark.parametrize("shape", [(1, 65, 3), (2, 70, 600), (1, 131, 1)])
def test_sums_of_columns(made: Any, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype("f")
    out, other, room = np.empty(shape[::2], "f"), np.empty(shape[::2], "f"), np.empty(4096)
    given = x.reshape(-1), *shape[1:], 64, room
    made.columns(*given, out.reshape(-1), 1)
    assert_allclose(out, x.sum(1, dtype=float), rtol=1e-6, atol=1e-6)
    loops.columns(*given, other.reshape(-1), 3)
    assert_array_equal(out, other)
    monkeypatch.setattr(compiled, "loops", lambda: made)
    same = skimp.tensor(x).sum(1).numpy()
    assert_array_equal(same, out if shape[2] > 1 else same)
    gaps = skimp.tensor(np.concatenate([x, x], 2))[:, :, : shape[2]]
    assert_array_equal(gaps.sum(1).numpy(), same)


def test_all_equal_images_have_no_variance(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "loops", lambda: made)
    for defer in ("always", "never"):
        with config.using(defer=defer):
            old = skimp.zeros(2), skimp.ones(2)
            x = skimp.full((3, 2, 5, 7), 12345.678)
            assert skimp.nn.functional.batch_norm(x, *old, training=True).isfinite().all()
            assert abs(old[1] - 0.9).max() < 1e-6


@pytest.mark.parametrize("size", [(4, 6), (5, 7), (2, 70)])
def test_maxima_of_windows_are_numpys_and_pytorchs(
    made: Any, size: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(4).integers(-2, 2, (2, 3, *size)).astype("f")
    x[0, 0, :, :3] = np.nan, -np.inf, np.inf
    x[0, 1, :, 1] = -0.0, *[0.0] * (size[0] - 1)
    x[0, 2] = -np.inf
    found = []
    for lib, used in ((skimp, None), (skimp, made), (torch, None)):
        monkeypatch.setattr(compiled, "loops", lambda used=used: used)
        one = lib.tensor(x, requires_grad=True)
        y, places = lib.nn.functional.max_pool2d(one, 2, return_indices=True)
        y.backward(lib.arange(y.numel()).reshape(y.shape) - 5.0)
        found.append([each.detach().numpy() for each in (y, places, one.grad)])
    for other, own, theirs in zip(*found, strict=True):
        assert_array_equal(own, other)
        assert_array_equal(own, theirs)
        assert_array_equal(np.signbit(own), np.signbit(theirs))


def test_what_is_lacking_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["compile"]) == 1
    said = capsys.readouterr().err
    assert "pip install cython" in said or "install one (gcc, clang), or name it in CC" in said


def test_modules_that_nobody_uses_any_more_are_removed(tmp_path: Path) -> None:
    """Of other sources eight stay, and those that were used within a day; of other Pythons all."""
    ages = {f"loops-{day}.so": day for day in (0, 0.5, *range(2, 12), 40)}
    ages["loops-60.other"] = 60
    for name, day in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, 2 * (time.time() - day * compiling.DAY,))
    (tmp_path / "notes").touch()
    compiling.forget_old(tmp_path / "loops-40.so")  # which was made now
    left = {one.name for one in tmp_path.iterdir()}
    others = "notes", "loops-60.other"
    assert left == {*others, "loops-40.so", *list(ages)[: compiling.KEPT]}
    for name in left:
        os.utime(tmp_path / name, 2 * (time.time(),))
    for i in range(20):
        (tmp_path / f"loops-{100 + i}.so").touch()
    compiling.forget_old(tmp_path / "loops-100.so")
    assert len(list(tmp_path.iterdir())) == len(left) + 20
    for one in tmp_path.iterdir():
        os.utime(one, 2 * (time.time() - 31 * compiling.DAY,))
    compiling.forget_old(tmp_path / "loops-100.so")
    assert {one.name for one in tmp_path.iterdir()} == {"loops-100.so", *others}


def test_what_cannot_be_put_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """A folder that others may write to, and a file where it would be."""
    monkeypatch.setattr(compiling, "_lacking", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "skimp"
    folder.write_text("")
    assert main(["compile"]) == 1
    assert "name another folder for caches in XDG_CACHE_HOME" in capsys.readouterr().err
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o770)

    def made(into: Path) -> tuple[Path, str]:
        (into / "loops.so").write_text("")
        return into / "loops.so", ""

    monkeypatch.setattr(compiling, "_made", made)
    monkeypatch.setattr(compiled, "load", lambda file: None)
    assert main(["compile"]) == 1
    assert f"chmod go-w {folder}" in capsys.readouterr().err
    folder.chmod(0o700)
    assert main(["compile"]) == 0


def bits_of_floats() -> Any:
    """float32 of all kinds: each exponent, beside each tie between two halves, NaN."""
    given = np.random.default_rng(5)
    some = given.integers(0, 2**32, 3000, dtype=np.uint64).astype(np.uint32)
    halves = np.arange(0, 2**16, 37, dtype=np.uint16).view(np.float16).astype("f").view(np.uint32)
    ties = halves[:, None] + np.arange(-1, 2).astype(np.uint32) + np.uint32(0x1000)
    edges = np.array([0, 2**31, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 1], np.uint32)
    found = np.concatenate([some, halves, ties.ravel(), edges])
    return found[~np.isnan(found.view("f"))]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_as_numpy_and_pytorch_round_them(
    made: Any, kind: Any, threads: int
) -> None:
    bits = bits_of_floats()
    out = np.empty(bits.size, np.uint16)
    (made.halved if kind is torch.float16 else made.brain_halved)(bits, out, threads)
    theirs = torch.tensor(bits.view("f")).to(kind).view(torch.int16).numpy()
    assert_array_equal(out.view(np.int16), theirs)


@pytest.mark.parametrize("threads", [1, 3])
def test_halves_become_what_they_are_of_float32(made: Any, threads: int) -> None:
    halves = np.arange(2**16, dtype=np.uint16)[:: 1 if made is not loops else 11]
    out = np.empty(halves.size, "f")
    made.widened(halves, out.view(np.uint32), out, threads)
    wanted = halves.view(np.float16).astype("f")
    assert_array_equal(np.isnan(out), np.isnan(wanted))
    some = ~np.isnan(wanted)
    assert_array_equal(out.view(np.int32)[some], wanted.view(np.int32)[some])


def test_no_number_stays_none_in_float16(made: Any) -> None:
    """Eight at a time, as processors convert them, or one by one: of the same bits."""
    bits = np.uint32(0x7F800001) + np.arange(0, 0x7FFFFF, 4099, dtype=np.uint32)
    bits = np.concatenate([bits, bits | np.uint32(1 << 31)])
    found = []
    for n in (1, bits.size):
        out = np.empty(bits.size, np.uint16)
        for i in range(0, bits.size, n):
            made.halved(bits[i : i + n], out[i : i + n], 1)
        found.append(out)
    assert_array_equal(found[0], found[1])
    assert np.isnan(found[0].view(np.float16)).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_ops_of_halves_have_the_same_bits_with_loops(made: Any, kind: str) -> None:
    values = np.random.default_rng(6).standard_normal((40, 40)).astype("f")
    values[0, :3] = np.inf, -0.0, 1e-7

    def run() -> Any:
        half = getattr(skimp, kind)
        x = skimp.from_numpy(values).to(half)
        y = [x + x.mT, (x * 3).exp(), x[:, ::2] - 1]
        return [each.float().numpy() for each in y]

    same_bits(made, run)
    ours, theirs = skimp.from_numpy(values), torch.from_numpy(values)
    ours, theirs = ours.to(getattr(skimp, kind)), theirs.to(getattr(torch, kind))
    assert_array_equal((ours + ours.mT).float().numpy(), (theirs + theirs.mT).float().numpy())


ROWS = ["softmax", "log_softmax"]


def ends(rows: int, n: int) -> Any:
    """Rows of numbers, of which some hold what has no exponential."""
    x = 5 * np.random.default_rng(n).standard_normal((rows, n)).astype("f")
    x[0] = 1e4  # all the same, and large
    x[1, :2], x[2, -1], x[3], x[4, 0] = (-200, -np.inf), np.nan, -np.inf, np.inf
    return x


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n", [2, 8, 11, 75, 2100])
def test_rows_of_exponentials_are_as_near_as_pytorchs(made: Any, name: str, n: int) -> None:
    x, g = ends(7, n), np.random.default_rng(0).standard_normal((7, n)).astype("f")
    y, d = np.empty_like(x), np.empty_like(x)
    with np.errstate(all="ignore"):
        getattr(made, f"{name}es")(x.reshape(-1), n, y.reshape(-1), 1)
        getattr(made, f"{name}es_back")(g.reshape(-1), y.reshape(-1), n, d.reshape(-1), 3)
    theirs, exact = [torch.tensor(x.astype(t)).requires_grad_() for t in ("f4", "f8")]
    ours = []
    for t, dtype in ((theirs, "f4"), (exact, "f8")):
        result = getattr(torch, name)(t, 1)
        result.backward(torch.tensor(g.astype(dtype)))
        assert t.grad is not None
        ours.append((result.detach().numpy(), t.grad.numpy()))
    for mine, their, true in zip((y, d), *ours, strict=True):
        assert_array_equal(np.isfinite(mine), np.isfinite(their))
        some = np.isfinite(their)
        errors = [np.abs(a - true)[some].max() for a in (mine, their)]
        assert errors[0] <= max(errors[1], 1e-6 * np.abs(true[some]).max())
    assert_array_equal(np.isnan(y), np.isnan(ours[0][0]))


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_one_number_have_pytorchs_bits(made: Any, name: str) -> None:
    x = np.append(ends(5, 20), np.float32(-0.0))
    y = np.empty_like(x)
    with np.errstate(all="ignore"):
        getattr(made, f"{name}es")(x, 1, y, 1)
    assert_array_equal(y, getattr(torch, name)(torch.tensor(x)[:, None], 1)[:, 0].numpy())


@pytest.mark.parametrize("name", ROWS)
def test_a_rows_bits_are_its_own_whichever_way_it_goes(made: Any, name: str) -> None:
    """Small, of one row, as one of many blocks, into a given tensor, from what waits, of a view."""
    x = skimp.tensor(ends(3000, 90))
    with pytest.MonkeyPatch.context() as patch:
        if made is loops:  # which takes long
            x = x[:20].clone()
        patch.setattr(compiled, "loops", lambda: made)
        with np.errstate(all="ignore"):
            f = getattr(skimp, name)
            whole = f(x, 1)
            some = [f(x[:9].clone(), -1), f(x[5], 0)[None], f(x.t().clone().t()[:9], 1)]
            late = f(x + 0, 1), f(x, 1, out=skimp.empty(0))
    for one in (*late, some[0], some[2]):
        assert_array_equal(one.numpy(), whole[: len(one)].numpy())
    assert_array_equal(some[1].numpy(), whole[5:6].numpy())


@pytest.mark.parametrize("shape", [(1,), (7, 5), (2, 3, 33), (3, 2500)])
def test_rows_made_by_one_call_have_the_bits_of_the_loops(made: Any, shape: Any) -> None:
    x, g = np.random.default_rng(3).standard_normal((2, *shape)).astype("f")
    n, rows = shape[-1], x.size // shape[-1]
    w, b, out = g.reshape(-1)[:n].copy(), x.reshape(-1)[:n].copy(), np.empty(x.size, "f")
    mean, rstd = np.empty((2, rows), "f")
    for name in ROWS:
        getattr(made, f"{name}es")(x.reshape(-1), n, out, 1)
        assert_array_equal(getattr(made, f"made_{name}es")(x, -1), out.reshape(shape))
        getattr(made, f"{name}es_back")(g.reshape(-1), x.reshape(-1), n, out, 1)
        assert_array_equal(
            getattr(made, f"made_{name}es_back")(g, x, x.ndim - 1), out.reshape(shape)
        )
    for centre, affine in ((True, (w, b)), (False, (w, None)), (True, (None, None))):
        made.normalized(x.reshape(-1), *affine, n, 1e-5, centre, mean, rstd, out, 1)
        for threads in (1, 3):
            again = np.empty_like(out)
            made.normalized_again(x.reshape(-1), *affine, n, centre, mean, rstd, again, threads)
            assert_array_equal(again, out)
        y, *statistics = made.made_normalized(x, (n,), *affine, 1e-5, centre)
        expected = [mean, rstd] if centre else [rstd]
        assert_array_equal(y, out.reshape(shape))
        for one, other in zip(statistics, expected, strict=True):
            assert_array_equal(one, other.reshape(*shape[:-1], 1))
    if x.ndim == 2:
        at = np.arange(rows) % n
        assert made.class_losses(x.reshape(-1), at, n, mean, rstd, 1)
        loss, levels = made.made_class_losses(x, at)
        assert_array_equal(levels, rstd)
        assert loss == made.totals(mean, 0, 0) / np.float32(rows)
        assert loss.shape == ()


def test_what_one_call_does_not_make_is_left(made: Any) -> None:
    x, at = np.ones((4, 6), "f"), np.arange(4)
    for other in (x.T, x.astype("d"), x[:, :0], np.ones((2, 4096), "f"), np.ones((), "f")):
        assert made.made_softmaxes(other, -1) is None
        assert made.made_normalized(other, (6,), None, None, 1e-5, True) is None
        assert made.made_class_losses(other, at) is None
    for dim in (0, 2, -2, True, None, 1.0):
        assert made.made_log_softmaxes(x, dim) is None
    assert made.made_softmaxes_back(x, x[:3], 1) is None
    assert made.made_normalized(x, (4, 6), None, None, 1e-5, True) is None
    assert made.made_normalized(x, (6,), at, None, 1e-5, True) is None
    assert made.made_normalized(x, (6,), None, x[0, :5], 1e-5, True) is None
    for wrong in (at + 3, at - 1, at[:3], at.astype("i"), np.arange(8)[::2]):
        assert made.made_class_losses(x, wrong) is None


def test_what_is_small_beside_small_exponentials_is_not_lost(made: Any) -> None:
    x = np.array([[-20, -100, -100], [-15, -90, -16], [-85, -87, -86]], "f")
    y = np.empty_like(x)
    made.softmaxes(x.reshape(-1), 3, y.reshape(-1), 1)
    assert_allclose(y, torch.softmax(torch.tensor(x).double(), 1).numpy(), rtol=1e-6)


@pytest.mark.parametrize("looped", [True, False])
def test_gradients_of_one_long_row_have_the_same_bits_each_way(made: Any, looped: bool) -> None:
    n = 70_000 if made is not loops else 20
    x, g = np.random.default_rng(5).standard_normal((2, n)).astype("f")
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "loops", lambda: made if looped else None)
        for shape, defer in (((n,), "never"), ((n,), "always"), ((1, n), "always")):
            with skimp.config.using(defer=defer):
                t = skimp.tensor(x).reshape(shape).requires_grad_()
                y = skimp.softmax(t * 1, -1)
                (d,) = skimp.autograd.grad(y, t, skimp.tensor(g).reshape(shape) * 1)
                found.append(d.numpy().reshape(-1))
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])


_UPDATES: dict[str, Any] = {
    "sgd": lambda o, p: o.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.1),
    "momentum, nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda o, p: o.Adam(p, lr=0.05, weight_decay=0.1, maximize=True),
    "adam, far betas": lambda o, p: o.Adam(p, lr=0.05, betas=(0.3, 0.9)),
    "adam, decoupled": lambda o, p: o.AdamW(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda o, p: o.AdamW(p, lr=0.05, amsgrad=True),
    "rmsprop": lambda o, p: o.RMSprop(p, lr=0.05, weight_decay=0.1),
    "rmsprop_momentum": lambda o, p: o.RMSprop(p, lr=0.05, momentum=0.9),
    "adagrad": lambda o, p: o.Adagrad(p, lr=0.05, lr_decay=0.1, weight_decay=0.1),
}


class _Noting:
    """The loops, and which of them are asked for."""

    def __init__(self, made: Any) -> None:
        self.made, self.asked = made, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.made, name)


@pytest.mark.parametrize("few", [2, 9])
@pytest.mark.parametrize("name", _UPDATES)
def test_steps_of_optimizers_have_numpys_bits(made: Any, name: str, few: int) -> None:
    """Of parameters of many shapes, one without a gradient, one in half precision, one turned."""
    noting = _Noting(made)

    def run(lib: Any = skimp) -> Any:
        given = np.random.default_rng(5)
        shapes = [(3, 5), (), (7,), (1, 1), (0, 2), (33,), (4, 4), (2, 3), (5,)][:few]
        params = [lib.tensor(np.asarray(given.standard_normal(n), "f")) for n in shapes]
        if few > 2:
            params[6] = params[6].t()
            params[7] = params[7].to(lib.bfloat16)
        for p in params:
            p.requires_grad_()
        optimizer = _UPDATES[name](lib.optim, params)
        for step in range(3):
            for i, p in enumerate(params):
                g = np.asarray(given.standard_normal(p.shape), "f")
                if i == 0:
                    g[0] = 0, -0.0, 1e-40, 1e20, 1e-20
                p.grad = None if i == step == 1 else lib.tensor(g).to(p.dtype)
            optimizer.step()
        state = [t for s in optimizer.state.values() for t in s.values() if t is not None]
        return [t.detach().to(lib.float32).contiguous().numpy() for t in [*params, *state]]

    got = same_bits(noting, run)
    assert name.partition(",")[0] in noting.asked
    for one, other in zip(got, run(torch), strict=False):
        if one.shape != (2, 3):  # which half precision has rounded in another order
            assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in _UPDATES if "," not in name])
def test_steps_have_the_same_bits_by_any_number_of_threads(made: Any, name: str) -> None:
    """Of arrays that are cut or not; what nobody may write to is not written, nor is another."""
    arrays = 2 + {"sgd": 0, "adam": 2, "amsgrad": 3, "rmsprop_momentum": 2}.get(name, 1)
    numbers = np.linspace(0.3, 0.9, 12, dtype="f")
    sizes = (100, 0, 1, 40, 3, 17000 if made is not loops else 700)
    found = []
    for threads in (1, 2, 5):
        given = np.random.default_rng(7)
        every = [[given.random(n, "f") for _ in range(arrays)] for n in sizes]
        for one in every:
            one[-1].flags.writeable = False
        getattr(made, name)([tuple(one) for one in every], numbers, threads)
        found.append(np.concatenate([a for one in every for a in one]))
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])
    if made is loops:  # which find out as they write
        return
    every[-1][0].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        getattr(made, name)([tuple(one) for one in every], numbers, 2)
    assert_array_equal(found[0], np.concatenate([a for one in every for a in one]))


@pytest.mark.parametrize("first", [0, 300])
def test_parameters_on_one_array_are_updated_one_after_the_other(
    made: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no two threads write to the same elements, and each sees what the last has written;
    others are updated in one call."""
    calls: list[int] = []

    def sgd(jobs: Any, *args: Any) -> None:
        calls.append(len(jobs))
        made.sgd(jobs, *args)

    loops = {name: getattr(made, name) for name in dir(made) if name[0] != "_"}
    monkeypatch.setattr(compiled, "loops", lambda: SimpleNamespace(**{**loops, "sgd": sgd}))
    found: list[Any] = []
    for lib in (skimp, torch):
        array, other = np.random.default_rng(5).standard_normal((2, 1000)).astype("f")
        for arrays in ((array[:700], array[first:]), (array[:500], array[500:], other)):
            params = [lib.from_numpy(a).requires_grad_() for a in arrays]
            optimizer = lib.optim.SGD(params, lr=0.1, weight_decay=0.5)
            for i, p in enumerate(params):
                p.grad = lib.full(p.shape, i - 0.5)
            with config.using(defer="auto"):  # else all that can wait does
                optimizer.step()
        found += [array, other]
    assert calls == [1, 1, 3]
    assert_allclose(found[:2], found[2:], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_sums_have_numpys_bits(made: Any, dim: int) -> None:
    x = np.random.default_rng(5).standard_normal((4, 5, 3)).astype("f")
    x[0, :, 0], x[1], x[2, 1], x[3, 0, 1] = -0.0, 3e38, np.nan, np.inf
    (got,) = same_bits(made, lambda: [skimp.tensor(x).cumsum(dim).numpy()])
    assert_array_equal(got, torch.tensor(x).cumsum(dim).numpy())
    assert skimp.zeros(2, 0).cumsum(0).shape == (2, 0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [2, 5, 9])
def test_the_first_in_order_are_numpys_and_pytorchs(made: Any, k: int, largest: bool) -> None:
    x = np.random.default_rng(6).standard_normal((6, 9)).astype("f")
    x[1], x[2, ::3], x[3, 4] = np.round(x[1]), 0.5, -np.inf
    x[4, :3] = 0.0, -0.0, 0.0

    def run() -> Any:
        values, places = skimp.tensor(x).topk(k, 1, largest)
        return values.numpy(), places.numpy().astype("i4")

    values, places = same_bits(made, run)
    wanted = torch.tensor(x).topk(k, 1, largest)
    assert_array_equal(values, wanted[0].numpy())
    assert_array_equal(places[[0, 3, 5]], wanted[1].numpy()[[0, 3, 5]])
    x[5, 7] = np.nan
    assert made.topped(x, k, 1, largest) is None
    column, wanted = x[0][:, None], torch.tensor(x[0])[:, None].topk(k, 0, largest)
    for one, other in zip(made.topped(column, k, 0, largest), wanted, strict=True):
        assert_array_equal(one, other.numpy())
    for other in ((x[:5], 10, 1), (x[:5], k, 0), (x[:5].T, k, 1), (x[:0], k, 1)):
        assert made.topped(*other, largest) is None


@pytest.mark.parametrize("n", [1, 2, 33, 1500])
def test_permutations_are_pytorchs(made: Any, n: int) -> None:
    def run() -> Any:
        skimp.manual_seed(n)
        return [skimp.randperm(n).numpy().astype("i4")]

    torch.manual_seed(n)
    assert_array_equal(same_bits(made, run)[0], torch.randperm(n).numpy())


FLOATS = {"f": np.int32, "d": np.int64}
ODD = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42, 3e38, 1.0, -1.0, math.pi)


def bits(a: Any) -> Any:
    return a.view(FLOATS.get(a.dtype.char, np.uint8))


LIMITS = (0, np.inf), (-0.0, 0.0), (-0.5, 0.25), (np.nan, 1)


@pytest.mark.parametrize("ufunc", sorted(sharing.COSTS, key=str), ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("char", FLOATS)
def test_numpys_loops_give_the_same_bits_however_a_run_is_cut(
    made: Any, ufunc: Any, char: str
) -> None:
    some = np.random.default_rng(5)
    x, y = some.standard_normal((2, 5_003)).astype(char)
    x[some.integers(0, x.size, 99)] = some.choice(np.array(ODD, char), 99)
    y[some.integers(0, x.size, 99)] = some.choice(np.array(ODD, char), 99)
    two, pairs = np.array(2, char), [(x, y), (x, np.array(2, char))]
    with np.errstate(all="ignore"):
        given = {
            1: [(x,), (abs(x),)],
            2: [*pairs, (two, abs(x))],
            3: [(x, np.array(low, char), np.array(high, char)) for low, high in LIMITS],
        }
        for args in given[ufunc.nin]:
            wanted = ufunc(*args)
            for block, threads in ((x.size, 1), (700, 3), (64, 1)):
                out = np.empty_like(wanted)
                steps = ((ufunc, *range(ufunc.nargs)),)
                sizes = x.size, block, ufunc.nin, ufunc.nin, threads
                assert made.ran(steps, (*args, out), *sizes)
                assert_array_equal(bits(out), bits(wanted))


def test_steps_go_through_registers(made: Any) -> None:
    x, y = np.random.default_rng(6).standard_normal((2, 3_001)).astype("f")
    steps = ((np.multiply, 0, 2, 3), (np.add, 3, 1, 3), (np.tanh, 3, 3), (np.less, 3, 0, 4))
    for block, threads in ((x.size, 1), (512, 2), (100, 5)):
        out, room = np.empty(x.size, bool), np.empty(block * threads, "f")
        operands = x, y, np.array(2, "f"), room, out
        sizes = x.size, block, 3, 4, threads
        assert made.ran(steps, operands, *sizes, True)
        assert made.ran(steps, operands, *sizes)
        assert_array_equal(out, np.tanh(x * np.float32(2) + y) < x)


@pytest.mark.parametrize("threads", [1, 3])
def test_passes_that_begin_at_the_end_have_the_same_bits(made: Any, threads: int) -> None:
    n = 1_000_003 * threads  # of which each pass goes the other way than the last
    x, y = np.random.default_rng(8).standard_normal((2, n)).astype("f")
    room, over, wanted = np.empty(2048 * threads, "f"), x.copy(), x.copy()
    alone = ((np.add, 0, 1, 1),)
    steps = ((np.multiply, 0, 1, 2), (np.subtract, 2, 0, 3))
    for _ in range(2):
        wanted += y
        assert made.ran(alone, (y, over), n, n, 1, 1, threads)
        assert_array_equal(over, wanted)
    for _ in range(2):
        out = np.empty(n, "f")
        assert made.ran(steps, (x, y, room, out), n, 2048, 2, 3, threads)
        assert_array_equal(out, x * y - x)
    if made is loops:  # as it stands it takes long
        return
    given = ((np.multiply, 0, 1, 2),), (x, y, room), 2, 2, 1, n, 0, False, threads
    sums = [made.passed_totals(*given)[0] for _ in range(2)]
    sums += [made.shared_totals(x * y, 0, 0, 0, False, None, threads).item() for _ in range(2)]
    assert len(set(sums)) == 1


def test_other_arrays_are_left_to_numpy() -> None:
    found = compiled.loops()
    if found is None:
        pytest.skip("nothing is compiled")
    x = np.ones(99, "f")
    for args in (
        (x, x[::-1].copy(), np.empty(98, "f")),  # of other lengths
        (x, np.ones(198, "f")[::2], np.empty(99, "f")),  # with gaps
        (x, x, np.empty(99, "d")),  # of types without a loop
        (x.astype(np.int64), x.astype(np.int64), np.empty(99, np.int64)),  # that may ask Python
        (x[:90], x[:90], x[5:95]),  # over what is still to be read
        (x, x[3:4].reshape(()), x),
        (x, x, np.broadcast_to(x, 99)),  # that is read alone
        (x, 2.0, np.empty(99, "f")),
    ):
        size = args[0].size
        assert not found.ran(((np.add, 0, 1, 2),), args, size, size, 2, 2, 2)
        assert_array_equal(x, 1)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch, made: Any) -> Iterator[None]:
    """A team that is always awake."""
    monkeypatch.setattr(compiled, "loops", lambda: made)
    monkeypatch.setattr(teams, "worth", lambda _: 1.0)
    monkeypatch.setattr(teams, "done", lambda *_: None)
    monkeypatch.setattr(teams, "LIMITS", (0.0, *teams.LIMITS[1:]))  # C asks these for all works
    sharing._prepared()
    yield
    monkeypatch.undo()
    sharing._prepared()


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("n", [sharing.FROM + 1, 150_001])
def test_what_a_team_shares_is_what_pytorch_computes(n: int) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    given = np.random.default_rng(7).standard_normal((2, n)).astype("f")
    lib: Any
    for lib, results in ((skimp, ours), (torch, theirs)):
        x, y = [lib.from_numpy(a.copy()).clone() for a in given]
        with skimp.config.using(threads=3):
            found = [x + y, x * 2.5, 1.5 - x, x / y, x < y, x == 1, -x, abs(x), x + 1e30]
            found += [lib.relu(x), lib.nn.functional.hardtanh(x, -0.5, 0.25)]
            z = x * 2 + y
            z = (z * z - y) * x
            z += y
            z = (lib.relu(z) - y).relu() * 2
            z.mul_(x)
            kept = z.clone()
            kept = kept * y  # over what is not needed any more
            found += [z, kept.clone(), x.clone().sub_(y)]
            results += [r.numpy() for r in found]
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one, other)


class _Counting:
    """The loops, and by how many threads each has been run."""

    def __init__(self, made: Any) -> None:
        self.made, self.threads = made, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        def run(*args: Any) -> Any:
            self.threads[name] = args[-1]
            return getattr(self.made, name)(*args)

        return run if name in _SHARED else getattr(self.made, name)


_SHARED = "held", "lined", "normed", "normed_back", "passed", "summed"


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize(
    ("defer", "shape", "asked"),
    [
        ("never", (2, 5, 64, 64), {"normed", "normed_back", "passed"}),
        ("always", (9, 7, 33, 32), {"normed_back", "lined", "summed"}),
    ],
)
def test_a_team_shares_channels_with_the_same_bits(
    made: Any, defer: str, shape: Any, asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = np.random.default_rng(8)
    x, g = given.standard_normal((2, *shape)).astype("f")
    F = skimp.nn.functional

    def run(threads: int) -> list[bytes]:
        counting = _Counting(made)
        monkeypatch.setattr(compiled, "loops", lambda: counting)
        found: list[Any] = []
        with skimp.config.using(threads=threads, defer=defer, threads_from=1 << 30):
            one, weight = skimp.tensor(x, requires_grad=True), skimp.ones(shape[1]) * 1.5
            old = skimp.zeros(shape[1]), skimp.ones(shape[1])
            y = F.batch_norm(one * 1, *old, weight, training=True)
            z = F.relu(y + one).clone()
            z = z + F.relu(F.batch_norm(z, *old, training=False)) + F.instance_norm(z)
            z.backward(skimp.tensor(g))
            found += [z, one.grad, *old]
        assert {name for name in counting.threads if counting.threads[name] == threads} >= asked
        return [each.detach().numpy().tobytes() for each in found]

    assert run(1) == run(3)


OPS: dict[str, Any] = {
    "x + y": lambda x, y, out: x + y,
    "exp": lambda x, y, out: x.exp(),
    "out=": lambda x, y, out: skimp.add(x, y, out=out),
    "in place": lambda x, y, out: out.sub_(y),
    "in place, of one": lambda x, y, out: out.tanh_(),
    "maximum": lambda x, y, out: skimp.maximum(x, y),
    "relu": lambda x, y, out: x.relu(),
    "relu_": lambda x, y, out: out.relu_(),
    "a plan with relu": lambda x, y, out: (x * 2 - y).relu() * y,
}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("n", [sharing.FROM + 1, 150_001])
@pytest.mark.parametrize("name", OPS)
def test_a_team_shares_a_long_ufunc_whichever_way_it_goes(
    made: Any, name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled.loops() is loops or sharing._loops is None:
        pytest.skip("what is compiled decides")
    asked: list[float] = []
    monkeypatch.setattr(teams, "worth", lambda seconds: asked.append(seconds) or 1.0)
    sharing._prepared()
    x, y, out = [skimp.full((n,), value) for value in (1.0, 2.0, 3.0)]
    out.numpy()
    with skimp.config.using(threads=2):
        OPS[name](x, y, out).numpy()
    assert asked


ROWWISE: dict[str, Any] = {
    "softmax": lambda lib, x, *_: lib.softmax(x, -1),
    "log_softmax": lambda lib, x, *_: lib.log_softmax(x, -1),
    "layer_norm": lambda lib, x, w, b, _: lib.nn.functional.layer_norm(x, w.shape, w, b),
    "rms_norm": lambda lib, x, w, b, _: lib.nn.functional.rms_norm(x, w.shape, w) + b,
    "cross_entropy": lambda lib, x, w, b, at: lib.nn.functional.cross_entropy(x * w + b, at),
    "sum": lambda lib, x, *_: x.sum(),
    "sums": lambda lib, x, w, b, _: (x * w + b).sum(0) * x.sum(0) + x.sum(1, True).mean(),
    "var": lambda lib, x, *_: x.var(1) + x.var(),
    "norm": lambda lib, x, *_: lib.linalg.vector_norm(x, dim=1) + x.norm(),
}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("shape", [(70, 45), (3, 2100), (6, 30_011)])
@pytest.mark.parametrize("name", ROWWISE)
def test_rows_have_the_same_bits_whoever_shares_them(
    made: Any, name: str, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if made is loops and shape[1] > 3000:
        pytest.skip("it takes long")
    monkeypatch.setattr(sharing, "FROM", 64)
    sharing._prepared()
    given = np.random.default_rng(3)
    x, w, b = [given.standard_normal(s).astype("f") for s in (shape, shape[1], shape[1])]
    at = given.integers(0, shape[1], shape[0])

    def run(lib: Any) -> list[Any]:
        tensors = [lib.tensor(a).requires_grad_() for a in (x, w, b)]
        y = ROWWISE[name](lib, *tensors, lib.tensor(at))
        y.square().sum().backward()
        return [y.detach().numpy(), *[t.grad.numpy() for t in tensors if t.grad is not None]]

    found = []
    for threads, defer in ((1, "never"), (2, "auto"), (5, "always")):
        with config.using(threads=threads, defer=defer, threads_from=0):
            found.append(run(skimp))
    for one, *others, theirs in zip(*found, run(torch), strict=True):
        for other in others:
            assert_array_equal(one, other)
        assert_allclose(one, theirs, 1e-3, 1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("n", [1, 9, 31, 100, 300, 2049, 5000, 300_001])
def test_a_sum_is_the_same_whichever_way_it_goes(
    made: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if made is loops and n > 5000:
        pytest.skip("it takes long")
    monkeypatch.setattr(compiled, "loops", lambda: made)
    x = np.random.default_rng(n).standard_normal(n).astype("f") + np.float32(0.3)
    found = []
    for defer in ("never", "auto", "always"):
        with config.using(defer=defer):
            t = skimp.tensor(x)
            ways = (
                *(t.sum(), (t * 1).sum(), t[None].sum(1)[0], t[:, None].sum(0)[0]),
                *(t.repeat(2, 1).sum(-1)[1], t.reshape(1, n, 1).sum((0, 1), keepdim=True)[0, 0, 0]),
                *(t.sum(0, keepdim=True)[0], skimp.stack([t, t], 1).sum(0)[1] * 0 + t.sum()),
            )
            found += [one.item() for one in ways]
            mean, norm, var = t.mean().item(), t.norm().item(), t[None].var(1, correction=0)
            assert mean == pytest.approx(found[0] / n, 2e-7)
            assert norm == np.sqrt(np.float32((t * t).sum().item()))
            assert var[0].item() == pytest.approx(x.var(dtype=float), 1e-5)
    assert len(set(found)) == 1
    error = abs(found[0] - x.sum(dtype=float))
    assert error <= max(abs(float(torch.tensor(x).sum()) - x.sum(dtype=float)), 1e-6 * n**0.5)


@pytest.mark.parametrize("what", ["rows of zeros", "large rows", "a part of ones"])
@pytest.mark.parametrize("shape", [(700, 1000), (1, 800_000)])
def test_numbers_that_take_double_change_no_others_bits(
    made: Any, shape: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit's numbers decide in what type its moments are reduced: whether units are reduced at
    once or one by one is not to be seen."""
    if made is loops:
        pytest.skip("it takes long")
    monkeypatch.setattr(compiled, "loops", lambda: made)
    x = np.random.default_rng(4).standard_normal(shape).astype("f")
    match what:
        case "rows of zeros":
            x[:, :] = 0 if len(x) == 1 else x * (np.arange(len(x)) % 300 > 0)[:, None]
        case "large rows":
            x[-1] *= np.float32(1e25)
        case _:
            x.reshape(-1)[:300_000] = 1
    found = []
    for defer in ("never", "always"):
        with config.using(defer=defer):
            t = skimp.tensor(x)
            found.append([y.numpy() for y in (t.var(1), t.std(1), (t * 1).var(1), (t * 1).std(1))])
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)
    assert_allclose(found[0][0], torch.tensor(x).var(1).numpy(), 1e-5)


@pytest.mark.parametrize("n", [1, 30, 3000, 40_000])
def test_what_lies_at_odd_bytes_is_added_up(
    made: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "loops", lambda: made)
    x = np.random.default_rng(n).standard_normal(n).astype("f")
    t = skimp.frombuffer(bytearray(b"-" + x.tobytes()), dtype=skimp.float32, offset=1)
    other = skimp.tensor(x)
    for run in (
        *(lambda t: t.sum(), lambda t: t.sum(-1, True), lambda t: t[None].mean(1)),
        *(lambda t: t.norm(), lambda t: t.var(correction=0), lambda t: t[None].norm(dim=1)),
    ):
        assert_array_equal(run(t).numpy(), run(other).numpy())


def test_sums_refuse_what_is_not_theirs(made: Any) -> None:
    if made is loops:
        return
    for x in (np.ones((4, 4), "f").T[1:], np.ones(3), np.ones(0, "f"), np.ones((2, 2), "f")[:, 0]):
        with pytest.raises(ValueError, match="float32 without gaps"):
            made.totals(x, 0, 0)
    with pytest.raises(ValueError, match="float32 without gaps"):
        made.totals(np.ones(3, "f"), 2, 0)


@pytest.mark.parametrize("looped", [True, False])
def test_a_weights_gradient_over_many_rows_is_as_near_as_pytorchs(
    made: Any, looped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "loops", lambda: made if looped else None)
    rows = 200 if made is loops and looped else 40_000
    x = np.random.default_rng(5).standard_normal((rows, 4)).astype("f") + np.float32(1)
    errors = []
    for lib in (skimp, torch):
        w = lib.ones(4).requires_grad_()
        y = lib.nn.functional.rms_norm(lib.tensor(x), (4,), w)
        y.backward(lib.tensor(x))
        wide = torch.nn.functional.rms_norm(torch.tensor(x).double(), (4,)).numpy() * x
        assert w.grad is not None
        errors.append(np.abs(w.grad.numpy() - wide.sum(0)).max())
    assert errors[0] <= 2 * errors[1] + 1e-6 * rows**0.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("done", ["judge", "interrupted"])
def test_a_forked_child_works_alone(done: str) -> None:
    """OpenMP's threads are not there, also if nobody heard of the end of what they did."""
    if compiled.loops() is None:
        pytest.skip("nothing is compiled")
    text = """
        import os, numpy as np, skimp
        from skimp._kernels import sharing, teams
        skimp.set_num_threads(2)
        x = np.ones(1 << 21, "f")
        teams._WAKE = 0
        def interrupted(*_): raise KeyboardInterrupt
        judge = teams._judge
        teams._judge = NAME
        try:
            assert sharing.ran(np.add, (x, x), np.empty_like(x))
        except KeyboardInterrupt:
            pass
        teams._judge = judge
        pid = os.fork()
        if not pid:
            out = np.empty_like(x)
            assert sharing.ran(np.add, (x, x), out)
            os._exit(int((out != 2).any()))
        assert os.waitpid(pid, 0)[1] == 0
    """
    text = textwrap.dedent(text).replace("NAME", done)
    subprocess.run([sys.executable, "-c", text], check=True, timeout=100)


@pytest.mark.parametrize("kept_below", [KEPT, 1 << 17])
def test_long_results_begin_with_a_line_of_the_cache(
    kept_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a budget knows them; they are not copied for it."""
    with skimp.config.using(defer="never"):
        x = skimp.ones(40_000)
        monkeypatch.setattr(host, "kept_below", kept_below)
        for made_ in (x + x, x * 2, x.exp(), x < x, 1 - x):
            assert made_.data_ptr() % 64 == 0


def test_steps_for_rows_have_numpys_bits(made: Any) -> None:
    """SparseAdam's, with rows that come again."""
    noting = _Noting(made)

    def run(lib: Any = skimp) -> Any:
        given = np.random.default_rng(6)
        p = lib.tensor(given.standard_normal((9, 5)).astype("f"), requires_grad=True)
        optimizer = lib.optim.SparseAdam([p], lr=0.1, maximize=True)
        for _ in range(3):
            places = lib.tensor(given.integers(0, 9, (1, 6)))
            rows = lib.tensor(given.standard_normal((6, 5)).astype("f"))
            p.grad = lib.sparse_coo_tensor(places, rows, (9, 5), check_invariants=True)
            optimizer.step()
        kept = optimizer.state[p]
        return [t.detach().numpy() for t in (p, kept["exp_avg"], kept["exp_avg_sq"])]

    with skimp.config.using(defer="never"):
        got = same_bits(noting, run)
    assert "sparse_adam" in noting.asked
    for one, other in zip(got, run(torch), strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("wrong", [-1, 3, 1 << 40])
def test_a_step_for_rows_outside_changes_nothing(made: Any, wrong: int) -> None:
    arrays = [np.ones((3, 2), "f") for _ in range(3)]
    numbers = np.ones(4, "f")
    assert not made.sparse_adam(*arrays, np.array([0, wrong]), np.ones((2, 2), "f"), numbers)
    assert all((a == 1).all() for a in arrays)


@pytest.mark.parametrize("n", [1, 9, 75, 2100])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_normalized_rows_are_as_near_as_pytorchs(
    made: Any, n: int, affine: bool, name: str
) -> None:
    given = np.random.default_rng(n)
    x, g = given.standard_normal((2, 6, n)).astype("f")
    x[1] += 50
    x[2, 0], x[3, -1] = np.nan, np.inf
    w, b = given.standard_normal((2, n)).astype("f")
    results = []
    for library, dtype in ((skimp, "f4"), (torch, "f4"), (torch, "f8")):
        t, scale, shift = [library.tensor(a.astype(dtype)).requires_grad_() for a in (x, w, b)]
        beside = (scale, shift)[: 1 + (name == "layer_norm")] if affine else ()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "loops", lambda: made)
            with np.errstate(all="ignore"):
                y = getattr(library.nn.functional, name)(t, (n,), *beside)
                y.backward(library.tensor(g.astype(dtype)))
        results.append([y.detach().numpy(), *[one.grad.numpy() for one in (t, *beside)]])
    for mine, their, true in zip(*results, strict=True):
        assert_array_equal(np.isnan(mine), np.isnan(their))
        error, other = [np.nanmax(np.abs(a - true), initial=0) for a in (mine, their)]
        assert error <= 2 * other + 2e-6 * np.nanmax(np.abs(true), initial=0)


@pytest.mark.parametrize("n", [3, 40, 2100])
@pytest.mark.parametrize("how", [{}, {"label_smoothing": 0.1}, {"ignore_index": 1}])
def test_losses_at_classes_are_as_near_as_pytorchs(made: Any, n: int, how: Any) -> None:
    x, at = ends(40, n), np.random.default_rng(n).integers(0, n, 40)
    at[0] = 1
    if "label_smoothing" in how:
        x[0] = 3  # of large ones the level is rounded
    for reduction in ("mean", "none"):
        results = []
        for library in (skimp, torch):
            t = library.tensor(x).requires_grad_()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(compiled, "loops", lambda: made)
                with np.errstate(all="ignore"):
                    y = library.nn.functional.cross_entropy(
                        t[6:] if reduction == "mean" else t,
                        library.tensor(at[6:] if reduction == "mean" else at),
                        reduction=reduction,
                        **how,
                    )
                    y.sum().backward()
            results.append((y.detach().numpy(), t.grad.numpy()))
        for mine, their in zip(*results, strict=True):
            np.testing.assert_allclose(mine, their, 1e-5, 1e-6)


def test_a_class_that_is_none_is_refused_before_anything_is_written(made: Any) -> None:
    x, levels = np.zeros((4, 3), "f"), np.full(4, 7, "f")
    for wrong in (-1, 3):
        classes = np.array([0, 1, 2, wrong])
        assert not made.class_losses(x.reshape(-1), classes, 3, levels, levels, 2)
        assert not made.class_gradients(
            x.reshape(-1), classes, levels, levels, levels, 3, x.reshape(-1), 2
        )
        assert levels.min() == 7
        assert not x.any()


MASKS: Any = {
    "none": None,
    "of places": lambda given: given.random((5, 11)) < 0.7,
    "of keys": lambda given: given.random((2, 1, 1, 11)) < 0.7,
    "of rows": lambda given: given.random((1, 3, 5, 1)) < 0.7,
    "added": lambda given: given.standard_normal((2, 3, 5, 11)).astype("f"),
    "hidden": lambda given: np.full((5, 11), -np.inf, "f"),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", [1, 5])
def test_attention_is_off_no_more_than_pytorchs(made: Any, mask: str, size: int) -> None:
    given = np.random.default_rng(7)
    q, k, v = [given.standard_normal((2, 3, n, 4)).astype("f") * size for n in (5, 11, 11)]
    g = given.standard_normal((2, 3, 5, 4)).astype("f")
    seen = None if mask == "none" else MASKS[mask](given)

    def run(lib: Any = skimp, kind: str = "float32", some: slice = slice(None)) -> Any:
        def as_tensor(x: Any) -> Any:
            return lib.tensor(x).to(lib.bool if x.dtype == bool else getattr(lib, kind))

        parts = [as_tensor(x[some]).requires_grad_() for x in (q, k, v)]
        of_some = seen is not None and seen.ndim == 4 and len(seen) > 1
        hidden = None if seen is None else as_tensor(seen[some] if of_some else seen)
        attend = lib.nn.functional.scaled_dot_product_attention
        y = attend(*parts, hidden, is_causal=mask == "none")
        y.backward(as_tensor(g[some]))
        return [t.detach().numpy() for t in (y, *[t.grad for t in parts])]

    found, _ = ways(made, run)
    alone, _ = ways(made, lambda: run(some=slice(1, 2)))
    for a, b, theirs, exact in zip(found, alone, run(torch), run(torch, "float64"), strict=True):
        assert_array_equal(a[1:2].view(np.int32), b.view(np.int32))  # a head's own bits
        worst = np.abs(theirs - exact).max()
        np.testing.assert_allclose(a, exact, rtol=0, atol=1.5 * worst + 1e-7 * np.abs(exact).max())


def test_attention_loses_no_more_to_what_is_not_a_number_by_loops(made: Any) -> None:
    given = np.random.default_rng(8)
    q, k, v = given.standard_normal((3, 1, 2, 6, 4)).astype("f")
    q[0, 0, 1, 0], k[0, 1, 2, 1], v[0, 1, 3, 2] = np.nan, np.inf, np.inf

    def run() -> Any:
        parts = [skimp.tensor(x).requires_grad_() for x in (q, k, v)]
        y = skimp.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        y.sum().backward()
        return [t.detach().numpy() for t in (y, *[t.grad for t in parts])]

    for a, b in zip(*ways(made, run), strict=True):
        assert_array_equal(np.isfinite(a), np.isfinite(b))


def test_what_attention_drops_is_what_it_drops_without_loops(made: Any) -> None:
    x = np.random.default_rng(9).standard_normal((2, 2, 7, 4)).astype("f")

    def run() -> Any:
        skimp.manual_seed(0)
        t = skimp.tensor(x).requires_grad_()
        y = skimp.nn.functional.scaled_dot_product_attention(t, t, t, dropout_p=0.4)
        y.square().sum().backward()
        return [y.detach().numpy(), t.grad.numpy()]

    for a, b in zip(*ways(made, run), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 5, 11), (1, 5, 11), (2, 1, 1, 11), (2, 4, 5, 11)])
def test_heads_in_groups_have_masks_of_their_own(made: Any, shape: Any) -> None:
    given = np.random.default_rng(10)
    q = given.standard_normal((2, 4, 5, 4)).astype("f")
    k, v = given.standard_normal((2, 2, 2, 11, 4)).astype("f")
    seen, added = given.random(shape) < 0.6, given.standard_normal(shape).astype("f")

    def run(lib: Any = skimp) -> Any:
        found = []
        for mask in (seen, added):
            parts = [lib.tensor(x).requires_grad_() for x in (q, k, v)]
            attend = lib.nn.functional.scaled_dot_product_attention
            y = attend(*parts, lib.tensor(mask), enable_gqa=True)
            y.square().sum().backward()
            found += [t.detach().numpy() for t in (y, *[t.grad for t in parts])]
        return found

    for a, b in zip(ways(made, run)[0], run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 1), (1, 1), (3, 1, 1), (2, 1, 5, 1)])
def test_a_mask_of_rows_is_not_written_for_each_head(shape: Any) -> None:
    whole = 2, 3, 5, 11
    mask = np.broadcast_to(np.ones(shape, bool), whole)
    how = attention.Attention(1.0, False, mask, None, 1.0, np.dtype("f"))
    _, seen, *_ = attention_loops._told(whole, False, how)
    assert seen.size == math.prod(shape) * 11


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", ["causal", "more keys", "dropped", "half", "grouped"])
def test_attention_of_long_rows_is_pytorchs_by_any_number_of_threads(
    made: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of rows, whose gradients of keys add up; keys that nobody sees; parts that are
    copied."""
    given = np.random.default_rng(11)
    lead, rows, keys = (2, 3), 150, 200 if kind == "more keys" else 150
    if made is loops:
        lead = (1, 2)
    of_keys = (lead[0], 1) if kind == "grouped" else lead
    q, k, v = [
        given.standard_normal((*some, n, 4)).astype("f")
        for some, n in ((lead, rows), (of_keys, keys), (of_keys, keys))
    ]
    g = given.standard_normal(q.shape).astype("f")

    def run(lib: Any, dtype: str = "float32") -> Any:
        lib.manual_seed(0)
        parts = [lib.tensor(x).to(getattr(lib, dtype)).requires_grad_() for x in (q, k, v)]
        attend = lib.nn.functional.scaled_dot_product_attention
        drop, causal = 0.3 * (kind == "dropped"), kind in ("causal", "more keys")
        y = attend(*parts, None, drop, causal, enable_gqa=kind == "grouped")
        y.backward(lib.tensor(g).to(y.dtype))
        return [t.detach().float().numpy() for t in (y, *[t.grad for t in parts])]

    dtype = "bfloat16" if kind == "half" else "float32"
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(config, "threads", threads)
        found.append(run(skimp, dtype))
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert_array_equal(one.view(np.int32), other.view(np.int32))
    for a, b in zip(found[0], run(torch, dtype), strict=True):
        assert_allclose(
            a, b, rtol=2e-2 if kind == "half" else 1e-4, atol=0.1 if kind == "half" else 1e-5
        )


def test_a_single_head_asks_for_no_team(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(compiled, "loops", lambda: made)
    monkeypatch.setattr(sharing, "call", sharing._call)
    monkeypatch.setattr(teams, "worth", lambda seconds: asked.append(seconds) or 0.0)
    monkeypatch.setattr(config, "threads", 2)
    for heads in (1, 2):
        q = np.ones((1, heads, 80, 2), "f")
        how = attention.Attention(1.0, False, None, None, 1.0, np.dtype("f"))
        attention_loops.forward(q, q, q, np.empty_like(q), None, how)
        assert len(asked) == heads - 1


@pytest.mark.parametrize("turned", [False, True])
def test_attention_of_more_threads_than_there_is_room_for(
    made: Any, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the program may raise their number in between."""
    around: list[Any] = []

    def take(size: int, dtype: Any) -> Any:
        around.append(np.full(size * 16, 7, dtype))
        return around[-1][:size]

    monkeypatch.setattr(compiled, "loops", lambda: made)
    monkeypatch.setattr(attention_loops, "take", take)
    monkeypatch.setattr(attention_loops, "give", lambda flat: None)
    monkeypatch.setattr(config, "threads", 1)
    q = np.random.default_rng(1).standard_normal((1, 8, 130 if turned else 60, 4)).astype("f")
    how = attention.Attention(1.0, False, None, None, 1.0, np.dtype("f"))
    found = []
    for threads in (1, 4):
        call = lambda loop, _n, _cost, *given, threads=threads: loop(*given, threads)  # noqa: E731
        monkeypatch.setattr(sharing, "call", call)
        made_of = [np.empty_like(q) for _ in range(4)]
        level = np.empty(q.shape[:-1], "f")
        attention_loops.forward(q, q, q, made_of[0], level, how)
        attention_loops.backward(q, q, q, q, *made_of[1:], level, how)
        found.append(made_of)
    assert len(around) == 4
    for flat in around:
        assert (flat[len(flat) // 16 :] == 7).all()
    for one, other in zip(*found, strict=True):
        assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("one", ["rows", "turned", "heads"])
@pytest.mark.parametrize("other", ["rows", "turned", "heads", "the first, turned"])
@pytest.mark.parametrize("lead", [(12,), (5, 3)])
def test_products_of_batches_have_numpys_bits_by_any_number_of_threads(
    made: Any, one: str, other: str, lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = np.random.default_rng(12)

    def matrices(rows: int, columns: int, lies: str) -> Any:
        if lies == "turned":
            return given.standard_normal((*lead, columns, rows)).astype("f").swapaxes(-1, -2)
        if lies == "heads" and len(lead) == 2:
            apart = given.standard_normal((lead[0], rows, lead[1], columns)).astype("f")
            return apart.transpose(0, 2, 1, 3)
        return given.standard_normal((*lead, rows, columns)).astype("f")

    a = matrices(37, 33, one)
    b = a.swapaxes(-1, -2) if other == "the first, turned" else matrices(33, 37, other)
    want = np.matmul(a, b)
    for threads in (1, 2, 3):
        monkeypatch.setattr(config, "threads", threads)
        found = blas.multiply(a, b)
        assert_array_equal(found.view(np.int32), want.view(np.int32))
        if threads > 1:
            done = batches_loops.multiply(a, b, np.empty_like(want))
            assert done == (other != "the first, turned")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bytes_are_cleared_by_any_number_of_threads(made: Any, threads: int) -> None:
    for n in (0, 1, 2, 300, 5000):
        around = np.full(n + 20, 7, np.uint8)
        made.cleared(around[10 : 10 + n], threads)
        assert not around[10 : 10 + n].any()
        assert (around[:10] == 7).all()
        assert (around[10 + n :] == 7).all()
