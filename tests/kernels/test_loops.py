"""The loops that `skimp compile` makes C of, as they stand and compiled: NumPy's bits."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import skimp
from skimp._kernels import activation, channels_compiled, compiled, loops, pointwise, rows
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


def test_what_is_kept_has_numpys_bits(made: Any) -> None:
    given = np.random.default_rng(0)
    x = given.standard_normal(500).astype("f")
    x[:4] = np.inf, -np.inf, np.nan, -0.0
    stays = given.integers(0, 2, x.size, dtype=np.uint8)
    out, scale = np.empty_like(x), np.float32(1 / 0.7)
    with np.errstate(invalid="ignore"):
        made.kept(x, stays, scale, out)
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


@pytest.mark.parametrize("n", [1, 15, 16, 37, 1024, 1061, 2600])
def test_sums_of_rows_are_those_of_doubles(made: Any, n: int) -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 3, n)).astype("f")
    x[1], y[1] = 1e30, 3e20
    sums, other = np.empty((2, 2, 3))
    made.summed(x, y, sums)
    assert_allclose(sums[0], x.sum(1, dtype=float), rtol=1e-13, atol=1e-13)
    assert_allclose(sums[1], (x.astype(float) * y).sum(1), rtol=1e-13, atol=1e-13)
    loops.summed(x, y, other)
    assert_array_equal(sums.view(np.int64), other.view(np.int64))


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
        monkeypatch.setattr(channels_compiled, "_PIECE", piece)
        with config.using(defer=defer, threads=2, threads_from=0):
            found.append(run(skimp))
    for one, other, theirs in zip(*found, run(torch), strict=True):
        assert one.tobytes() == other.tobytes()
        # what is near 0 may pass by the one and not by the other, and x * a is large, too
        assert (abs(one - theirs) > 1e-5 * max(1, far) + 1e-4 * abs(theirs)).mean() < 2e-3


@pytest.mark.parametrize("shape", [(1, 65, 3), (2, 70, 600), (1, 131, 1)])
def test_sums_of_columns(made: Any, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype("f")
    out, other, room = np.empty(shape[::2], "f"), np.empty(shape[::2], "f"), np.empty(512)
    made.columns(x, room, out)
    assert_allclose(out, x.sum(1, dtype=float), rtol=1e-6, atol=1e-6)
    loops.columns(x, room, other)
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
