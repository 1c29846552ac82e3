"""What a picture shows, as plain data: storages with their cells, and which cells a tensor sees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skimp._engine.tensor.tensor import Tensor

CELLS = 96  # of a storage that are drawn; the rest is told as a number
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One tensor over a storage. Shape, strides and offset are in elements, as PyTorch has them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    layout: str  # contiguous, or what makes it not so
    wide: int  # cells of one element
    grid: Grid

    @property
    def words(self) -> str:
        return (
            f"{self.dtype}, shape {self.shape}, strides {self.strides}, offset {self.offset}: "
            f"{self.layout}"
        )

    def sees(self, cell: int) -> bool:
        return cell in self.grid.cells


@dataclass(frozen=True, slots=True)
class Grid:
    """The elements of a tensor as tables: the last two dims are rows and columns, the dims before
    them count the tables.
    """

    tables: tuple[Table, ...]
    more: int  # tables that are not drawn
    cells: frozenset[int]  # what the tensor sees, of the cells that are drawn


@dataclass(frozen=True, slots=True)
class Table:
    title: str  # "[2, :, :]" of a tensor of three dims, "" of one with fewer
    rows: tuple[tuple[tuple[int, str], ...], ...]  # first cell of an element, and its value
    more_rows: int
    more_columns: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """One storage: its cells are as wide as the smallest element that a tensor has on it."""

    letter: str
    nbytes: int
    unit: int  # bytes of a cell
    dtype: str  # of all its tensors, or the size of a cell where they differ
    cells: int
    values: tuple[str, ...]  # of the cells that are drawn, as the smallest dtype reads them
    tensors: tuple[Seen, ...]

    @property
    def words(self) -> str:
        cells = "1 cell" if self.cells == 1 else f"{self.cells:,} cells"
        return f"storage {self.letter}: {self.nbytes:,} bytes, {cells} of {self.dtype}"


def draw(tensors: Sequence[tuple[str, Tensor]]) -> tuple[Drawn, ...]:
    """Each storage once, in the order in which the tensors name them; their values are read."""
    groups: dict[int, list[tuple[str, Tensor]]] = {}
    for name, tensor in tensors:
        groups.setdefault(id(tensor._storage), []).append((name, tensor))
    return tuple(
        _storage(letter, group) for letter, group in zip(_letters(), groups.values(), strict=False)
    )


def _letters() -> Iterable[str]:
    yield from LETTERS
    n = 2
    while True:
        yield from (letter + str(n) for letter in LETTERS)
        n += 1


def _storage(letter: str, group: list[tuple[str, Tensor]]) -> Drawn:
    smallest = min((t for _, t in group), key=lambda t: t.dtype.itemsize)
    unit = smallest.dtype.itemsize
    dtypes = {_dtype(t) for _, t in group}
    nbytes = len(smallest._storage)
    cells = nbytes // unit
    values = smallest.detach().as_strided((min(cells, CELLS),), (1,), 0).tolist()
    return Drawn(
        letter,
        nbytes,
        unit,
        dtypes.pop() if len(dtypes) == 1 else "1 byte" if unit == 1 else f"{unit} bytes",
        cells,
        tuple(map(_text, values)),
        tuple(_seen(name, tensor, unit) for name, tensor in group),
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _seen(name: str, tensor: Tensor, unit: int) -> Seen:
    layout = tensor._skimp_layout_of()
    wide = tensor.dtype.itemsize // unit
    return Seen(
        name,
        _dtype(tensor),
        tuple(layout.shape),
        tuple(layout.strides),
        layout.offset,
        _kind(layout.shape, layout.strides, tensor.is_contiguous()),
        wide,
        _grid(tensor, wide),
    )


def _kind(shape: Sequence[int], strides: Sequence[int], contiguous: bool) -> str:
    if contiguous:
        return "contiguous"
    if any(step == 0 and n > 1 for n, step in zip(shape, strides, strict=True)):
        return "expanded, some cells are seen more than once"
    steps = sorted((step, n) for n, step in zip(shape, strides, strict=True) if n > 1)
    expected = 1
    for step, n in steps:
        if step != expected:
            return "not contiguous, it steps over cells"
        expected *= n
    return "not contiguous, its dims are in another order"


# -- elements as tables ---------------------------------------------------------------------------

ROWS, COLUMNS, TABLES = 12, 16, 6


def _grid(tensor: Tensor, wide: int) -> Grid:
    layout = tensor._skimp_layout_of()
    shape, strides = tuple(layout.shape), tuple(layout.strides)
    rows, columns = (1, 1, *shape)[-2:]
    outer = shape[:-2]
    count = math.prod(outer)
    tables = tuple(
        _table(tensor, np.unravel_index(i, outer) if outer else (), wide)
        for i in range(min(count, TABLES))
        if rows and columns
    )
    return Grid(
        tables, max(0, count - TABLES) if tables else 0, _cells(shape, strides, layout.offset, wide)
    )


def _table(tensor: Tensor, at: Sequence[Any], wide: int) -> Table:
    layout = tensor._skimp_layout_of()
    at = tuple(int(i) for i in at)
    title = "[" + ", ".join(map(str, at)) + ", :, :]" if at else ""
    rows, columns = (1, 1, *layout.shape)[-2:]
    down, right = (0, 0, *layout.strides)[-2:]
    start = layout.offset + sum(i * step for i, step in zip(at, layout.strides, strict=False))
    shown_rows, shown_columns = min(rows, ROWS), min(columns, COLUMNS)
    # only what is drawn is read: an expanded tensor may have more elements than memory has bytes
    window = tensor.detach().as_strided((shown_rows, shown_columns), (down, right), start)
    texts = [[_text(value) for value in row] for row in window.tolist()]
    return Table(
        title,
        tuple(
            tuple(((start + r * down + c * right) * wide, text) for c, text in enumerate(row))
            for r, row in enumerate(texts)
        ),
        rows - shown_rows,
        columns - shown_columns,
    )


def _cells(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, wide: int
) -> frozenset[int]:
    """Of the first CELLS cells, those that the elements stand on."""
    found: Integers = np.array([offset], np.int64)
    if 0 in shape:
        return frozenset()
    for n, step in zip(shape, strides, strict=True):
        # a dim adds nothing beyond the drawn cells, whatever its size
        count = 1 if step == 0 else min(n, CELLS // step + 1)
        found = np.unique(np.add.outer(found, np.arange(count) * step))
        found = found[found < CELLS]
    cells = np.add.outer(found * wide, np.arange(wide)).ravel()
    return frozenset(int(i) for i in cells if i < CELLS)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return str(value)
