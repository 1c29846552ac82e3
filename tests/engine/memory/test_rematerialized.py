"""Results that backward makes again instead of keeping them: the same numbers, errors and aliases
as if they were kept, and the bytes that it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.eval.expr import COPY, Expr
from skimp._engine.memory import pending
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import reader_of, rematerialized
from skimp._engine.memory.storage import defer

MIB = 1 << 20
ROWS, WIDTH = 1024, 256  # of float32: 1 MiB
FEW = 64  # rows: 2^14 elements

Make = Callable[[Any, Any, Any], Any]  # (module, x, w): what the product after it reads

MAKERS: dict[str, Make] = {
    "gelu": lambda m, x, w: m.nn.functional.gelu(x),
    "gelu tanh": lambda m, x, w: m.nn.functional.gelu(x, approximate="tanh"),
    "silu": lambda m, x, w: m.nn.functional.silu(x),
    "mish": lambda m, x, w: m.nn.functional.mish(x),
    "gated": lambda m, x, w: m.nn.functional.silu(x) * (x @ w),
    "layer_norm": lambda m, x, w: m.nn.functional.layer_norm(x, (WIDTH,), w[0], w[1]),
    "layer_norm, plain": lambda m, x, w: m.nn.functional.layer_norm(x, (WIDTH,)),
    "rms_norm": lambda m, x, w: m.nn.functional.rms_norm(x, (WIDTH,), w[0]),
}


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with skimp.config.using(defer="auto"):
        yield


def inputs(m: Any, *lead: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*(lead or (ROWS,)), WIDTH)).astype(np.float32)
    w = (rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32)
    return m.tensor(x).requires_grad_(), m.tensor(w).requires_grad_()


def step(m: Any, make: Make, *lead: int) -> list[Any]:
    x, w = inputs(m, *lead)
    y = make(m, x * 1.5, w) @ w
    loss = (y * y).sum()
    del y
    loss.backward()
    return [loss.detach().numpy(), x.grad.numpy(), w.grad.numpy()]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("lead", [(ROWS,), (4, ROWS // 4), (FEW,), (4, FEW // 4)])
def test_the_same_bits_as_if_it_were_kept(name: str, lead: tuple[int, ...]) -> None:
    rematerialized = step(skimp, MAKERS[name], *lead)
    with skimp.config.using(rematerialize_from=1 << 40):
        kept = step(skimp, MAKERS[name], *lead)
    for one, other in zip(rematerialized, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(rematerialized, step(torch, MAKERS[name], *lead), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3 * np.abs(other).max())


@pytest.mark.parametrize("name", [n for n in MAKERS if n != "gated"])
def test_bytes(name: str) -> None:
    """A product after it keeps nothing of its own; backward takes the block for a moment."""
    x, w = inputs(skimp)
    u = x * 1.5
    u.data_ptr()
    before = host.allocated
    h = MAKERS[name](skimp, u, w)
    y = h @ w
    y.data_ptr()
    statistics = host.allocated - before - 2 * MIB
    assert 0 <= statistics <= 8 * ROWS  # a mean and a deviation for each row
    del h
    assert host.allocated - before == MIB + statistics
    loss = y.sum()
    del y, u
    skimp.cuda.reset_peak_memory_stats()
    before = skimp.cuda.memory_allocated()
    loss.backward()
    del loss
    after = skimp.cuda.memory_allocated()
    grads = x.grad.nbytes + w.grad.nbytes
    assert after == before + grads - MIB - statistics - 4  # without u, them, and the loss
    assert skimp.cuda.max_memory_allocated() - before <= grads + 2 * MIB


@pytest.mark.parametrize("name", [n for n in MAKERS if n != "gated"])
def test_small_results_are_made_again_without_waiting(name: str) -> None:
    x, w = inputs(skimp, FEW)
    affine = w[:2].detach().clone()  # not all of w, which is more than the result
    h = MAKERS[name](skimp, x * 1.5, affine)
    y = h @ w
    nbytes = h.nbytes
    before = host.allocated
    del h
    assert host.allocated == before - nbytes
    assert not [s for s in pending.pending() if s.spare]
    y.sum().backward()
    del y
    assert affine._storage.readers is None


def test_a_small_gated_product_is_kept() -> None:
    """Its two inputs are more, and would have to wait."""
    x, w = inputs(skimp, FEW)
    y = MAKERS["gated"](skimp, x * 1.5, w) @ w
    kinds = {(one.op, one.name): one.kind for one in skimp.autograd.saved(y)}
    assert kinds["MmBackward0", "input"] == "saved"


@pytest.mark.parametrize("name", ["gelu", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("what", ["input", "weight"])
def test_writes_before_small_results_are_made_again(name: str, seen: bool, what: str) -> None:
    """A factor's gradient has the bits of forward, also where only later nodes run."""

    def run(m: Any) -> list[Any]:
        x, w = inputs(m, FEW)
        scale = m.ones(WIDTH) * 1.5
        u = x * 1.5
        f = m.nn.functional
        more = {"gelu": (), "layer_norm": ((WIDTH,), scale), "rms_norm": ((WIDTH,), scale)}
        h = getattr(f, name)(u, *more[name])
        y = (h.view(4, -1, WIDTH) if seen else h) @ w
        del h
        with m.no_grad():
            (u if what == "input" else scale).zero_()
        (g,) = m.autograd.grad(y.sum(), w, retain_graph=True)
        if what == "input" or name != "gelu":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                m.autograd.grad(y.sum(), x, retain_graph=True)
        return [g.numpy(), m.autograd.grad(y.sum(), w)[0].numpy()]

    for one, other in zip(run(skimp), run(torch), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(64, 256), (2, 16, 512), (16, 4, 256), (512, 300)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
def test_norms_have_the_same_bits_whatever_they_normalize(
    name: str, shape: tuple[int, ...], affine: bool, turned: bool, dims: int
) -> None:
    rng = np.random.default_rng(1)
    rows = shape[-dims:]
    given = rng.standard_normal(shape).astype("f")
    w, b = rng.standard_normal((2, *rows)).astype("f")
    found = []
    for least in (0, 1 << 40):
        with skimp.config.using(rematerialize_from=least):
            x = skimp.tensor(given.swapaxes(0, 1).copy() if turned else given)
            x = (x.transpose(0, 1) if turned else x).requires_grad_()
            more = [skimp.tensor(a).requires_grad_() for a in (w, b)[: 1 + (name[0] == "l")]]
            y = getattr(skimp.nn.functional, name)(x * 2, rows, *(more if affine else ()))
            z = y @ y.detach().transpose(-1, -2) @ y  # which keeps it
            del y
            z.sum().backward()
            found.append([t.grad.numpy() for t in (x, *(more if affine else ()))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_gated_product_keeps_its_two_inputs() -> None:
    x, w = inputs(skimp)
    gate, up = x * 1.5, x * 0.5
    gate.data_ptr(), up.data_ptr()
    before = host.allocated
    y = (skimp.nn.functional.silu(gate) * up) @ w
    y.data_ptr()
    assert host.allocated - before == MIB


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("op", ["gelu", "silu", "mul", "add", "layer_norm"])
def test_what_was_written_unseen_is_not_made_again(op: str, kept: bool) -> None:
    """The op's input changes through `data` between the op and what saves its result."""

    def gradients(m: Any) -> Any:
        x = m.linspace(-2, 2, 6).requires_grad_()
        other = m.linspace(1, 3, 6).requires_grad_()
        f = getattr(m.nn.functional, op, None) or getattr(m, op)
        with m.no_grad():
            seen = x.data
        y = f(x, (6,)) if op == "layer_norm" else f(x, other) if op in ("mul", "add") else f(x)
        y.data_ptr()
        seen.mul_(3)
        loss = (y * y * other).sum()
        if not kept:
            del y
        loss.backward()
        return torch.tensor([x.grad.tolist(), other.grad.tolist()])

    with skimp.config.using(defer="always", rematerialize_from=1):
        torch.testing.assert_close(gradients(skimp), gradients(torch))


def products(m: Any) -> tuple[Any, Any, Any, Any]:
    x, w = inputs(m)
    u = x * 1.5
    h = m.nn.functional.gelu(u)
    return u, h, h @ w, w


def test_reading_counters_does_not_make_it() -> None:
    _, h, y, _ = products(skimp)
    del h
    skimp.cuda.memory_allocated()
    kinds = {(one.op, one.name): one.kind for one in skimp.autograd.saved(y)}
    assert kinds["MmBackward0", "input"] == "deferred"


def test_what_is_still_there_is_not_made_again() -> None:
    _, h, y, _ = products(skimp)
    before = host.allocated
    assert y.grad_fn._saved_self.data_ptr() == h.data_ptr()
    assert host.allocated == before
    torch.testing.assert_close(
        torch.from_numpy(y.grad_fn._saved_self.detach().numpy()),
        torch.from_numpy(h.detach().numpy()),
    )


@pytest.mark.parametrize("gone", [False, True])
def test_a_write_is_noticed(gone: bool) -> None:
    errors = []
    for m in (skimp, torch):
        _, h, y, _ = products(m)
        with m.no_grad():
            h.mul_(2)  # spoils it
        if gone:
            del h
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            y.sum().backward()
        errors.append(str(caught.value))
    ours, theirs = errors
    assert ours.split("; expected version 0")[0].endswith("is at version 1")
    assert "is at version 1; expected version 0" in theirs
    assert "h.mul_(2)  # spoils it" in ours


def test_a_write_to_what_it_is_made_of_comes_too_late() -> None:
    """It is materialized before its source changes, as all that is deferred."""
    grads = []
    for m in (skimp, torch):
        u, h, y, w = products(m)
        del h
        with m.no_grad():
            u.zero_()
        (grad,) = m.autograd.grad(y.sum(), w)
        grads.append(grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-3)


def test_backward_twice_and_through_itself() -> None:
    results = []
    for m in (skimp, torch):
        x, w = inputs(m)
        y = m.nn.functional.gelu(x * 1.5) @ w
        (gx, gw) = m.autograd.grad((y * y).mean(), (x, w), create_graph=True)
        (gx.square().sum() + gw.square().sum()).backward(retain_graph=True)
        first = x.grad.clone()
        (gx.square().sum() + gw.square().sum()).backward()
        results.append((first.numpy(), x.grad.numpy(), w.grad.numpy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3 * np.abs(other).max())


def test_hooks_are_given_the_tensor_itself() -> None:
    seen: list[Any] = []
    x, w = inputs(skimp)
    h = skimp.nn.functional.gelu(x * 1.5)

    def pack(t: Any) -> Any:
        seen.append(t.data_ptr())
        return t

    with skimp.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = h @ w
    assert h.data_ptr() in seen
    y.sum().backward()


def test_small_results_are_kept() -> None:
    x = skimp.randn(8, WIDTH, requires_grad=True)
    w = skimp.randn(WIDTH, 4, requires_grad=True)
    y = skimp.nn.functional.gelu(x) @ w
    kinds = {(one.op, one.name): one.kind for one in skimp.autograd.saved(y)}
    assert kinds["MmBackward0", "input"] == "saved"


def test_never_means_never() -> None:
    with skimp.config.using(defer="never"):
        _, _, y, _ = products(skimp)
        kinds = {(one.op, one.name): one.kind for one in skimp.autograd.saved(y)}
    assert kinds["MmBackward0", "input"] == "saved"


@pytest.mark.parametrize("retain", [False, True])
def test_a_factor_made_again_goes_before_the_other_gradient_is_made(retain: bool) -> None:
    a = skimp.randn(512, 1024).requires_grad_()  # 2 MiB
    w = skimp.randn(1024, 64).requires_grad_()
    y = skimp.nn.functional.gelu(a) @ w
    g = skimp.ones_like(y)
    skimp.memory.reset_peak_memory_stats()
    before = skimp.memory.memory_allocated()
    y.backward(g, retain_graph=retain)
    grown = skimp.memory.max_memory_allocated() - before
    if not retain:
        assert grown < 3 << 20  # both at once would be 4 MiB
    first = a.grad.clone(), w.grad.clone()
    if retain:
        a.grad = w.grad = None
        y.backward(g)
        assert skimp.equal(a.grad, first[0])
        assert skimp.equal(w.grad, first[1])
    want = torch.from_numpy(a.detach().numpy().copy()).requires_grad_()
    weight = torch.from_numpy(w.detach().numpy().copy()).requires_grad_()
    (torch.nn.functional.gelu(want) @ weight).backward(torch.ones(512, 64))
    assert np.allclose(a.grad.numpy(), want.grad.numpy(), rtol=1e-4, atol=1e-4)
    assert np.allclose(w.grad.numpy(), weight.grad.numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("exported", [False, True])
def test_a_write_to_a_result_comes_after_what_reads_its_block(
    outside: bool, exported: bool
) -> None:
    """A gradient that waits reads it by way of what was saved instead of the result."""

    def run(m: Any) -> Any:
        a, b = inputs(m)
        b = m.cat([b.detach()] * 4).requires_grad_()
        y = m.tanh(a * b)
        if exported:
            array = y.detach().numpy()
        else:
            y.sum().item()
        turned = y.t() * b.detach().t().contiguous()
        (g,) = m.autograd.grad(turned.sum(), a)
        with m.no_grad():
            if outside:
                array = y.detach().numpy()
                array[:] = 7
            else:
                y.zero_()
        return g.numpy()

    np.testing.assert_allclose(run(skimp), run(torch), rtol=1e-5, atol=1e-7)


DROPPED = {
    "relu": lambda m, x: m.relu(x),
    "tanh": lambda m, x: m.tanh(x),
    "softmax": lambda m, x: m.softmax(x, -1),
    "gelu": lambda m, x: m.nn.functional.gelu(x),
}


def dropped(m: Any, name: str) -> list[Any]:
    m.manual_seed(0)
    return step(m, lambda m, x, w: m.nn.functional.dropout(DROPPED[name](m, x), 0.3))


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_of_what_is_kept_has_the_same_bits(name: str) -> None:
    rematerialized = dropped(skimp, name)
    with skimp.config.using(rematerialize_from=1 << 40):
        kept = dropped(skimp, name)
    for one, other in zip(rematerialized, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(rematerialized, dropped(torch, name), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3 * np.abs(other).max())


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.parametrize("rows", [FEW, ROWS, 4 * ROWS])  # small, one call, and what waits
def test_dropout_of_what_is_kept_keeps_its_mask_alone(name: str, rows: int) -> None:
    x, w = inputs(skimp, rows)
    u = x * 1.5
    u.data_ptr()
    before = host.allocated
    y = skimp.nn.functional.dropout(DROPPED[name](skimp, u), 0.3) @ w
    y.data_ptr()
    assert host.allocated - before <= y.nbytes + u.nbytes + u.numel()  # a result that waits: less


def test_dropout_keeps_its_input_no_longer_than_the_node_below() -> None:
    """Whose backward may run first, for another branch."""
    x = skimp.rand(ROWS, 256, requires_grad=True)
    before = host.allocated
    h = skimp.relu(x)
    y = skimp.nn.functional.dropout(h, 0.3)
    y.data_ptr()
    skimp.autograd.grad(h.sum(), [x])
    del h
    assert host.allocated - before == y.nbytes + y.numel()


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_dropout_forgets_its_input_when_that_is_written_to(late: bool, unseen: bool) -> None:
    """Which is no error, as its derivative does not read it."""

    def gradient(m: Any) -> Any:
        m.manual_seed(0)
        x, w = inputs(m)
        h = m.tanh(x)
        writes = h.data if unseen else h.detach()
        dropped = m.nn.functional.dropout(h, 0.3)
        if not late:
            writes.mul_(3)
        y = dropped @ w
        del dropped
        if late:
            writes.mul_(3)
        return m.autograd.grad((y * y).sum(), [w])[0].numpy()

    np.testing.assert_allclose(gradient(skimp), gradient(torch), rtol=2e-3, atol=1e-2)


def test_who_waits_for_it_still_waits_for_it_once_the_original_is_gone() -> None:
    """A write to it makes them read first, also where they were noted as the original's readers."""
    made_of, original = skimp.ones(300, 300), skimp.ones(300, 300)
    skimp.cuda.synchronize()
    shape, dtype = (300, 300), np.dtype(np.float32)
    expr = Expr(COPY, (reader_of(made_of._storage, shape, dtype),), shape, dtype)
    again = rematerialized(expr, original._storage, waits=False)
    assert again is not None
    reader = defer(Expr(COPY, (reader_of(again, shape, dtype),), shape, dtype))
    assert again.original() is original._storage
    del original
    assert again.original() is None
    assert [ref() for ref in again.readers or ()] == [reader]


@pytest.mark.parametrize("how", ["data", "numpy"])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("op", ["gelu", "layer_norm", "conv2d", "cat"])
def test_a_result_written_unseen_is_not_made_again(op: str, saved: bool, how: str) -> None:
    """Backward reads what was written to the result, by `data` or an array, before and after it
    was saved; the tensor itself is gone."""

    def gradient(m: Any) -> Any:
        x = (m.arange(1 << 15) % 17 / 8 - 1).reshape(2, 2, 64, 128).requires_grad_()
        f = m.nn.functional
        y = {
            "gelu": lambda: f.gelu(x),
            "layer_norm": lambda: f.layer_norm(x, (128,)),
            "conv2d": lambda: f.conv2d(x, m.full((2, 2, 1, 1), 0.5).requires_grad_()),
            "cat": lambda: m.cat([f.gelu(x), f.silu(x)]),
        }[op]()
        w = m.ones(y.shape).requires_grad_()
        z = y * w if saved else None
        if how == "data":
            y.data.mul_(3)
        else:
            y.detach().numpy()[...] = 3
        z = y * w if z is None else z
        del y
        z.sum().backward()
        return torch.tensor(w.grad.tolist())

    torch.testing.assert_close(gradient(skimp), gradient(torch))


@pytest.mark.parametrize("op", ["cat", "conv2d", "weight"])
def test_negative_parts_keep_their_sign(op: str) -> None:
    def gradient(m: Any) -> Any:
        def negative(*shape: int) -> Any:
            z = m.linspace(-1, 2, 2 * int(np.prod(shape))).reshape(*shape, 2).requires_grad_()
            seen = m.view_as_complex(z)
            return seen, (seen * seen if op == "cat" else None), seen.conj().imag

        one, _square, x = negative(2, 2, 64, 128)
        other = m.ones(2, 2, 1, 1).requires_grad_()
        if op == "cat":
            y = m.cat([x, (x + 1).relu()])
        elif op == "weight":
            y = m.nn.functional.conv2d(one.real * 1, negative(2, 2, 1, 1)[-1])
        else:
            y = m.nn.functional.conv2d(x, other)
        w = m.ones(y.shape).requires_grad_()
        z = y * w
        del y
        z.sum().backward()
        return torch.tensor(w.grad.tolist())

    torch.testing.assert_close(gradient(skimp), gradient(torch))
