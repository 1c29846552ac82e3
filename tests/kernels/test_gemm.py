"""A bias that is in the product: values, layouts, settings, and the way without OpenBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp
from skimp._kernels import gemm
from skimp._kernels.blas import one_thread
from skimp._ops.linalg import matmul_plans
from skimp.config import config
from tests.support.samples import numbers, twin

F = skimp.nn.functional
SHAPES = [
    (300, 500, 7),
    (2, 40_000, 3),
    (500, 513, 130),
    (1, 300, 300),
    (400, 200, 1),
    (9, 8000, 9),
]


def _matrix(m: int, n: int, layout: str, dtype: str, seed: int) -> Any:
    """As it is made, and how it is seen."""
    made = {
        "rows": ((m, n), lambda t: t),
        "columns": ((n, m), lambda t: t.t()),
        "padded": ((m, n + 3), lambda t: t[:, 2:-1]),
        "gaps": ((m, 2 * n), lambda t: t[:, ::2]),
    }
    shape, view = made[layout]
    whole = numbers(shape, dtype, seed, ties=False)
    return view(whole), view(twin(whole))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["rows", "columns", "padded", "gaps"])
def test_values_whatever_the_settings(shape: Any, layout: str, dtype: str) -> None:
    m, k, n = shape
    a, x = _matrix(m, k, layout, dtype, 0)
    b, y = _matrix(k, n, "columns", dtype, 1)
    bias, z = _matrix(1, n, "rows", dtype, 2)
    exact = (bias.double() + a.double() @ b.double()).numpy()
    size = (bias.double().abs() + a.double().abs() @ b.double().abs()).numpy()
    found = []
    settings: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*settings, {"threads": 1}, {"small_below": 1 << 20}):
        with config.using(**setting):
            found += [skimp.addmm(z[0], x, y).numpy(), F.linear(x, y.t(), z[0]).numpy()]
            found += [skimp.addmm(z[0], x, y, out=skimp.empty(m, n, dtype=z.dtype)).numpy()]
    for one in found:
        np.testing.assert_array_equal(one, found[0])
    assert np.all(np.abs(found[0] - exact) <= 0.5 * np.sqrt(k) * np.finfo(dtype).eps * size)


def test_what_is_added_may_be_deferred_or_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias is read when the product is made; what it came from may change afterwards."""
    (_, x), (_, y) = _matrix(256, 300, "rows", "float32", 0), _matrix(300, 64, "rows", "float32", 1)
    b = skimp.arange(64.0)
    made = skimp.addmm((b + 1).exp2() / 2**40, x, y)
    alone = x @ y
    expected = (alone + (b + 1).exp2() / 2**40).numpy()
    b.zero_()
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-5, atol=1e-4)
    assert made._version == 0
    version = alone._version
    skimp.addmm(alone[0], x, y, out=alone)  # the bias lies where the result goes
    assert alone._version == version + 1
    np.testing.assert_allclose(alone.numpy(), (x @ y + (x @ y)[0]).numpy(), rtol=1e-4, atol=1e-4)


def test_without_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, x), (_, y) = _matrix(256, 300, "rows", "float32", 0), _matrix(300, 64, "rows", "float32", 1)
    bias = skimp.linspace(-1, 1, 64)
    with_it = skimp.addmm(bias, x, y)
    monkeypatch.setattr(gemm, "gemm_of", lambda kind: None)
    matmul_plans._plan.cache_clear()  # they say who multiplies
    try:
        without = skimp.addmm(bias, x, y)
    finally:
        matmul_plans._plan.cache_clear()
    np.testing.assert_allclose(without.numpy(), with_it.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("size", [(1, 1, 1), (7, 30, 20), (100, 100, 100), (101, 100, 100)])
@pytest.mark.parametrize("beta", [0, 1])
def test_several_products_in_one_call(kind: str, size: tuple[int, int, int], beta: int) -> None:
    """Those whose kernels would crash OpenBLAS, of up to a million multiplications, as well."""
    rows, columns, depth = size
    rng = np.random.default_rng(0)
    a, b, out = [
        rng.integers(-4, 5, shape).astype(kind)
        for shape in ((rows, depth), (3, columns, depth), (3, rows, columns))
    ]
    expected = a @ b.swapaxes(1, 2) + beta * out
    with one_thread():
        gemm.gemms(
            kind, (gemm.AS_IT_IS, gemm.TRANSPOSED), size, (a.ctypes.data, depth, 0),
            (b.ctypes.data, depth, columns * depth), beta,
            (out.ctypes.data, columns, rows * columns), 3,
        )  # fmt: skip
    np.testing.assert_array_equal(out, expected)
