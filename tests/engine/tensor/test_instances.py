"""What makes tensors and storages: in C, where loops are compiled, as in Python."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import tensor as tensors
from skimp._engine.tensor.fields import DEFAULTS, GIVEN
from skimp._engine.tensor.tensor import IN_PYTHON, Tensor

OTHERS = ("_skimp_counter", "_skimp_inference", "_conj", "_skimp_neg")


def fields(t: Any) -> dict[str, Any]:
    return {name: getattr(t, name) for name in (*DEFAULTS, *GIVEN, *OTHERS)}


def same(one: Any, other: Any, *, but: tuple[str, ...] = ()) -> None:
    assert type(one) is type(other)
    theirs = fields(other)
    for name, value in fields(one).items():
        if name not in but:
            assert value is theirs[name], name


def of_storage(s: Storage) -> dict[str, Any]:
    return {name: getattr(s, name) for name in storages.DEFAULTS}


def made() -> dict[str, Tensor]:
    base = torch.arange(12.0).reshape(3, 4)
    flat = base.detach()
    flat._skimp_layout_of()
    return {
        "plain": base,
        "turned": base.t(),
        "with a layout": flat,
        "a version of its own": base.data,
        "a view under no_grad": _unrecorded(base),
        "conjugate": torch.ones(2, 2, dtype=torch.complex64).conj(),
        "a parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "in inference mode": _inference(),
        "large": torch.ones(1 << 18),
        "of a subclass": torch.ones(2, 2).as_subclass(Other),
        "without bytes": torch.ones(2, 2, device="meta"),
    }


class Other(torch.Tensor):
    """A class off the fast paths."""


def _unrecorded(t: Tensor) -> Tensor:
    with torch.no_grad():
        return t[0]


def _inference() -> Tensor:
    with torch.inference_mode():
        return torch.ones(2, 2)


@pytest.mark.parametrize("mode", ["none", "inference"])
@pytest.mark.parametrize("kind", list(made()))
def test_aliases_are_those_of_python(kind: str, mode: str) -> None:
    t = made()[kind]
    layout = Layout((1,), (1,), 0)
    with torch.inference_mode(mode == "inference"):
        same(tensors.alias(t, layout), IN_PYTHON["alias"](t, layout))
        same(tensors.ghost(t), IN_PYTHON["ghost"](t))
        same(tensors.ghost(t, torch.nn.Parameter), IN_PYTHON["ghost"](t, torch.nn.Parameter))
        same(
            tensors.wrap(t._storage, layout, torch.int8),
            IN_PYTHON["wrap"](t._storage, layout, torch.int8),
        )
        for a in (np.ones((2, 3), np.float32), np.ones((2, 3), np.float32).T, np.ones(())):
            same(tensors.on_array(t, a), IN_PYTHON["on_array"](t, a))


@pytest.mark.parametrize("array", [
    np.ones((2, 3), np.float32), np.zeros(0), np.float64(3), np.array(2), np.ones(1 << 17),
    np.ones(1 << 18), np.asfortranarray(np.ones((3, 4))), np.ma.ones(3),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["none", "inference"])
def test_results_are_those_of_python(array: Any, mode: str) -> None:
    counted = []
    found = []
    with torch.inference_mode(mode == "inference"):
        for fresh in (tensors.fresh, IN_PYTHON["fresh"]):
            before = host.made, host.allocated
            t = fresh(array, torch.float64)
            counted.append((host.made - before[0], host.allocated - before[1]))
            found.append(t)
            same(t, t)
    one, other = found
    assert counted[0] == counted[1] == (1, array.nbytes)
    same(one, other, but=("_np", "_storage", "_skimp_layout"))
    assert one._skimp_layout == other._skimp_layout
    assert type(one._np) is type(other._np)
    mine, theirs = of_storage(one._storage), of_storage(other._storage)
    block, other_block = mine.pop("block"), theirs.pop("block")
    mine.pop("_flat"), theirs.pop("_flat")
    assert mine == theirs
    assert type(block) is type(other_block) is np.ndarray
    before = host.dropped, host.allocated
    del one, other, found, t
    assert (host.dropped - before[0], before[1] - host.allocated) == (2, 2 * array.nbytes)


def test_new_ones_have_what_all_have() -> None:
    for blank in (tensors.blank, IN_PYTHON["blank"]):
        new = blank(Tensor)
        assert {name: getattr(new, name) for name in DEFAULTS} == DEFAULTS
        assert not hasattr(new, "_storage")
    for bare in (storages.bare, IN_PYTHON["bare"]):
        assert of_storage(bare()) == storages.DEFAULTS


def test_a_refused_allocation_counts_nothing() -> None:
    for fresh in (tensors.fresh, IN_PYTHON["fresh"]):
        before = host.allocated, host.made - host.dropped
        torch.memory.set_limit(host.allocated + 1000)
        try:
            with pytest.raises(torch.OutOfMemoryError):
                fresh(np.ones(1000), torch.float64)
        finally:
            torch.memory.set_limit(None)
        gc.collect()
        assert (host.allocated, host.made - host.dropped) == before


def test_wrong_arguments_are_refused() -> None:
    if not tensors.IN_C:
        pytest.skip("loops are not compiled")
    t = torch.ones(2)
    for name, args in {
        "fresh": (np.ones(2),), "blank": (int,), "bare": (int,), "wrap": (t._storage,),
        "alias": (t,), "ghost": (t, int), "on_array": (t, [1]),
    }.items():  # fmt: skip
        make = storages.bare if name == "bare" else getattr(tensors, name)
        with pytest.raises(TypeError):
            make(*args)


@pytest.mark.parametrize("name", [*DEFAULTS, *GIVEN])
def test_an_emptied_slot_is_an_error_and_no_crash(name: str) -> None:
    for make in (tensors.ghost, lambda t: tensors.alias(t, Layout((2,), (1,), 0)),
                 lambda t: tensors.on_array(t, np.ones(2))):  # fmt: skip
        t = torch.ones(2)
        delattr(t, name)
        if name in ("_storage", "_dtype", "_skimp_marked"):
            with pytest.raises(AttributeError, match=name):
                make(t)
        elif name not in ("_np", "_skimp_layout", "_skimp_turned"):
            assert type(make(t)) is Tensor


class Slotted(torch.Tensor):
    """A class with slots of its own."""

    __slots__ = ("mine",)


def test_classes_with_slots_and_what_a_program_sets_are_kept() -> None:
    t = torch.ones(2, requires_grad=True).as_subclass(Slotted)
    t.mine = 5
    t.other = [1]
    for again in (copy.deepcopy(t.detach()), pickle.loads(pickle.dumps(t.detach()))):
        assert again.tolist() == [1, 1]
    assert t.__dict__ == {"other": [1]}
    state = object.__reduce_ex__(t, 2)[2]
    assert state == ({"other": [1]}, {"mine": 5})


def test_tensors_change_places() -> None:
    a, b = torch.ones(2), torch.nn.Parameter(torch.zeros(3))
    a.name_of_mine = "a"
    (b * 2).sum().backward()
    torch.utils.swap_tensors(a, b)
    assert type(a) is torch.nn.Parameter
    assert type(b) is Tensor
    assert a.tolist() == [0, 0, 0]
    assert b.tolist() == [1, 1]
    assert a.grad is not None
    assert a.grad.tolist() == [2, 2, 2]
    assert b.grad is None
    assert b.name_of_mine == "a"
    assert not hasattr(a, "name_of_mine")
