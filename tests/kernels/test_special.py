"""The special functions against PyTorch, and against mpmath where PyTorch itself is rough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import special

Array = npt.NDArray[Any]
INF, NAN = np.inf, np.nan

POLYNOMIALS = [name for name in special.__all__ if "polynomial" in name]
TWO_OPERANDS = ("gammainc", "gammaincc", "zeta", "xlogy", "xlog1py")
ONE_OPERAND = [
    name
    for name in special.__all__
    if name not in {*POLYNOMIALS, *TWO_OPERANDS, "polygamma", "mvlgamma", "trigamma"}
]
ROUGH_IN_TORCH = {  # the absolute error that torch 2.13 itself makes in float64
    **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"), 2e-6),
    "airy_ai": 1e-5,
    "digamma": 1e-8,  # near poles
}

EDGES = [
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 5.0, 8.0, INF, -INF, NAN, 1e-300, -1e-300, 5e-324,
    1e300, -1e300, 1e-20, -1e-20, 0.5, -0.5, 20.0, -20.0, 27.0, -27.0, 700.0, -700.5,
    0.85, -0.85, 1 - 1e-16, 2.1, -2.1, 6.0, 10.0, 103.9,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _caller_ignores_errors() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def grid() -> Array:
    rng = np.random.default_rng(7)
    return np.concatenate(
        [
            np.linspace(-30, 30, 4001),
            rng.standard_normal(2000),
            10.0 ** rng.uniform(-8, 2.5, 1000),
            -(10.0 ** rng.uniform(-8, 1.5, 500)),
            EDGES,
        ]
    )


def run(kernel: Callable[..., None], *arrays: Any, dtype: Any = np.float64, **params: Any) -> Array:
    arrays = tuple(np.asarray(a, dtype) for a in arrays)
    out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), dtype)
    kernel(*arrays, out=out, **params)
    return out


def torch_function(name: str) -> Callable[..., torch.Tensor]:
    return getattr(torch, name, None) or getattr(torch.special, name)


def expect(name: str, *arrays: Any, dtype: Any = np.float64) -> Array:
    """What torch computes in float64, rounded to dtype."""
    wide = [torch.from_numpy(np.asarray(np.asarray(a, dtype), np.float64)) for a in arrays]
    return torch_function(name)(*wide).numpy().astype(dtype)


def close(got: Array, want: Array, atol: float = 1e-13) -> None:
    rtol, small = (2e-6, 1e-7) if got.dtype == np.float32 else (1e-9, 0.0)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=max(atol, small), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE_OPERAND)
def test_one_operand(name: str, dtype: Any) -> None:
    x = grid().astype(dtype)
    got = run(getattr(special, name), x, dtype=dtype)
    want = expect(name, x, dtype=dtype)
    if name == "sinc":  # pi x is rounded to the type first, on purpose
        want = torch.sinc(torch.from_numpy(x)).numpy()
    close(got, want, ROUGH_IN_TORCH.get(name, 1e-13))


def test_erf_float32_is_within_four_ulp() -> None:
    x = np.linspace(-5, 5, 200_001).astype(np.float32)
    got = run(special.erf, x, dtype=np.float32)
    want = torch.erf(torch.from_numpy(x.astype(np.float64))).numpy()
    ulp = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - want) / ulp) <= 4
    assert np.max(np.abs(got)) == 1.0


@pytest.mark.parametrize(
    ("name", "truth", "low", "high"),
    [
        ("bessel_j0", lambda x: mpmath.besselj(0, x), -40, 40),
        ("bessel_j1", lambda x: mpmath.besselj(1, x), -40, 40),
        ("bessel_y0", lambda x: mpmath.bessely(0, x), 0.01, 40),
        ("bessel_y1", lambda x: mpmath.bessely(1, x), 0.01, 40),
        ("airy_ai", mpmath.airyai, -15, 15),
        ("ndtr", mpmath.ncdf, -30, 8),
        ("erfc", mpmath.erfc, -2, 26),
        ("digamma", mpmath.digamma, -10, 30),
        ("lgamma", lambda x: mpmath.re(mpmath.loggamma(x)), -10, 30),
        ("trigamma", lambda x: mpmath.polygamma(1, x), -10, 30),
        ("modified_bessel_k0", lambda x: mpmath.besselk(0, x), 0.01, 60),
        ("modified_bessel_k1", lambda x: mpmath.besselk(1, x), 0.01, 60),
    ],
)
def test_against_many_digits(name: str, truth: Any, low: float, high: float) -> None:
    x = np.random.default_rng(3).uniform(low, high, 60)
    got = run(getattr(special, name), x)
    want = np.array([float(truth(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14 if name != "ndtr" else 0)


def test_lgamma_is_exact_to_rounding_near_its_zeros() -> None:
    offsets = np.array([1e-15, 1e-9, -1e-9, -1e-12, 1e-5])
    x = np.concatenate([1 + offsets, 2 + offsets])
    want = np.array([float(mpmath.loggamma(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(run(special.lgamma, x), want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 10])
def test_polygamma(n: int) -> None:
    x = np.concatenate([np.linspace(0.05, 30, 500), -np.linspace(0.13, 9.7, 50), [0.0, INF, NAN]])
    want = torch.polygamma(n, torch.from_numpy(x)).numpy()
    rtol = 3e-8 if n == 1 else 1e-8  # torch's trigamma has eight digits
    np.testing.assert_allclose(run(special.polygamma, x, n=n), want, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_mvlgamma(p: int) -> None:
    x = np.linspace(2.1, 40, 300)
    close(run(special.mvlgamma, x, p=p), torch.mvlgamma(torch.from_numpy(x), p).numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_x_times_log(name: str, dtype: Any) -> None:
    x, y = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
    close(
        run(getattr(special, name), x, y, dtype=dtype),
        torch_function(name)(*(torch.from_numpy(v.astype(dtype)) for v in (x, y))).numpy(),
    )


def test_zeta() -> None:
    s, q = (v.ravel() for v in np.meshgrid(np.linspace(1.01, 40, 60), np.linspace(0.05, 60, 60)))
    np.testing.assert_allclose(run(special.zeta, s, q), expect("zeta", s, q), rtol=1e-9)
    orders = [INF, NAN, 0.5, 1.0, 2.0, 3.0, 2.5]
    s, q = (v.ravel() for v in np.meshgrid(orders, [0.0, -1.0, -1.5, -7.3, 2.0, INF, NAN]))
    near = ~np.isnan(q) | (s <= 1)
    np.testing.assert_allclose(run(special.zeta, s, q)[near], expect("zeta", s, q)[near], rtol=1e-9)


def test_zeta_far_to_the_left_takes_no_longer() -> None:
    got = run(special.zeta, 3.0, -1e6 - 0.25)
    want = mpmath.zeta(3, mpmath.mpf("0.75")) - mpmath.zeta(3, mpmath.mpf("0.25"))
    np.testing.assert_allclose(got, float(want), rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    a = 10.0 ** rng.uniform(-3, 4, 2000)
    x = np.abs(a * rng.uniform(0, 2.5, 2000))
    x[:800] = np.abs(a[:800] + 2 * np.sqrt(a[:800]) * rng.standard_normal(800))
    edge_a, edge_x = (v.ravel() for v in np.meshgrid([0.0, 1.0, INF, -1.0, 0.5, 60.0], EDGES[:20]))
    a, x = np.concatenate([a, edge_a]).astype(dtype), np.concatenate([x, edge_x]).astype(dtype)
    got, want = run(getattr(special, name), a, x, dtype=dtype), expect(name, a, x, dtype=dtype)
    rtol = 1e-8 if dtype == np.float64 else 2e-6  # torch: 2e-9 near x = a
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_has_the_tails(name: str) -> None:
    rng = np.random.default_rng(2)
    a = np.concatenate([rng.uniform(0.01, 1, 20), rng.uniform(1, 60, 20), rng.uniform(50, 400, 20)])
    x = a * rng.uniform(0.4, 1.8, 60)
    bounds = (lambda v: (0, v)) if name == "gammainc" else (lambda v: (v, mpmath.inf))
    want = [
        float(mpmath.gammainc(mpmath.mpf(b), *bounds(mpmath.mpf(c)), regularized=True))
        for b, c in zip(a.tolist(), x.tolist(), strict=True)
    ]
    np.testing.assert_allclose(run(getattr(special, name), a, x), want, rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str, dtype: Any) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 1.5, -1.5, INF, -INF, NAN, 3.0, -7.0, 0.999, 1e-6]
    orders = [-1.0, 0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0, 25.0, 130.0, 600.0, 2.7]
    x, n = (v.ravel().astype(dtype) for v in np.meshgrid(values, orders))
    got = run(getattr(special, name), x, n, dtype=dtype)
    want = torch_function(name)(torch.from_numpy(x), torch.from_numpy(n)).numpy()
    odd = ~np.isfinite(want)
    np.testing.assert_array_equal(np.isfinite(got), ~odd)
    # orders in the hundreds amplify the rounding of one multiplication
    rtol, atol = (1e-3, 1e-3) if dtype == np.float32 else (1e-10, 1e-10)
    np.testing.assert_allclose(got[~odd], want[~odd], rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", POLYNOMIALS)
@settings(max_examples=20, deadline=None)
@given(x=st.floats(-4, 4), n=st.integers(-2, 20))
def test_polynomials_of_a_scalar(name: str, x: float, n: int) -> None:
    with np.errstate(all="ignore"):
        got = run(getattr(special, name), x, n)
    want = torch_function(name)(torch.tensor(x, dtype=torch.float64), torch.tensor(n)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("eps", [None, 0.1, 1e-6])
def test_logit_clamps(eps: float | None) -> None:
    x = np.array([*EDGES, 0.05, 0.95])
    want = torch.logit(torch.from_numpy(x), eps=eps).numpy()
    close(run(special.logit, x, eps=eps), want)


def test_sinc_of_complex_numbers() -> None:
    x = np.array([0, 1 + 1j, 0.5j, 2, -1.5 - 0.25j])
    got = run(special.sinc, x, dtype=np.complex128)
    np.testing.assert_allclose(got, torch.sinc(torch.from_numpy(x)).numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*ONE_OPERAND, *TWO_OPERANDS, "trigamma"])
def test_bits_do_not_depend_on_the_place_in_the_block(name: str, dtype: Any) -> None:
    x = np.random.default_rng(5).permutation(grid())[:999].astype(dtype)
    operands = (np.abs(x), np.abs(x[::-1]).copy()) if name in TWO_OPERANDS else (x,)
    kernel = getattr(special, name)
    whole = run(kernel, *operands, dtype=dtype)
    for cut in (slice(0, 1), slice(1, 8), slice(3, 400), slice(777, 999)):
        part = run(kernel, *(v[cut].copy() for v in operands), dtype=dtype)
        np.testing.assert_array_equal(whole[cut], part)


@pytest.mark.parametrize("name", [*ONE_OPERAND, "trigamma"])
def test_zero_dimensions_and_two(name: str) -> None:
    kernel = getattr(special, name)
    flat = run(kernel, np.array([0.25, 0.5, 0.75, 0.9]))
    assert run(kernel, 0.25).shape == ()
    assert run(kernel, 0.25) == flat[0]
    np.testing.assert_array_equal(
        run(kernel, np.array([[0.25, 0.5], [0.75, 0.9]])), flat.reshape(2, 2)
    )


# What docs/differences.md says of float32 beside PyTorch: units in the last place, and where.
ULPS = {
    "asin": (2.91, -1), "acos": (1.83, -1), "atanh": (1.16, -1),
    "atan": (1.67, -10), "tan": (2.99, -10), "cos": (1.41, -10), "sinh": (1.42, -10),
    "exp2": (0.98, -10), "asinh": (0.63, -10), "erfc": (0.5, -10),
    "log2": (1.89, 1e-4), "log10": (2.07, 1e-4), "sqrt": (0.5, 1e-4), "acosh": (0.77, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ULPS)
def test_float32_is_as_exact_as_the_page_says(name: str) -> None:
    most, low = ULPS[name]
    x = np.linspace(low, -low if low < 0 else 20, 200_001).astype(np.float32)
    got = getattr(skimp, name)(skimp.from_numpy(x)).numpy()
    want = getattr(torch, name)(torch.from_numpy(x).double()).numpy()
    at = np.isfinite(want) & (want != 0)
    ulp = np.spacing(np.abs(want[at]).astype(np.float32)).astype(np.float64)
    # what rounds right is at most half a unit off, and another bit at powers of 2
    assert np.max(np.abs(got[at] - want[at]) / ulp) <= most + 0.02


@pytest.mark.parametrize("name", ["erfc", "erfinv", "ndtr"])
def test_short_polynomials_of_float32(name: str) -> None:
    """Less than an ulp from the formula in double, a piece at a time."""
    x = np.concatenate([np.linspace(-1, 1, 40_001), np.linspace(-12, 12, 20_001)])
    x = np.append(x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1 - 2**-24, 2**-24 - 1]).astype("f4")
    made, want = np.empty_like(x), np.empty(x.shape)
    with np.errstate(all="ignore"):
        getattr(special, name)(x, out=made)
        getattr(special, name)(x.astype("f8"), out=want)
        tiny = np.abs(want) < np.finfo("f4").tiny  # rounded once more
        near = np.abs(made - want) <= np.spacing(np.abs(want).astype("f4"))
    assert np.all(near | tiny | (made == want) | np.isnan(made) & np.isnan(want))
    assert np.array_equal(np.signbit(made[-7:-5]), np.signbit(want[-7:-5]))
