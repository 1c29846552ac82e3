"""Copies and casts: what is the tensor itself, and what is new."""

from __future__ import annotations

from typing import Any

from tests.support.samples import seeded as both


def test_a_cast_to_its_own_type_is_the_tensor() -> None:
    def run(lib: Any, functional: Any) -> Any:
        x = lib.ones(2, 3)
        kept = [x.float(memory_format=f) for f in (lib.preserve_format, lib.contiguous_format)]
        return [y is x for y in kept], x.double(memory_format=lib.contiguous_format).stride()

    ours, theirs = both(run)
    assert ours == theirs
