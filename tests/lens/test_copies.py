"""Every copy has bytes, op, line, the shape and strides of what was copied, and who laid it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp.lens import Recording
from skimp.lens.data import Copied
from skimp.nn import functional as F

F32 = 4


def copies(work: Callable[[], Any]) -> dict[str, Copied]:
    """What a piece of program copied, by op."""
    with Recording() as recording:
        kept = work()
        report = recording.report()
    del kept
    return {copy.place.op: copy for copy in report.copies}


def line(f: Callable[..., Any], plus: int) -> int:
    """A line of a function of this file, from its own first on."""
    return f.__code__.co_firstlineno + plus


@pytest.mark.parametrize("n", [8, 512])  # at hand, and large enough to be deferred
def test_a_forced_copy_names_the_line_that_laid_its_source_out(n: int) -> None:
    def work() -> Any:
        x = torch.ones(n, 2 * n)
        y = x.t()
        first = y[1:]  # lies as it does because of `x.t()`
        return first.contiguous(), y.reshape(-1)

    found = copies(work)
    contiguous, reshape = found["contiguous"], found["reshape"]
    assert contiguous.bytes == (2 * n - 1) * n * F32
    assert (contiguous.shape, contiguous.strides) == ((2 * n - 1, n), (1, 2 * n))
    assert (reshape.shape, reshape.bytes) == ((2 * n, n), 2 * n * n * F32)
    for copy in (contiguous, reshape):
        assert copy.forced
        assert copy.made is not None
        assert (copy.made.op, copy.made.line) == ("t", line(work, 2))


@pytest.mark.parametrize("n", [8, 512])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_views_of_any_dtype_name_their_line(n: int, dtype: Any) -> None:
    def work() -> Any:
        x = torch.ones(n, 2 * n).to(dtype)
        turned = x.t()
        return turned.reshape(-1), x[:, :3].contiguous()

    found = copies(work)
    for op, plus in (("reshape", 2), ("contiguous", 3)):
        made = found[op].made
        assert made is not None
        assert (made.file, made.line) == (__file__, line(work, plus))
    assert found["reshape"].made.op == "t"
    assert found["contiguous"].made.op == "getitem"


def test_views_made_in_backward_name_the_forward_line() -> None:
    def work() -> Any:
        x = torch.ones(6, 8, requires_grad=True)
        y = x.t()
        y.sum(1).pow(2).sum().backward()
        y = x.permute(1, 0)
        y.reshape(-1).pow(2).sum().backward()
        return x.grad

    with Recording() as recording:
        kept = work()
        report = recording.report()
    del kept
    backward = [c for c in report.copies if c.place.phase == "backward"]
    assert backward
    assert all(c.made is not None and c.made.line for c in backward), backward


def test_what_lies_in_rows_was_laid_out_by_who_made_it() -> None:
    def work() -> Any:
        x = torch.ones(3, 5)
        return x.clone()

    clone = copies(work)["clone"]
    assert clone.made is not None
    assert (clone.made.op, clone.made.line) == ("ones", line(work, 1))


X = (4, 6)
BY_NATURE: dict[str, tuple[Callable[[Any], Any], int]] = {
    "cat": (lambda x: torch.cat([x, x]), 48),
    "stack": (lambda x: torch.stack([x, x, x]), 72),
    "getitem": (lambda x: x[torch.tensor([0, 2])], 12),
    "index_select": (lambda x: x.index_select(0, torch.tensor([1])), 6),
    "pad": (lambda x: F.pad(x, (1, 1)), 32),
    "roll": (lambda x: torch.roll(x, 1), 24),
    "flip": (lambda x: x.flip(0), 24),
    "repeat": (lambda x: x.repeat(2, 2), 96),
    "copy_": (lambda x: torch.empty(4, 6).copy_(x), 24),
}


@pytest.mark.parametrize("op", BY_NATURE)
def test_ops_that_copy_by_nature_are_listed(op: str) -> None:
    work, elements = BY_NATURE[op]
    copy = copies(lambda: work(torch.ones(X)))[op]
    assert (copy.bytes, copy.times, copy.forced) == (elements * F32, 1, False)
    assert (copy.shape, copy.strides) == (X, (6, 1))


def test_writes_into_a_slice_are_listed() -> None:
    def work() -> Any:
        x, y = torch.zeros(4, 6), torch.ones(6, 2).t()
        x[1:3] = y
        x[torch.tensor([0, 3])] = y
        x[0, :3] = 7.0  # a number is no copy
        return x

    copy = copies(work)["setitem"]
    assert (copy.bytes, copy.times, copy.shape, copy.strides) == (48, 1, (2, 6), (1, 2))
    assert copy.made is not None
    assert copy.made.op == "t"


def test_arrays_that_become_tensors_are_listed() -> None:
    array = np.ones((3, 4), np.float32).T
    copy = copies(lambda: torch.tensor(array))["tensor"]
    assert (copy.bytes, copy.shape, copy.strides) == (48, (4, 3), (1, 4))


def test_copies_that_are_no_allocations_are_counted_nowhere_else() -> None:
    x, y = torch.zeros(4), torch.ones(4)
    with torch.memory.no_copies(), torch.memory.region() as region:
        x.copy_(y)
        x[:2] = y[:2]
    assert region.copied == 0


def test_a_class_without_a_recording_is_as_it_was() -> None:
    copies(lambda: torch.ones(2, 3).t().contiguous())
    assert "_skimp_stale" not in torch.Tensor.__dict__
    assert torch.ones(2)._skimp_stale == -1
