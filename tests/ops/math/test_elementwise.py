"""Pointwise functions against torch: dtypes, pairs of them, numbers, layouts, in place, out=."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.pointwise_rows import (
    BINARY,
    HALVES,
    INF,
    NAN,
    OPERATORS,
    SPECIAL,
    TWO_SPECIAL,
    UNARY,
    odd,
    quarters,
    tolerance,
)
from tests.support.samples import DTYPES, OF_TYPES, agree, numbers, same, twin

# -- one argument ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(
        lambda lib, x: getattr(lib, name)(x),
        x,
        tolerance=tolerance(dtype),
        message=60,
        refused=OF_TYPES,
    )
    packed = name == "angle" and x.is_complex()  # the one result that torch lays out anew
    agree(
        lambda lib, x: getattr(x, name)(),
        x.t(),
        tolerance=tolerance(dtype),
        strides=not packed,
        refused=OF_TYPES,
    )
    agree(lambda lib, x: getattr(lib, name)(x), x[:0], tolerance=tolerance(dtype), refused=OF_TYPES)
    agree(
        lambda lib, x: getattr(lib, name)(x), x[1, 2], tolerance=tolerance(dtype), refused=OF_TYPES
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("bitwise_not", "digamma")])
def test_unary_at_odd_places(name: str, dtype: str) -> None:
    agree(lambda lib, x: getattr(lib, name)(x), odd(dtype), tolerance=tolerance(dtype))


@pytest.mark.parametrize("dtype", ["bool", "int32", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(
        lambda lib, x: getattr(lib.special, name)(x),
        x,
        tolerance=max(tolerance(dtype), 2e-5),
        refused=OF_TYPES,
    )


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "maximum", "atan2", "pow", "eq"])
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "complex64"])
def test_an_element_expanded_beside_others(name: str, dtype: str) -> None:
    """One element with strides of 0 does not say how a result lies: what is beside it does."""
    if dtype == "complex64" and name in ("maximum", "atan2"):
        pytest.skip("not for complex numbers")
    one, x = quarters((), dtype) + 1, quarters((3, 4), dtype) + 1
    for places in (
        lambda one, x: (one.expand(3, 4), x),
        lambda one, x: (x, one.expand(3, 4)),
        lambda one, x: (one.expand(4, 3), x.t()),
        lambda one, x: (x.t(), one.expand(4, 3)),
        lambda one, x: (one.expand(12), x.view(12)),
        lambda one, x: (x.view(12)[::2], one.expand(6)),
        lambda one, x: (one.expand(3, 4), one.expand(3, 4)),
        lambda one, x: (one.expand(7), one.expand(7)),
    ):
        agree(
            lambda lib, one, x, places=places: getattr(lib, name)(*places(one, x)),
            one,
            x,
            tolerance=tolerance(dtype),
        )


@pytest.mark.parametrize("name", [n for n in UNARY if hasattr(torch.Tensor, f"{n}_")])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "bfloat16", "complex64"])
def test_unary_in_place_and_out(name: str, dtype: str) -> None:
    x = quarters((3, 4), dtype)
    agree(
        lambda lib, x: getattr(x.clone(), f"{name}_")(),
        x,
        tolerance=tolerance(dtype),
        refused=OF_TYPES,
    )
    agree(
        lambda lib, x: getattr(x.clone()[:, ::2], f"{name}_")(),
        x,
        tolerance=tolerance(dtype),
        strides=False,
        refused=OF_TYPES,
    )
    out = torch.zeros(3, 4, dtype=x.dtype)
    agree(
        lambda lib, x, o: getattr(lib, name)(x, out=o.clone()),
        x,
        out,
        tolerance=tolerance(dtype),
        refused=OF_TYPES,
    )


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("rows", [2, 5, 100_000])
def test_neg_in_place_of_a_column(dtype: str, rows: int) -> None:
    """NumPy 2.4's negative reads a run here: a step of itemsize elements, a result with gaps."""
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
    agree(
        lambda lib, x: lib.round(x, decimals=1), torch.tensor([1, 2]), refused=NotImplementedError
    )
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
    agree(lambda lib, x: tuple(lib.frexp(x)), x, refused=OF_TYPES)
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
    wrong = f"{OF_TYPES}|^ZeroDivisionError"
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
            agree(
                lambda lib, x, y: getattr(lib, name)(x, y),
                x,
                y,
                tolerance=near,
                message=30,
                refused=wrong,
            )


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
            agree(
                lambda lib, a, b: getattr(lib, name)(a, b),
                a,
                b,
                tolerance=3e-6,
                message=30,
                refused=OF_TYPES,
            )


@pytest.mark.parametrize("name", TWO_SPECIAL)
def test_special_of_two(name: str) -> None:
    for dtype in ("int64", "float32", "float64", "float16"):
        x, n = quarters((3, 4), dtype).abs(), torch.arange(4).to(getattr(torch, dtype)) + 1
        agree(
            lambda lib, x, n: getattr(lib.special, name)(x, n),
            x,
            n,
            tolerance=max(tolerance(dtype), 2e-5),
            refused=OF_TYPES,
        )
    if not name.startswith("gamma"):
        agree(lambda lib, x: getattr(lib.special, name)(x, 2), torch.rand(3) + 1, tolerance=2e-5)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_numbers(name: str) -> None:
    f = getattr(operator, name)
    wrong = f"{OF_TYPES}|^ZeroDivisionError|negative integer powers"
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
            agree(lambda lib, x, n=number: f(x, n), x, tolerance=near, message=25, refused=wrong)
            if name in ("pow", "lshift", "rshift") and number == 300:
                continue
            agree(lambda lib, x, n=number: f(n, x), x, tolerance=near, message=25, refused=wrong)


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
                refused=OF_TYPES,
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
    wrong = f"{OF_TYPES}|alpha must not be|argument 'alpha' must be Number|alpha only supported"
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
                    refused=wrong,
                )
                agree(
                    lambda lib, x, y, a=alpha, f=name: getattr(x.clone(), f + "_")(y, alpha=a),
                    x,
                    y,
                    tolerance=tolerance(dtype),
                    refused=wrong,
                )
    agree(lambda lib, x: lib.rsub(x, 3, alpha=2), torch.rand(3))
    agree(lambda lib: lib.add(1, 2))
    agree(lambda lib: lib.div(1, 2))


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_division(mode: str) -> None:
    wrong = f"{OF_TYPES}|^ZeroDivisionError"
    for dtype in ("uint8", "int64", "float32", "float16", "bfloat16", "bool", "complex64"):
        x = numbers((40,), dtype, 1) * (1 if dtype == "bool" else 7)
        y = quarters((40,), dtype, 2)
        f = partial(rounded, mode=mode)
        agree(f, x, y, message=30, refused=wrong)
    agree(f, torch.tensor([1, 2]), 0, message=10, refused=RuntimeError)
    agree(f, torch.tensor([1.0, -2.0, 0.0]), 0)
    agree(partial(rounded, mode="other"), x, y, message=30, refused=RuntimeError)


def rounded(lib: Any, x: Any, y: Any, mode: str) -> Any:
    return lib.div(x, y, rounding_mode=mode)


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
    (-1, 300),
    (0, True),
]


@pytest.mark.parametrize("limits", LIMITS)
def test_clamp_by_numbers(limits: tuple[Any, Any]) -> None:
    wrong = f"{OF_TYPES}|overflow"
    for dtype in DTYPES:
        if dtype == "uint8" and limits[0] == -1:
            continue
        x = quarters((3, 4), dtype)
        agree(lambda lib, x: lib.clamp(x, *limits), x, message=30, refused=wrong)
        agree(lambda lib, x: x.clone().clamp_(*limits), x, message=30, refused=wrong)
    agree(lambda lib, x: x.clamp(*limits), odd("float32"))


@pytest.mark.parametrize(("limits", "error"), [((None, None), RuntimeError), (("a", 1), TypeError)])
def test_clamp_refuses(limits: tuple[Any, Any], error: Any) -> None:
    for dtype in DTYPES:
        x = quarters((3, 4), dtype)
        agree(lambda lib, x: lib.clamp(x, *limits), x, message=30, refused=error)
        agree(lambda lib, x: x.clone().clamp_(*limits), x, message=30, refused=error)


def test_clamp_by_tensors() -> None:
    for dtype in ("int32", "float32", "bfloat16", "int64"):
        x, low, high = (quarters((3, 4), dtype, seed) for seed in range(3))
        agree(lambda lib, x, a, b: lib.clamp(x, a, b), x, low, high)
        agree(lambda lib, x, a, b: lib.clamp(x, a, b[0]), x, low.double(), high)
        agree(
            lambda lib, x, a: (lib.clamp_min(x, a), lib.clamp_max(x, a), lib.clamp(x, min=a)),
            x,
            low,
        )
        agree(lambda lib, x, a: lib.clamp(x, 0, a), x, low, refused=TypeError)
        agree(lambda lib, x: (lib.clamp_min(x, 0.5), lib.clamp_max(x, 1)), x)


@pytest.mark.parametrize(
    "dtype", ["int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_mixtures(dtype: str) -> None:
    x, y, z = (quarters((3, 4), dtype, seed) for seed in range(3))
    near = tolerance(dtype) * 5
    for weight in (0.25, 0.75, 1, 0):
        agree(lambda lib, x, y, w=weight: lib.lerp(x, y, w), x, y, tolerance=near, refused=OF_TYPES)
    agree(lambda lib, x, y, z: lib.lerp(x, y, z), x, y, z, tolerance=near, refused=OF_TYPES)
    other = (
        y.real if y.is_complex() else y.to(torch.float64 if dtype != "float64" else torch.float32)
    )
    agree(lambda lib, x, y: lib.lerp(x, y, 0.5), x, other, refused=RuntimeError)
    for value in (1, 2, -0.5):
        agree(lambda lib, x, y, z, v=value: lib.addcmul(x, y, z, value=v), x, y, z, tolerance=near)
        agree(
            lambda lib, x, y, z, v=value: lib.addcdiv(x, y, z, value=v),
            x,
            y,
            z,
            tolerance=near,
            message=60,
            refused="^Integer division with addcdiv",
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
        wrong = "^Expected both inputs to be Half, Float or Double"
        agree(lambda lib, a, b: lib.complex(a, b), a, b, refused=wrong)
        agree(lambda lib, a, b: lib.polar(a, b), a, b, tolerance=1e-6, refused=wrong)
    agree(
        lambda lib, a, b: lib.complex(a, b),
        torch.ones(2),
        torch.ones(2).double(),
        refused=RuntimeError,
    )


@pytest.mark.parametrize("base", [[-2.0, -0.5, 0.0], [-2, 3, 0], [-2 + 0j, 1j, 0], -2.0, 0.0])
def test_gradients_of_complex_exponents_are_pytorchs(base: Any) -> None:
    found = []
    for lib in (skimp, torch):
        exponent = lib.tensor([1.5 + 0.5j, 2 - 1j, 2 + 0j], requires_grad=True)
        y = lib.pow(lib.tensor(base) if isinstance(base, list) else base, exponent)
        y.abs().sum().backward()
        found.append(exponent.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_the_gradient_of_sinc_is_0_where_squares_are() -> None:
    found = []
    for lib in (skimp, torch):
        x = lib.tensor([0.0, 1e-40, -1e-25, 1e-19, 1e-3, 0.5], requires_grad=True)
        z = lib.tensor([0.0, 1e-40j, 1e-25, 0.5j], requires_grad=True)
        (lib.sinc(x).sum() + lib.sinc(z).real.sum()).backward()
        found.append([*x.grad.tolist(), *z.grad.tolist()])
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-3)


def test_equal_gives_a_bool() -> None:
    for lib in (skimp, torch):
        x = lib.ones(2)
        found = (lib.equal(x, x + 0), lib.equal(x, x + 1), lib.equal(x, x[:1]))
        assert repr(found) == "(True, False, False)"


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("clamp", (False, True)),
        ("clamp", (None, True)),
        ("clamp_min", (False,)),
        ("clamp_", (False, True)),
        ("clamp", ([True], [False])),
        ("clamp", ([True],)),
    ],
)
def test_bool_is_clamped_by_one_tensor_only(name: str, limits: tuple[Any, ...]) -> None:
    ends = []
    for library in (skimp, torch):
        given = [library.tensor(v) if isinstance(v, list) else v for v in limits]
        try:
            ends.append(getattr(library.tensor([True, False]), name)(*given).tolist())
        except NotImplementedError as e:
            ends.append(str(e))
    assert ends[0] == ends[1]


def test_second_derivatives_of_frexp() -> None:
    """The exponents that are saved have no history."""

    def run(lib: Any) -> Any:
        x = lib.tensor([1.0, 3.0, -5.0], requires_grad=True)
        back = lib.ones(3, requires_grad=True)
        (g,) = lib.autograd.grad(lib.frexp(x).mantissa, x, back, create_graph=True)
        second, third = lib.autograd.grad(g.sum(), (x, back), allow_unused=True)
        return g.tolist(), second, third.tolist()

    assert run(skimp) == run(torch)
