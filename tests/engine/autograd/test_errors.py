"""Errors name the lines of the program that are to blame, and threads don't disturb each other."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import Any

import pytest

import skimp
from skimp._engine.autograd import node_lines as lines


def leaf(n: int = 4) -> Any:
    return skimp.ones(n, requires_grad=True)


def lines_of(e: BaseException) -> list[str]:
    """The source lines that a message quotes."""
    return re.findall(r"test_errors\.py:\d+, `(.*?)`", str(e))


def test_modified() -> None:
    y = leaf() * 1
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        z.sum().backward()
    assert lines_of(caught.value) == ["z = y.exp()", "z.add_(1)"]
    assert "Saved by ExpBackward0" in str(caught.value)
    assert "use the form of that operation without the underscore" in str(caught.value)


def test_modified_through_a_view_under_no_grad() -> None:
    w = skimp.ones(4)
    z = leaf() * w
    with skimp.no_grad():
        w[1:].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        z.sum().backward()
    assert lines_of(caught.value)[0] == "z = leaf() * w"


def test_detached_since() -> None:
    y = leaf().exp()
    z = y * 2 * y
    y.detach_()
    with pytest.raises(RuntimeError, match="has been detached in-place") as caught:
        z.sum().backward()
    assert lines_of(caught.value) == ["z = y * 2 * y", "y.detach_()"]


def test_second_backward() -> None:
    lines.INSIDE.intersection_update({contextlib.__file__})  # as where a program begins
    y = leaf().exp()
    z = y.sum()
    z.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time") as caught:
        y.sum().backward()
    assert lines_of(caught.value) == ["y = leaf().exp()", "z.backward()"]
    assert "ExpBackward0 in common" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: leaf(2).detach(), "cut by detach() at"),
        (lambda: skimp.ones(2, dtype=skimp.int64), "only floating point and complex tensors"),
        (lambda: skimp.ones(2), "None of its inputs required grad"),
    ],
)
def test_where_the_chain_was_cut(make: Any, reason: str) -> None:
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad") as caught:
        make().backward(skimp.ones(2))
    assert reason in str(caught.value)


def test_lines_of_code_objects() -> None:
    def f() -> Any:
        return lines.here()

    code, lasti = f()
    assert lines.number(code, lasti) - code.co_firstlineno == 1


def nan_in_backward() -> None:
    x = skimp.zeros(2, requires_grad=True)
    with skimp.autograd.detect_anomaly():
        y = x * 0 / x
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_mode() -> None:
    returned = r"Function 'DivBackward0' returned nan values in its 1th output\."
    trace = r"(?s)Traceback of forward call that caused the error.*y = x \* 0 / x"
    with pytest.warns(UserWarning, match=trace), pytest.raises(RuntimeError, match=returned):
        nan_in_backward()
    assert not skimp.autograd.is_anomaly_enabled()


def test_backward_in_several_threads() -> None:
    x = leaf(100)
    failed = []

    def work(k: int) -> None:
        try:
            for _ in range(30):
                ((x * float(k)).exp() * 0 + x).sum().backward()
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    assert x.grad.tolist() == [120.0] * 100


def test_modes_belong_to_threads() -> None:
    seen = []
    with skimp.no_grad():
        t = threading.Thread(target=lambda: seen.append(skimp.is_grad_enabled()))
        t.start()
        t.join()
        assert not skimp.is_grad_enabled()
    assert seen == [True]


def test_hooks_of_one_thread_do_not_pack_for_another() -> None:
    packed = []
    hooks = skimp.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t), lambda t: t)
    with hooks:
        t = threading.Thread(target=lambda: leaf().exp().sum().backward())
        t.start()
        t.join()
    assert not packed
