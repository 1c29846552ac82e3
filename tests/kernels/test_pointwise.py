"""The pointwise kernels against PyTorch, over the types that PyTorch takes, with special values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from skimp._kernels import (
    activation as activation,
    attention as attend,
    division,
    pointwise as kernels,
    powers,
)

Array = npt.NDArray[Any]
INF, NAN = np.inf, np.nan
INTS = ["uint8", "int8", "int16", "int32", "int64"]
HALVES = ["float16", "bfloat16"]
WIDE = ["float32", "float64"]
FLOATS = [*HALVES, *WIDE]
COMPLEX = ["complex64", "complex128"]
NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
TOLERANCE = {  # (rtol, atol)
    "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2), "float32": (2e-6, 3e-6),
    "float64": (1e-12, 1e-13), "complex64": (5e-6, 2e-6), "complex128": (1e-12, 1e-12),
}  # fmt: skip
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 6.0, 19.99, 20.01, 88.0, -88.0, 104.0,
    -104.0, 1e4, -1e4, 6e4, INF, -INF, NAN, 1e-6, -1e-6, 6e-8,
]  # fmt: skip

NUMBERS = st.floats(width=32)  # float64 quotients that overflow break PyTorch's vectorised fmod
quick = settings(max_examples=25, deadline=None)


@pytest.fixture(autouse=True)
def _caller_ignores_errors() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def np_type(name: str) -> np.dtype[Any]:
    return NUMPY.get(name) or np.dtype(name)


def values_of(name: str, ordinary: bool = False) -> Array:
    """Special and random values of a type; with `ordinary`, finite ones of moderate size."""
    rng = np.random.default_rng(11)
    if name == "bool":
        return np.array([False, True, True, False])
    if name in INTS:
        low, high = np.iinfo(name).min, np.iinfo(name).max
        edge = np.array([0, 1, 2, 3, 5, 7, 100, low, low + 1, high, high - 1]).astype(name)
        return np.concatenate([edge, rng.integers(low, high, 60, dtype=name, endpoint=True)])
    if name in COMPLEX:
        parts = rng.standard_normal((2, 90)) * 3
        odd = [0, 1, -1, 1j, -1j, 0.25 + 1e-3j]
        return np.concatenate([odd, parts[0] + 1j * parts[1]]).astype(name)
    random = rng.standard_normal(400) * 4
    return (random if ordinary else np.concatenate([SPECIAL, random])).astype(np_type(name))


def widened(a: Any) -> Any:
    small = isinstance(a, np.ndarray) and a.dtype.itemsize == 2 and a.dtype.kind not in "iu"
    return a.astype(np.float32) if small else a


def to_torch(a: Array) -> torch.Tensor:
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def from_torch(t: torch.Tensor) -> Array:
    t = t.resolve_conj().contiguous()
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.numpy()


def run(kernel: Callable[..., None], *operands: Any, like: Array, **params: Any) -> Array:
    """The kernel's result as the engine makes it: halves widened before, rounded after."""
    shape = np.broadcast_shapes(*(np.shape(a) for a in operands))
    half = like.dtype.itemsize == 2 and like.dtype.kind not in "iu"
    out = np.empty(shape, np.float32 if half else like.dtype)
    kernel(*(widened(a) for a in operands), out=out, **params)
    return out.astype(like.dtype)


def same(got: Array, want: Array, scale: float = 1) -> None:
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    rtol, atol = TOLERANCE[want.dtype.name]
    up = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        got.astype(up), want.astype(up), rtol=rtol * scale, atol=atol, equal_nan=True
    )


def compare(kernel: Any, oracle: Any, *operands: Array, scale: float = 1, **params: Any) -> None:
    want = from_torch(oracle(*(to_torch(a) if isinstance(a, np.ndarray) else a for a in operands)))
    same(run(kernel, *operands, like=want, **params), want, scale)


def pairs(name: str, ordinary: bool = False) -> tuple[Array, Array]:
    a = values_of(name, ordinary)
    a = a[:40] if name != "bool" else a
    left, right = np.meshgrid(a, a)
    return left.ravel().copy(), right.ravel().copy()


# One operand

UNARY: list[tuple[str, Any, Any, list[str]]] = [
    ("reciprocal", kernels.reciprocal, torch.reciprocal, [*FLOATS, *COMPLEX]),
    ("rsqrt", kernels.rsqrt, torch.rsqrt, [*FLOATS, *COMPLEX]),
    ("exp2", kernels.exp2, torch.exp2, [*FLOATS, *COMPLEX]),
    ("sign", kernels.sign, torch.sign, ["bool", *INTS, *FLOATS]),
    ("sgn", kernels.sgn, torch.sgn, ["bool", *INTS, *FLOATS, *COMPLEX]),
    ("signbit", kernels.signbit, torch.signbit, ["bool", *INTS, *FLOATS]),
    ("round", kernels.round, torch.round, [*INTS, *FLOATS]),
    ("frac", kernels.frac, torch.frac, FLOATS),
    ("nan_to_num", kernels.nan_to_num, torch.nan_to_num, [*INTS, *WIDE, *COMPLEX]),
    ("angle", kernels.angle, torch.angle, [*FLOATS, *COMPLEX]),
    ("deg2rad", kernels.deg2rad, torch.deg2rad, FLOATS),
    ("rad2deg", kernels.rad2deg, torch.rad2deg, FLOATS),
    ("isposinf", kernels.isposinf, torch.isposinf, [*INTS, *FLOATS]),
    ("isneginf", kernels.isneginf, torch.isneginf, [*INTS, *FLOATS]),
    ("isreal", kernels.isreal, torch.isreal, [*INTS, *FLOATS, *COMPLEX]),
    ("frexp_mantissa", kernels.frexp_mantissa, lambda x: torch.frexp(x).mantissa, FLOATS),
    ("frexp_exponent", kernels.frexp_exponent, lambda x: torch.frexp(x).exponent, FLOATS),
    ("relu", activation.relu, torch.relu, [*INTS, *FLOATS]),
    ("hardtanh", activation.hardtanh, F.hardtanh, FLOATS),
    ("leaky_relu", activation.leaky_relu, F.leaky_relu, FLOATS),
    ("hardshrink", activation.hardshrink, F.hardshrink, FLOATS),
    ("softshrink", activation.softshrink, F.softshrink, FLOATS),
    ("sigmoid", activation.sigmoid, torch.sigmoid, [*FLOATS, *COMPLEX]),
    ("logsigmoid", activation.logsigmoid, F.logsigmoid, FLOATS),
    ("silu", activation.silu, F.silu, [*FLOATS, *COMPLEX]),
    ("hardsigmoid", activation.hardsigmoid, F.hardsigmoid, FLOATS),
    ("hardswish", activation.hardswish, F.hardswish, FLOATS),
    ("gelu", activation.gelu, F.gelu, FLOATS),
    ("gelu_tanh", activation.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), FLOATS),
    ("softplus", activation.softplus, F.softplus, FLOATS),
    ("elu", activation.elu, F.elu, FLOATS),
    ("mish", activation.mish, F.mish, FLOATS),
]


@pytest.mark.parametrize(
    ("kernel", "oracle", "dtype"),
    [pytest.param(k, o, d, id=f"{n}-{d}") for n, k, o, types in UNARY for d in types],
)
def test_one_operand(kernel: Any, oracle: Any, dtype: str) -> None:
    x = values_of(dtype)
    if kernel is activation.gelu:  # PyTorch's gelu(inf) is NaN in float32, not in float64
        x = x[np.isfinite(x)]
    compare(kernel, oracle, x)


@quick
@given(x=hnp.arrays(np.float32, 17, elements=st.floats(width=32)), row=st.sampled_from(UNARY))
def test_one_operand_of_any_float32(x: Array, row: tuple[str, Any, Any, list[str]]) -> None:
    _, kernel, oracle, _ = row
    if kernel is activation.gelu:  # PyTorch's doubles x on the way: above 1.7e38 it is infinite
        x = np.clip(np.nan_to_num(x), -1e38, 1e38)
    with np.errstate(all="ignore"):
        want = from_torch(oracle(to_torch(x)))
        got = run(kernel, x, like=want)
    same(got, want, scale=4)


@pytest.mark.parametrize(
    ("kernel", "oracle", "dtype"),
    [pytest.param(k, o, d, id=f"{n}-{d}") for n, k, o, types in UNARY for d in types],
)
def test_bits_do_not_depend_on_the_place(kernel: Any, oracle: Any, dtype: str) -> None:
    x = values_of(dtype)
    like = from_torch(oracle(to_torch(x)))
    whole = run(kernel, x, like=like)
    for cut in (slice(0, 1), slice(1, 2), slice(1, None), slice(3, 20)):
        part = run(kernel, x[cut].copy(), like=like)
        assert part.tobytes() == whole[cut].tobytes()
    assert run(kernel, x[1].reshape(()), like=like).shape == ()


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("decimals", [-2, -1, 1, 3, 40])
def test_round_to_decimals(dtype: str, decimals: int) -> None:
    x = np.array([1.25, 0.15, 2.5, -0.5, 25, 1250, -1350, 1234567.25, INF, NAN, 1e30]).astype(dtype)
    compare(kernels.round, lambda t: torch.round(t, decimals=decimals), x, decimals=decimals)


@pytest.mark.parametrize("dtype", WIDE)
def test_nan_to_num_takes_numbers(dtype: str) -> None:
    compare(
        kernels.nan_to_num,
        lambda t: torch.nan_to_num(t, nan=7.0, posinf=1.0, neginf=2.0),
        values_of(dtype),
        nan=7.0, posinf=1.0, neginf=2.0,
    )  # fmt: skip


# Parameters

PARAMETERS: list[tuple[Any, Any, dict[str, Any]]] = [
    (activation.hardtanh, lambda x: F.hardtanh(x, -0.5, 2.0), {"low": -0.5, "high": 2.0}),
    (activation.threshold, lambda x: F.threshold(x, 0.5, 7.0), {"at": 0.5, "value": 7.0}),
    (activation.leaky_relu, lambda x: F.leaky_relu(x, 0.0), {"slope": 0.0}),
    (activation.leaky_relu, lambda x: F.leaky_relu(x, 1.5), {"slope": 1.5}),
    (activation.leaky_relu, lambda x: F.leaky_relu(x, -0.5), {"slope": -0.5}),
    (activation.hardshrink, lambda x: F.hardshrink(x, 1.0), {"size": 1.0}),
    (activation.softshrink, lambda x: F.softshrink(x, 1.0), {"size": 1.0}),
    (activation.softplus, lambda x: F.softplus(x, 2.0, 5.0), {"beta": 2.0, "at": 5.0}),
    (activation.elu, lambda x: F.elu(x, 0.7), {"alpha": 0.7}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(("kernel", "oracle", "params"), PARAMETERS)
def test_parameters(kernel: Any, oracle: Any, params: dict[str, Any], dtype: str) -> None:
    compare(kernel, oracle, values_of(dtype), **params)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (None, 0.5), (0.5, None), (2.0, -2.0), (NAN, 1.0)]
)
def test_clamp(dtype: str, low: float | None, high: float | None) -> None:
    compare(
        kernels.clamp, lambda t: torch.clamp(t, low, high), values_of(dtype), low=low, high=high
    )


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_clamp_by_arrays(dtype: str) -> None:
    low, x = pairs(dtype)
    compare(kernels.clamp, torch.clamp, x, low, low[::-1].copy())


# Two operands

BINARY: list[tuple[str, Any, Any, list[str]]] = [
    ("fmod", division.fmod, torch.fmod, [*INTS, *FLOATS]),
    ("remainder", division.remainder, torch.remainder, [*INTS, *FLOATS]),
    ("floor_divide", division.floor_divide, torch.floor_divide, [*INTS, *FLOATS]),
    (
        "trunc_divide",
        division.trunc_divide,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        [*INTS, *FLOATS],
    ),
    ("heaviside", kernels.heaviside, torch.heaviside, ["bool", *INTS, *FLOATS]),
    ("logaddexp", kernels.logaddexp, torch.logaddexp, [*FLOATS, *COMPLEX]),
    ("logaddexp2", kernels.logaddexp2, torch.logaddexp2, FLOATS),
    ("complex", kernels.complex, torch.complex, WIDE),
    ("power", kernels.power, torch.pow, [*WIDE]),
    ("prelu", activation.prelu, lambda a, b: torch.where(a > 0, a, a * b), WIDE),
    # what NumPy has as it is
    ("maximum", np.maximum, torch.maximum, ["bool", *INTS, *FLOATS]),
    ("minimum", np.minimum, torch.minimum, ["bool", *INTS, *FLOATS]),
    ("fmax", np.fmax, torch.fmax, [*INTS, *FLOATS]),
    ("fmin", np.fmin, torch.fmin, [*INTS, *FLOATS]),
    ("copysign", np.copysign, torch.copysign, FLOATS),
    ("nextafter", np.nextafter, torch.nextafter, WIDE),
    ("hypot", np.hypot, torch.hypot, FLOATS),
    ("arctan2", np.arctan2, torch.atan2, FLOATS),
    ("gcd", np.gcd, torch.gcd, INTS),
    ("logical_xor", np.logical_xor, torch.logical_xor, ["bool", *INTS, *FLOATS, *COMPLEX]),
]


def without_zero_divisors(a: Array, b: Array) -> tuple[Array, Array]:
    keep = b != 0
    if a.dtype.kind == "i":  # the one quotient that overflows is undefined in C++
        keep &= ~((a == np.iinfo(a.dtype).min) & (b == -1))
    return a[keep].copy(), b[keep].copy()


@pytest.mark.parametrize(
    ("name", "kernel", "oracle", "dtype"),
    [pytest.param(n, k, o, d, id=f"{n}-{d}") for n, k, o, types in BINARY for d in types],
)
def test_two_operands(name: str, kernel: Any, oracle: Any, dtype: str) -> None:
    a, b = pairs(dtype)
    if dtype in INTS and name in ("fmod", "remainder", "floor_divide", "trunc_divide"):
        a, b = without_zero_divisors(a, b)
    if name == "gcd":  # the magnitude of the least integer overflows
        keep = (
            (a != np.iinfo(dtype).min) & (b != np.iinfo(dtype).min) if dtype != "uint8" else a == a
        )
        a, b = a[keep].copy(), b[keep].copy()
    if name == "trunc_divide" and dtype == "bfloat16":
        pytest.skip("PyTorch rounds the quotient to the half type before it truncates")
    compare(kernel, oracle, a, b, scale=10 if name == "power" else 1)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_keep_the_sign_of_zero(name: str, dtype: str) -> None:
    a = np.array([-6.0, 6.0, -6.0, 6.0, -0.0, 0.0], dtype)
    b = np.array([3.0, -3.0, -3.0, 3.0, 2.0, -2.0], dtype)
    want = getattr(torch, name)(to_torch(a), to_torch(b)).numpy()
    got = run(getattr(division, name), a, b, like=want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide", "trunc_divide"])
@pytest.mark.parametrize("dtype", INTS)
def test_whole_numbers_refuse_to_be_divided_by_zero(name: str, dtype: str) -> None:
    a, b = np.array([1, 2], dtype), np.array([1, 0], dtype)
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError$"):
        run(getattr(division, name), a, b, like=a)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_division(dtype: str) -> None:
    a, b = pairs(dtype)
    keep = b != 0
    compare(np.divide, torch.div, a[keep].copy(), b[keep].copy())


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_any_number(dtype: str) -> None:
    a = values_of(dtype)[:, None]
    b = np.array([0, 1, 6, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, -1, -8]).astype(dtype)
    a, b = (v.copy() for v in np.broadcast_arrays(a, b))
    compare(np.left_shift, torch.bitwise_left_shift, a, b)
    compare(np.right_shift, torch.bitwise_right_shift, a, b)


# Powers


@pytest.mark.parametrize("dtype", INTS)
def test_whole_powers(dtype: str) -> None:
    a = values_of(dtype)
    exponents = np.arange(0 if dtype == "uint8" else -5, 20).astype(dtype)
    a, b = (v.ravel().copy() for v in np.meshgrid(a, exponents))
    compare(kernels.power, torch.pow, a, b)
    compare(kernels.power, lambda t: torch.pow(t, 3), a, b=3)


def test_whole_powers_refuse_a_negative_number() -> None:
    a = np.array([1, 2])
    with pytest.raises(
        RuntimeError, match=r"^Integers to negative integer powers are not allowed\.$"
    ):
        kernels.power(a, -1, out=a.copy())


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, -2, 0, 1, 1.7, -3, INF, -INF, NAN])
def test_power_of_a_number(dtype: str, exponent: float) -> None:
    x = values_of(dtype)
    compare(kernels.power, lambda t: torch.pow(t, exponent), x, b=exponent, scale=4)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_power(dtype: str) -> None:
    a, b = pairs(dtype)
    keep = (np.abs(a) > 0) & (np.abs(a) < 6) & (np.abs(b) < 4)
    compare(kernels.power, torch.pow, a[keep].copy(), b[keep].copy(), scale=30)


@pytest.mark.parametrize("dtype", WIDE)
def test_ldexp(dtype: str) -> None:
    x = np.array([0.0, 1.0, -1.5, 1e-30, 3.0, INF, NAN, 2.0], dtype)
    n = np.array([5, 200, -150, 130, -3, 2, 1, -1074], np.int32)
    compare(kernels.ldexp, torch.ldexp, x, n)


# Three operands


@pytest.mark.parametrize("dtype", [*WIDE, *COMPLEX])
def test_lerp(dtype: str) -> None:
    a, b = pairs(dtype, ordinary=True)
    weight = np.resize(values_of(dtype, ordinary=True), a.shape) / 4
    compare(kernels.lerp, torch.lerp, a, b, weight, scale=10)
    for number in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5):
        given = np.asarray(number, dtype)
        compare(kernels.lerp, lambda s, t, w=number: torch.lerp(s, t, w), a, b, weight=given)


@pytest.mark.parametrize("dtype", WIDE)
def test_lerp_is_exact_at_its_ends(dtype: str) -> None:
    a, b = pairs(dtype, ordinary=True)
    for end, weight in ((a, 0), (b, 1)):
        mixed = run(kernels.lerp, a, b, like=a, weight=np.asarray(weight, dtype))
        np.testing.assert_array_equal(mixed, end)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS, *COMPLEX])
@pytest.mark.parametrize("value", [1, 3])
def test_addcmul(dtype: str, value: int) -> None:
    a, b = pairs(dtype, ordinary=True)
    x = a[::-1].copy()
    compare(kernels.addcmul, lambda *t: torch.addcmul(*t, value=value), x, a, b, value=value)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("value", [1, 0.5])
def test_addcdiv(dtype: str, value: float) -> None:
    a, b = pairs(dtype, ordinary=True)
    b = b + np.where(np.abs(b) < 0.25, 1, 0).astype(b.dtype)
    x = a[::-1].copy()
    compare(kernels.addcdiv, lambda *t: torch.addcdiv(*t, value=value), x, a, b, value=value)


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS, *COMPLEX])
def test_select_copies_bits(dtype: str) -> None:
    a, b = pairs(dtype)
    mask = np.random.default_rng(0).random(a.shape) > 0.5
    out = np.empty_like(a)
    kernels.select(mask, a, b, out=out)
    assert out.tobytes() == np.where(mask, a, b).tobytes()
    kernels.select(mask, a, b[0], out=out)
    assert out.tobytes() == np.where(mask, a, b[0]).tobytes()


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32"])
@pytest.mark.parametrize("shape", [(3, 4000), (40, 3, 500), (60_000, 3)])
@pytest.mark.parametrize("repeated", [(0,), (1,), (-1,), (0, 1)])
def test_a_mask_that_is_repeated(
    dtype: str, shape: tuple[int, ...], repeated: tuple[int, ...]
) -> None:
    numbers = np.random.default_rng(0)
    a, b = [numbers.integers(0, 99, shape).astype(dtype) for _ in range(2)]
    once = [1 if d in {n % len(shape) for n in repeated} else n for d, n in enumerate(shape)]
    mask = np.broadcast_to(numbers.random(once) > 0.5, shape)
    before, out = mask.copy(), np.empty_like(a)
    kernels.select(mask, a, b, out=out)
    np.testing.assert_array_equal(out, np.where(before, a, b))
    kernels.select(mask, np.array(7, dtype), b, out=out)
    np.testing.assert_array_equal(out, np.where(before, np.array(7, dtype), b))
    kernels.drop(mask, b, out=out)
    np.testing.assert_array_equal(out, np.where(before, np.array(0, dtype), b))


@pytest.mark.parametrize("dtype", WIDE)
def test_polar(dtype: str) -> None:
    radius, phase = pairs(dtype, ordinary=True)
    compare(kernels.polar, torch.polar, np.abs(radius), phase, scale=4)


@quick
@given(a=hnp.arrays(np.float64, 9, elements=NUMBERS), b=hnp.arrays(np.float64, 9, elements=NUMBERS))
@example(a=np.full(9, INF), b=np.full(9, -INF))
def test_two_operands_of_any_float64(a: Array, b: Array) -> None:
    for name, kernel, oracle, types in BINARY:
        if "float64" in types and name not in ("logaddexp", "logaddexp2", "power"):
            with np.errstate(all="ignore"):
                compare(kernel, oracle, a, b)


def test_either_exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    """GELU and attention by powers of 2 and of e, whichever this machine takes."""
    x = np.linspace(-9, 9, 5000).astype(np.float32).reshape(2, 50, 50)
    mask = np.where(x > 4, -np.inf, x)
    found: list[list[Any]] = []
    for power, unit in ((np.exp, 1.0), (np.exp2, np.log2(np.e))):
        scale = unit / powers.UNIT
        monkeypatch.setattr(activation, "_PHI", tuple(c * scale for c in activation._PHI))
        for module in (activation, attend):
            monkeypatch.setattr(module, "POWER", power)
            monkeypatch.setattr(module, "UNIT", unit)
        monkeypatch.setattr(powers, "UNIT", unit)
        y, g = np.empty_like(x), np.empty_like(x)
        activation.gelu(x, out=y)
        activation.gelu_backward(x, x, out=g)
        found.append([y, g])
        z = x / 9
        for how in (None, mask, mask > 1):
            a = attend.Attention(0.2, how is None, how, None, 1.0, np.dtype(np.float32))
            out, lse = np.empty_like(x), np.empty((2, 50, 1), np.float32)
            attend.forward(z, z, z, out, lse, a)
            grads = tuple(np.empty_like(x) for _ in range(3))
            attend.backward(x, (z, z, z, out, lse), grads, a)
            found[-1] += [out, lse, *grads]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


LOOSE = {
    f: 1 for module in (kernels, activation) for f in vars(module).values() if hasattr(f, "loose")
}
# of those that read several tensors, how many
LOOSE |= {
    f: 2 for f in LOOSE if {*inspect.signature(f).parameters} & {"b", "g", "gate", "values", "imag"}
}
LOOSE |= dict.fromkeys((kernels.clamp, kernels.lerp, kernels.addcmul, kernels.addcdiv), 3)
LOOSE[activation.glu_gate_backward] = 3
LOOSE[activation.prelu] = 2


@pytest.mark.parametrize(("kernel", "count"), LOOSE.items())
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("shape", [(5, 7), (129, 70)])
def test_loose_kernels_read_anything(
    kernel: Callable[..., None], count: int, name: str, shape: tuple[int, int]
) -> None:
    """Any strides, and shapes that are broadcast, give the bits of dense operands."""
    rng = np.random.default_rng(shape[0])
    rows, columns = shape
    n = 4 * rows * columns
    for _ in range(4):
        views: list[Array] = []
        for i in range(count):
            values = np.where(rng.random(n) < 0.3, rng.choice(SPECIAL, n), rng.normal(size=n))
            wide = values.astype(name).reshape(2 * rows, 2 * columns)
            kinds = [wide[::2, 1::2], wide[:rows, :columns], wide[:columns, :rows].T]
            kinds += [wide[0, :columns], wide[:rows, :1]] if i else []
            views.append(kinds[rng.integers(len(kinds))])
        dense = [np.ascontiguousarray(np.broadcast_to(v, shape)) for v in views]
        made, want = [
            np.empty(shape, np.result_type(name, "c8") if kernel is kernels.complex else name)
            for _ in range(2)
        ]
        kernel(*views, out=made)
        kernel(*dense, out=want)
        told = ~np.isnan(want)
        assert np.array_equal(~np.isnan(made), told)
        assert made[told].tobytes() == want[told].tobytes()


@pytest.mark.parametrize("alone", [False, True])
def test_remainders_by_quotients(alone: bool) -> None:
    """Of many float32, by passes over pieces: the bits of C's function."""
    rng = np.random.default_rng(5)
    n = 20_000
    b = np.where(rng.random(n) < 0.5, rng.normal(size=n), rng.integers(1, 9, n)).astype("f4")
    near = np.nextafter((np.floor(rng.uniform(0, 2**27, n)) * b).astype("f4"), np.float32(0))
    bits = rng.integers(0, 2**32, n, dtype=np.uint32).view("f4")
    ordinary = (rng.normal(size=n) * 100).astype("f4")
    for a in (near, bits, ordinary, np.resize(np.array(SPECIAL, "f4"), n)):
        for by in (b, bits[::-1], np.resize(np.array(SPECIAL, "f4")[::-1], n)):
            by = by[7] if alone else by
            out, want = np.empty(n, "f4"), np.fmod(a, by, dtype="f8").astype("f4")
            division.fmod(a, by, out=out)
            told = ~np.isnan(want)
            assert np.array_equal(~np.isnan(out), told)
            assert out[told].tobytes() == want[told].tobytes()


def test_many_weights_of_lerp_and_prelu() -> None:
    """What is blended from a size on is what is chosen below."""
    rng = np.random.default_rng(6)
    a, b, w = rng.normal(size=(3, 90, 80)).astype("f4")
    made, want = np.empty_like(a), np.empty_like(a)
    kernels.lerp(a, b, w, out=made)
    one = np.float32(1)
    near = np.where(np.abs(w) < 0.5, a + (b - a) * w, b - (b - a) * (one - w))
    np.testing.assert_array_equal(made, near)
    for slopes in (np.abs(w[0]) / 9 + 0.1, w[0], np.float32([0.25])):
        activation.prelu(a, slopes, out=made)
        np.multiply(a, slopes, out=want)
        np.testing.assert_array_equal(made, np.where(a > 0, a, want))
