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
from numpy.testing import assert_array_equal

import skimp
from skimp._kernels import activation, compiled, loops, pointwise, rows
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
