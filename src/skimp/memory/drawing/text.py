"""A picture for a terminal: a row of cells per storage, a mark under each cell that is seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skimp.memory.drawing.cells import Drawn, Seen, Table

WIDTH = 96  # characters of a line
NAME = 24  # of a name beside its marks
MARK, NONE = "■", "·"
INDENT = "  "


def to_text(storages: Sequence[Drawn]) -> str:
    """All of them, one below the other."""
    return "\n".join("\n".join(_storage(storage)) for storage in storages)


def _storage(storage: Drawn) -> Iterator[str]:
    yield storage.words
    shown = len(storage.values)
    names = ["cell", "value", *(_short(seen.name) for seen in storage.tensors)]
    label = max(map(len, names))
    digits = len(str(max(shown - 1, 0)))
    wide = max([digits, *(len(text) for text in storage.values)]) + 1
    per_line = max(1, (WIDTH - label - len(INDENT)) // wide)
    for start in range(0, shown, per_line):
        cells = range(start, min(start + per_line, shown))
        lines = [[str(i) for i in cells], [storage.values[i] for i in cells]]
        lines += [[MARK if seen.sees(i) else NONE for i in cells] for seen in storage.tensors]
        for name, line in zip(names, lines, strict=True):
            yield f"{INDENT}{name:<{label}}" + "".join(text.rjust(wide) for text in line)
    if storage.cells > shown:
        yield f"{INDENT}and {storage.cells - shown:,} cells more"
    for seen in storage.tensors:
        yield f"{INDENT}{seen.name}: {seen.words}"
        yield from _elements(seen)


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _elements(seen: Seen) -> Iterator[str]:
    """Which cell each element stands on."""
    for table in seen.grid.tables:
        if table.title:
            yield f"{INDENT * 2}{table.title}"
        yield from _table(table)
    if seen.grid.more:
        yield f"{INDENT * 2}and {seen.grid.more:,} tables more"


def _table(table: Table) -> Iterator[str]:
    wide = max(len(str(cell)) for row in table.rows for cell, _ in row)
    for row in table.rows:
        cells = " ".join(f"{cell:>{wide}}" for cell, _ in row)
        yield f"{INDENT * 2}{cells}" + (" ..." if table.more_columns else "")
    if table.more_rows:
        yield f"{INDENT * 2}... {table.more_rows:,} rows more"
