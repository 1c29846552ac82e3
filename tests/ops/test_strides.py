"""New results lie in memory as PyTorch's do, for operands of any order, with gaps and expanded."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

Made = tuple[list[int], list[int]]

# of the namespace, an operand, two that broadcast with it, and a mask that does
OPS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "add": lambda t, a, b, c, m: a + b,
    "a number": lambda t, a, b, c, m: 1 - a,
    "power of a number": lambda t, a, b, c, m: 2.0**a,
    "power": lambda t, a, b, c, m: a**b,
    "compare": lambda t, a, b, c, m: a == b,
    "clamp": lambda t, a, b, c, m: a.clamp(b, c),
    "addcmul": lambda t, a, b, c, m: t.addcmul(a, b, c),
    "lerp": lambda t, a, b, c, m: t.lerp(a, b, c),
    "cast": lambda t, a, b, c, m: a.long(),
    "mixed types": lambda t, a, b, c, m: a.double() * b,
    "clone": lambda t, a, b, c, m: a.clone(),
    "gelu": lambda t, a, b, c, m: t.nn.functional.gelu(a),
    "where": lambda t, a, b, c, m: t.where(m, a, b),
    "where or a number": lambda t, a, b, c, m: t.where(m, 0, a),
    "masked_fill": lambda t, a, b, c, m: a.masked_fill(m, 0),
    "masked_scatter": lambda t, a, b, c, m: t.masked_scatter(a, m, t.zeros(999)),
    "one_hot": lambda t, a, b, c, m: t.nn.functional.one_hot(a.long() * 0, 3),
    "sum": lambda t, a, b, c, m: a.sum(0),
    "softmax": lambda t, a, b, c, m: a.softmax(-1),
    "cumsum": lambda t, a, b, c, m: a.cumsum(0),
    "sort": lambda t, a, b, c, m: a.sort(-1)[0],
    "flip": lambda t, a, b, c, m: a.flip(0),
    "roll": lambda t, a, b, c, m: a.roll(1, 0),
    "cat": lambda t, a, b, c, m: t.cat([a, a * 1]),
    "stack": lambda t, a, b, c, m: t.stack([a, a], -1),
    "index": lambda t, a, b, c, m: a[t.tensor([0, 0])],
    "index_fill": lambda t, a, b, c, m: a.index_fill(0, t.tensor([0]), 1.0),
    "index_select": lambda t, a, b, c, m: a.index_select(-1, t.tensor([0, 0])),
    "scatter": lambda t, a, b, c, m: a.scatter(0, a.long() * 0, 1.0),
    "pixel_shuffle": lambda t, a, b, c, m: t.nn.functional.pixel_shuffle(a, 1),
    "pixel_unshuffle": lambda t, a, b, c, m: t.nn.functional.pixel_unshuffle(a, 1),
    "layer_norm": lambda t, a, b, c, m: t.nn.functional.layer_norm(a, a.shape[-1:]),
    "product": lambda t, a, b, c, m: a @ a.mT,
    "product of its own": lambda t, a, b, c, m: a.mT @ a,
    "einsum": lambda t, a, b, c, m: t.einsum("...ij,...kj->...ik", a, a),
    "linear": lambda t, a, b, c, m: t.nn.functional.linear(a, t.ones(2, a.shape[-1]), t.ones(2)),
    "batch_norm": lambda t, a, b, c, m: t.nn.functional.batch_norm(a, None, None, training=True),
    "batch_norm's gradient": lambda t, a, b, c, m: _gradient(
        t, a, lambda x: t.nn.functional.batch_norm(x, None, None, training=True)
    ),
    "instance_norm": lambda t, a, b, c, m: t.nn.functional.instance_norm(a),
    "group_norm": lambda t, a, b, c, m: t.nn.functional.group_norm(a, 1),
    "group_norm's gradient": lambda t, a, b, c, m: _gradient(
        t, a, lambda x: t.nn.functional.group_norm(x, 1)
    ),
    "rms_norm": lambda t, a, b, c, m: t.nn.functional.rms_norm(a, a.shape[-1:]),
    "normalize": lambda t, a, b, c, m: t.nn.functional.normalize(a, dim=0),
    "max_pool2d": lambda t, a, b, c, m: t.nn.functional.max_pool2d(a, 2),
    "avg_pool2d": lambda t, a, b, c, m: t.nn.functional.avg_pool2d(a, 2),
    "interpolate": lambda t, a, b, c, m: t.nn.functional.interpolate(a, scale_factor=2),
    "conv2d": lambda t, a, b, c, m: t.nn.functional.conv2d(a, t.ones(2, a.shape[1], 2, 2)),
    "prelu": lambda t, a, b, c, m: t.nn.functional.prelu(a, t.ones(1)),
    "glu": lambda t, a, b, c, m: t.nn.functional.glu(a, 0),
    "pad": lambda t, a, b, c, m: t.nn.functional.pad(a, (1, 1)),
    "dropout": lambda t, a, b, c, m: t.nn.functional.dropout(a),
    "bernoulli": lambda t, a, b, c, m: t.bernoulli(a / 999),
    "rand_like": lambda t, a, b, c, m: t.rand_like(a),
    "to": lambda t, a, b, c, m: a.to(memory_format=t.contiguous_format),
    "to channels_last": lambda t, a, b, c, m: a.to(memory_format=t.channels_last),
    "contiguous": lambda t, a, b, c, m: a.contiguous(),
    "mean": lambda t, a, b, c, m: a.mean(-1, keepdim=True),
    "max": lambda t, a, b, c, m: a.max(0)[0],
    "argmax": lambda t, a, b, c, m: a.argmax(-1),
    "var": lambda t, a, b, c, m: a.var(0),
    "logsumexp": lambda t, a, b, c, m: a.logsumexp(0),
    "log_softmax": lambda t, a, b, c, m: a.log_softmax(0),
    "topk": lambda t, a, b, c, m: a.topk(1, 0)[0],
    "median": lambda t, a, b, c, m: a.median(0)[0],
    "cummax": lambda t, a, b, c, m: a.cummax(-1)[0],
    "gather": lambda t, a, b, c, m: a.gather(0, a.long() * 0),
    "repeat": lambda t, a, b, c, m: a.repeat(*[2] * a.ndim),
    "reshape": lambda t, a, b, c, m: a.reshape(-1),
    "tril": lambda t, a, b, c, m: a.tril(),
    "diff": lambda t, a, b, c, m: a.diff(dim=0),
    "cdist": lambda t, a, b, c, m: t.cdist(a, a),
    "fft": lambda t, a, b, c, m: t.fft.fft(a),
    "tensordot": lambda t, a, b, c, m: t.tensordot(a, a, 1),
    "masked_select": lambda t, a, b, c, m: a.masked_select(m),
    "nonzero": lambda t, a, b, c, m: a.nonzero(),
    "unfold": lambda t, a, b, c, m: a.unfold(0, 1, 1),
    "new_zeros": lambda t, a, b, c, m: a.new_zeros(2, 3),
    "zeros_like": lambda t, a, b, c, m: t.zeros_like(a),
    "logical_not": lambda t, a, b, c, m: m.logical_not(),
    "any": lambda t, a, b, c, m: m.any(0),
    "embedding": lambda t, a, b, c, m: t.nn.functional.embedding(a.long() % 2, t.ones(2, 3)),
    "quantile": lambda t, a, b, c, m: a.quantile(0.5, 0),
    "inverse": lambda t, a, b, c, m: t.linalg.pinv(a),
    "svd": lambda t, a, b, c, m: t.linalg.svd(a)[2],
    "gradient of a product": lambda t, a, b, c, m: _gradient(t, a, lambda x: x * b + x.exp()),
    "gradient of a sum": lambda t, a, b, c, m: _gradient(t, a, lambda x: x.sum(0)),
    "gradient of softmax": lambda t, a, b, c, m: _gradient(t, a, lambda x: x.softmax(-1)),
    "gradient of a matrix product": lambda t, a, b, c, m: _gradient(t, a, lambda x: x @ x.mT),
    "gradient of an index": lambda t, a, b, c, m: _gradient(t, a, lambda x: x[t.tensor([0])]),
    "gradient of cat": lambda t, a, b, c, m: _gradient(t, a, lambda x: t.cat([x, x])),
    "gradient of a view": lambda t, a, b, c, m: _gradient(t, a, lambda x: x.transpose(0, -1) * 2),
}


def _gradient(t: Any, a: Any, f: Callable[[Any], Any]) -> Any:
    """As it is handed on, not as a leaf takes it."""
    x = a.detach().requires_grad_()
    return t.autograd.grad(f(x).square().sum(), x)[0]


def operand(t: Any, draw: random.Random, shape: list[int]) -> Any:
    """Its dims in any order in memory, some with gaps, sometimes one more that is expanded."""
    order = draw.sample(range(len(shape)), len(shape))
    steps = [draw.choice((1, 1, 2)) for _ in shape]
    sizes = [shape[d] * step for d, step in zip(order, steps, strict=True)]
    whole = t.arange(1, math.prod(sizes) + 1, dtype=t.float32).reshape(sizes)
    gaps = whole[tuple([slice(None, None, step) for step in steps])] if shape else whole
    made = gaps.permute([order.index(d) for d in range(len(shape))])
    return made.expand(2, *made.shape) if draw.random() < 0.1 else made


def broadcasting(draw: random.Random, shape: list[int]) -> list[int]:
    return [n if draw.random() < 0.7 else 1 for n in shape[draw.randrange(2) :]]


def strides(t: Any, op: Callable[..., Any], seed: str) -> Made | type[Exception]:
    """Shape, and strides of the dimensions that have some."""
    draw = random.Random(seed)
    shape = [draw.choice((2, 3)) for _ in range(draw.randint(1, 4))]
    args = [operand(t, draw, shape), *[operand(t, draw, broadcasting(draw, shape)) for _ in "bcm"]]
    try:
        made = op(t, *args[:3], args[3] > 4)
    except Exception as error:
        return type(error)
    seen = [step for step, n in zip(made.stride(), made.shape, strict=True) if n > 1]
    return list(made.shape), seen


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", OPS)
def test_strides_are_pytorchs(name: str, size: str) -> None:
    made = 0
    for i in range(12):
        seed = f"{name} {i}"
        with skimp.config.using(**({} if size == "small" else {"small_below": 0, "defer_from": 1})):
            found = strides(skimp, OPS[name], seed)
        want = strides(torch, OPS[name], seed)
        made += isinstance(want, tuple)
        if isinstance(want, tuple) or isinstance(found, tuple):
            assert found == want, seed
    assert made
