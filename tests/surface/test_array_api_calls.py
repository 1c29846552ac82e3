"""The Array API standard's functions of whole arrays: reductions, sets, factors, transforms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

from skimp import array_api as ours
from tests.surface.test_array_api import (
    ALL,
    DTYPES,
    SPACES,
    Array,
    array,
    given,
    name_of,
    outside,
    same,
    settings,  # noqa: F401  (a fixture of every test)
    taking,
)

A, B = array("float64", (2, 3)), array("float64", (3, 4))
N, J = array("int32", (2, 3)), array("int32", (3,))
V, W = array("float64", (4,)), array("float64", (4,), salt="w")
C = array("complex128", (2, 4))
BOOLS, ROWS = array("bool", (2, 3)), array("float64", (2, 3, 4))
SMALL = array("uint8", (2, 3))
SQUARE = array("float64", (3, 3)) + 5 * np.eye(3)
SQUARES = np.stack([SQUARE, SQUARE.T @ SQUARE, SQUARE + 1])
SYMMETRIC = SQUARE @ SQUARE.T
TIES = np.array([3, 1, 3, 2, 1, 1])
SORTED = np.array([-1.5, 0.0, 0.0, 2.0, 7.0])
F4, U1, I8 = np.dtype("float32"), np.dtype("uint8"), np.dtype("int64")

Row = tuple[str, tuple[Any, ...], dict[str, Any]]


def row(name: str, *values: Any, **words: Any) -> Row:
    return name, values, words


ROWS_OF_CALLS = [
    row("arange", 5), row("arange", 2, 9, 3), row("arange", 5, 1, -2), row("arange", 5, 1),
    row("arange", 0.5, 3), row("arange", 1, 4, dtype=F4), row("arange", 1, 4, -1),
    row("asarray", [1, 2]), row("asarray", [1.5, True]), row("asarray", 3), row("asarray", 2j),
    row("asarray", True), row("asarray", [[1], [2]], dtype=F4), row("asarray", N, copy=True),
    row("eye", 3), row("eye", 2, 4, k=1), row("eye", 4, 2, k=-2), row("eye", 2, k=5, dtype=I8),
    row("eye", 0, 3), row("full", (2, 3), 7), row("full", 3, 1.5), row("full", (), True),
    row("full", (2,), 1j), row("full", (2,), 3, dtype=F4), row("full_like", N, 4),
    row("full_like", N, 4, dtype=F4), row("ones", (2, 3)), row("ones", 4, dtype=I8),
    row("ones_like", C), row("ones_like", N, dtype=F4), row("zeros", ()), row("zeros", 3),
    row("zeros_like", SMALL), row("zeros_like", A, dtype=U1),
    row("linspace", 0, 1, 5), row("linspace", 0, 1, 5, endpoint=False), row("linspace", 3, -1, 1),
    row("linspace", 2.0, 3.0, 4, dtype=F4), row("linspace", 0, 1, 0), row("linspace", 0, 1j, 3),
    row("linspace", 0, 1, 0, endpoint=False), row("linspace", 0, 8, 4, dtype=I8, endpoint=False),
    row("meshgrid", V, J.astype("float64")), row("meshgrid", V, W, indexing="ij"),
    row("tril", A), row("tril", SQUARES, k=1), row("triu", N, k=-1), row("triu", A, k=2),
    row("astype", N, F4), row("astype", A, I8), row("astype", BOOLS, F4, copy=False),
    row("broadcast_arrays", A, J), row("broadcast_to", J, (2, 3)), row("can_cast", U1, I8),
    row("can_cast", I8, U1), row("can_cast", F4, np.dtype("float64")), row("can_cast", A, F4),
    row("can_cast", np.dtype("int8"), U1), row("can_cast", F4, np.dtype("complex64")),
    row("clip", A), row("clip", A, 0.0), row("clip", A, None, 1.0), row("clip", N, -1, 2),
    row("clip", A, A - 9, 2.0), row("clip", N, np.asarray(0, N.dtype), np.asarray(2, N.dtype)),
    row("concat", [A, A + 1]), row("concat", [A, A], axis=-1), row("concat", [N, J], axis=None),
    row("concat", [N, N.astype("int64")]), row("count_nonzero", N), row("count_nonzero", C, axis=0),
    row("count_nonzero", N, axis=(0, 1), keepdims=True), row("count_nonzero", BOOLS, axis=-1),
    row("expand_dims", A, 0), row("expand_dims", A, -1), row("expand_dims", A, axis=1),
    row("flip", A), row("flip", A, axis=1), row("flip", ROWS, axis=(0, -1)),
    row("moveaxis", ROWS, 0, -1), row("moveaxis", ROWS, (0, 1), (2, 0)),
    row("permute_dims", ROWS, (2, 0, 1)), row("repeat", A, 2), row("repeat", A, 2, axis=1),
    row("repeat", A, np.array([1, 2, 0]), axis=1), row("reshape", A, (3, 2)),
    row("reshape", A, (-1,), copy=True), row("reshape", A, (6,), copy=False),
    row("roll", A, 1), row("roll", A, -1, axis=0), row("roll", A, (1, 2), axis=(0, 1)),
    row("roll", A, 1, axis=(0, 1)), row("squeeze", A[None], 0), row("stack", [A, A], axis=-1),
    row("squeeze", A[None, :, None], (0, 2)), row("stack", [N, N.astype("int8")]),
    row("tile", A, (2,)), row("tile", J, (2, 1, 2)), row("unstack", ROWS),
    row("unstack", A, axis=1),
    row("argmax", TIES), row("argmax", A, axis=1), row("argmax", A, keepdims=True),
    row("argmin", TIES), row("argmin", N, axis=0, keepdims=True), row("nonzero", N),
    row("nonzero", BOOLS), row("nonzero", C), row("searchsorted", SORTED, V),
    row("searchsorted", SORTED, A, side="right"),
    row("searchsorted", SORTED[::-1].copy(), A, sorter=np.arange(4, -1, -1)),
    row("where", BOOLS, A, A + 10), row("where", BOOLS, N, J.astype("int64")),
    row("where", BOOLS, N, 3), row("where", BOOLS, 0.5, A.astype("float32")),
    row("take", A, np.array([1, 0, 1]), axis=0), row("take", V, np.array([3, 0])),
    row("take", A, np.array([2], dtype="int32"), axis=-1),
    row("take_along_axis", A, np.array([[0, 1], [2, 2]])),
    row("take_along_axis", A, np.array([[1, 0, 1]]), axis=0),
    row("sort", N), row("sort", N, axis=0, descending=True), row("argsort", TIES),
    row("argsort", TIES, descending=True), row("argsort", N, axis=0), row("sort", A, stable=False),
    row("cumulative_sum", V), row("cumulative_sum", N, axis=1), row("cumulative_sum", A, axis=0),
    row("cumulative_sum", A, axis=-1, include_initial=True), row("cumulative_sum", SMALL, axis=0),
    row("cumulative_sum", N, axis=0, dtype=F4), row("cumulative_prod", V),
    row("cumulative_prod", N, axis=1, include_initial=True), row("cumulative_prod", C, axis=1),
    row("diff", V), row("diff", A, axis=0), row("diff", A, n=2), row("diff", V, prepend=W),
    row("diff", A, append=A), row("diff", N, axis=0, prepend=N, append=N),
    row("matmul", A, B), row("matmul", N, J), row("matmul", ROWS, B.T), row("matmul", V, V),
    row("matmul", N, J.astype("int64")), row("matrix_transpose", ROWS),
    row("tensordot", A, B, axes=1), row("tensordot", A, A),
    row("tensordot", N, J, axes=((1,), (0,))),
    row("tensordot", ROWS, A, axes=((0, 1), (0, 1))), row("tensordot", V, W, axes=0),
    row("vecdot", V, W), row("vecdot", N, J), row("vecdot", C, C + 1j), row("vecdot", ROWS, V),
    row("vecdot", A, A, axis=-2), row("result_type", F4, np.dtype("float64")),
    row("result_type", U1, np.dtype("int8")), row("result_type", N, J.astype("int64")),
    row("result_type", np.asarray(1.0), F4), row("result_type", F4, 1, 2.5),
    row("result_type", F4, 1j), row("result_type", N, 3),
]  # fmt: skip
AXES: list[Any] = [None, 0, -1, (0, 1), (0, 2), ()]
REDUCING = ["all", "any", "max", "min", "mean", "prod", "std", "sum", "var"]


def compare(space: str, name: str, values: Any, words: dict[str, Any], close: float = 0.0) -> None:
    results = [
        getattr(xp, name)(
            *(given(main, v) for v in values), **{k: given(main, v) for k, v in words.items()}
        )
        for xp, main in zip(SPACES[space], SPACES[""], strict=True)
    ]
    theirs, mine = results
    if name == "result_type":
        assert name_of(mine) == name_of(theirs)
    else:
        same(mine, theirs, close)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    ROWS_OF_CALLS,
    ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(ROWS_OF_CALLS)],
)
def test_functions_of_arrays(name: str, values: Any, words: dict[str, Any]) -> None:
    compare("", name, values, words, 1e-13)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in REDUCING for d in DTYPES if not outside(n, array(d, (2, 3)))],
)
def test_reductions(name: str, dtype: str) -> None:
    value = array(dtype, (2, 3, 4))
    for axis in AXES:
        for keepdims in (False, True):
            compare("", name, (value,), {"axis": axis, "keepdims": keepdims}, 1e-10)
    compare("", name, (np.asarray(value[0, 0, 0]),), {})
    if name in ("std", "var"):
        compare("", name, (value,), {"axis": 1, "correction": 1.0})
    if name in ("sum", "prod") and not dtype.startswith("complex"):
        compare("", name, (value,), {"dtype": np.dtype("float32"), "axis": 0}, 1e-3)


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse", "unique_values"])
@pytest.mark.parametrize("value", [TIES, N, BOOLS, A, np.array([1j, 1, 1j, 0]), np.zeros((0,))])
def test_sets(name: str, value: Array) -> None:
    compare("", name, (value,), {})


def test_values_that_are_no_number_are_each_their_own() -> None:
    found = ours.unique_all(ours.asarray([np.nan, 1.0, np.nan]))
    assert found.counts.tolist() == [1, 1, 1]
    assert found.indices.tolist() == [1, 0, 2]


LINALG = [
    row("cholesky", SYMMETRIC), row("cholesky", SYMMETRIC, upper=True),
    row("cross", SQUARE, J * 1.0),
    row("cross", SQUARE, SQUARE.T, axis=-2), row("det", SQUARES), row("diagonal", ROWS, offset=1),
    row("diagonal", SQUARE, offset=-1), row("eigvalsh", SYMMETRIC), row("inv", SQUARES),
    row("matmul", A, B), row("matrix_norm", ROWS), row("matrix_norm", A, keepdims=True, ord=2),
    row("matrix_norm", ROWS, ord="nuc"), row("matrix_norm", A, ord=1),
    row("matrix_norm", A, ord=-2),
    row("matrix_power", SQUARE, 3), row("matrix_power", SQUARE, -1), row("matrix_rank", SQUARES),
    row("matrix_rank", A, rtol=0.5), row("matrix_transpose", ROWS), row("outer", V, J * 1.0),
    row("pinv", A), row("pinv", ROWS, rtol=1e-3), row("slogdet", SQUARES),
    row("solve", SQUARE, V[:3]),
    row("solve", SQUARE, B), row("solve", SQUARES, SQUARE), row("solve", SQUARES, V[:3]),
    row("svdvals", ROWS), row("tensordot", A, B, axes=1), row("trace", SQUARES),
    row("trace", SQUARE, offset=1), row("trace", N, dtype=I8), row("trace", N), row("vecdot", V, W),
    row("vector_norm", A), row("vector_norm", ROWS, axis=(0, 2), keepdims=True),
    row("vector_norm", C, axis=1), row("vector_norm", A, axis=0, ord=1),
    row("vector_norm", A, ord=np.inf), row("vector_norm", A, keepdims=True, ord=3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values", "words"), LINALG, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(LINALG)]
)
def test_linalg(name: str, values: Any, words: dict[str, Any]) -> None:
    compare("linalg", name, values, words, 1e-9)


def test_factors_are_those_of_the_matrix() -> None:
    """Signs of vectors are free: the products are compared."""
    la, square, wide = ours.linalg, ours.asarray(SYMMETRIC), ours.asarray(ROWS)
    values, vectors = la.eigh(square)

    np.testing.assert_allclose(np.asarray((vectors * values) @ vectors.mT), SYMMETRIC)
    assert (la.eigh(square).eigenvalues == values).all()
    for mode, shape in (("reduced", (2, 3, 3)), ("complete", (2, 3, 3))):
        factors = la.qr(wide, mode=mode)
        assert tuple(factors.Q.shape) == shape
        np.testing.assert_allclose(np.asarray(factors.Q @ factors.R), ROWS, atol=1e-12)
    found = la.svd(wide, full_matrices=False)
    np.testing.assert_allclose(
        np.asarray((found.U * found.S[..., None, :]) @ found.Vh), ROWS, atol=1e-12
    )
    assert tuple(la.svd(wide).Vh.shape) == (2, 4, 4)
    assert {"sign", "logabsdet"} <= set(dir(la.slogdet(square)))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("words", [{}, {"n": 3}, {"axis": 0}, {"n": 6, "axis": 0}])
def test_transforms(name: str, norm: str, words: dict[str, Any]) -> None:
    value = ROWS if name in ("rfft", "ihfft") else C
    compare("fft", name, (value,), {**words, "norm": norm}, 1e-12)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("words", [{}, {"axes": (0,)}, {"s": (3, 4), "axes": (0, 1)}])
def test_transforms_of_several_axes(name: str, words: dict[str, Any]) -> None:
    compare("fft", name, (ROWS if name == "rfftn" else C,), words, 1e-12)


def test_each_function_is_called_above() -> None:
    tried = {name for name, _, _ in ROWS_OF_CALLS} | set(taking("x") + taking("x1", "x2"))
    tried |= {*REDUCING, "empty", "empty_like", "from_dlpack", "isdtype", "finfo", "iinfo"}
    functions = {n for s, n in ALL if not s and inspect.isfunction(getattr(ours, n))}
    assert functions - tried == {"__array_namespace_info__"}
    in_linalg = {name for name, _, _ in LINALG} | {"eigh", "qr", "svd"}
    assert set(ours.linalg.__all__) == in_linalg


def test_empty() -> None:
    for shape in (3, (), (2, 0)):
        for dtype in DTYPES:
            found, wanted = (xp.empty(shape, dtype=getattr(xp, dtype)) for xp in (ours, strict))
            assert (name_of(found.dtype), tuple(found.shape)) == (dtype, wanted.shape)
            like = ours.empty_like(found)
            assert (like.dtype, like.shape) == (found.dtype, found.shape)
    assert ours.empty(2).dtype is ours.float64
    assert ours.empty_like(ours.empty(2), dtype=ours.int8).dtype is ours.int8


FREQUENCIES = [
    row("fftfreq", 5), row("fftfreq", 4, d=0.5), row("rfftfreq", 5), row("rfftfreq", 4, dtype=F4),
    row("fftshift", A), row("fftshift", A, axes=0), row("ifftshift", A),
    row("ifftshift", V, axes=(0,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "words"), FREQUENCIES)
def test_frequencies(name: str, values: Any, words: dict[str, Any]) -> None:
    compare("fft", name, values, words, 1e-13)


def test_dlpack_there_and_back() -> None:
    x = ours.asarray(A)
    assert ours.from_dlpack(x).data_ptr() == x.data_ptr()
    assert ours.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    np.testing.assert_array_equal(np.asarray(ours.from_dlpack(strict.asarray(A))), A)
    np.testing.assert_array_equal(np.asarray(strict.from_dlpack(x)), A)
    assert np.from_dlpack(ours.conj(ours.asarray(C))).dtype == "complex128"


REFUSED: dict[str, Callable[[ModuleType, Any], Any]] = {
    "squeeze": lambda xp, x: xp.squeeze(x, 0),
    "take": lambda xp, x: xp.take(x, xp.asarray([0])),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x),
    "nonzero": lambda xp, x: xp.nonzero(xp.sum(x)),
    "vecdot": lambda xp, x: xp.vecdot(x, x[:, :1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    for xp in (ours, strict):
        with pytest.raises(ValueError, match=r"\w"):
            REFUSED[name](xp, xp.asarray(A))
