"""Who holds a tensor's bytes, who shares them, and what a graph keeps: found from names."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import skimp as torch
from skimp import memory, nn
from skimp._engine.memory.ledger import host, materialize_pending
from skimp.memory.search import is_library
from skimp.nn import functional as F
from tests.support.running import default_mode


class Box:
    def __init__(self, value: Any = None) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def in_closure(x: Any) -> Callable[[], Any]:
    return lambda: x


def in_generator(x: Any) -> Iterator[int]:
    kept = x
    yield 1
    del kept


def started(x: Any) -> Iterator[int]:
    made = in_generator(x)
    next(made)
    return made


def hooked(x: Any) -> Any:
    w = torch.ones(3, requires_grad=True)
    w.register_hook(lambda g: g * x[0, 0])
    return w


HELD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "name": (lambda x: x, "keep in"),
    "list": (lambda x: [0, x], "keep[1] in"),
    "dict": (lambda x: {"k": (x,)}, "keep['k'][0] in"),
    "key": (lambda x: {x: 1}, "keep's keys in"),
    "set": (lambda x: {x}, "keep{{...}} in"),
    "deque": (lambda x: deque([x]), "keep"),
    "attribute": (lambda x: Box([x]), "keep.value[0] in"),
    "slot": (Slotted, "keep.value in"),
    "closure": (in_closure, "keep in {} -> its closure's x"),
    "partial": (lambda x: functools.partial(print, x), "keep in {} -> arguments of a partial"),
    "method": (lambda x: x.sum, "keep"),
    "generator": (started, "-> x in the generator of in_generator"),
    "array": (lambda x: x.numpy(), "keep in {} -> NumPy array"),
    "view of an array": (lambda x: [x.numpy()[1:]], "keep[0] in {} -> NumPy array"),
    "view": (lambda x: x[1:], "keep in"),
    "graph": (lambda x: (torch.ones(64, 64, requires_grad=True) * x).sum(), "-> saved by MulBac"),
    "hook": (hooked, "] -> its closure's x"),
}


@pytest.mark.parametrize("kind", HELD)
def test_every_way_of_holding_is_found_and_named(kind: str) -> None:
    hold, expected = HELD[kind]
    x = torch.randn(64, 64)
    keep = hold(x)
    found = memory.holders(x)
    test = "test_every_way_of_holding_is_found_and_named()"
    assert found[0].startswith(("x in", "keep in"))
    assert any(expected.format(test) in line for line in found), str(found)
    del keep
    gc.collect()
    after = memory.holders(x)
    assert not any("keep" in line for line in after), str(after)


def test_a_deferred_storage_that_reads_it_is_a_holder() -> None:
    x = torch.randn(700, 700)
    y = torch.exp(x)
    found = memory.holders(x)
    deferred = y._storage.deferred is not None
    assert any("y in" in line and "its expression" in line for line in found) == deferred


def test_a_leaks_chain_goes_through_container_and_graph() -> None:
    log = Box([])
    h = torch.tanh(torch.randn(8, 8, requires_grad=True) * 2)
    log.value.append(h.sum())
    found = memory.holders(h)
    assert "test_holders.py:" in found[-1]
    assert found[-1].startswith("log.value[0] in ")
    assert " -> graph of SumBackward0 -> saved by TanhBackward0, " in found[-1]


def test_looking_keeps_nothing_alive() -> None:
    """Python keeps what it has shown of a frame: values that the function let go of since."""
    before = host.allocated

    def inner() -> int:
        x = torch.randn(64, 64)
        memory.holders(x)
        x = torch.randn(32, 32)
        return host.allocated

    assert inner() - before == 32 * 32 * 4
    assert host.allocated == before


def test_module_and_gradient_have_the_programs_words() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    net(torch.ones(1, 4)).sum().backward()
    here = "test_module_and_gradient_have_the_programs_words()"
    assert f"net.0.weight in {here}" in memory.holders(net[0].weight)
    assert f"net.0.weight.grad in {here}" in memory.holders(net[0].weight.grad)


def test_state_of_an_optimizer_is_said_by_the_name_of_its_parameter() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2)))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    for name, p in net.named_parameters():
        for kept in ("exp_avg", "exp_avg_sq"):
            (found,) = memory.holders(optimizer.state[p][kept])
            assert found.startswith(f"optimizer.state[{name}]['{kept}'] in ")


def test_variables_of_other_threads_are_names_too() -> None:
    x = torch.ones(3)
    ready, go = threading.Event(), threading.Event()

    def other(mine: Any) -> None:
        ready.set()
        go.wait()

    thread = threading.Thread(target=other, args=(x[1:],))
    thread.start()
    ready.wait()
    found = memory.holders(x)
    go.set()
    thread.join()
    assert any(line.startswith("mine in other()") for line in found)


def test_to_ask_leaves_nothing_that_holds() -> None:
    """Not even garbage: a cycle would hold values of the program's until somebody collects."""
    x = torch.ones(4)
    gc.collect()
    gc.disable()
    try:
        assert memory.holders(x)
        assert memory.aliases(x)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_installed_packages_are_no_program_of_the_user() -> None:
    assert is_library("/elsewhere/lib/python3.11/site-packages/torch/functional.py")
    assert is_library("/usr/lib/python3/dist-packages/numpy/__init__.py")
    assert is_library(os.__file__)
    assert not is_library("/home/me/train.py")


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="a tensor with bytes of its own, got list"):
        memory.holders([1])  # type: ignore[arg-type]


def test_aliases_have_names_and_layouts() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    row, turned = x[1], x.t()
    other = torch.ones(12)
    found = {a.name.partition(" in ")[0]: a for a in memory.aliases(x)}
    assert {"x", "row", "turned"} <= set(found)
    assert (found["row"].shape, found["row"].strides, found["row"].offset) == ((4,), (1,), 4)
    assert (found["turned"].shape, found["turned"].strides) == ((4, 3), (1, 4))
    assert "strides (1, 4), offset 0" in str(memory.aliases(x))
    del row, turned, other


# -- what a graph keeps ----------------------------------------------------------------------------


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.also = x * 2
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def conv(x: Any) -> tuple[Any, Any]:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return net(x.view(1, 1, 64, 64)).sum(), net


def lstm(x: Any) -> tuple[Any, Any]:
    net = nn.LSTM(64, 8, batch_first=True)
    return net(x[None])[0].sum(), net


def hooks(x: Any) -> tuple[Any, Any]:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return (x.exp() * x).sum(), None


def shared(x: Any) -> tuple[Any, Any]:
    h = x.exp()
    return (h * h.tanh()).sum(), h.detach()


def branch(x: Any) -> tuple[Any, Any]:
    h = torch.tanh(x * 2)
    return (h * h.cos()).sum(), h.exp()  # another output keeps a part of the graph


def attention(x: Any) -> tuple[Any, Any]:
    q = x.view(1, 4, 16, 64)
    return F.scaled_dot_product_attention(q, q * 2, q, is_causal=True).sum(), None


GRAPHS = (
    lambda x: ((x.exp() * x).sum(), None),
    lambda x: (Twice.apply(x * 1).sum(), None),
    lambda x: (F.cross_entropy(x @ x, torch.zeros(64, dtype=torch.long)), None),
    *(conv, lstm, hooks, shared, branch, attention),
)


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_the_total_is_what_dropping_the_graph_frees_to_the_byte(number: int) -> None:
    x = torch.randn(64, 64, requires_grad=True)
    loss, keep = GRAPHS[number](x)
    materialize_pending()
    gc.collect()
    told = memory.saved(loss).nbytes
    before = host.allocated
    loss = loss.detach()
    assert before - host.allocated == told
    assert told > 0
    del keep


@default_mode  # with everything deferred nothing is held
def test_what_is_alive_anyway_says_so() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    loss = (x.exp() * x).sum()
    rows = {(k.op, k.name): k for k in memory.saved(loss)}
    assert rows["ExpBackward0", "result"].alone
    assert not rows["MulBackward0", "other"].alone
    assert "test_holders.py:" in rows["ExpBackward0", "result"].line
    assert "alive anyway" in str(memory.saved(loss))


def test_the_public_names_are_a_short_list_without_internals() -> None:
    names = dir(memory)
    assert names == sorted([*memory.__all__, "record"])
    assert not [name for name in names if name.startswith("_")]
    assert {"holders", "aliases", "saved", "step", "region", "no_copies"} <= set(names)
    assert len(names) <= 32
