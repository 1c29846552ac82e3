"""The loops that `skimp compile` makes C of, as they stand and compiled: NumPy's bits."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import skimp
from skimp._kernels import activation, compiled, loops, pointwise, rows, sharing, teams
from skimp._kernels.random import draws, mt19937
from skimp._kernels.random.mt19937 import Engine
from skimp.cli import compiling, main


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
    changed = tmp_path / "loops.py"
    changed.write_text("")
    monkeypatch.setattr(compiled, "SOURCES", (str(changed), compiled.SOURCES[1]))
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
    monkeypatch.setattr(compiled, "SOURCES", ("no such file",))
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


def test_what_is_lacking_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["compile"]) == 1
    said = capsys.readouterr().err
    assert "pip install cython" in said or "install one (gcc, clang), or name it in CC" in said


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


FLOATS = {"f": np.int32, "d": np.int64}
ODD = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42, 3e38, 1.0, -1.0, math.pi)


def bits(a: Any) -> Any:
    return a.view(FLOATS.get(a.dtype.char, np.uint8))


@pytest.mark.parametrize("ufunc", sharing.COSTS, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("char", FLOATS)
def test_numpys_loops_give_the_same_bits_however_a_run_is_cut(
    made: Any, ufunc: Any, char: str
) -> None:
    given = np.random.default_rng(5)
    x, y = given.standard_normal((2, 5_003)).astype(char)
    x[given.integers(0, x.size, 99)] = given.choice(np.array(ODD, char), 99)
    y[given.integers(0, x.size, 99)] = given.choice(np.array(ODD, char), 99)
    two, pairs = np.array(2, char), [(x, y), (x, np.array(2, char))]
    with np.errstate(all="ignore"):
        for args in [(x,), (abs(x),)] if ufunc.nin == 1 else [*pairs, (two, abs(x))]:
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
def together(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    """A team that is always awake."""
    monkeypatch.setattr(compiled, "loops", lambda: made)
    monkeypatch.setattr(teams, "worth", lambda _: 1.0)
    monkeypatch.setattr(teams, "done", lambda *_: None)


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
            z = x * 2 + y
            z = (z * z - y) * x
            z += y
            z.mul_(x)
            kept = z.clone()
            kept = kept * y  # over what is not needed any more
            found += [z, kept.clone(), x.clone().sub_(y)]
            results += [r.numpy() for r in found]
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_works_alone() -> None:
    """OpenMP's threads are not there."""
    if compiled.loops() is None:
        pytest.skip("nothing is compiled")
    text = """
        import os, numpy as np, skimp
        from skimp._kernels import sharing, teams
        skimp.set_num_threads(2)
        x = np.ones(1 << 20, "f")
        teams._WAKE = 0
        assert sharing.ran(np.add, (x, x), np.empty_like(x))
        assert teams._awake > 0
        pid = os.fork()
        if not pid:
            out = np.empty_like(x)
            assert sharing.ran(np.add, (x, x), out)
            os._exit(int((out != 2).any()))
        assert os.waitpid(pid, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True, timeout=100)


def test_long_results_begin_with_a_line_of_the_cache() -> None:
    with skimp.config.using(defer="auto"):
        x = skimp.ones(40_000)
        for made_ in (x + x, x * 2, x.exp(), x < x, 1 - x):
            assert made_.data_ptr() % 64 == 0
