"""Layers on small arrays at hand have the general way's results, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as oracle
from hypothesis import given, settings, strategies as st

import skimp
from skimp.config import using

F = skimp.nn.functional


def found(call: Callable[..., Any], arrays: list[Any], laid: str) -> list[tuple[Any, ...]]:
    """Results and gradients, with what tells two of them apart."""
    tensors = [skimp.from_numpy(a.copy()) for a in arrays]
    if laid == "turned":
        tensors[0] = tensors[0].transpose(0, -1).contiguous().transpose(0, -1)
    for t in tensors:
        if t.is_floating_point():
            t.requires_grad_()
    y = call(*tensors)
    weight = skimp.arange(y.numel(), dtype=y.dtype).reshape(y.shape).sin()
    y.sum().backward() if laid == "sum" else (y * weight).sum().backward()
    made = [y.detach(), *[t.grad for t in tensors if t.grad is not None]]
    return [(t.dtype, t.shape, _reached(t), _bits(t.numpy())) for t in made]


def _reached(t: Any) -> list[int]:
    """The strides by which something is reached: those of a dim of one say nothing."""
    return [step for step, n in zip(t.stride(), t.shape, strict=True) if n != 1]


def _bits(a: np.ndarray) -> bytes:
    """Its bytes; the sign of a value that is no number is by chance."""
    return np.where(np.isnan(a), np.nan, a).tobytes() if a.dtype.kind == "f" else a.tobytes()


def same_both_ways(call: Callable[..., Any], arrays: list[Any], laid: str) -> None:

    with skimp.config.using(defer="never", small_below=0):
        want = found(call, arrays, laid)
    with skimp.config.using(defer="never"):
        assert found(call, arrays, laid) == want


LAID = st.sampled_from(["rows", "turned", "sum"])
TYPES = st.sampled_from([np.float32, np.float64])


def numbers(draw: Any, *shape: int, dtype: Any) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = rng.standard_normal(shape).astype(dtype)
    if draw(st.integers(0, 9)) == 0:
        made.reshape(-1)[0] = np.inf
    return made


@given(st.data(), LAID, TYPES)
@settings(max_examples=60, deadline=None)
def test_layer_norm(data: Any, laid: str, dtype: Any) -> None:
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    affine = [numbers(draw, shape[-1], dtype=dtype) for _ in range(draw(st.integers(0, 2)))]
    call = lambda x, *p: F.layer_norm(x, shape[-1:], *p)  # noqa: E731
    same_both_ways(call, [numbers(draw, *shape, dtype=dtype), *affine], laid)


LOSSES = {
    "mse_loss": {},
    "smooth_l1_loss": {"beta": 0.5},
    "huber_loss": {"delta": 2.0},
    "binary_cross_entropy_with_logits": {},
}


@pytest.mark.parametrize("name", LOSSES)
@given(st.data(), LAID, TYPES, st.sampled_from(["mean", "sum"]))
@settings(max_examples=20, deadline=None)
def test_losses_of_pairs(name: str, data: Any, laid: str, dtype: Any, reduction: str) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=3)))
    if laid == "turned" and not shape:
        laid = "rows"
    pair = [numbers(data.draw, *shape, dtype=dtype) for _ in range(2)]
    call = lambda x, y: getattr(F, name)(x, y, reduction=reduction, **LOSSES[name])  # noqa: E731
    same_both_ways(call, pair, laid)


@given(st.data(), LAID, TYPES)
@settings(max_examples=60, deadline=None)
def test_rms_norm(data: Any, laid: str, dtype: Any) -> None:
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    affine = [numbers(draw, shape[-1], dtype=dtype) for _ in range(draw(st.integers(0, 1)))]
    eps = draw(st.sampled_from([None, 1e-5]))
    call = lambda x, w=None: F.rms_norm(x, shape[-1:], w, eps)  # noqa: E731
    same_both_ways(call, [numbers(draw, *shape, dtype=dtype), *affine], laid)


PRODUCTS = [
    *("ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ji,kj->ik", "ij,jk->ki", "bij,bjk->bik"),
    *("bij,bkj->bik", "bji,bjk->bik", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "bsd,dk->bsk"),
    *("bsd,kd->bsk", "bcd,kbd->bck", "ij,ij->ij", "bi,bj->bij", " i j , j k -> i k"),
]


@given(st.data(), st.sampled_from(PRODUCTS), TYPES)
@settings(max_examples=150, deadline=None)
def test_einsum_of_products(data: Any, equation: str, dtype: Any) -> None:
    """A product of matrices as it is written is what the general contraction makes of it."""
    letters = {c: data.draw(st.integers(1, 4)) for c in sorted(set(equation) - set(" ,->"))}
    inputs = equation.replace(" ", "").partition("->")[0].split(",")
    arrays = [numbers(data.draw, *[letters[c] for c in w], dtype=dtype) for w in inputs]
    call = lambda a, b: skimp.einsum(equation, a, b)  # noqa: E731
    want = found(lambda a, b: skimp.einsum(equation, [a, b]), arrays, "rows")
    assert found(call, arrays, "rows") == want


def test_einsum_refuses_as_before() -> None:
    a, b = skimp.ones(2, 3), skimp.ones(4, 3)
    with pytest.raises(RuntimeError, match="does not broadcast"):
        skimp.einsum("ij,jk->ik", a, b)
    with pytest.raises(RuntimeError, match="does not match the number of dimensions"):
        skimp.einsum("bij,bjk->bik", a, b)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        skimp.einsum("ij,kj->ik", a, b.double())


@given(st.data(), TYPES, st.sampled_from([np.int64, np.int32]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_embedding(data: Any, dtype: Any, index: Any, by_freq: bool) -> None:
    rows, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    padding = data.draw(st.sampled_from([None, 0, rows - 1, -rows]))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    at = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, rows, shape).astype(index)
    places = skimp.from_numpy(np.array(at))
    call = lambda table: F.embedding(places, table, padding, scale_grad_by_freq=by_freq)  # noqa: E731
    same_both_ways(call, [numbers(data.draw, rows, width, dtype=dtype)], "rows")


@pytest.mark.parametrize("rows", [4, 1 << 16])
@pytest.mark.parametrize("by_freq", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_the_gradient_of_a_table_refuses_other_indices(
    dtype: str, by_freq: bool, rows: int
) -> None:
    errors = []
    for lib in (skimp, torch):
        places = lib.tensor([1]).to(getattr(lib, dtype))
        with pytest.raises(RuntimeError) as found:
            lib.ops.aten.embedding_dense_backward(lib.ones(1, 3), places, rows, -1, by_freq)
        errors.append(str(found.value))
    assert errors[0] == errors[1]


def test_embedding_refuses_as_before() -> None:
    table = skimp.ones(3, 2)
    for wrong in ([3], [-1], [0, -4]):
        with pytest.raises(IndexError, match="index out of range in self"):
            F.embedding(skimp.tensor(wrong), table)
    with pytest.raises(RuntimeError, match="scalar types"):
        F.embedding(skimp.tensor([1.0]), table)


@given(st.data(), LAID, TYPES, st.booleans())
@settings(max_examples=60, deadline=None)
def test_batch_norm(data: Any, laid: str, dtype: Any, training: bool) -> None:
    draw = data.draw
    channels, places = draw(st.integers(1, 4)), draw(st.sampled_from([(), (3,), (4, 5), (5, 5)]))
    shape = (draw(st.integers(2, 4)), channels, *places)
    affine = [numbers(draw, channels, dtype=dtype) for _ in range(draw(st.integers(0, 2)))]
    running = [np.abs(numbers(draw, channels, dtype=dtype)) for _ in range(2)]
    moved = []

    def call(x: Any, *p: Any) -> Any:
        own = [skimp.from_numpy(r.copy()) for r in running]
        own[0] = own[0] * 1
        weight, bias = (*p, None, None)[:2]
        y = F.batch_norm(x, *own, weight, bias, training, 0.3)
        moved.append([(r._version, r.numpy().tobytes()) for r in own])
        return y

    same_both_ways(call, [numbers(draw, *shape, dtype=dtype), *affine], laid)
    assert moved[0] == moved[1]


@given(st.data(), LAID, TYPES, st.sampled_from([1, 1e-25, 1e20, 0]))
@settings(max_examples=60, deadline=None)
def test_group_norm(data: Any, laid: str, dtype: Any, scale: float) -> None:
    draw = data.draw
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    places = draw(st.sampled_from([(3,), (4, 5), (300, 2), ()]))
    x = numbers(draw, draw(st.integers(2, 3)), groups * each, *places, dtype=dtype)
    with np.errstate(over="ignore"):
        x *= np.asarray(scale, dtype)
    affine = [numbers(draw, groups * each, dtype=dtype) for _ in range(draw(st.integers(0, 2)))]
    same_both_ways(lambda x, *p: F.group_norm(x, groups, *p), [x, *affine], laid)
    if scale == 1 and np.isfinite(x).all() and len(affine) != 1:
        theirs = oracle.group_norm(torch.from_numpy(x), groups, *map(torch.from_numpy, affine))
        ours = F.group_norm(skimp.from_numpy(x), groups, *map(skimp.from_numpy, affine))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-4)


@given(st.data(), LAID, TYPES, st.booleans())
@settings(max_examples=40, deadline=None)
def test_attention(data: Any, laid: str, dtype: Any, causal: bool) -> None:
    draw = data.draw
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rows, keys, e, ev = [draw(st.integers(1, 6)) for _ in range(4)]
    arrays = [numbers(draw, *lead, *s, dtype=dtype) for s in ((rows, e), (keys, e), (keys, ev))]
    scale = draw(st.sampled_from([None, 0.3]))
    call = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, causal, scale)  # noqa: E731
    same_both_ways(call, arrays, laid)


def plain_both_ways(call: Callable[..., Any], arrays: list[Any], laid: str) -> None:
    """The same where nobody differentiates."""

    def made() -> Any:
        tensors = [skimp.from_numpy(a.copy()).clone() for a in arrays]
        if laid == "turned":
            tensors[0] = tensors[0].transpose(0, -1).contiguous().transpose(0, -1)
        with skimp.no_grad():
            y = call(*tensors)
        return y.dtype, y.shape, y.stride(), y.is_contiguous(), y.numpy().tobytes()

    with skimp.config.using(defer="never", small_below=0):
        want = made()
    with skimp.config.using(defer="never"):
        assert made() == want


@given(st.data(), LAID, TYPES)
@settings(max_examples=80, deadline=None)
def test_linear(data: Any, laid: str, dtype: Any) -> None:
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    outs = draw(st.integers(1, 5))
    bias = [numbers(draw, outs, dtype=dtype)] if draw(st.booleans()) else []
    arrays = [numbers(draw, *shape, dtype=dtype), numbers(draw, outs, shape[-1], dtype=dtype)]
    plain_both_ways(F.linear, [*arrays, *bias], laid)
    same_both_ways(F.linear, [*arrays, *bias], laid)


@given(st.data(), LAID)
@settings(max_examples=60, deadline=None)
def test_attention_of_dims_of_one(data: Any, laid: str) -> None:
    draw = data.draw
    batch, heads, rows, keys, e = (draw(st.integers(1, 3)) for _ in range(5))
    arrays = [numbers(draw, batch, heads, n, e, dtype=np.float32) for n in (rows, keys, keys)]
    call = F.scaled_dot_product_attention
    plain_both_ways(call, arrays, laid)
    plain_both_ways(lambda *qkv: call(*qkv).transpose(1, 2).reshape(batch, -1), arrays, laid)


@given(st.data(), TYPES, st.sampled_from(["mean", "sum", "none"]))
@settings(max_examples=40, deadline=None)
def test_nll_loss(data: Any, dtype: Any, reduction: str) -> None:
    draw = data.draw
    n, classes = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    x = numbers(draw, n, classes, dtype=dtype)
    ids = np.array(draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n)))
    ignore = draw(st.sampled_from([-100, 0, classes]))
    call = lambda x, t: F.nll_loss(x, t, ignore_index=ignore, reduction=reduction)  # noqa: E731
    same_both_ways(call, [x, ids], "rows")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (16, 32), (300, 110)])
@pytest.mark.parametrize("laid", ["plain", "sum", "turned"])
def test_dropout_and_its_gradient(shape: tuple[int, ...], dtype: Any, laid: str) -> None:
    a = np.random.default_rng(1).normal(0, 3, shape).astype(dtype)

    def call(x: Any) -> Any:
        skimp.manual_seed(5)
        return F.dropout(x, 0.3)

    quick = found(call, [a], laid)
    with using(small_below=0):
        assert found(call, [a], laid) == quick
    x = skimp.from_numpy(a.copy()).requires_grad_()
    weight = skimp.ones(shape, dtype=x.dtype).requires_grad_()
    (g,) = skimp.autograd.grad(call(x), x, weight, create_graph=True)
    g.sum().backward()
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad.numpy(), g.detach().numpy())


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("shape", [(5, 3, 8), (5, 1, 8)])
@pytest.mark.parametrize("g", ["rows", "same", "sum"])
def test_dropout_of_turned_tensors(shape: tuple[int, ...], order: tuple[int, ...], g: str) -> None:
    def both(library: Any) -> list[Any]:
        library.manual_seed(5)
        x = library.arange(1.0, math.prod(shape) + 1).view(shape).permute(order)
        x.requires_grad_()
        y = library.nn.functional.dropout(x, 0.3)
        given = library.ones(()).expand(y.shape) if g == "sum" else y.detach() * 2
        y.backward(given.contiguous() if g == "rows" else given)
        assert x.grad is not None
        return [
            y.detach().numpy().tolist(), y.stride(), x.grad.numpy().tolist(), x.grad.stride()
        ]  # fmt: skip

    quick = both(skimp)
    with using(small_below=0):
        assert both(skimp) == quick
    expected = both(torch)
    np.testing.assert_allclose(quick[0], expected[0], rtol=1e-6)
    assert quick[1] == expected[1]


@pytest.mark.parametrize("shape", [(4, 3, 8, 8), (1, 2, 16), (2, 1, 5, 5), (2, 3, 3, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("affine", [True, False])
def test_instance_norm_that_nobody_records(
    shape: tuple[int, ...], dtype: str, affine: bool
) -> None:
    rng = np.random.default_rng(3)
    x = skimp.from_numpy(rng.normal(2, 3, shape).astype(dtype))
    vectors = [skimp.from_numpy(rng.normal(0, 1, shape[1]).astype(dtype)) for _ in "wb"]
    weight, bias = vectors if affine else (None, None)
    quick = F.instance_norm(x, weight=weight, bias=bias)
    recorded = F.instance_norm(x.clone().requires_grad_(), weight=weight, bias=bias)
    assert quick.grad_fn is None
    np.testing.assert_array_equal(quick.numpy(), recorded.detach().numpy())
    with using(small_below=0):
        np.testing.assert_array_equal(F.instance_norm(x, weight=weight, bias=bias), quick)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 7, 9), (2, 1, 5, 5)])
@pytest.mark.parametrize("window", [(2,), (3, 2, 1), (2, 1), (3, 1, 0, 2)])
@pytest.mark.parametrize("laid", ["rows", "turned"])
def test_maxima(shape: tuple[int, ...], window: tuple[int, ...], laid: str) -> None:
    a = np.random.default_rng(4).integers(0, 5, shape).astype(np.float32)  # with ties
    a.flat[3] = math.nan
    quick = found(lambda x: F.max_pool2d(x, *window), [a], laid)
    with using(small_below=0):
        assert found(lambda x: F.max_pool2d(x, *window), [a], laid) == quick


@pytest.mark.parametrize("times", [(2,), (3, 1), (1, 1), (2, 1, 3), (0,), (2, 2)])
@pytest.mark.parametrize("shape", [(3,), (), (2, 3), (0,)])
def test_repeat(shape: tuple[int, ...], times: tuple[int, ...]) -> None:
    if len(times) < len(shape):
        with pytest.raises(RuntimeError, match="can not be smaller"):
            skimp.zeros(shape).repeat(times)
        return
    a = np.random.default_rng(5).normal(0, 3, shape).astype(np.float32)
    quick = found(lambda x: x.repeat(*times), [a], "rows")
    with using(small_below=0):
        assert found(lambda x: x.repeat(*times), [a], "rows") == quick
    np.testing.assert_array_equal(
        skimp.from_numpy(a).repeat(times).numpy(), torch.from_numpy(a).repeat(times).numpy()
    )


@pytest.mark.parametrize("small_below", [0, 1000])
def test_a_table_without_columns_has_a_gradient(small_below: int) -> None:
    with using(small_below=small_below):
        table = skimp.ones(3, 0, requires_grad=True)
        F.embedding(skimp.tensor([[0, 2]]), table).sum().backward()
    assert table.grad is not None
    assert table.grad.shape == (3, 0)
