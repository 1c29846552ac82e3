"""Writes to some places of what holds the conjugate, or the negative, of its elements: PyTorch's,
and seen by the tensor that has the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

ROW = [[2.0, 3.0, 4.0]]
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "positions": lambda lib, x: x.__setitem__(lib.tensor([0]), 2.0),
    "positions and a number": lambda lib, x: x.__setitem__((lib.tensor([0]), 1), 2.0),
    "a mask": lambda lib, x: x.__setitem__(lib.tensor([True, False]), 2.0),
    "a row": lambda lib, x: x.__setitem__(lib.tensor([0]), lib.tensor(ROW, dtype=x.dtype)),
    "scatter_": lambda lib, x: x.scatter_(1, lib.tensor([[2]]), lib.tensor(ROW, dtype=x.dtype)),
    "scatter_add_": lambda lib, x: x.scatter_add_(
        1, lib.tensor([[2, 0]]), lib.tensor(ROW, dtype=x.dtype)
    ),
    "index_add_": lambda lib, x: x.index_add_(
        0, lib.tensor([1]), lib.tensor(ROW, dtype=x.dtype), alpha=2
    ),
    "index_copy_": lambda lib, x: x.index_copy_(0, lib.tensor([1]), lib.tensor(ROW, dtype=x.dtype)),
    "index_fill_": lambda lib, x: x.index_fill_(0, lib.tensor([1]), 5),
    "index_put_": lambda lib, x: x.index_put_(
        (lib.tensor([0, 0]),), lib.tensor(2.0, dtype=x.dtype), True
    ),
    "masked_scatter_": lambda lib, x: x.masked_scatter_(
        lib.tensor([True, False, True]), lib.tensor([ROW[0], ROW[0]], dtype=x.dtype)
    ),
    "put_": lambda lib, x: x.put_(lib.tensor([4]), lib.tensor([2.0], dtype=x.dtype)),
    "not fitting": lambda lib, x: x.scatter_(1, lib.tensor([[7]]), lib.ones(1, 1, dtype=x.dtype)),
}


def _seen(lib: Any, write: Callable[[Any, Any], Any], imaginary: bool) -> Any:
    x = lib.tensor([[1 + 2j, 3 - 4j, 5j], [6 + 0j, -1j, 7 + 8j]])
    view = x.conj().imag if imaginary else x.conj().t().contiguous().conj().t()
    whole = x if imaginary else view.conj()
    before = view._version
    error = None
    try:
        write(lib, view)
    except (RuntimeError, IndexError) as found:
        error = str(found)
    assert view.is_neg() if imaginary else view.is_conj()
    return whole.tolist(), view.tolist(), error or view._version - before


@pytest.mark.parametrize("imaginary", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, imaginary: bool) -> None:
    found, want = [_seen(lib, WRITES[name], imaginary) for lib in (skimp, torch)]
    assert found == want
