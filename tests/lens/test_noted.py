"""What is noted of tensors and storages while memory is recorded is there before and after."""

from __future__ import annotations

import pytest

import skimp
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.fields import slot
from skimp.lens import Recording


def test_graphs_from_before_are_read_during_and_after() -> None:
    x = skimp.ones(3, requires_grad=True)
    y = x * 2
    view = y[:2]
    loss = (y * y).sum()
    with Recording():
        y.mul_(3)  # a view's history is made anew, and the saved tensor has changed
        assert view.grad_fn is not None
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    view.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6, 0]


def test_graphs_from_during_are_read_afterwards() -> None:
    x = skimp.ones(3, requires_grad=True)
    with Recording():
        y = x * 2
        turned = y.reshape(3, 1).t()
        loss = (y * y).sum()
    y.mul_(3)
    assert turned.grad_fn is not None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    turned.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6, 6]


def test_lines_stay_right_where_one_op_is_called_from_two_lines_in_turn() -> None:
    """The next allocation is expected where it was; what came another way is looked for."""

    def one(x: skimp.Tensor) -> int:
        kept.append(x.add(1))
        return kept[-1].data_ptr()

    def other(x: skimp.Tensor) -> int:
        kept.append(x.add(1))
        return kept[-1].data_ptr()

    x = skimp.ones(4)
    kept: list[skimp.Tensor] = []
    ran = []
    with Recording() as recording:
        for i in range(40):
            f = (one, other, one)[i % 3] if i % 7 else other
            f(x)
            ran.append(f.__qualname__)
            kept.append(x.mul(2) if i % 5 else x.add(1))
    report = recording.report()
    stacks = [report.frames[h.place.stack[-1]].function for h in report.peak.held if h.place.stack]
    times = {
        stack: h.allocations
        for stack, h in zip(stacks, (h for h in report.peak.held if h.place.stack), strict=True)
        if stack.endswith((".one", ".other"))
    }
    assert times == {name: ran.count(name) for name in set(ran)}


def test_what_is_made_meanwhile_is_in_the_slots() -> None:
    """Then nothing is to be moved as it ends, when another thread may be making more."""
    saved, stale = vars(Storage)["saved"], slot("_skimp_stale")
    with Recording():
        for base in (skimp.ones(2, 3), skimp.ones(512, 512) + 1):
            view = base.t()
            assert (saved.__get__(base._storage), stale.__get__(base)) == (False, -1)
            assert stale.__get__(view) == view._skimp_stale == 0
        x = skimp.ones(3, requires_grad=True)
        y = x * 2
        z = y * y
        assert saved.__get__(y._storage) is True
    assert z._storage.saved is False
    assert y._storage.saved is True
