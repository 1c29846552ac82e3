"""Event files, read back by the package tensorboard, beside those that PyTorch's writer makes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skimp

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def events(folder: Path) -> list[tuple[str, int, Any]]:
    """(tag, step, value) of everything below a folder, in the order of files and records."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found = []
    for path in sorted(folder.rglob("events.out.*")):
        where = str(path.parent.relative_to(folder))
        for event in LegacyEventFileLoader(str(path)).Load():
            found += [(f"{where}:{v.tag}", event.step, v) for v in event.summary.value]
    return sorted(found, key=lambda e: e[:2])


def both(tmp_path: Path, add: Callable[[Any, Any], None]) -> list[list[Any]]:
    made = []
    for name in ("torch", "skimp"):
        lib = importlib.import_module(name)
        writer = importlib.import_module(f"{name}.utils.tensorboard").SummaryWriter
        with writer(tmp_path / name) as w:
            add(lib, w)
        made.append(events(tmp_path / name))
    return made


CASES: dict[str, Callable[[Any, Any], None]] = {
    "scalars": lambda t, w: [
        w.add_scalar("loss", v, i) for i, v in enumerate((1.5, t.tensor(2.5), np.float32(3)))
    ],
    "several": lambda t, w: w.add_scalars("both", {"a": 1.0, "b": t.tensor([2.0])}, 3),
    "histogram": lambda t, w: w.add_histogram("h", t.arange(-5.0, 7), 1),
    "histogram of bins": lambda t, w: w.add_histogram("h", t.arange(10.0), 1, bins="auto"),
    "raw": lambda t, w: w.add_histogram_raw("h", 0, 1, 2, 1.0, 1.0, [0.5, 1.0], [1, 1], 2),
    "text": lambda t, w: w.add_text("note", "a **word**", 4),
    "tensor": lambda t, w: w.add_tensor("x", t.arange(6.0).reshape(2, 3), 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_records_are_pytorchs(tmp_path: Path, case: Callable[[Any, Any], None]) -> None:
    want, got = both(tmp_path, case)
    assert [e[:2] for e in got] == [e[:2] for e in want]
    for (_, _, a), (_, _, b) in zip(want, got, strict=True):
        if a.HasField("histo"):
            for name in ("min", "max", "num", "sum", "sum_squares"):
                assert getattr(b.histo, name) == pytest.approx(getattr(a.histo, name))
            np.testing.assert_allclose(b.histo.bucket, a.histo.bucket)
            np.testing.assert_allclose(b.histo.bucket_limit, a.histo.bucket_limit)
        elif a.HasField("tensor"):
            assert list(b.tensor.string_val) == list(a.tensor.string_val)
            assert [d.size for d in b.tensor.tensor_shape.dim] == [
                d.size for d in a.tensor.tensor_shape.dim
            ]
            assert b.metadata.plugin_data.plugin_name == a.metadata.plugin_data.plugin_name
        else:
            assert b.simple_value == a.simple_value


@pytest.mark.parametrize(
    ("shape", "order"), [((3, 4, 5), "CHW"), ((4, 5, 3), "HWC"), ((4, 5), "HW"), ((1, 4, 5), "CHW")]
)
@pytest.mark.parametrize("whole", [False, True], ids=["floats", "bytes"])
def test_pictures_are_pytorchs(
    tmp_path: Path, shape: tuple[int, ...], order: str, whole: bool
) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).random(shape).astype(np.float32)
    values = (pixels * 255).astype(np.uint8) if whole else pixels
    want, got = both(
        tmp_path, lambda t, w: w.add_image("i", t.from_numpy(values), 1, dataformats=order)
    )
    a, b = (
        np.asarray(Image.open(BytesIO(e[0][2].image.encoded_image_string))) for e in (want, got)
    )
    assert (got[0][2].image.height, got[0][2].image.width) == (4, 5)
    np.testing.assert_array_equal(b, a)


def test_pictures_side_by_side(tmp_path: Path) -> None:
    want, got = both(tmp_path, lambda t, w: w.add_images("i", t.rand(5, 3, 4, 4), 1))
    for name in ("height", "width", "colorspace"):
        assert getattr(got[0][2].image, name) == getattr(want[0][2].image, name)


def test_figures(tmp_path: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot(skimp.arange(3).numpy())
    with skimp.utils.tensorboard.SummaryWriter(tmp_path) as w:
        w.add_figure("f", figure, 1, close=False)
    (record,) = events(tmp_path)
    assert (record[2].image.height, record[2].image.width) == (50, 100)


def test_hyperparameters_are_text_and_metrics(tmp_path: Path) -> None:
    with skimp.utils.tensorboard.SummaryWriter(tmp_path) as w:
        w.add_hparams({"lr": 0.1}, {"accuracy": 0.5}, run_name="first")
    tags = [tag for tag, _, _ in events(tmp_path)]
    assert tags == ["first:accuracy", "first:hparams/text_summary"]


def test_the_folder_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with skimp.utils.tensorboard.SummaryWriter(comment="_mine") as w:
        w.add_scalar("a", 1)
        assert w.get_logdir().startswith("runs/")
        assert w.get_logdir().endswith("_mine")
    assert len(events(tmp_path / "runs")) == 1


def test_what_can_not_be_written_says_so(tmp_path: Path) -> None:
    with skimp.utils.tensorboard.SummaryWriter(tmp_path) as w:
        with pytest.raises(RuntimeError, match="no graph of a program"):
            w.add_graph(skimp.nn.Linear(1, 1), skimp.ones(1))
        with pytest.raises(ValueError, match="no element"):
            w.add_histogram("h", skimp.ones(0))


NO_NUMBERS: tuple[Any, ...] = (
    [1, 2], [1.5], [[1]], (1,), {}, None, "a", 1 + 2j, np.ones(2), np.ones((1, 2)),
)  # fmt: skip


def test_what_is_no_number_is_refused_as_by_the_oracle(tmp_path: Path) -> None:
    told: dict[str, list[type[BaseException]]] = {"torch": [], "skimp": []}
    for name, kinds in told.items():
        writer = importlib.import_module(f"{name}.utils.tensorboard").SummaryWriter
        with writer(tmp_path / name) as w:
            for value in NO_NUMBERS:
                with pytest.raises(Exception) as refusal:  # noqa: PT011  (compared below)
                    w.add_scalar("x", value)
                kinds.append(refusal.type)
    assert told["skimp"] == told["torch"]


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        skimp.utils.tensorboard.SummaryWriter("x")
