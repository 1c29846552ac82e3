"""`skimp.memory.picture`: tensors drawn over the storages that they share."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from types import FrameType
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.memory.drawing.cells import Drawn, draw
from skimp.memory.drawing.svg import to_svg
from skimp.memory.drawing.text import to_text


class Picture:
    """Storages and the tensors on them, as they were when the picture was made.

    Shows itself in a notebook; `print` gives it as text, `save` writes an SVG.
    """

    def __init__(self, storages: tuple[Drawn, ...]) -> None:
        self.storages = storages

    def __str__(self) -> str:
        return to_text(self.storages)

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return to_svg(self.storages)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG, which any browser opens."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_svg(self.storages))


def picture(*tensors: Tensor, **named: Tensor) -> Picture:
    """Draw tensors over their storages: which cells each one sees, what is shared, what is a copy.

    Tensors go by the words of the call (`picture(x, x.t())` draws `x` and `x.t()`), or by the
    names of keyword arguments. Any dtype and any number of dims; of large tensors and storages
    the beginning is drawn. Reads the values, and so materializes what was deferred; holds neither
    tensors nor bytes afterwards. Raises TypeError for what is no tensor, and ValueError for
    tensors without bytes of their own (sparse ones: picture their `indices()` and `values()`).

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: TypeError for no tensors and for what is none.
    Memory: no elements are copied but those that are shown.
    """
    if not tensors and not named:
        raise TypeError("picture() takes at least one tensor, got none")
    names = _words(sys._getframe(1), len(tensors))
    pairs: list[tuple[str, Any]] = [*zip(names, tensors, strict=True), *named.items()]
    for name, tensor in pairs:
        _require_bytes(name, tensor)
    return Picture(draw(pairs))


def _require_bytes(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"picture() takes tensors, but {name} is a {type(tensor).__name__}")
    if tensor._hollow:
        raise ValueError(
            f"picture(): {name} has no storage of its own; picture the tensors that it is made of "
            "(indices() and values() of a sparse one)"
        )


def _words(frame: FrameType, count: int) -> list[str]:
    """What the caller's source calls the tensors; `tensor 1` and so on where it can't be told."""
    call = _call(frame)
    words = call.args if call is not None else []
    if len(words) == count and not any(isinstance(word, ast.Starred) for word in words):
        return [ast.unparse(word) for word in words]
    return [f"tensor {i + 1}" for i in range(count)]


def _call(frame: FrameType) -> ast.Call | None:
    """The expression that `frame` is evaluating, where its source is at hand."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    first, last, begin, end = positions
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, n) for n in range(first, last + 1)]
    raw = [line.encode() for line in lines]  # columns count bytes
    raw[-1] = raw[-1][:end]
    raw[0] = raw[0][begin:]
    try:
        parsed = ast.parse(b"".join(raw).decode().strip(), mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None
    return parsed if isinstance(parsed, ast.Call) else None
