"""Bytes that stand for their conjugates or negatives are not read as another type."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp


@pytest.mark.parametrize(
    "of",
    [
        lambda t, x: x.conj().view(t.float32),
        lambda t, x: x.conj().view(t.int64),
        lambda t, x: x.conj().imag.view(t.int32),
        lambda t, x: x.conj().view(t.complex64),
        lambda t, x: x.conj().resolve_conj().view(t.float32),
        lambda t, x: x.conj().conj().view(t.float32),
        lambda t, x: x.conj().real.view(t.int32),
    ],
)
def test_views_of_another_type(of: Any) -> None:
    ends = []
    for library in (torch, skimp):
        x = library.tensor([1 + 2j, 3 - 1j])
        try:
            ends.append(of(library, x).tolist())
        except RuntimeError as error:
            ends.append(str(error))
    assert ends[1] == ends[0]
