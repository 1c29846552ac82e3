"""`t.data = value`: which tensors go on counting versions together, as in PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch as oracle

import skimp


def _add(lib: Any, t: Any) -> None:
    with lib.no_grad():
        t.add_(1)


def the_same_bytes(lib: Any) -> Any:
    p, said = lib.ones(4, requires_grad=True), []
    beside, view = p.detach(), p.view(2, 2)
    for change in (lambda: p.data, lambda: p.data.view(2, 2), lambda: p.data.t(), lambda: view[0]):
        p.data += 1
        p.data = change()
        for written in (p, beside):
            _add(lib, written)
            versions = p._version, beside._version, view._version
            said.append((*versions, p.stride(), p.tolist(), beside.tolist()))
    return said


def other_bytes(lib: Any) -> Any:
    p, value, said = lib.ones(3, requires_grad=True), lib.zeros(3), []
    _add(lib, p)
    p.data = value
    for written in (p, value, p.data):
        _add(lib, written)
        said.append((p._version, value._version, p.tolist()))
    return said


def what_is_saved(lib: Any) -> Any:
    said: list[Any] = []
    ways = (lambda p: p, lambda p: p.detach(), lambda p: p.view(3), lambda p: p.data)
    for written, first in itertools.product(ways, (True, False)):
        p = lib.ones(3, requires_grad=True)
        with lib.no_grad():
            beside = written(p)
        loss = (p * p).sum()
        p.data += 1
        if not first:
            loss = (p * p).sum()
        _add(lib, beside)
        try:
            loss.backward()
            said.append(p.grad.tolist())
        except RuntimeError:
            said.append("refused")
    return said


def waiting_gradients(lib: Any) -> Any:
    p = lib.ones(2, 2, requires_grad=True)
    loss = (p * 3).sum()
    p.data += 1
    loss.backward()
    first = p.grad.tolist()
    p.grad, p.data = None, p.data.t()
    (p * lib.arange(4.0).view(2, 2)).sum().backward()
    return first, p.grad.tolist(), p.grad.stride()


def conjugates(lib: Any) -> Any:
    z = lib.tensor([1 + 2j, 3 - 1j])
    z.data = z.data.conj()
    first = z.is_conj(), z._version, z.tolist()
    z.data = z.data.conj()
    _add(lib, z)
    return first, z.is_conj(), z._version, z.tolist()


USES: list[Callable[[Any], Any]] = [
    the_same_bytes, other_bytes, what_is_saved, waiting_gradients, conjugates,
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=[u.__name__ for u in USES])
def test_versions_are_counted_as_in_pytorch(use: Callable[[Any], Any]) -> None:
    assert use(skimp) == use(oracle)


def test_a_parameter_moved_by_its_data_is_as_it_was() -> None:
    p = skimp.nn.Parameter(skimp.ones(3))
    p.data += 1
    assert not p._skimp_marked  # so ops on it go on by their fast paths
