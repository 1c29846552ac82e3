"""No result or gradient depends on the number of threads, but for products that BLAS shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skimp
from skimp.nn import functional as F

Call = Callable[..., Any]
ROWS = (2048, 512)
IMAGES = (16, 32, 64, 32)
HEADS = (8, 8, 128, 64)

CALLS: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (512,), w, b), [ROWS, (512,), (512,)]),
    "layer_norm, wide": (lambda x, w: F.layer_norm(x, (70_000,), w), [(20, 70_000), (70_000,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (512,), w), [ROWS, (512,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 8, w, b), [IMAGES, (32,), (32,)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [IMAGES, (32,), (32,)],
    ),
    "instance_norm": (lambda x: F.instance_norm(x), [IMAGES]),
    "softmax": (lambda x: x.softmax(-1), [ROWS]),
    "log_softmax, columns": (lambda x: x.log_softmax(0), [ROWS]),
    "cross_entropy": (lambda x: F.cross_entropy(x, skimp.arange(2048) % 512), [ROWS]),
    "logsumexp": (lambda x: x.logsumexp(1), [ROWS]),
    "sum": (lambda x: x.sum(), [ROWS]),
    "mean of rows": (lambda x: x.mean(1), [ROWS]),
    "std of columns": (lambda x: x.std(0), [ROWS]),
    "prod": (lambda x: (x / 100 + 1).prod(-1), [ROWS]),
    "cumsum": (lambda x: x.cumsum(-1), [ROWS]),
    "norm": (lambda x: x.norm(dim=1), [ROWS]),
    "cosine_similarity": (F.cosine_similarity, [ROWS, ROWS]),
    "bias and relu": (lambda x, b: (x + b).relu(), [ROWS, (512,)]),
    "prelu": (lambda x, w: F.prelu(x, w), [IMAGES, (32,)]),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [IMAGES, (24, 32, 3, 3), (24,)]),
    "transposed convolution": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
        [IMAGES, (32, 12, 4, 4), (12,)],
    ),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=32), [IMAGES, (32, 1, 3, 3)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), [IMAGES]),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), [IMAGES]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [HEADS] * 3,
    ),
    "embedding": (lambda w: F.embedding(skimp.arange(20_000) % 500, w), [(500, 64)]),
    "index_add": (
        lambda x: skimp.zeros(100, 512).index_add(0, skimp.arange(2048) % 100, x),
        [ROWS],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bits_are_the_same_on_any_number_of_threads(name: str) -> None:
    call, shapes = CALLS[name]
    drawn = np.random.default_rng(0)
    arrays = [drawn.standard_normal(shape).astype(np.float32) for shape in shapes]

    def run(threads: int) -> list[Any]:
        with skimp.config.using(threads=threads, threads_from=0):
            given = [skimp.tensor(a, requires_grad=True) for a in arrays]
            result = call(*given)
            result.backward(result.detach().cos())
            return [result.detach().numpy(), *[t.grad.numpy() for t in given]]

    alone = run(1)
    for threads in (2, 7):
        for one, other in zip(alone, run(threads), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.group_norm(x, 2),
        lambda x: F.layer_norm(x, x.shape[2:]),
    ],
    ids=["batch_norm", "group_norm", "layer_norm"],
)
def test_bits_of_long_rows_in_double_precision_are_the_same_on_any_number_of_threads(
    call: Call,
) -> None:
    """BLAS shares a dot product of more than 10,000 float64 as its threads are."""
    a = np.random.default_rng(0).standard_normal((4, 4, 20_000))

    def run(threads: int) -> list[Any]:
        before = skimp.get_num_threads()
        skimp.set_num_threads(threads)
        try:
            x = skimp.tensor(a, requires_grad=True)
            y = call(x)
            y.backward(y.detach().cos())
            return [y.detach().numpy(), x.grad.numpy()]
        finally:
            skimp.set_num_threads(before)

    for one, other in zip(run(1), run(2), strict=True):
        np.testing.assert_array_equal(one, other)
