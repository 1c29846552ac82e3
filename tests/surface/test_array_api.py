"""The Array API standard 2024.12: names, signatures, values, types, shapes of array-api-strict."""

from __future__ import annotations

import array as buffers
import inspect
import operator
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import skimp
from skimp import array_api as ours

LATER = {"isin", "broadcast_shapes"}  # of version 2025.12
ITS_OWN = {
    "Device", "__version__", "ArrayAPIStrictFlags", "get_array_api_strict_flags",
    "set_array_api_strict_flags", "reset_array_api_strict_flags",
}  # fmt: skip
UNSIGNED = {"uint16", "uint32", "uint64"}  # PyTorch has few functions of these
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (4,), (2, 3), (0, 3), (2, 1, 3)]
SPACES = {"": (strict, ours), "linalg": (strict.linalg, ours.linalg), "fft": (strict.fft, ours.fft)}
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """The version, and array-api-strict's default type."""
    strict.set_array_api_strict_flags(api_version="2024.12")
    before = skimp.get_default_dtype()
    skimp.set_default_dtype(skimp.float64)
    yield
    skimp.set_default_dtype(before)
    strict.reset_array_api_strict_flags()


def array(
    dtype: str, shape: tuple[int, ...], low: int = -4, high: int = 5, salt: str = ""
) -> Array:
    """Small numbers, the same in each run: integers with ties, fractions, both parts."""
    rng = np.random.default_rng(zlib.crc32(f"{dtype}{shape}{salt}".encode()))
    whole = rng.integers(max(low, 0) if dtype == "uint8" else low, high, shape)
    if dtype == "bool":
        return np.asarray(whole > 0)
    if dtype.startswith("complex"):
        return np.asarray(whole + rng.random(shape) + 1j * rng.normal(size=shape), dtype=dtype)
    if dtype.startswith("float"):
        return np.asarray(whole + rng.choice([0.0, 0.5, 0.3], shape), dtype=dtype)
    return np.asarray(whole, dtype=dtype)


def given(xp: ModuleType, value: Any) -> Any:
    """An argument as the library wants it: dtypes by name, arrays, the rest as it is."""
    if isinstance(value, np.ndarray):
        return xp.asarray(value.copy())
    if isinstance(value, np.dtype):
        return getattr(xp, value.name)
    if isinstance(value, list):
        return [given(xp, each) for each in value]
    return value


def name_of(dtype: Any) -> str:
    return dtype.name if isinstance(dtype, skimp.dtype) else str(dtype).rpartition(".")[2]


def same(mine: Any, theirs: Any, tolerance: float = 0.0) -> None:
    """Dtypes, shapes and values; of tuples each, and the names of their fields."""
    if isinstance(theirs, tuple | list):
        assert isinstance(mine, tuple) == isinstance(theirs, tuple)
        fields = getattr(theirs, "_fields", ())
        assert all(hasattr(mine, field) for field in fields)
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            same(one, other, tolerance)
        return
    if not hasattr(theirs, "shape"):
        assert mine == theirs
        return
    # the integers' sums that have no type here: see the page
    dtype = {"uint64": "int64"}.get(str(theirs.dtype).rpartition(".")[2], name_of(theirs.dtype))
    assert isinstance(mine, skimp.Tensor)
    assert name_of(mine.dtype) == dtype
    assert tuple(mine.shape) == theirs.shape
    precise = 1e-12 if dtype in ("float64", "complex128") else 2e-5
    np.testing.assert_allclose(
        np.asarray(mine.resolve_conj()), np.asarray(theirs), rtol=precise, atol=precise + tolerance
    )


def functions(space: str) -> list[str]:
    strict.set_array_api_strict_flags(api_version="2024.12")
    names = [n for n in SPACES[space][0].__all__ if n not in LATER | ITS_OWN]
    strict.reset_array_api_strict_flags()
    return names


ALL = [(space, name) for space in SPACES for name in functions(space)]


@pytest.mark.parametrize(("space", "name"), ALL)
def test_names_and_signatures_are_the_standards(space: str, name: str) -> None:
    theirs, mine = (getattr(xp, name) for xp in SPACES[space])
    assert name in SPACES[space][1].__all__
    if not inspect.isfunction(theirs) or isinstance(theirs, type):
        return
    found = [p.replace(annotation=p.empty) for p in inspect.signature(mine).parameters.values()]
    wanted = [
        p.replace(annotation=p.empty, default=None if "Undef" in repr(p.default) else p.default)
        for p in inspect.signature(theirs).parameters.values()
    ]
    if name != "__array_namespace_info__":
        assert found == wanted


def test_nothing_but_the_standards_names() -> None:
    assert set(ours.__all__) == {name for space, name in ALL if not space} | {"linalg", "fft"}
    assert [n for n in DTYPES if getattr(ours, n) is not getattr(skimp, n)] == []
    assert set(ours.__all__) >= UNSIGNED
    assert (ours.e, ours.pi, ours.inf, ours.newaxis) == (np.e, np.pi, np.inf, None)
    assert ours.nan != ours.nan
    assert ours.__array_api_version__ == "2024.12"


def taking(*arguments: str) -> list[str]:
    """Functions of the main namespace whose arguments are these and no others."""
    return [
        name
        for space, name in ALL
        if not space
        and inspect.isfunction(getattr(ours, name))
        and tuple(inspect.signature(getattr(ours, name)).parameters) == arguments
    ]


NOT_BY_ELEMENT = {
    "matmul", "matrix_transpose", "nonzero", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
}  # fmt: skip


def call(xp: ModuleType, name: str, *values: Any) -> Any:
    return getattr(xp, name)(*(given(xp, value) for value in values))


def outside(name: str, *values: Any) -> bool:
    """Whether array-api-strict says that the standard does not have this case."""
    with np.errstate(all="ignore"):
        try:
            call(strict, name, *values)
        except TypeError:
            return True
    return False


@pytest.mark.parametrize("name", [n for n in taking("x") if n not in NOT_BY_ELEMENT])
def test_functions_of_one(name: str) -> None:
    compared = 0
    for dtype in DTYPES:
        for shape in SHAPES:
            value = array(dtype, shape)
            if outside(name, value):
                continue
            with np.errstate(all="ignore"):
                same(call(ours, name, value), call(strict, name, value), 1e-13)
            compared += 1
    assert compared >= len(SHAPES)


PAIRS = [*((d, d) for d in DTYPES), ("int8", "uint8"), ("int16", "int64"), ("uint8", "int32")]
PAIRS += [("float32", "float64"), ("complex64", "float64"), ("float32", "complex128")]
TWO_SHAPES = [((4,), (4,)), ((2, 1), (3,)), ((), (3,)), ((0, 3), (1,)), ((2, 3), ())]


@pytest.mark.parametrize("name", [n for n in taking("x1", "x2") if n not in NOT_BY_ELEMENT])
def test_functions_of_two(name: str) -> None:
    integers_only = name in ("floor_divide", "remainder", "bitwise_left_shift")
    positive = integers_only or name in ("pow", "bitwise_right_shift")
    compared = 0
    for left, right in PAIRS:
        for one, other in TWO_SHAPES:
            a, b = array(left, one), array(right, other, 1 if positive else -4, 4, "b")
            b = np.asarray(1 + np.abs(b)).astype(b.dtype) if integers_only else b
            if outside(name, a, b):
                continue
            with np.errstate(all="ignore"):
                same(call(ours, name, a, b), call(strict, name, a, b), 1e-13)
            compared += 1
    assert compared >= len(TWO_SHAPES)


@pytest.mark.parametrize("name", [n for n in taking("x1", "x2") if n not in NOT_BY_ELEMENT])
def test_either_argument_may_be_a_number(name: str) -> None:
    compared = 0
    for dtype in DTYPES:
        number = True if dtype == "bool" else 2 if "int" in dtype else 1.5
        value = array(dtype, (2, 3), 1, 4)
        for values in ((value, number), (number, value)):
            if not outside(name, *values):
                with np.errstate(all="ignore"):
                    same(call(ours, name, *values), call(strict, name, *values), 1e-13)
                compared += 1
    assert compared >= 2
    with pytest.raises(TypeError, match="at least one tensor"):
        getattr(ours, name)(1, 2)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1e300, -1e300])
ENDS = {"int8": [-128, -1, 0, 1, 127], "uint8": [0, 1, 200, 255], "int64": [-(2**63), 0, 2**63 - 1]}


def same_in_every_bit_that_counts(name: str, *values: Any) -> None:
    """Also the signs of zeros and infinities."""
    with np.errstate(all="ignore"):
        found, wanted = (np.asarray(call(xp, name, *values)) for xp in (ours, strict))
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    if wanted.dtype.kind == "f" and name != "remainder":
        numbers = ~np.isnan(wanted)
        assert (np.signbit(found) == np.signbit(wanted))[numbers].all()


@pytest.mark.parametrize("name", [n for n in taking("x") if n not in NOT_BY_ELEMENT])
def test_special_values_of_one(name: str) -> None:
    values = [SPECIAL, *(np.array(ends, dtype) for dtype, ends in ENDS.items())]
    values = [value for value in values if not outside(name, value)]
    for value in values:
        same_in_every_bit_that_counts(name, value)
    assert values or outside(name, array("float64", (1,)))


@pytest.mark.parametrize("name", [n for n in taking("x1", "x2") if n not in NOT_BY_ELEMENT])
def test_special_values_of_two(name: str) -> None:
    if not name.startswith("bitwise") and not outside(name, SPECIAL, SPECIAL):
        same_in_every_bit_that_counts(name, SPECIAL[:, None], SPECIAL)
    for dtype, ends in ENDS.items():
        left, right = np.array(ends, dtype)[:, None], np.array([1, 2, 3, 7], dtype)
        if not outside(name, left, right):
            same_in_every_bit_that_counts(name, left, right)


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.matmul,
]  # fmt: skip


@pytest.mark.parametrize("operate", OPERATORS)
def test_operators(operate: Callable[[Any, Any], Any]) -> None:
    """All of the standard's, but for a tensor without dimensions of another type (as PyTorch's)."""
    compared = 0
    product = operate is operator.matmul
    for left, right in PAIRS:
        for one, other in [*TWO_SHAPES, ((3, 2), (2, 4))]:
            if left != right and (product or not (one and other)):
                continue
            values = array(left, one, 1, 4), array(right, other, 1, 4, "b")
            try:
                with np.errstate(all="ignore"):
                    theirs = operate(*(given(strict, value) for value in values))
            except (TypeError, ValueError):
                continue
            same(operate(*(given(ours, value) for value in values)), theirs, 1e-13)
            compared += 1
    assert compared >= 5


def test_operators_keep_pytorchs_rules_for_types() -> None:
    """Where they part from the standard's functions, as the page says."""
    vector, number = ours.ones(3, dtype=ours.float32), ours.asarray(2.0, dtype=ours.float64)
    assert (vector + number).dtype is ours.float32
    assert ours.add(vector, number).dtype is ours.float64
    with pytest.raises(RuntimeError, match="dtype"):
        vector @ ours.ones(3, dtype=ours.float64)
    assert ours.matmul(vector, ours.ones(3, dtype=ours.float64)).dtype is ours.float64
    with pytest.raises(ValueError, match="step must be greater than zero"):
        vector[::-1]


KINDS = [
    "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
    "numeric",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_kinds_and_limits(dtype: str) -> None:
    mine, theirs = getattr(ours, dtype), getattr(strict, dtype)
    for kind in [*KINDS, ("bool", "real floating"), ()]:
        assert ours.isdtype(mine, kind) == strict.isdtype(theirs, kind)
    assert ours.isdtype(mine, (mine,))
    assert ours.isdtype(mine, ours.float32) == (dtype == "float32")
    with pytest.raises(ValueError, match="no kind 'float'"):
        ours.isdtype(mine, "float")
    limits = "iinfo" if "int" in dtype else "finfo"
    if dtype == "bool":
        return
    for argument in (mine, ours.zeros(1, dtype=mine)):
        found, wanted = getattr(ours, limits)(argument), getattr(strict, limits)(theirs)
        assert name_of(found.dtype) == name_of(wanted.dtype)
        fields = ["bits", "min", "max"] + ["eps", "smallest_normal"] * (limits == "finfo")
        assert [getattr(found, f) for f in fields] == [getattr(wanted, f) for f in fields]


def test_what_the_namespace_says_of_itself() -> None:
    mine, theirs = ours.__array_namespace_info__(), strict.__array_namespace_info__()
    assert mine.capabilities() == theirs.capabilities()
    skimp.ones((1,) * mine.capabilities()["max dimensions"])
    with pytest.raises(RuntimeError, match="maximum supported dimension"):
        skimp.ones((1,) * (mine.capabilities()["max dimensions"] + 1))
    assert mine.default_device() in mine.devices()
    named = {k: name_of(v) for k, v in theirs.default_dtypes().items()}
    assert {k: name_of(v) for k, v in mine.default_dtypes().items()} == named
    for kind in [None, *KINDS, ("bool", "integral")]:
        wanted = {k: name_of(v) for k, v in theirs.dtypes(kind=kind).items()}
        assert {k: name_of(v) for k, v in mine.dtypes(kind=kind).items()} == wanted
    skimp.set_default_dtype(skimp.float32)
    assert mine.default_dtypes()["complex floating"] is skimp.complex64


def test_the_namespace_of_a_tensor() -> None:
    x = skimp.ones(2)
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is ours
    with pytest.raises(ValueError, match=r"2030\.12.*there are 2021\.12"):
        x.__array_namespace__(api_version="2030.12")
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x
    assert skimp.array_api.astype(x, x.dtype).data_ptr() != x.data_ptr()


def test_members_of_arrays() -> None:
    """All that the standard asks of an array is here; `@=` by way of `@`."""
    wanted = {n for n in dir(strict.asarray(1.0)) if not n.startswith("_") or n.endswith("__")}
    lacking = {n for n in wanted if not hasattr(skimp.Tensor, n)}
    own = {"__slots__", "__buffer__"}  # of that implementation, not the standard
    assert lacking - own == {"__imatmul__"}
    x = skimp.eye(2)
    x @= 2 * skimp.eye(2)
    assert x.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert callable(x.size)  # PyTorch's, a method


def test_copies_are_made_or_refused_as_asked() -> None:
    x = ours.reshape(ours.arange(6), (2, 3))
    assert ours.reshape(x, (6,)).data_ptr() == x.data_ptr()
    assert ours.reshape(x, (6,), copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="no view"):
        ours.reshape(x.mT, (6,), copy=False)
    assert ours.asarray(x).data_ptr() == ours.asarray(x, copy=False).data_ptr() == x.data_ptr()
    assert ours.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert ours.astype(x, x.dtype, copy=False) is x
    held = buffers.array("h", [1, 2, 3])
    shared = ours.asarray(held)
    held[0] = 7
    assert (shared.dtype, shared.tolist()) == (ours.int16, [7, 2, 3])
    assert ours.asarray(memoryview(held), dtype=ours.int8).tolist() == [7, 2, 3]
    for refused in ([1, 2], x):
        with pytest.raises(ValueError, match=r"copy|alias"):
            ours.asarray(refused, dtype=ours.float32, copy=False)


def test_gradients_go_through() -> None:
    x = skimp.tensor([1.0, 2.0, 4.0], requires_grad=True)
    ours.sum(ours.cumulative_sum(ours.square(x), include_initial=True)).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 8.0, 8.0]
    assert ours.std(x).requires_grad
    assert ours.asarray(x) is x
    assert ours.asarray(2 * x, copy=True).requires_grad
    assert ours.asarray(x, dtype=ours.int64).tolist() == [1, 2, 4]
