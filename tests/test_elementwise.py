"""Pointwise functions against torch: dtypes, pairs of them, numbers, layouts, forms, gradients."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import skimp
from samples import DTYPES, agree, array, numbers, outcome, same, same_gradients, twin

INF, NAN = float("inf"), float("nan")
HALVES = ("float16", "bfloat16")

UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "conj_physical",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
SPECIAL = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "logit",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "ndtr",
    "ndtri",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "sinc",
    "spherical_bessel_j0",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "copysign",
    "nextafter",
    "ldexp",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "gcd",
    "lcm",
    "heaviside",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "logical_and",
    "logical_or",
    "logical_xor",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "pow",
    "float_power",
]
TWO_SPECIAL = [
    "zeta",
    "xlog1py",
    "gammainc",
    "gammaincc",
    "chebyshev_polynomial_t",
    "hermite_polynomial_h",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_u",
]
OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]
ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "arctan2": "atan2",
    "clip": "clamp",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
}


def tolerance(*dtypes: str) -> float:
    if "bfloat16" in dtypes:
        return 2e-2
    return 2e-3 if "float16" in dtypes else 3e-6


def quarters(shape: tuple[int, ...], dtype: str, seed: int = 0) -> torch.Tensor:
    """Small numbers, fractions among them where the type has any, and no zero."""
    x = numbers(shape, dtype, seed)
    if dtype == "bool":
        return x
    if x.is_floating_point() or x.is_complex():
        x = x / 4 + 0.125
    return x if x.is_floating_point() or x.is_complex() else torch.where(x == 0, 1, x).to(x.dtype)


def odd(dtype: str) -> torch.Tensor:
    """Numbers at which functions differ: zeros, infinities, NaN, poles."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 1e-3, 30.0, INF, -INF, NAN]
    return torch.tensor(values).to(getattr(torch, dtype))


# -- one argument ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(lambda lib, x: getattr(lib, name)(x), x, tolerance=tolerance(dtype), message=60)
    packed = name == "angle" and x.is_complex()  # the one result that torch lays out anew
    agree(lambda lib, x: getattr(x, name)(), x.t(), tolerance=tolerance(dtype), strides=not packed)
    agree(lambda lib, x: getattr(lib, name)(x), x[:0], tolerance=tolerance(dtype))
    agree(lambda lib, x: getattr(lib, name)(x), x[1, 2], tolerance=tolerance(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("bitwise_not", "digamma")])
def test_unary_at_odd_places(name: str, dtype: str) -> None:
    agree(lambda lib, x: getattr(lib, name)(x), odd(dtype), tolerance=tolerance(dtype))


@pytest.mark.parametrize("dtype", ["bool", "int32", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(lambda lib, x: getattr(lib.special, name)(x), x, tolerance=max(tolerance(dtype), 2e-5))


@pytest.mark.parametrize("name", [n for n in UNARY if hasattr(torch.Tensor, f"{n}_")])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "bfloat16", "complex64"])
def test_unary_in_place_and_out(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(lambda lib, x: getattr(x.clone(), f"{name}_")(), x, tolerance=tolerance(dtype))
    agree(
        lambda lib, x: getattr(x.clone()[:, ::2], f"{name}_")(),
        x,
        tolerance=tolerance(dtype),
        strides=False,
    )
    out = torch.zeros(3, 4, dtype=x.dtype)
    agree(
        lambda lib, x, o: getattr(lib, name)(x, out=o.clone()), x, out, tolerance=tolerance(dtype)
    )


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("rows", [2, 5, 100_000])
def test_neg_in_place_of_a_column(dtype: str, rows: int) -> None:
    """NumPy 2.4's negative reads a run here: a step of itemsize elements, and a result with gaps."""
    step = np.dtype(dtype).itemsize
    ours = skimp.arange(rows * step, dtype=getattr(skimp, dtype)).view(rows, step)
    theirs = torch.arange(rows * step, dtype=getattr(torch, dtype)).view(rows, step)
    for t in (ours, theirs):
        t[:, 0].neg_()
    same(ours, theirs)
    into, wanted = ours.new_zeros(rows, 2), theirs.new_zeros(rows, 2)
    skimp.neg(ours[:, 1], out=into[:, 0])
    torch.neg(theirs[:, 1], out=wanted[:, 0])
    same(into, wanted)
    same(-ours[:, 1], -theirs[:, 1])


def test_round_to_decimals() -> None:
    x = torch.tensor([1.2345, -2.5, 1e6, 0.05, 12345.678, INF, NAN])
    for decimals in (-2, -1, 1, 2, 3):
        for dtype in (torch.float32, torch.float64):
            agree(lambda lib, x, d=decimals: lib.round(x, decimals=d), x.to(dtype))
    agree(lambda lib, x: lib.round(x, decimals=1), torch.tensor([1, 2]))
    agree(lambda lib, x: x.clone().round_(decimals=2), x)


def test_nan_to_num_uses_the_limits_of_the_type() -> None:
    for dtype in (*HALVES, "float32", "float64", "int64", "bool"):
        agree(
            lambda lib, x: lib.nan_to_num(x),
            odd(dtype) if "float" in dtype else numbers((3,), dtype),
        )
    agree(lambda lib, x: lib.nan_to_num(x, 1.0, 2.0, -2.0), odd("float32"))
    agree(lambda lib, x: lib.nan_to_num(x, nan=None, neginf=-3.0), odd("float64"))


@pytest.mark.parametrize("dtype", [*HALVES, "float32", "float64", "int64", "complex64"])
def test_frexp(dtype: str) -> None:
    x = quarters((3, 4), dtype) * 100
    agree(lambda lib, x: tuple(lib.frexp(x)), x)
    if dtype == "float32":
        assert skimp.frexp(twin(x)).exponent.dtype is skimp.int32


# -- two arguments --------------------------------------------------------------------------------


def values(name: str, dtype: str, seed: int) -> torch.Tensor:
    x = quarters((3, 4), dtype, seed)
    if (
        name in ("pow", "float_power")
        and not (x.is_floating_point() or x.is_complex())
        and dtype != "bool"
    ):
        x = x.abs()
    return x


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_dtypes(name: str) -> None:
    for one in DTYPES:
        for other in DTYPES:
            if name in ("gcd", "lcm", "ldexp") and one != other:
                continue
            x, y = values(name, one, 1), values(name, other, 2)
            near = tolerance(one, other)
            if (
                name in ("floor_divide", "remainder") and near > 1e-3
            ):  # a rounding apart is a whole step apart
                near = 1.0
            agree(lambda lib, x, y: getattr(lib, name)(x, y), x, y, tolerance=near, message=30)


@pytest.mark.parametrize("name", BINARY)
def test_zero_dim_and_broadcast(name: str) -> None:
    for one, other in (
        ("float32", "float64"),
        ("int32", "int64"),
        ("float32", "int64"),
        ("int64", "float32"),
    ):
        x, y = values(name, one, 1), values(name, other, 2)
        if name == "heaviside":
            y = y.to(x.dtype)
        for a, b in ((x, y[0, 0]), (x[0, 0], y), (x, y[:1]), (x[:, :1], y[0]), (x.t(), y[:, 0])):
            agree(lambda lib, a, b: getattr(lib, name)(a, b), a, b, tolerance=3e-6, message=30)


@pytest.mark.parametrize("name", TWO_SPECIAL)
def test_special_of_two(name: str) -> None:
    for dtype in ("int64", "float32", "float64", "float16"):
        x, n = quarters((3, 4), dtype).abs(), torch.arange(4).to(getattr(torch, dtype)) + 1
        agree(
            lambda lib, x, n: getattr(lib.special, name)(x, n),
            x,
            n,
            tolerance=max(tolerance(dtype), 2e-5),
        )
    if not name.startswith("gamma"):
        agree(lambda lib, x: getattr(lib.special, name)(x, 2), torch.rand(3) + 1, tolerance=2e-5)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_numbers(name: str) -> None:
    f = getattr(operator, name)
    for dtype in DTYPES:
        x = values("pow" if name == "pow" else name, dtype, 3)
        for number in (2, 3.5, True, 1j, -1, 300, 0.0):
            if dtype == "uint8" and name in ("lshift", "rshift", "pow") and number in (-1, 300):
                continue
            if dtype == "float16" and number == 1j:  # torch has complex numbers of halves
                continue
            near = (
                1.0
                if name in ("floordiv", "mod") and dtype in HALVES
                else max(tolerance(dtype), 1e-5)
            )
            agree(lambda lib, x, n=number: f(x, n), x, tolerance=near, message=25)
            if name in ("pow", "lshift", "rshift") and number == 300:
                continue
            agree(lambda lib, x, n=number: f(n, x), x, tolerance=near, message=25)


@pytest.mark.parametrize(
    "name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ilshift"]
)
def test_in_place_operators(name: str) -> None:
    f = getattr(operator, name)
    for dtype in ("bool", "uint8", "int64", "float32", "bfloat16", "complex64"):
        x = values("pow", dtype, 1)
        for other in (
            2,
            1.5,
            True,
            x.clone(),
            x[:1].float() if not x.is_complex() else x[:1],
            x.double() if not x.is_complex() else x,
        ):
            agree(
                lambda lib, x, o: f(x.clone(), o),
                x,
                other,
                tolerance=1.0 if dtype == "bfloat16" else 1e-5,
                message=25,
            )


def test_operands_that_are_none() -> None:
    x = skimp.ones(3)
    for f in (
        operator.add,
        operator.mul,
        operator.pow,
        operator.lt,
        operator.and_,
        operator.floordiv,
    ):
        for other in ("a", None, object()):
            with pytest.raises(TypeError):
                f(x, other)
            with pytest.raises(TypeError):
                f(other, x)
    assert (x == "a") is False
    assert (x != None) is True  # noqa: E711


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_integers_beyond_64_bits_are_refused(number: int) -> None:
    for x in (skimp.ones(3), skimp.ones(3, dtype=skimp.int64)):
        for f in (operator.add, operator.mul, operator.eq, operator.lt):
            with pytest.raises(OverflowError):
                f(x, number)


def test_factor_of_add_and_sub() -> None:
    for name in ("add", "sub"):
        for dtype in ("bool", "uint8", "int64", "float32", "bfloat16", "complex64"):
            x, y = quarters((3,), dtype, 1), quarters((3,), dtype, 2)
            for alpha in (2, -1, 1.5, 1j, True, 0, "a"):
                if dtype == "uint8" and alpha == -1:
                    continue
                agree(
                    lambda lib, x, y, a=alpha, f=name: getattr(lib, f)(x, y, alpha=a),
                    x,
                    y,
                    tolerance=tolerance(dtype),
                )
                agree(
                    lambda lib, x, y, a=alpha, f=name: getattr(x.clone(), f + "_")(y, alpha=a),
                    x,
                    y,
                    tolerance=tolerance(dtype),
                )
    agree(lambda lib, x: lib.rsub(x, 3, alpha=2), torch.rand(3))
    agree(lambda lib: lib.add(1, 2))
    agree(lambda lib: lib.div(1, 2))


@pytest.mark.parametrize("mode", ["trunc", "floor", "other"])
def test_rounded_division(mode: str) -> None:
    for dtype in ("uint8", "int64", "float32", "float16", "bfloat16", "bool", "complex64"):
        x = numbers((40,), dtype, 1) * (1 if dtype == "bool" else 7)
        y = quarters((40,), dtype, 2)
        agree(lambda lib, x, y: lib.div(x, y, rounding_mode=mode), x, y, message=30)
    agree(lambda lib, x: lib.div(x, 0, rounding_mode=mode), torch.tensor([1, 2]), message=10)
    agree(lambda lib, x: lib.div(x, 0, rounding_mode=mode), torch.tensor([1.0, -2.0, 0.0]))


def test_shifts_beyond_the_width() -> None:
    for dtype in ("uint8", "int8", "int64"):
        x, by = numbers((6,), dtype), torch.tensor([0, 1, 7, 8, 63, 64]).to(getattr(torch, dtype))
        agree(lambda lib, x, n: x << n, x, by)
        agree(lambda lib, x, n: x >> n, x, by)
    agree(lambda lib, x: (x << -1, x >> -1), torch.tensor([5, -5]))


def test_gcd_and_lcm_of_the_extremes() -> None:
    x = torch.tensor([-(2**63), -(2**63), 2**62, 0, 0, -6])
    y = torch.tensor([0, -(2**63), 3, 0, 5, 4])
    agree(lambda lib, x, y: (lib.gcd(x, y), lib.lcm(x, y)), x, y)


# -- more arguments -------------------------------------------------------------------------------

LIMITS: list[tuple[Any, Any]] = [
    (0, 1),
    (None, 1),
    (-1, None),
    (0.5, None),
    (0, 1.5),
    (2, 1),
    (NAN, 1),
    (None, None),
    (-1, 300),
    ("a", 1),
    (0, True),
]


@pytest.mark.parametrize("limits", LIMITS)
def test_clamp_by_numbers(limits: tuple[Any, Any]) -> None:
    for dtype in DTYPES:
        if dtype == "uint8" and limits[0] == -1:
            continue
        x = quarters((3, 4), dtype)
        agree(lambda lib, x: lib.clamp(x, *limits), x, message=30)
        agree(lambda lib, x: x.clone().clamp_(*limits), x, message=30)
    agree(lambda lib, x: x.clip(*limits), odd("float32"), message=30)


def test_clamp_by_tensors() -> None:
    for dtype in ("int32", "float32", "bfloat16", "int64"):
        x, low, high = (quarters((3, 4), dtype, seed) for seed in range(3))
        agree(lambda lib, x, a, b: lib.clamp(x, a, b), x, low, high)
        agree(lambda lib, x, a, b: lib.clamp(x, a, b[0]), x, low.double(), high)
        agree(
            lambda lib, x, a: (
                lib.clamp_min(x, a),
                lib.clamp_max(x, a),
                lib.clamp(x, min=a),
                lib.clamp(x, 0, a),
            ),
            x,
            low,
        )
        agree(lambda lib, x: (lib.clamp_min(x, 0.5), lib.clamp_max(x, 1)), x)


@pytest.mark.parametrize(
    "dtype", ["int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_mixtures(dtype: str) -> None:
    x, y, z = (quarters((3, 4), dtype, seed) for seed in range(3))
    near = tolerance(dtype) * 5
    for weight in (0.25, 0.75, 1, 0):
        agree(lambda lib, x, y, w=weight: lib.lerp(x, y, w), x, y, tolerance=near)
    agree(lambda lib, x, y, z: lib.lerp(x, y, z), x, y, z, tolerance=near)
    other = (
        y.real if y.is_complex() else y.to(torch.float64 if dtype != "float64" else torch.float32)
    )
    agree(lambda lib, x, y: lib.lerp(x, y, 0.5), x, other)
    for value in (1, 2, -0.5):
        agree(lambda lib, x, y, z, v=value: lib.addcmul(x, y, z, value=v), x, y, z, tolerance=near)
        agree(
            lambda lib, x, y, z, v=value: lib.addcdiv(x, y, z, value=v),
            x,
            y,
            z,
            tolerance=near,
            message=60,
        )
        agree(
            lambda lib, x, y, z, v=value: x.clone().addcmul_(y, z[0], value=v),
            x,
            y,
            z,
            tolerance=near,
        )
    agree(lambda lib, x, y: lib.addcmul(x, y, y), x, torch.tensor(2), tolerance=near)


def test_complex_from_parts() -> None:
    for dtype in ("float32", "float64", "int64", "bfloat16"):
        a, b = quarters((3,), dtype, 1), quarters((3,), dtype, 2)
        agree(lambda lib, a, b: lib.complex(a, b), a, b)
        agree(lambda lib, a, b: lib.polar(a, b), a, b, tolerance=1e-6)
    agree(lambda lib, a, b: lib.complex(a, b), torch.ones(2), torch.ones(2).double())


# -- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_aliases_are_the_same_function(name: str) -> None:
    assert getattr(skimp, name) is getattr(skimp, ALIASES[name])
    assert hasattr(skimp.Tensor, name)
    assert hasattr(skimp.Tensor, f"{name}_") == hasattr(torch.Tensor, f"{name}_")


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_every_form_of_torch_is_there(name: str) -> None:
    assert hasattr(skimp.Tensor, name)
    if hasattr(torch.Tensor, f"{name}_"):
        assert hasattr(skimp.Tensor, f"{name}_")
    with pytest.raises(TypeError):
        getattr(skimp, name)("a", *(["b"] if name in BINARY else []))


def test_every_name_of_torch_special_is_there() -> None:
    composed = {"softmax", "log_softmax", "logsumexp"}  # of rows, not of elements
    for name in dir(torch.special):
        if callable(getattr(torch.special, name)) and name[0].islower() and name not in composed:
            assert hasattr(skimp.special, name), name


# -- the short way of small tensors ----------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_short_way_gives_the_bits_of_the_general_way(data: Any) -> None:
    """Operands at hand, of any layout, against the general way and against torch."""
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    shapes = data.draw(
        st.sampled_from(
            [((3, 4), (3, 4)), ((3, 1), (1, 4)), ((3, 4), (4,)), ((), (3,)), ((2, 3, 4), (3, 4))]
        )
    )
    x, y = (
        data.draw(st.sampled_from([quarters(s, dtype, i), _strided(s, dtype, i)]))
        for i, s in enumerate(shapes)
    )
    number = data.draw(st.sampled_from([2, -3, 0.1, 1e300, 7, 2**62]))
    f = data.draw(
        st.sampled_from(
            [operator.add, operator.sub, operator.mul, operator.eq, operator.lt, operator.truediv]
        )
    )
    a, b = twin(x), twin(y)
    with skimp.config.using(defer="never"):
        short = [f(a, b), f(a, number), f(number, a), skimp.exp(a), -a, abs(a)]
    with skimp.config.using(small_below=0):
        a, b = twin(x), twin(y)
        general = [f(a, b), f(a, number), f(number, a), skimp.exp(a), -a, abs(a)]
        for one, other in zip(short, general, strict=True):
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(array(one), array(other))
    theirs = [f(x, y), f(x, number), f(number, x), torch.exp(x), -x, abs(x)]
    same(short, theirs, tolerance=1e-6)


def _strided(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """The same shape, transposed in memory."""
    return quarters(shape[::-1], dtype, seed).permute(tuple(reversed(range(len(shape)))))


def test_short_in_place_bumps_the_version_and_honours_aliases() -> None:
    for lib in (torch, skimp):
        x = lib.arange(6.0)
        x += 1.0
        x *= x
        x.add_(lib.ones(6))
        assert x._version == 3
        view = x[1:]
        x[:-1].add_(0.5)
        with pytest.raises(RuntimeError):
            x[:-1].mul_(view)
        with pytest.raises(RuntimeError):
            x += lib.ones(2, 6)
        assert x.tolist() == [2.5, 5.5, 10.5, 17.5, 26.5, 37.0]


# -- gradients ------------------------------------------------------------------------------------

SMOOTH = [
    n
    for n in UNARY
    if n not in ("bitwise_not", "logical_not", "signbit") and not n.startswith("is")
]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_unary(name: str) -> None:
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    if name == "acosh":
        x = x + 1.5
    if name != "sgn":  # its zeros in torch are a tensor without elements
        same_gradients(lambda lib, x: getattr(lib, name)(x), x, tolerance=1e-8)
    ours = getattr(skimp, name)(twin(x).requires_grad_())
    theirs = getattr(torch, name)(x.clone().requires_grad_())
    if theirs.grad_fn is not None:
        assert ours.grad_fn.name() == theirs.grad_fn.name()


@pytest.mark.parametrize("name", ["entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri"])
def test_gradients_of_special(name: str) -> None:
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    same_gradients(lambda lib, x: getattr(lib.special, name)(x), x, tolerance=1e-8)


NOT_DIFFERENTIABLE = ("floor_divide", "heaviside", "gcd", "lcm", "eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in BINARY
        if n not in NOT_DIFFERENTIABLE and not n.startswith(("bitwise", "logical_"))
    ],
)
def test_gradients_of_binary(name: str) -> None:
    x = torch.linspace(0.3, 1.9, 6, dtype=torch.float64).reshape(2, 3)
    y = torch.tensor([0.4, 1.3, 2.2], dtype=torch.float64)
    same_gradients(lambda lib, x, y: getattr(lib, name)(x, y), x, y, tolerance=1e-8)


def test_gradients_with_numbers() -> None:
    x = torch.linspace(0.3, 1.9, 6, dtype=torch.float64)
    for f in (
        lambda x: x**3,
        lambda x: x**-0.5,
        lambda x: 2.5**x,
        lambda x: 2 / x,
        lambda x: 3 - x,
        lambda x: x % 0.7,
        lambda x: x.clamp(0.5, 1.0),
        lambda x: x.clamp(min=1.0),
        lambda x: x.clamp_max(1.0),
        lambda x: x.xlogy(2.0),
        lambda x: x.copysign(-1.0),
        lambda x: x.sub(x * x, alpha=3),
        lambda x: x.polygamma(2),
        lambda x: x.mvlgamma(1),
        lambda x: x.logit(0.1),
        lambda x: x.float_power(2),
        lambda x: x.addcmul(x, x, value=2.0),
        lambda x: x.addcdiv(x, x + 1, value=-0.5),
        lambda x: x.lerp(x * x, 0.3),
        lambda x: x.lerp(x * x, x),
        lambda x: x.div(0.3, rounding_mode="trunc"),
        lambda x: x.maximum(x.flip(0)),
        lambda x: x.clamp(x * 0.9, x * 1.1),
    ):
        same_gradients(lambda lib, x, f=f: f(x), x, tolerance=1e-8)


def test_gradients_of_complex_numbers() -> None:
    z = (torch.linspace(0.3, 1.9, 4, dtype=torch.float64) + 0.7j).requires_grad_()
    w = torch.tensor([0.2 - 1j, 1.0, 2.0j, -1.0], dtype=torch.complex128).requires_grad_()
    for f in (
        lambda z, w: z * w,
        lambda z, w: z / w,
        lambda z, w: z**w,
        lambda z, w: z**2,
        lambda z, w: (z * 2j).exp(),
        lambda z, w: z.log() + w.sin(),
        lambda z, w: z.abs() * w,
        lambda z, w: z.sgn() + w.tanh(),
        lambda z, w: z.angle() * w,
        lambda z, w: (2j - z).sqrt() * w.conj_physical(),
        lambda z, w: z.sigmoid() + w,
        lambda z, w: z.add(w, alpha=2j),
    ):
        a, b = twin(z), twin(w)
        theirs = torch.autograd.grad(f(z, w).sum().abs() ** 2, (z, w), allow_unused=True)
        ours = skimp.autograd.grad(f(a, b).sum().abs() ** 2, (a, b), allow_unused=True)
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(
                    array(one.resolve_conj()), array(other.resolve_conj()), rtol=1e-9, atol=1e-12
                )


def test_ops_without_derivative_say_so_in_backward() -> None:
    for lib in (torch, skimp):
        x = lib.ones(3, requires_grad=True)
        for f in (lambda x: x // 2, lambda x, lib=lib: lib.heaviside(x, x)):
            result = f(x).sum()
            assert result.requires_grad
            with pytest.raises(RuntimeError, match="not implemented"):
                result.backward()


def test_out_refuses_what_autograd_would_follow() -> None:
    x = skimp.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        skimp.exp(x, out=skimp.empty(3))
    assert outcome(lambda: skimp.exp("a"))[0] is TypeError
