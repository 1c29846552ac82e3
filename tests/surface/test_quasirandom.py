"""`torch.quasirandom.SobolEngine`: PyTorch's points, whatever is drawn, left out or reset."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import skimp
from skimp._kernels.random import sobol
from tests.support.running import start
from tests.support.samples import same

STEPS: dict[str, Any] = {
    "one by one": lambda e: [e.draw() for _ in range(4)],
    "many": lambda e: [e.draw(1), e.draw(6), e.draw(0), e.draw(300)],
    "powers of two": lambda e: [e.draw_base2(2), e.draw_base2(2), e.draw_base2(3)],
    "left out": lambda e: [
        e.fast_forward(3).draw(2),
        e.fast_forward(0).draw(),
        e.fast_forward(77).draw(),
    ],
    "left out first": lambda e: [e.fast_forward(1).draw(3)],
    "again": lambda e: [e.draw(5), e.reset().draw(3), e.draw(3)],
    "a copy": lambda e: [e.draw(5), copy.deepcopy(e).draw(4), e.draw(2)],
}


@pytest.mark.parametrize("dimension", [1, 3, 60])
@pytest.mark.parametrize("seed", [None, 0, 12345])
@pytest.mark.parametrize("steps", STEPS)
def test_points(dimension: int, seed: int | None, steps: str) -> None:
    ours, theirs = (
        STEPS[steps](
            library.quasirandom.SobolEngine(dimension, scramble=seed is not None, seed=seed)
        )
        for library in (skimp, torch)
    )
    same(ours, theirs)


def test_what_is_not_seeded_draws_from_the_generator() -> None:
    seen = []
    for library in (skimp, torch):
        library.manual_seed(5)
        engine = library.quasirandom.SobolEngine(4, scramble=True)
        seen.append((engine.draw(9), engine.sobolstate, engine.shift, library.rand(2)))
    same(*seen)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_and_out(dtype: str) -> None:
    seen = []
    for library in (skimp, torch):
        engine = library.quasirandom.SobolEngine(3, scramble=True, seed=1)
        out = library.empty(0, dtype=getattr(library, dtype))
        assert engine.draw(5, out=out, dtype=getattr(library, dtype)) is out
        seen.append(out)
    same(*seen)


def test_its_words_and_errors() -> None:
    assert repr(skimp.quasirandom.SobolEngine(3, True, 7)) == repr(
        torch.quasirandom.SobolEngine(3, True, 7)
    )
    wrong: list[Any] = [
        lambda t: t.quasirandom.SobolEngine(0),
        lambda t: t.quasirandom.SobolEngine(21202),
        lambda t: t.quasirandom.SobolEngine(2).draw(-1),
        lambda t: t.quasirandom.SobolEngine(2).draw(0),
        lambda t: t.quasirandom.SobolEngine(2).draw(2, dtype=t.float16),
        lambda t: t.quasirandom.SobolEngine(2).fast_forward(3).draw_base2(2),
    ]
    for call in wrong:
        with pytest.raises((ValueError, RuntimeError, NotImplementedError)) as theirs:
            call(torch)
        with pytest.raises(theirs.type) as ours:
            call(skimp)
        assert str(ours.value) == str(theirs.value)


def test_pickled_it_goes_on() -> None:
    engine = skimp.quasirandom.SobolEngine(3, scramble=True, seed=2)
    engine.draw(4)
    other = pickle.loads(pickle.dumps(engine))
    assert other.draw(3).tolist() == engine.draw(3).tolist()


def test_without_scipy_it_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sobol, "qmc", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        skimp.quasirandom.SobolEngine(2)


def test_scipy_is_imported_by_those_who_ask(tmp_path: Path) -> None:
    code = "import sys, skimp; skimp.ones(2); print('scipy' in sys.modules)"
    assert start([sys.executable, "-c", code], tmp_path).stdout.strip() == "False"
