"""`skimp.memory.picture`: the cells that tensors see, as data, text and SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import skimp
from skimp.memory import picture
from skimp.memory.drawing.cells import CELLS
from skimp.memory.drawing.svg import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def test_a_view_and_a_copy() -> None:
    x = skimp.arange(6.0).reshape(2, 3)
    assert (
        str(picture(x, x.t(), copy=x[:, 1].clone()))
        == """\
storage A: 24 bytes, 6 cells of float32
  cell  0 1 2 3 4 5
  value 0 1 2 3 4 5
  x     ■ ■ ■ ■ ■ ■
  x.t() ■ ■ ■ ■ ■ ■
  x: float32, shape (2, 3), strides (3, 1), offset 0: contiguous
    0 1 2
    3 4 5
  x.t(): float32, shape (3, 2), strides (1, 3), offset 0: \
not contiguous, its dims are in another order
    0 3
    1 4
    2 5
storage B: 8 bytes, 2 cells of float32
  cell  0 1
  value 1 4
  copy  ■ ■
  copy: float32, shape (2,), strides (1,), offset 0: contiguous
    0 1"""
    )


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    dims = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(dims))
    strides = tuple(draw(st.integers(0, 5)) for _ in range(dims))
    return shape, strides, draw(st.integers(0, 3))


@given(views())
def test_cells_are_those_that_numpy_says(
    view: tuple[tuple[int, ...], tuple[int, ...], int],
) -> None:
    shape, strides, offset = view
    x = skimp.arange(100)
    y = x.as_strided(shape, strides, offset)
    [storage] = picture(x, y).storages
    elements = np.lib.stride_tricks.as_strided(
        np.arange(100)[offset:], shape, tuple(8 * s for s in strides)
    )
    seen = storage.tensors[1]
    assert seen.grid.cells == {i for i in elements.ravel().tolist() if i < CELLS}
    drawn = [[[cell for cell, _ in row] for row in table.rows] for table in seen.grid.tables]
    if elements.size:
        tables = elements.reshape(-1, *(1, 1, *shape)[-2:])
        assert drawn == tables[: len(drawn)].tolist()
        assert seen.grid.more == len(tables) - len(drawn)
    else:
        assert (drawn, seen.grid.more) == ([], 0)
    assert (seen.shape, seen.strides, seen.offset) == (y.shape, y.stride(), y.storage_offset())


def test_dtypes_on_one_storage_share_its_cells() -> None:
    x = skimp.tensor([1.0, -2.0])
    bits = x.view(skimp.uint8)
    [storage] = picture(x, bits[2:5]).storages
    assert storage.words == "storage A: 8 bytes, 8 cells of 1 byte"
    assert storage.values == tuple(map(str, bits.tolist()))
    assert storage.tensors[0].grid.tables[0].rows == (((0, "1"), (4, "-2")),)
    assert storage.tensors[0].grid.cells == set(range(8))
    assert storage.tensors[1].grid.cells == {2, 3, 4}


def test_large_tensors_are_drawn_from_their_beginning() -> None:
    huge = skimp.ones(1).expand(2**40, 2**20)
    many = skimp.zeros(7, 2, 20, 30)
    one, other = picture(huge, many).storages
    assert one.cells == 1
    assert [table.more_rows for table in one.tensors[0].grid.tables] == [2**40 - 12]
    text, svg = str(picture(many)), picture(many)._repr_svg_()
    for words in ("and 8,304 cells more", "and 8 tables more", "8 rows more"):
        assert words in text
        assert words in svg
    assert len(other.values) == CELLS


def test_empty_and_single_elements() -> None:
    a, b = skimp.empty(0, 3), skimp.tensor(2 - 3j)
    assert (
        str(picture(a, b))
        == """\
storage A: 0 bytes, 0 cells of float32
  a: float32, shape (0, 3), strides (3, 1), offset 0: contiguous
storage B: 8 bytes, 1 cell of complex64
  cell     0
  value 2-3j
  b        ■
  b: complex64, shape (), strides (), offset 0: contiguous
    0"""
    )


def test_names_are_the_words_of_the_call() -> None:
    rows = {"a": skimp.ones(2)}
    drawn = picture(rows["a"], rows["a"][1:])
    assert [seen.name for seen in drawn.storages[0].tensors] == ["rows['a']", "rows['a'][1:]"]
    both = list(rows.values())
    assert [s.tensors[0].name for s in picture(*both).storages] == ["tensor 1"]
    unseen = eval("picture(x)", {"picture": picture, "x": rows["a"]})
    assert unseen.storages[0].tensors[0].name == "tensor 1"


def test_the_svg_draws_every_cell_and_escapes_names(tmp_path: Path) -> None:
    x = skimp.arange(5)
    drawn = picture(x, **{"<b> & co": x[1:3]})
    drawn.save(tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    rects = root.findall(f"{SVG}rect")
    assert len([r for r in rects if r.get("class") == "cell"]) == 5
    marks = [r for r in rects if r.get("fill") == COLOURS[1] and r.get("height") == "7"]
    assert len(marks) == 2
    assert "<b> & co" in [t.text for t in root.findall(f"{SVG}text")]


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"picture\(\) takes at least one tensor, got none"):
        picture()
    with pytest.raises(TypeError, match=r"takes tensors, but 3 is a int"):
        picture(3)  # type: ignore[arg-type]
    eye = skimp.eye(2).to_sparse()
    with pytest.raises(ValueError, match=r"eye has no storage of its own; .*indices\(\)"):
        picture(eye)


def test_a_picture_holds_no_bytes_and_changes_nothing() -> None:
    before = skimp.memory.memory_allocated()
    x = skimp.zeros(1000, requires_grad=True)
    version = x._version
    drawn = picture(x, x[:10])
    assert (x._version, x.requires_grad, x.grad_fn) == (version, True, None)
    del x
    assert skimp.memory.memory_allocated() == before
    assert "4,000 bytes" in str(drawn)
