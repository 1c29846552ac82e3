"""copy, deepcopy and pickle keep values, layouts and sharing, as in PyTorch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import skimp
from skimp._engine.memory.ledger import host

WAYS = [
    copy.deepcopy,
    lambda x: pickle.loads(pickle.dumps(x)),
    lambda x: pickle.loads(pickle.dumps(x, 5)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [skimp.float32, skimp.bfloat16, skimp.bool, skimp.complex64])
def test_views_of_one_storage_stay_so(way: Any, dtype: skimp.dtype) -> None:
    x = skimp.arange(12).to(dtype).reshape(3, 4)
    y = x.t()[1:]
    a, b = way([x, y])
    assert skimp.equal(a, x)
    assert skimp.equal(b, y)
    assert b.stride() == y.stride()
    assert b.storage_offset() == y.storage_offset()
    assert skimp.shares_memory(a, b)
    assert not skimp.shares_memory(a, x)


@pytest.mark.parametrize("way", WAYS)
def test_leaves_keep_their_flag(way: Any) -> None:
    x = skimp.tensor([1.0, 2.0], requires_grad=True)
    x.name = "weights"
    y = way(x)
    assert y.requires_grad
    assert y.is_leaf
    assert y.name == "weights"


def test_results_cannot_be_copied_deeply() -> None:
    x = skimp.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="deepcopy protocol"):
        copy.deepcopy(x)


def test_named_results_pickle_where_torch_is_another() -> None:
    found = skimp.tensor([[1.0, 2.0], [4.0, 3.0]]).max(0)
    for protocol in (2, 5):
        again = pickle.loads(pickle.dumps(found, protocol))
        assert type(again) is type(found)
        assert again.values.tolist() == [4.0, 3.0]
        assert again.indices.tolist() == [1, 1]


def test_a_copy_costs_its_bytes() -> None:
    x = skimp.ones(1 << 20)
    before = host.allocated
    y = copy.deepcopy(x)
    assert host.allocated - before == 4 << 20
    del y
    assert host.allocated == before


def test_a_shallow_copy_shares() -> None:
    x = skimp.ones(3)
    assert skimp.shares_memory(copy.copy(x), x)


def test_whole_lazy_modules_pickle_and_copy() -> None:
    for again in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        first = skimp.nn.LazyLinear(3)
        second = again(first)
        assert second(skimp.ones(2, 4)).shape == (2, 3)
        assert type(second) is skimp.nn.Linear
        assert not second._forward_pre_hooks
        assert first.has_uninitialized_params()
        assert again(second)(skimp.ones(2, 4)).tolist() == second(skimp.ones(2, 4)).tolist()


def test_a_handle_that_was_copied_with_its_module_takes_the_copied_hook_away() -> None:
    first = skimp.nn.ReLU()
    first.handle = first.register_forward_hook(print)
    second = pickle.loads(pickle.dumps(first))
    second.handle.remove()
    assert (len(first._forward_hooks), len(second._forward_hooks)) == (1, 0)
    first.handle.remove()
    assert pickle.loads(pickle.dumps(first.handle)).id == first.handle.id
