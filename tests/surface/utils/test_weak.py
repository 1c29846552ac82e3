"""torch.utils.weak, the same steps on both sides."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.utils.weak

import skimp
import skimp.utils.weak


@pytest.mark.parametrize("library", [torch, skimp])
def test_entries_are_by_object_and_go_with_it(library: Any) -> None:
    weak = library.utils.weak
    a, b = library.ones(2), library.ones(2)
    found = weak.WeakTensorKeyDictionary()
    found[a], found[b] = 1, 2
    found[a] = 3
    assert (found[a], found[b], len(found), a in found, library.ones(2) in found) == (
        3,
        2,
        2,
        True,
        False,
    )
    assert [value for _, value in found.items()] == [3, 2]
    assert found.copy()[b] == 2
    assert found.pop(b) == 2
    assert found.get(b, "none") == "none"
    with pytest.raises(KeyError):
        found[b]
    del a
    gc.collect()
    assert len(found) == 0
    assert list(found) == []


@pytest.mark.parametrize("library", [torch, skimp])
def test_references_keep_nothing(library: Any) -> None:
    weak = library.utils.weak
    a = library.ones(2)
    ref, same, other = weak.WeakIdRef(a), weak.WeakIdRef(a), weak.WeakIdRef(library.ones(2))
    assert (ref == same, hash(ref) == hash(same), ref == other) == (True, True, False)
    held = weak.TensorWeakRef(a)
    assert held() is a
    del a
    gc.collect()
    assert (held(), ref(), ref == same, ref == ref) == (None, None, False, True)
    with pytest.raises(AssertionError):
        weak.TensorWeakRef(3)
