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
    "batch_norm's, handed on turned": lambda t, a, b, c, m: _gradient(
        t,
        a.contiguous(),
        lambda x: t.nn.functional.batch_norm(x, None, None, training=True).mT.contiguous(),
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
    "gradient of amax": lambda t, a, b, c, m: _gradient(t, a, lambda x: x.amax(0)),
    "gradient of pixel_shuffle": lambda t, a, b, c, m: _gradient(
        t, a, lambda x: t.nn.functional.pixel_shuffle(x, 1) * b
    ),
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


# of the namespace, a turned matrix, one that lies as usual, and a column
TURNED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "an operator": lambda t, x, y, c: c * x - y,
    "its function": lambda t, x, y, c: t.sub(t.mul(c, x), y),
    "a number first": lambda t, x, y, c: t.tensor(2.0) * x - y,
    "compared with a number": lambda t, x, y, c: (x > 4) & (y > 4),
    "compared with a column": lambda t, x, y, c: (c > x) & (y > 4),
    "pdist's gradient": lambda t, x, y, c: _gradient(t, x, t.nn.functional.pdist),
    "cdist's gradient": lambda t, x, y, c: _gradient(t, x, lambda x: t.cdist(x, y + 1)),
}


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", TURNED)
def test_what_lies_turned_is_read_as_that(name: str, size: str) -> None:
    """Also where the first operand lies as usual, but is broadcast."""
    made = []
    for t in (skimp, torch):
        x, y = t.arange(9.0).reshape(3, 3).t(), t.arange(9.0).reshape(3, 3)
        with skimp.config.using(**({} if size == "small" else {"small_below": 0, "defer_from": 1})):
            made.append(TURNED[name](t, x, y, t.arange(3.0).reshape(3, 1)).stride())
    assert made[0] == made[1]


def test_a_mask_leaves_the_order_that_dims_of_size_1_give() -> None:
    """A dim of one element with a far stride counts as the outermost."""
    made = []
    for t in (skimp, torch):
        x = t.arange(16.0).reshape(1, 4, 4).permute(1, 2, 0)
        kept = [x[:, t.arange(4) % 2 == 0], x[t.arange(4) % 2 == 0], x[:, t.tensor([0, 2])]]
        made.append([[k.stride(), k.tolist()] for k in kept])
    assert made[0] == made[1]


# of the namespace and of images, or volumes, that lie channels last
LAST: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "max_pool2d": (lambda f, x: f.max_pool2d(x, 3, 2, 1), (2, 4, 6, 6)),
    "its indices": (lambda f, x: f.max_pool2d(x, 2, return_indices=True)[1], (2, 4, 6, 6)),
    "max_pool3d": (lambda f, x: f.max_pool3d(x, 2), (2, 4, 4, 6, 6)),
    "avg_pool2d": (lambda f, x: f.avg_pool2d(x, 2), (2, 4, 6, 6)),
    "avg_pool3d": (lambda f, x: f.avg_pool3d(x, 2), (2, 4, 4, 6, 6)),
    "lp_pool2d": (lambda f, x: f.lp_pool2d(x, 2, 2), (2, 4, 6, 6)),
    "adaptive averages": (lambda f, x: f.adaptive_avg_pool2d(x, 3), (2, 4, 6, 6)),
    "of windows that overlap": (lambda f, x: f.adaptive_avg_pool2d(x, 4), (2, 4, 6, 6)),
    "of volumes": (lambda f, x: f.adaptive_avg_pool3d(x, 2), (2, 4, 4, 6, 6)),
    "adaptive maxima": (lambda f, x: f.adaptive_max_pool2d(x, 3), (2, 4, 6, 6)),
    "maxima of volumes": (lambda f, x: f.adaptive_max_pool3d(x, 2), (2, 4, 4, 6, 6)),
    "max_unpool2d": (
        lambda f, x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2),
        (2, 4, 6, 6),
    ),
    "nearest": (lambda f, x: f.interpolate(x, scale_factor=2), (2, 4, 6, 6)),
    "nearest of volumes": (lambda f, x: f.interpolate(x, scale_factor=2), (2, 4, 3, 3, 3)),
    "bilinear": (lambda f, x: f.interpolate(x, size=5, mode="bilinear"), (2, 4, 6, 6)),
    "bicubic": (lambda f, x: f.interpolate(x, size=5, mode="bicubic"), (2, 4, 6, 6)),
    "trilinear": (lambda f, x: f.interpolate(x, size=5, mode="trilinear"), (2, 4, 3, 3, 3)),
    "constants around": (lambda f, x: f.pad(x, (1, 2, 0, -1)), (2, 4, 6, 6)),
    "reflect": (lambda f, x: f.pad(x, (1, 1, 2, 1), "reflect"), (2, 4, 6, 6)),
    "replicate": (lambda f, x: f.pad(x, (1, 1, 2, 1), "replicate"), (2, 4, 6, 6)),
    "replicate a volume": (lambda f, x: f.pad(x, (1,) * 6, "replicate"), (2, 4, 6, 6)),
    "circular": (lambda f, x: f.pad(x, (1, 1, 2, 1), "circular"), (2, 4, 6, 6)),
    "roll": (lambda f, x: x.roll((1, 2), (1, 3)), (2, 4, 6, 6)),
    "roll of all": (lambda f, x: x.roll(5), (2, 4, 6, 6)),
    "channel_shuffle": (lambda f, x: f.channel_shuffle(x, 2), (2, 4, 6, 6)),
    "attention": (lambda f, x: f.scaled_dot_product_attention(x, x, x), (2, 4, 6, 6)),
}


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_channels_stay_last(name: str, device: str) -> None:
    """Tensors without bytes lie as results on the CPU do, which PyTorch's own not always do."""
    if device == "meta" and "unpool" in name:
        pytest.skip("places have to be looked at")
    op, shape = LAST[name]
    found = []
    for t, where in ((skimp, device), (torch, "cpu")):
        whole = t.arange(1.0, math.prod(shape) + 1).reshape(shape[0], *shape[2:], shape[1])
        found.append(op(t.nn.functional, whole.to(where).movedim(-1, 1)))
    mine, theirs = found
    assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())
    if device == "cpu":
        torch.testing.assert_close(torch.from_numpy(mine.numpy()), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
def test_pools_read_channels_where_they_lie(grad: bool) -> None:
    """Nothing is copied: beside the result, and a byte for each maximum, a tile at a time."""
    x = skimp.ones(8, 64, 64, 32).permute(0, 3, 1, 2).requires_grad_(grad)
    before = skimp.memory.memory_allocated()
    skimp.memory.reset_peak_memory_stats()
    made = skimp.nn.functional.max_pool2d(x, 2)
    result = made.numel() * 4
    assert skimp.memory.memory_allocated() - before == result + grad * result // 4
    assert skimp.memory.max_memory_allocated() - before == result + grad * result // 4


POOLS_OF_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "averages": lambda f, x: f.avg_pool1d(x, 3, 2, 1),
    "averages of whole windows": lambda f, x: f.avg_pool1d(x, (2,), [1], 1, True, False),
    "maxima": lambda f, x: f.max_pool1d(x, 2, 2, 1, 2),
    "maxima and places": lambda f, x: f.max_pool1d(x, 2, return_indices=True),
    "norms": lambda f, x: f.lp_pool1d(x, 2.0, 2),
    "adaptive averages": lambda f, x: f.adaptive_avg_pool1d(x, 2),
    "uneven averages": lambda f, x: f.adaptive_avg_pool1d(x, 3),
    "adaptive maxima": lambda f, x: f.adaptive_max_pool1d(x, 3),
    "their places": lambda f, x: f.adaptive_max_pool1d(x, 3, return_indices=True),
    "areas": lambda f, x: f.interpolate(x, 3, mode="area"),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", POOLS_OF_ROWS)
def test_pools_of_rows_lie_as_images_of_one_row(name: str, grad: bool) -> None:
    found = []
    for t in (skimp, torch):
        x = (t.arange(96.0).reshape(2, 8, 6) * 7 % 19 + 1).requires_grad_(grad)
        made = POOLS_OF_ROWS[name](t.nn.functional, x.transpose(1, 2))
        parts = made if isinstance(made, tuple) else (made,)
        found.append([(part.stride(), part.double().round(decimals=3).tolist()) for part in parts])
        if grad:
            (parts[0] * parts[0]).sum().backward()
            back = x.grad.double().round(decimals=3)
            found[-1] += [parts[0].grad_fn.name(), x.grad.stride(), back.tolist()]
    assert found[0] == found[1]


def test_what_differs() -> None:
    """Rows of docs/differences.md."""
    found = []
    for t in (skimp, torch):
        t.manual_seed(0)
        f, x = t.nn.functional, t.rand(2, 4, 6, 6).contiguous(memory_format=t.channels_last)
        q = t.rand(1, 2, 3, 4, requires_grad=True)
        (key,) = t.autograd.grad(f.scaled_dot_product_attention(q.detach(), q, q[..., :2]).sum(), q)
        turned = t.nn.functional.conv2d(x.requires_grad_(), t.ones(4, 4, 1, 1))
        (handed,) = t.autograd.grad(turned, x, t.ones(2, 4, 6, 6))
        found.append((f.rrelu(x).stride(), key.stride(), handed.stride()))
        found[-1] += (f.logsigmoid(x).stride(),)
        y = t.arange(1.0, 25.0).reshape(4, 3, 2).permute(2, 1, 0).requires_grad_()
        (of_norm,) = t.autograd.grad(t.linalg.vector_norm(y, 2, 1).sum(), y)
        found[-1] += (of_norm.stride(),)
    row_major = (12, 4, 1)
    images, last = (144, 36, 6, 1), (144, 1, 24, 4)
    ours = (last, (24, 12, 4, 1), images, last)
    assert found[0] == (*ours, row_major)
    theirs = (images, (24, 12, 1, 3), last, images)
    assert found[1] == (*theirs, (1, 2, 6))
