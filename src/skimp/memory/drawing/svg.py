"""A picture as SVG: readable alone, on light and on dark pages, without fonts or scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from skimp.memory.drawing.cells import Drawn, Seen, Table

# Okabe and Ito's colours, which people with any colour vision tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999")
STYLE = """
text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}
.title{font-weight:600}.small{font-size:10px;fill:#59636e}.value{text-anchor:middle}
.cell{fill:#f6f8fa;stroke:#818b98}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}
.cell{fill:#151b23;stroke:#656c76}}
"""
LETTER = 7.9  # width of a character at 13px
WIDTH = 760  # of the drawing, beyond which cells go on below
MARGIN, GAP = 12, 18
LINE = 20
CELL = 30  # height
BAND = 7  # height of a tensor's mark under a cell


class Canvas:
    """SVG elements, and how far they reach."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def rect(self, x: float, y: float, w: float, h: float, style: str) -> None:
        self.parts.append(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{w:.4g}" height="{h:.4g}" {style}/>'
        )
        self._reach(x + w, y + h)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.4g}" y="{y:.4g}"{style}>{escape(words)}</text>')
        self._reach(x + (0 if "value" in kind else len(words) * LETTER), y + 4)

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def svg(self, title: str) -> str:
        width, height = self.width + MARGIN, self.height + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
            f"<title>{escape(title)}</title><style>{STYLE}</style>"
            + "".join(self.parts)
            + "</svg>\n"
        )


def to_svg(storages: Sequence[Drawn]) -> str:
    """All of them, one below the other."""
    canvas = Canvas()
    y = float(MARGIN)
    colours = iter(range(sum(len(storage.tensors) for storage in storages)))
    for storage in storages:
        tensors = [(seen, COLOURS[next(colours) % len(COLOURS)]) for seen in storage.tensors]
        y = _storage(canvas, storage, tensors, y) + GAP
    return canvas.svg("; ".join(storage.words for storage in storages))


def _storage(canvas: Canvas, storage: Drawn, tensors: list[tuple[Seen, str]], y: float) -> float:
    canvas.text(MARGIN, y + 12, storage.words, "title")
    y += LINE
    wide = _cell_width(storage)
    per_line = max(1, int(WIDTH // wide))
    shown = len(storage.values)
    for start in range(0, shown, per_line):
        y = _cells(canvas, storage, range(start, min(start + per_line, shown)), tensors, y, wide)
    if storage.cells > shown:
        canvas.text(MARGIN, y + 12, f"and {storage.cells - shown:,} cells more", "small")
        y += LINE
    for seen, colour in tensors:
        y = _tensor(canvas, seen, colour, y, wide)
    return y


def _cell_width(storage: Drawn) -> float:
    longest = max((len(text) for text in storage.values), default=1)
    for seen in storage.tensors:
        for table in seen.grid.tables:
            longest = max(longest, *(len(text) for row in table.rows for _, text in row))
    return max(34.0, longest * LETTER + 10)


def _cells(
    canvas: Canvas,
    storage: Drawn,
    cells: range,
    tensors: list[tuple[Seen, str]],
    y: float,
    wide: float,
) -> float:
    """One line of cells, and under each the colours of the tensors that see it."""
    for column, i in enumerate(cells):
        x = MARGIN + column * wide
        canvas.rect(x, y, wide, CELL, 'class="cell"')
        canvas.text(x + 3, y + 10, str(i), "small")
        canvas.text(x + wide / 2, y + 24, storage.values[i], "value")
        for row, (seen, colour) in enumerate(tensors):
            if seen.sees(i):
                top = y + CELL + 2 + row * (BAND + 1)
                canvas.rect(x + 1, top, wide - 2, BAND, f'fill="{colour}"')
    return y + CELL + 6 + len(tensors) * (BAND + 1)


def _tensor(canvas: Canvas, seen: Seen, colour: str, y: float, wide: float) -> float:
    canvas.rect(MARGIN, y + 3, 10, 10, f'fill="{colour}"')
    canvas.text(MARGIN + 16, y + 12, seen.name, "title")
    y += LINE
    for line in _wrapped(seen.words):
        canvas.text(MARGIN + 16, y + 8, line, "small")
        y += 14
    x = MARGIN + 16.0
    bottom = y
    for table in seen.grid.tables:
        if x > MARGIN + 16 and x + len(table.rows[0]) * wide > WIDTH:
            x, y = MARGIN + 16.0, bottom + 8
        bottom = max(bottom, _table(canvas, table, colour, x, y, wide))
        x += len(table.rows[0]) * wide + GAP
    if seen.grid.more:
        canvas.text(x, y + 12, f"and {seen.grid.more:,} tables more", "small")
    return bottom + GAP


def _wrapped(words: str) -> Iterator[str]:
    """What the tensor is on one line, how it lies on the next where both are long."""
    what, _, kind = words.rpartition(": ")
    if len(words) * LETTER * 0.8 <= WIDTH:
        yield words
        return
    yield what
    yield kind


def _table(canvas: Canvas, table: Table, colour: str, x: float, y: float, wide: float) -> float:
    if table.title:
        canvas.text(x, y + 12, table.title, "small")
        y += LINE
    for row in table.rows:
        for column, (cell, text) in enumerate(row):
            left = x + column * wide
            canvas.rect(
                left, y, wide, CELL, f'fill="{colour}" fill-opacity=".16" stroke="{colour}"'
            )
            canvas.text(left + 3, y + 10, str(cell), "small")
            canvas.text(left + wide / 2, y + 24, text, "value")
        if table.more_columns:
            left = x + len(row) * wide
            canvas.text(left + 4, y + 20, f"{table.more_columns:,} more", "small")
        y += CELL
    if table.more_rows:
        canvas.text(x, y + 12, f"and {table.more_rows:,} rows more", "small")
        y += LINE
    return y
