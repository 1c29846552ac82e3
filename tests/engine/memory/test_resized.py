"""Storages made smaller under their tensors: no access reads or writes what is not there."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import numpy as np
import pytest

import skimp
from skimp._engine.memory import stats

METHODS = sorted(
    name
    for name in dir(skimp.Tensor)
    if callable(getattr(skimp.Tensor, name, None))
    and (not name.startswith("_") or name in ("__add__", "__getitem__", "__array__", "__dlpack__"))
    and name not in ("share_memory_", "record_stream", "cuda", "pin_memory")
)
ARGUMENTS: list[tuple[Any, ...]] = [(), (1,), (0,), ("other",), ("other", 0)]
OUTSIDE = "are out of bounds for storage of size"


def made(t: Any, name: str, arguments: tuple[Any, ...], size: int) -> Any:
    given = [skimp.ones(size) if one == "other" else one for one in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(t, name)(*given)


def works(name: str, arguments: tuple[Any, ...], size: int) -> bool:
    try:
        made(skimp.ones(size), name, arguments, size)
    except Exception:
        return False
    return True


def reads(found: Any, t: Any) -> bool:
    """Whether a result has elements of its own that can only come from `t`."""
    return (
        isinstance(found, np.ndarray | memoryview)
        or (isinstance(found, skimp.Tensor) and found.numel() > 0 and not found.is_set_to(t))
    ) and not _same_storage(found, t)


def _same_storage(found: Any, t: Any) -> bool:
    return isinstance(found, skimp.Tensor) and found._storage is t._storage


# They need the shape, the dtype or new bytes only, or make the storage larger again.
NOT_READING = {
    *("bernoulli", "new", "new_empty", "new_ones", "new_zeros", "new_tensor", "type", "topk"),
    *("resize", "resize_", "resize_as", "resize_as_", "set_"),
}


def outcome(name: str, arguments: tuple[Any, ...], size: int) -> str:
    """What a method does with a tensor whose storage was made empty: "refused", "fine" or what is
    wrong.
    """
    t = skimp.ones(size)
    t.sum()  # its array is at hand
    t.untyped_storage().resize_(0)
    try:
        found = made(t, name, arguments, size)
    except RuntimeError as error:
        return "refused" if OUTSIDE in str(error) else str(error)
    except TypeError as error:  # an operator that another type could do
        if "missing 1 required" in str(error):
            return "fine"  # PyTorch refuses such a call, whatever the storage
        return "fine" if "logical_" in name else str(error)
    return "fine" if name in NOT_READING or not reads(found, t) else f"read: {found!r:.50}"


def test_every_method_refuses_a_storage_that_is_too_small() -> None:
    found = {
        (name, arguments): outcome(name, arguments, 3)
        for name in METHODS
        for arguments in ARGUMENTS
        if works(name, arguments, 3)
    }
    assert {call: what for call, what in found.items() if what not in ("refused", "fine")} == {}
    assert list(found.values()).count("refused") > 500


@pytest.mark.parametrize("size", [4, 70_000])
def test_views_arrays_and_readers_of_a_storage_that_shrinks(size: int) -> None:
    t = skimp.arange(size, dtype=skimp.float32)
    view, twice = t[1:], t * 2  # the second may be deferred and read it
    t.untyped_storage().resize_(8)
    for one in (t, view):
        with pytest.raises(RuntimeError, match=OUTSIDE):
            one.fill_(7.0)
        with pytest.raises(RuntimeError, match=OUTSIDE):
            one.sum()
        with pytest.raises(RuntimeError, match=OUTSIDE):
            repr(one)
    assert skimp.empty(0).set_(t.untyped_storage(), 0, (2,), (1,)).tolist() == [0, 1]
    assert twice[-1].item() == 2 * (size - 1)
    assert t.shape == (size,)
    t.untyped_storage().resize_(4 * size)
    t.fill_(7.0)
    assert view.sum().item() == 7.0 * (size - 1)


def test_what_was_saved_for_backward_is_refused() -> None:
    x = skimp.arange(70_000, dtype=skimp.float32, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    y.detach().untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=OUTSIDE):
        z.backward()


@pytest.mark.parametrize("size", [0, 4, 400])
def test_bytes_that_were_handed_out_stay(size: int) -> None:
    """PyTorch's storages can't be resized any more then, either."""
    t = skimp.ones(100)
    array = t.numpy()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        t.untyped_storage().resize_(size)
    array[:] = 3
    assert t.sum().item() == 300


def test_a_smaller_storage_counts_less() -> None:
    base = stats.memory_allocated()
    t = skimp.ones(300_000)
    t.untyped_storage().resize_(0)
    assert stats.memory_allocated() == base
    t.untyped_storage().resize_(1_200_000)
    assert stats.memory_allocated() == base + 1_200_000


REFERRERS = gc.get_referrers
GROWN = {
    "resize_": lambda t: t.new().resize_((3, 2)),
    "resize_as_": lambda t: t.new().resize_as_(t),
    "out": lambda t: skimp.add(t, t, out=skimp.empty(0)),
    "two": lambda t: skimp.topk(t, 1, out=(skimp.empty(0), skimp.empty(0, dtype=skimp.int64))),
    "cat": lambda t: skimp.cat((t, t), out=skimp.empty(0)),
    "share": lambda t: t.clone().share_memory_(),
}


@pytest.mark.parametrize("name", GROWN)
def test_who_grows_alone_is_not_searched_for(name: str, monkeypatch: Any) -> None:
    """The collector looks through every object of the program to find a storage's tensors."""
    searched: list[Any] = []
    monkeypatch.setattr(gc, "get_referrers", lambda s: searched.append(s) or REFERRERS(s))
    GROWN[name](skimp.ones(3, 2))
    assert not searched


def test_what_is_shared_already_is_not_searched_for(monkeypatch: Any) -> None:
    t = skimp.ones(3, 2).share_memory_()
    view = t[1:]
    searched: list[Any] = []
    monkeypatch.setattr(gc, "get_referrers", lambda s: searched.append(s) or REFERRERS(s))
    assert view.share_memory_() is view
    assert not searched


def test_views_see_the_block_of_a_storage_that_has_grown(monkeypatch: Any) -> None:
    searched: list[Any] = []
    monkeypatch.setattr(gc, "get_referrers", lambda s: searched.append(s) or REFERRERS(s))
    t = skimp.arange(3.0)
    view = t[1:]
    t.resize_(6)
    t[1] = 7
    assert searched
    assert view.tolist() == [7.0, 2.0]


def test_a_tensor_without_bytes_grows() -> None:
    t = skimp.empty(2, device="meta")
    assert t.resize_(5, 3).shape == (5, 3)
    assert t.untyped_storage().nbytes() == 60
