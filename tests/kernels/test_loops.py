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
