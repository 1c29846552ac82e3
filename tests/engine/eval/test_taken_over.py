"""What takes over the memory that it alone seems to read must not take it from an op that is under
way: one that reads the same, and asks for room for its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import skimp
from skimp._engine.eval import into
from skimp._engine.memory import storage

SHAPE = (1 << 19, 4)  # a column of it is large too: room for it is asked of the pool
ELEMENTS = (np.random.default_rng(0).random(SHAPE) + 0.05).astype(np.float32)

OPS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda t: t.sum(-1),
    "amax": lambda t: t.amax(-1),
    "argmax": lambda t: t.argmax(-1),
    "var": lambda t: t.var(-1),
    "logsumexp": lambda t: t.logsumexp(-1),
    "softmax": lambda t: t.softmax(-1),
    "cumsum": lambda t: t.cumsum(-1),
    "product with somebody else's array": lambda t: t * skimp.from_numpy(ELEMENTS),
    "cat": lambda t: skimp.cat([t, t]),
    "masked_select": lambda t: t[skimp.from_numpy(ELEMENTS) > 0.7],
    "pooling": lambda t: skimp.nn.functional.avg_pool1d(t[None], 2, 1),
    "layer_norm": lambda t: skimp.nn.functional.layer_norm(t, (4,)),
    "batch_norm": lambda t: skimp.nn.functional.batch_norm(t, None, None, training=True),
}


def _one_and_other() -> tuple[skimp.Tensor, skimp.Tensor]:
    """exp(x * x) times 2 and 3, deferred; nobody else holds the squares that both read."""
    x = skimp.from_numpy(ELEMENTS)
    e = (x * x).exp()
    other = e * 3
    return e * 2, other


@pytest.mark.parametrize("name", OPS)
def test_an_op_reads_what_was_there_before_others_were_computed_for_its_room(name: str) -> None:
    with skimp.config.using(defer="auto"):
        one, other = _one_and_other()
        got = OPS[name](one).numpy()
        expected = np.exp(ELEMENTS * ELEMENTS)
        want = OPS[name](skimp.from_numpy(2 * expected)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(other.numpy(), 3 * expected, rtol=1e-5)


@pytest.mark.parametrize("read", ["sum", "result"])
@pytest.mark.parametrize("f", ["exp", "sqrt", "tanh", "reciprocal"])
def test_a_gradient_is_the_same_while_the_result_is_held(f: str, read: str) -> None:
    with skimp.config.using(defer="auto"):
        x = skimp.from_numpy(ELEMENTS).requires_grad_()
        y = getattr(x * x, f)() * 3  # held, and not computed yet
        (y.sum() if read == "sum" else y).backward(None if read == "sum" else skimp.ones(SHAPE))
        got = x.grad.numpy()
        few = skimp.from_numpy(ELEMENTS[:8].copy()).requires_grad_()
        (getattr(few * few, f)() * 3).sum().backward()
        np.testing.assert_allclose(got[:8], few.grad.numpy(), rtol=1e-4)
        assert y.requires_grad


def test_an_expression_that_nobody_knows_of_keeps_what_it_reads() -> None:
    """Such as an op has that is under way and did not ask for its room first."""
    with skimp.config.using(defer="auto"):
        one, other = _one_and_other()
        under_way = one._storage.deferred
        assert under_way is not None
        del one
        three_times = other.numpy()  # the squares die with it, and only `under_way` reads them now
        got = np.empty(SHAPE, np.float32)
        into.write(under_way, got)
        np.testing.assert_allclose(got * 1.5, three_times, rtol=1e-6)


def test_what_an_expression_alone_reads_is_computed_over() -> None:
    with skimp.config.using(defer="auto"):
        squares = skimp.from_numpy(ELEMENTS) * skimp.from_numpy(ELEMENTS)
        address = squares.data_ptr()
        chain = (squares + 1) * squares.exp()  # two ways to it, and all of them its own
        del squares
        assert chain.data_ptr() == address


@pytest.mark.parametrize("held", ["another", "reader"])
def test_a_part_that_others_hold_matters_where_it_reads_what_is_computed_over(held: str) -> None:
    with skimp.config.using(defer="auto"):
        x = skimp.from_numpy(ELEMENTS)
        one = x * x
        other = skimp.from_numpy(ELEMENTS) * 2  # which is there, or waits
        address = one.data_ptr()
        part = other.exp() if held == "another" else one.exp()
        result = one + part
        del one
        assert (result.data_ptr() == address) == (held == "another")
        squares = ELEMENTS * ELEMENTS
        inner = np.exp(2 * ELEMENTS if held == "another" else squares)
        np.testing.assert_allclose(part.numpy(), inner, rtol=1e-5)
        np.testing.assert_allclose(result.numpy(), squares + inner, rtol=1e-5)


def test_what_another_thread_computes_over_its_input_is_read_when_that_is_done() -> None:
    """While a result is computed over what it reads, its expression tells what it was, no more."""
    with skimp.config.using(defer="auto"):
        doubled = (skimp.from_numpy(ELEMENTS) * skimp.from_numpy(ELEMENTS)) * 2
        inside, go_on = threading.Event(), threading.Event()
        compute_over = storage.Storage._compute_over

        def slowly(self: Any, donor: Any, expr: Any) -> None:
            run = storage.run.evaluate

            def evaluate(expr: Any, *rest: Any) -> None:
                inside.set()
                go_on.wait(10)
                run(expr, *rest)

            with mock.patch.object(storage.run, "evaluate", evaluate):
                compute_over(self, donor, expr)

        with mock.patch.object(storage.Storage, "_compute_over", slowly):
            other = threading.Thread(target=doubled.numpy)
            other.start()
            assert inside.wait(10)
            threading.Timer(0.05, go_on.set).start()
            more = doubled + 1
            other.join()
        np.testing.assert_array_equal(more.numpy(), 2 * (ELEMENTS * ELEMENTS) + 1)
