"""Memory formats that are named: the strides they give, and shapes that have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp

SHAPES = [(), (3,), (2, 2), (2, 3, 2), (2, 3, 1, 2), (2, 0, 4, 5), (1, 2, 3, 2, 2)]
FORMATS = ["channels_last", "channels_last_3d", "contiguous_format", "preserve_format"]
MAKERS: dict[str, Any] = {
    "empty": lambda t, shape, f: t.empty(shape, memory_format=f),
    "resize_": lambda t, shape, f: t.arange(120.0).resize_(shape, memory_format=f),
    "resize_as_": lambda t, shape, f: t.ones(3, 2).resize_as_(t.ones(shape), memory_format=f),
    "to": lambda t, shape, f: t.ones(shape).to(memory_format=f),
    "contiguous": lambda t, shape, f: t.ones(shape).contiguous(memory_format=f),
    "clone": lambda t, shape, f: t.ones(shape).clone(memory_format=f),
    "empty_like": lambda t, shape, f: t.empty_like(t.ones(shape), memory_format=f),
}


def _end(library: Any, maker: str, shape: tuple[int, ...], named: str) -> Any:
    try:
        made = MAKERS[maker](library, shape, getattr(library, named))
    except RuntimeError as error:
        return "preserve" if "reserve" in str(error) else str(error)
    return tuple(made.shape), [n for n, size in zip(made.stride(), shape, strict=True) if size > 1]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("named", FORMATS)
def test_strides_or_an_error(maker: str, named: str) -> None:
    refused = 0
    for shape in SHAPES:
        theirs = _end(torch, maker, shape, named)
        assert _end(skimp, maker, shape, named) == theirs, shape
        refused += isinstance(theirs, str)
    none = 7 if named == "preserve_format" and maker in ("empty", "resize_") else 0
    assert refused == {"channels_last": 5, "channels_last_3d": 6}.get(named, none)


@pytest.mark.parametrize("library", [torch, skimp])
def test_what_is_contiguous_is_so_in_the_format_that_is_kept(library: Any) -> None:
    x = library.ones(2, 3)
    assert x.is_contiguous(memory_format=library.preserve_format)
    assert not x.t().is_contiguous(memory_format=library.preserve_format)
    with pytest.raises(RuntimeError, match="unsupported by the contiguous operator"):
        x.t().contiguous(memory_format=library.preserve_format)


def test_what_is_no_format() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match=r"must be torch\.memory_format, not int"):
        skimp.empty(2, memory_format=wrong)
