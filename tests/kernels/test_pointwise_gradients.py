"""Kernels of derivatives of pointwise functions against PyTorch's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from skimp._kernels import activation as activation
from tests.kernels.test_pointwise import (
    COMPLEX,
    FLOATS,
    HALVES,
    INF,
    NAN,
    WIDE,
    Array,
    _caller_ignores_errors,  # noqa: F401  (a fixture of every test)
    from_torch,
    run,
    same,
    to_torch,
    values_of,
)

# Derivatives: g times what autograd says

BACKWARD: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("relu", activation.threshold_backward, torch.relu, {}),
    ("threshold", activation.threshold_backward, lambda x: F.threshold(x, 1, 9), {"at": 1.0}),
    ("hardtanh", activation.hardtanh_backward, F.hardtanh, {}),
    ("leaky_relu", activation.leaky_relu_backward, F.leaky_relu, {}),
    ("hardshrink", activation.shrink_backward, F.hardshrink, {}),
    ("softshrink", activation.shrink_backward, F.softshrink, {}),
    ("logsigmoid", activation.logsigmoid_backward, F.logsigmoid, {}),
    ("logit", activation.logit_backward, torch.logit, {}),
    ("logit_eps", activation.logit_backward, lambda x: torch.logit(x, 0.1), {"eps": 0.1}),
    ("silu", activation.silu_backward, F.silu, {}),
    ("hardsigmoid", activation.hardsigmoid_backward, F.hardsigmoid, {}),
    ("hardswish", activation.hardswish_backward, F.hardswish, {}),
    ("gelu", activation.gelu_backward, F.gelu, {}),
    ("gelu_tanh", activation.gelu_tanh_backward, lambda x: F.gelu(x, approximate="tanh"), {}),
    ("softplus", activation.softplus_backward, F.softplus, {}),
    (
        "softplus_beta",
        activation.softplus_backward,
        lambda x: F.softplus(x, 2.0, 5.0),
        {"beta": 2.0, "at": 5.0},
    ),
    ("elu", activation.elu_backward, lambda x: F.elu(x, 0.7), {"alpha": 0.7}),
    ("celu", activation.elu_backward, lambda x: F.celu(x, 0.5), {"alpha": 0.5, "input_scale": 2.0}),
    (
        "selu",
        activation.elu_backward,
        F.selu,
        {"alpha": activation.SELU_ALPHA, "scale": activation.SELU_SCALE},
    ),
    ("mish", activation.mish_backward, F.mish, {}),
]
OF_RESULT: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("relu", activation.threshold_backward, torch.relu, {}),
    ("sigmoid", activation.sigmoid_backward, torch.sigmoid, {}),
    ("tanh", activation.tanh_backward, torch.tanh, {}),
    ("elu", activation.elu_backward_of_result, lambda x: F.elu(x, 0.7), {"alpha": 0.7}),
]


def gradient(function: Any, x: Array, g: Array) -> tuple[Array, Array]:
    leaf = to_torch(x).clone().requires_grad_()
    y = function(leaf)
    y.backward(to_torch(g))
    assert leaf.grad is not None
    return from_torch(y.detach()), from_torch(leaf.grad)


def finite(dtype: str) -> Array:
    x = values_of(dtype)
    return x[np.isfinite(x) & (np.abs(x) < 200)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "kernel", "function", "params"), BACKWARD)
def test_gradients(name: str, kernel: Any, function: Any, params: Any, dtype: str) -> None:
    x = finite(dtype)
    if dtype in HALVES and name in ("celu", "sinc"):
        pytest.skip("PyTorch composes it and rounds each step to the half type")
    g = np.resize(np.array([1.0, -0.5, 2.0], x.dtype), x.shape)
    _, want = gradient(function, x, g)
    if name == "sinc":  # near 0 PyTorch's own formula loses all digits; so does ours
        keep = np.abs(x.astype(np.float64)) > 1e-2
        x, g, want = x[keep], g[keep], want[keep]
    if name == "hardsigmoid" and dtype == "float64":  # PyTorch's sixth is a float32 even here
        x, g, want = x.astype(np.float32), g.astype(np.float32), want.astype(np.float32)
    # scale: 1 - tanh(u)**2 has an error of one rounding, which x and u' enlarge
    same(run(kernel, g, x, like=want, **params), want, scale=20)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(("name", "kernel", "function", "params"), OF_RESULT)
def test_gradients_of_the_result(
    name: str, kernel: Any, function: Any, params: Any, dtype: str
) -> None:
    x = finite(dtype)
    g = np.resize(np.array([1.0, -0.5, 2.0], x.dtype), x.shape)
    y, want = gradient(function, x, g)
    same(run(kernel, g, y, like=want, **params), want)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    ("kernel", "function"),
    [(activation.sigmoid_backward, torch.sigmoid), (activation.tanh_backward, torch.tanh)],
)
def test_complex_gradients(kernel: Any, function: Any, dtype: str) -> None:
    x = values_of(dtype) / 4
    x = x[np.abs(x) > 0.05]
    g = np.resize(np.array([1.0, 1j, 0.5 - 2j], x.dtype), x.shape)
    y, want = gradient(function, x, g)
    same(run(kernel, g, y, like=want), want, scale=50)


def test_gradient_of_the_weight_of_prelu() -> None:
    x, g = values_of("float64", ordinary=True), np.ones(400)
    want = np.where(x > 0, 0, x)
    np.testing.assert_array_equal(run(activation.prelu_weight_backward, g, x, like=x), want)


def test_what_is_dropped_stays_dropped_under_an_infinite_gradient() -> None:
    g, x = np.array([INF, NAN, INF], np.float32), np.array([-1.0, -1.0, 1.0], np.float32)
    got = run(activation.threshold_backward, g, x, like=x)
    np.testing.assert_array_equal(got, np.array([0, 0, INF], np.float32))


@pytest.mark.parametrize(("name", "kernel", "function", "params"), [*BACKWARD, *OF_RESULT])
def test_a_gradient_may_have_no_dimensions(
    name: str, kernel: Any, function: Any, params: Any
) -> None:
    x = np.array([[-2.5, -0.25, 0.5], [0.75, 2.0, 7.0]], np.float32)
    g = np.array(0.5, np.float32)
    spread = run(kernel, np.full_like(x, g), x, like=x, **params)
    np.testing.assert_array_equal(run(kernel, g, x, like=x, **params), spread)
    alone = run(kernel, g, x[1, 0].reshape(()), like=x, **params)
    np.testing.assert_array_equal(alone, spread[1, 0])
