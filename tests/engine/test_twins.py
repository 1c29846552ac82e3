"""Random programs of views, writes and arithmetic, run step by step on a skimp tensor and on its
torch twin.

Looking at values materializes them, so values are compared at random moments and at the end;
sharing and versions, which nobody can see through, are compared after each step. The arithmetic is
IEEE-exact in both libraries: equal bits.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import skimp

MAX_TENSORS = 8
pick = st.integers(0, 10**6)
numbers = st.sampled_from([0.0, -1.5, 2.0, 0.5, 3.0, float("inf"), float("nan")])


class Twins(RuleBasedStateMachine):
    """Pairs (ours, theirs) that went through the same steps."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Any, Any]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self.restore = skimp.config.using(**self.modes())
        self.restore.__enter__()

    def modes(self) -> dict[str, Any]:
        """Small limits, so that tensors of a few dozen elements are deferred, planned and run in
        several blocks.
        """
        if os.environ.get("SKIMP_DEFER", "auto") != "auto":
            return {}
        return {"small_below": 16, "defer_from": 16, "block": 64, "threads_from": 128}

    def teardown(self) -> None:
        try:
            for pair in self.pairs:
                self.compare(*pair)
        finally:
            self.pairs.clear()
            self.restore.__exit__(None, None, None)

    # -- helpers

    def compare(self, ours: Any, theirs: Any) -> None:
        assert tuple(ours.shape) == tuple(theirs.shape)
        wide = [
            d for d, n in enumerate(theirs.shape) if n > 1 and theirs.numel()
        ]  # strides of size 1 move nothing
        assert [ours.stride(d) for d in wide] == [theirs.stride(d) for d in wide]
        assert ours.storage_offset() == theirs.storage_offset()
        a, b = (
            np.array(ours.tolist(), dtype=np.float32),
            np.array(theirs.tolist(), dtype=np.float32),
        )
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a) | np.isnan(a), np.signbit(b) | np.isnan(b))

    def one(self, k: int) -> tuple[Any, Any]:
        return self.pairs[k % len(self.pairs)]

    def same_shape(self, pair: tuple[Any, Any], k: int) -> tuple[Any, Any]:
        found = [p for p in self.pairs if p[1].shape == pair[1].shape]
        return found[k % len(found)]

    def keep(self, ours: Any, theirs: Any) -> None:
        self.pairs.append((ours, theirs))
        if len(self.pairs) > MAX_TENSORS:
            self.pairs.pop(0)

    def order_matters(self, target: Any, *operands: Any) -> bool:
        """Whether an operand shows one place of the target many times: torch reads what it has
        just written.
        """
        return any(
            isinstance(o, torch.Tensor)
            and o is not target
            and 0 in o.stride()
            and o.untyped_storage().data_ptr() == target.untyped_storage().data_ptr()
            for o in operands
        )

    def both(self, f: Any) -> tuple[Any, Any]:
        """The step on both sides; if torch refuses, so must we, with the same type of error, and
        nothing changes.
        """
        try:
            theirs = f(1)
        except RuntimeError as refusal:
            try:
                f(0)
            except RuntimeError:
                return None, None
            raise AssertionError("torch refused this step") from refusal
        return f(0), theirs

    # -- steps

    @rule(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 99))
    def create(self, rows: int, columns: int, seed: int) -> None:
        data = np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float32)
        self.keep(skimp.tensor(data), torch.tensor(data))

    @precondition(lambda self: self.pairs)
    @rule(
        k=pick,
        how=st.sampled_from(
            [
                "t",
                "slice",
                "step",
                "select",
                "view",
                "expand",
                "diagonal",
                "narrow",
                "unsqueeze",
                "detach",
                "flatten",
            ]
        ),
        at=st.integers(0, 8),
    )
    def view(self, k: int, how: str, at: int) -> None:
        pair = self.one(k)
        if pair[1].ndim < 2 and how in ("t", "select", "diagonal", "expand"):
            return
        n = pair[1].shape[0] if pair[1].ndim else 0
        if n == 0:
            return

        def f(i: int) -> Any:
            x = pair[i]
            match how:
                case "t":
                    return x.transpose(0, 1)
                case "slice":
                    return x[at % n :]
                case "step":
                    return x[:: 1 + at % 3]
                case "select":
                    return x[at % n]
                case "view":
                    return x.view(-1)
                case "expand":
                    return x[:1].expand(x.shape)
                case "diagonal":
                    return x.diagonal(0, 0, 1)
                case "narrow":
                    return x.narrow(0, at % n, n - at % n)
                case "unsqueeze":
                    return x.unsqueeze(0)[0]
                case "flatten":
                    return x.reshape(-1)
                case _:
                    return x.detach()

        ours, theirs = self.both(f)
        if theirs is not None:
            self.keep(ours, theirs)

    @precondition(lambda self: self.pairs)
    @rule(k=pick, j=pick, op=st.sampled_from(["add", "sub", "mul"]), number=st.none() | numbers)
    def pointwise(self, k: int, j: int, op: str, number: float | None) -> None:
        a = self.one(k)
        b = self.same_shape(a, j) if number is None else (number, number)
        ours, theirs = self.both(lambda i: getattr(a[i], op)(b[i]))
        self.keep(ours, theirs)

    @precondition(lambda self: self.pairs)
    @rule(
        k=pick,
        j=pick,
        op=st.sampled_from(["add_", "sub_", "mul_", "copy_"]),
        number=st.none() | numbers,
    )
    def in_place(self, k: int, j: int, op: str, number: float | None) -> None:
        a = self.one(k)
        b = self.same_shape(a, j) if number is None or op == "copy_" else (number, number)
        if self.order_matters(a[1], b[1]):
            return
        self.both(lambda i: getattr(a[i], op)(b[i]))

    @precondition(lambda self: self.pairs)
    @rule(k=pick, j=pick, op=st.sampled_from(["add", "mul"]))
    def broadcast(self, k: int, j: int, op: str) -> None:
        a, b = self.one(k), self.one(j)
        ours, theirs = self.both(lambda i: getattr(a[i], op)(b[i]))
        if theirs is not None and theirs.numel() < 2000:
            self.keep(ours, theirs)

    @precondition(lambda self: self.pairs)
    @rule(k=pick, j=pick, op=st.sampled_from(["add", "mul"]))
    def out(self, k: int, j: int, op: str) -> None:
        a = self.one(k)
        b, c = self.same_shape(a, j), self.same_shape(a, j // 7)
        libs = (skimp, torch)
        if self.order_matters(c[1], a[1], b[1]):
            return
        self.both(lambda i: getattr(libs[i], op)(a[i], b[i], out=c[i]))

    @precondition(lambda self: self.pairs)
    @rule(k=pick, at=st.integers(0, 8), number=numbers)
    def assign(self, k: int, at: int, number: float) -> None:
        a = self.one(k)
        n = a[1].shape[0] if a[1].ndim else 0
        if n:
            self.both(lambda i: a[i].__setitem__(slice(at % n, None), number))

    @precondition(lambda self: self.pairs)
    @rule(k=pick)
    def copies(self, k: int) -> None:
        a = self.one(k)
        self.keep(*self.both(lambda i: a[i].clone()))
        self.keep(*self.both(lambda i: a[i].contiguous()))

    @precondition(lambda self: self.pairs)
    @rule(k=pick, number=numbers)
    def numpy_writes(self, k: int, number: float) -> None:
        a = self.one(k)
        for x in a:
            array = x.numpy()
            if array.size:
                array[(0,) * array.ndim] = number

    @precondition(lambda self: self.pairs)
    @rule(k=pick)
    def forget(self, k: int) -> None:
        self.pairs.pop(k % len(self.pairs))

    @precondition(lambda self: self.pairs)
    @rule(k=pick)
    def look(self, k: int) -> None:
        self.compare(*self.one(k))

    @invariant()
    def sharing_and_versions(self) -> None:
        for i, (a, ta) in enumerate(self.pairs):
            assert a._version == ta._version, i
            for b, tb in self.pairs[:i]:
                ours = a._storage is b._storage
                theirs = ta.untyped_storage().data_ptr() == tb.untyped_storage().data_ptr()
                assert ours == theirs
                if ours and ta.numel() and tb.numel():
                    assert skimp.shares_memory(a, a)


Twins.TestCase.settings = settings(
    max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTwins = Twins.TestCase
