"""Stores that processes share: what they answer is what PyTorch's answer."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

import skimp
from skimp.distributed.tcp import TCPStore
from tests.surface.distributed.counting import count

SHORT = timedelta(milliseconds=40)
MAKE: dict[str, Callable[[Any, str], Any]] = {
    "hash": lambda d, file: d.HashStore(),
    "tcp": lambda d, file: d.TCPStore("127.0.0.1", 0, 1, True),
    "tcp of no size": lambda d, file: d.TCPStore("127.0.0.1", 0, None, True),
    "file": lambda d, file: d.FileStore(file, 1),
    "prefix": lambda d, file: d.PrefixStore("p", d.HashStore()),
    "prefix twice": lambda d, file: d.PrefixStore("p", d.PrefixStore("q", d.HashStore())),
    "clone": lambda d, file: d.HashStore().clone(),
}
STEPS = """
s.num_keys()|s.set("a", "1")|s.get("a")|s.set("b", b"x\\xffy")|s.get("b")
s.set("u", "\\xe9")|s.get("u")
s.add("c", 3)|s.add("c", -1)|s.get("c")|s.add("a", 4)|s.get("a")|s.add("n0", 0)|s.get("n0")
s.check(["a"])|s.check(["a", "q"])|s.check([])|s.wait(["a", "b"])|s.wait(["a"], SHORT)
s.compare_set("n", "", "v")|s.compare_set("n", "x", "w")|s.compare_set("n", "v", "w")
s.compare_set("m", "x", "w")|s.check(["m"])|s.compare_set("a", "", "w")|s.get("n")
s.delete_key("n")|s.check(["n"])|s.num_keys()|s.append("a", "2")|s.append("new", "2")|s.get("a")
s.multi_set(["x", "y"], ["1", b"2"])|s.multi_get(["x", "y", "a"])|sorted(s.list_keys())
s.has_extended_api()|s.queue_push("q1", "v")|s.queue_push("q1", "w")|s.queue_len("q1")
s.queue_pop("q1")|s.queue_pop("q1", block=False)|s.queue_len("q1")|s.queue_len("none")
s.queue_pop("q1", False)|s.set("e", "")|s.get("e")|s.num_keys()|s.barrier("one", 1)
s.set(1, "a")|s.set("a", 5)|s.add("c", 1.5)|s.get()|s.timeout|s.set_timeout(SHORT)|s.timeout
s.get("zz")|s.wait(["q"])|s.wait(["q", "r"], SHORT)|s.multi_get(["x", "no"])|s.queue_pop("q1")
s.barrier("two", 2, SHORT)|s.get("a")
"""


def answer(step: str, store: Any) -> Any:
    """What a step gives, or the kind of its error."""
    try:
        return eval(step, {"s": store, "SHORT": SHORT})
    except Exception as error:
        known = "Timeout", "imeout", "queue"
        text = str(error)
        return type(error).__name__, [word for word in known if word in text]


@pytest.mark.parametrize("kind", MAKE)
def test_every_step_answers_as_pytorchs(kind: str, tmp_path: Path) -> None:
    theirs = MAKE[kind](torch.distributed, str(tmp_path / "theirs"))
    ours = MAKE[kind](skimp.distributed, str(tmp_path / "ours"))
    for step in STEPS.strip().replace("\n", "|").split("|"):
        want, got = answer(step, theirs), answer(step, ours)
        if isinstance(want, tuple) and kind == "file":
            want, got = want[0], got[0]  # its words differ from key to key
        assert got == want, step


def test_what_is_no_number_can_not_be_added_to() -> None:
    """PyTorch's server dies of it; ours answers, and goes on."""
    store = skimp.distributed.TCPStore("127.0.0.1", 0, 1, True)
    store.set("a", "x")
    with pytest.raises(ValueError, match="the value of 'a' is no number"):
        store.add("a", 1)
    assert store.get("a") == b"x"


def test_errors_of_the_network() -> None:
    with pytest.raises(skimp.distributed.DistNetworkError) as ours:
        TCPStore("127.0.0.1", 1, 1, False, timeout=SHORT)
    with pytest.raises(torch.distributed.DistNetworkError) as theirs:
        torch.distributed.TCPStore("127.0.0.1", 1, 1, False, timeout=SHORT)
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(skimp.distributed.DistStoreError, match="1/2 clients joined"):
        TCPStore("127.0.0.1", 0, 2, True, timeout=SHORT)
    store = TCPStore("127.0.0.1", 0, None, True)
    with pytest.raises(skimp.distributed.DistNetworkError, match="failed to listen on any local"):
        TCPStore("127.0.0.1", store.port, None, True)
    again = TCPStore("127.0.0.1", 0, None, True, multi_tenant=True)
    shared = TCPStore("127.0.0.1", again.port, None, True, multi_tenant=True)
    shared.set("a", "1")
    assert again.get("a") == b"1"


def test_a_program_that_nobody_launched_is_told_who_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK expected, but not set") as theirs:
        torch.distributed.init_process_group("gloo")
    with pytest.raises(ValueError, match="`skimp launch -n 2 PROGRAM`") as ours:
        skimp.distributed.init_process_group("gloo")
    assert str(ours.value).startswith(str(theirs.value))


def test_a_store_that_is_gone_frees_its_port() -> None:
    store = TCPStore("127.0.0.1", 0, None, True)
    port = store.port
    del store
    assert TCPStore("127.0.0.1", port, None, True).port == port


def test_processes_share_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    tcp = TCPStore("127.0.0.1", 0, 4, True, wait_for_workers=False)
    file = skimp.distributed.FileStore(path, 4)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=count, args=(tcp.port, path)) for _ in range(3)]
    for process in others:
        process.start()
    tcp.barrier("all", 4)
    file.barrier("all", 4)
    for process in others:
        process.join()
    assert [process.exitcode for process in others] == [0, 0, 0]
    assert (tcp.get("sum"), file.get("sum")) == (b"150", b"150")
    assert (tcp.queue_len("log"), file.get("log")) == (3, b"xxx")


@pytest.mark.parametrize("kind", ["hash", "tcp"])
def test_waiting_ends_when_another_thread_sets_the_key(kind: str) -> None:
    store = MAKE[kind](skimp.distributed, "")
    timer = threading.Timer(0.02, lambda: store.set("late", "1"))
    timer.start()
    assert store.get("late") == b"1"
    timer.join()
