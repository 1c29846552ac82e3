"""NumPy's loops called straight (`bare.h`): what its ufuncs do, with their bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy._core import umath

import skimp
from skimp._kernels import bare, compiled, loops, sharing

UFUNCS = [
    *[u for u in vars(np).values() if isinstance(u, np.ufunc) and u.nin < 3 and u.nout == 1],
    umath.clip,
]
SHAPES = (
    (),
    (1,),
    (4,),
    (33,),
    (3, 4),
    (1, 4),
    (3, 1),
    (2, 3, 4),
    (2, 1, 1),
    (0,),
    (70, 60),
    (90, 60),
    (1, 60),
)
NUMBERS = (2.5, -0.0, 0, 3, -7, 1 << 30, 1e300, True, np.float32(0.5))
Draw = Any


@pytest.fixture(scope="module", autouse=True)
def compiled_loops() -> None:
    if compiled.loops() is None:
        pytest.skip("no loops are compiled")


def test_as_it_stands_it_is_the_ufunc() -> None:
    assert loops.ufunc(np.add) is np.add


@pytest.mark.parametrize("kind", ["f4", "f8", "?", "i8", "c16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (100,), (70, 60), (40_000,), (1 << 20, 5)])
def test_long_arrays_begin_with_a_line_of_the_cache(shape: Any, kind: str) -> None:
    x = bare.empty(shape, np.dtype(kind))
    assert (x.shape, x.dtype, x.base, x.flags.carray) == (shape, np.dtype(kind), None, True)
    if x.nbytes >= 1 << 14:
        assert x.ctypes.data % sharing.LINE == 0
    x[...] = 1
    y = x.copy()
    x.resize(x.size + 9, refcheck=False)
    assert np.array_equal(x[:-9], y.reshape(-1))
    assert not x[-9:].any()


def test_of_other_arguments_empty_is_numpys() -> None:
    assert bare.empty(3, "i4").dtype == np.int32
    assert bare.empty([2, 3], dtype=np.dtype("O")).shape == (2, 3)
    for shape in ((-1,), (1 << 40, 1 << 40), (2.0,)):
        with pytest.raises((ValueError, TypeError)):
            bare.empty(shape, np.dtype("f4"))
    with pytest.raises(MemoryError):
        bare.empty((1 << 58,), np.dtype("f4"))


def test_results_of_middle_sizes_begin_with_a_line_of_the_cache() -> None:
    x = np.ones((90, 60), "f")
    for y in (bare.add(x, x), bare.add(x, x[0]), bare.exp(x), bare.add(x.astype("d"), 1)):
        assert y.ctypes.data % sharing.LINE == 0
    assert bare.less(x, x).dtype == bool


@st.composite
def operands(draw: Draw) -> Any:
    ufunc = draw(st.sampled_from(UFUNCS))
    made, kind = [], draw(st.sampled_from("?bBil" + 4 * "fd"))
    numbers = np.random.default_rng(draw(st.integers(0, 99)))
    for _ in range(ufunc.nin):
        a = numbers.standard_normal(draw(st.sampled_from(SHAPES))) * 10.0 ** numbers.integers(-3, 4)
        if a.size > 4 and kind in "fd":
            a.reshape(-1)[:4] = np.inf, -np.inf, np.nan, -0.0
            numbers.shuffle(a.reshape(-1))
        a = np.asarray(np.clip(a, -100, 100) if kind not in "fd" else a).astype(kind)
        how = draw(st.sampled_from(["row by row"] * 5 + ["turned", "swapped", "number", "gaps"]))
        if how == "number" and made:
            a = draw(st.sampled_from(NUMBERS))
        elif how == "swapped":
            a = a.astype(a.dtype.newbyteorder())
        elif how != "row by row" and a.ndim:
            a = a.T if how == "turned" else a[::2]
        made.append(a)
    return ufunc, made, draw(st.sampled_from(["new", "new", "out", "over", "shifted"]))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def result(call: Any, args: list[Any], like: Any, way: str) -> Any:
    """What a call makes of copies of its operands: new, or into what lies in this way."""
    args = [a.copy("K") if isinstance(a, np.ndarray) else a for a in args]
    if way == "new":
        return np.asarray(call(*args))
    out = np.empty(like.shape, like.dtype)
    same = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.shape == out.shape]
    same = [i for i in same if args[i].dtype == out.dtype]
    if way == "over" and same:
        out = args[same[0]]
    elif way == "shifted" and same and out.ndim == 1:
        room = np.zeros(out.size + 1, out.dtype)
        room[:-1] = args[same[0]]
        args[same[0]], out = room[:-1], room[1:]
    assert call(*args, out=out) is out
    return out


@given(operands())
def test_small_arrays_have_the_ufuncs_results(given: Any) -> None:
    ufunc, args, way = given
    try:
        like = np.asarray(ufunc(*args))
        want = result(ufunc, args, like, way)
    except (TypeError, ValueError, OverflowError) as error:
        with pytest.raises(type(error)):
            bare.ufunc(ufunc)(*args)
        return
    got = result(bare.ufunc(ufunc), args, like, way)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.size > 1 and 1 not in want.shape:
        assert got.strides == want.strides
    real = ~np.isnan(want) if want.dtype.kind == "f" else np.full(want.shape, True)
    assert got[real].tobytes() == want[real].tobytes()
    assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f")


def test_what_is_no_array_or_another_word_is_the_ufuncs() -> None:
    x = np.arange(4.0)
    assert bare.add(1, 2) == 3
    assert bare.add(x, x, where=x > 1, out=np.zeros(4)).tolist() == [0, 0, 4, 6]
    assert bare.add(x, x, dtype=np.float32).dtype == np.float32
    assert bare.multiply([1, 2], x[:2]).tolist() == [0, 2]
    with pytest.raises(TypeError):
        bare.add(x)
    with pytest.raises(ValueError, match="broadcast"):
        bare.add(x, x[:3])
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        bare.add(x, x, out=x)


def test_bits_are_numpys_where_loops_have_several() -> None:
    x = np.full((2, 3), 2, np.float32)
    assert np.array_equal(bare.ufunc(np.logical_xor)(1e-50, x), np.logical_xor(1e-50, x))
    room = np.random.default_rng(0).standard_normal((999, 4)).astype(np.float32)
    for pair in room.view(np.complex64):  # (1, 1) beside none, which has no steps
        a, b = pair[:1].reshape(1, 1), pair[1].reshape(())
        assert bare.multiply(a, b).tobytes() == np.multiply(a, b).tobytes()
    pairs = np.tanh(room[:, :2])
    for ufunc in (np.arccos, np.exp, np.tanh):
        for x, out in pairs.copy()[:, :, None]:  # which touch
            want = ufunc(x, out=out).tobytes()
            assert bare.ufunc(ufunc)(x, out=out).tobytes() == want


@pytest.mark.parametrize("shape", [(), (7,), (3, 40), (4, 1, 5), (0, 3)])
@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "subtract"])
def test_small_arrays_are_reduced_with_numpys_bits(name: str, shape: Any) -> None:
    ufunc, x = getattr(np, name), np.random.default_rng(0).standard_normal(shape)
    if x.size > 6:
        x.reshape(-1)[[0, 3, 5]] = -0.0, np.nan, np.inf
    for a in (x, x.astype("f"), np.float32(x > 0) * -0.0, (x > 0).astype(int), x.T):
        for axis in (None, *range(-len(shape), len(shape))):
            for keep in (False, True):
                try:
                    want = np.asarray(ufunc.reduce(a, axis, None, None, keep))
                except ValueError:  # of none, or in no order
                    with pytest.raises(ValueError, match=r"operation"):
                        bare.reduction(ufunc)(a, axis=axis, keepdims=keep)
                    continue
                got = np.asarray(bare.reduction(ufunc)(a, axis=axis, keepdims=keep))
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                real = want == want
                assert np.array_equal(real, got == got)
                assert got[real].tobytes() == want[real].tobytes()


@pytest.mark.parametrize("made", [np.add, bare.add, np.less, bare.less])
def test_long_arrays_are_shared_whoever_calls(made: Any) -> None:
    x = np.arange(sharing.FROM, dtype=np.float32)
    y, like = x[::-1].copy(), made(x[:1], x[:1])
    out = np.empty(x.shape, like.dtype)
    assert sharing.ran(made, (x, y), out)
    assert np.array_equal(out, made(x, y))
    assert np.array_equal(sharing.made(made, x, y), out)


@pytest.mark.parametrize("name", ["maximum", "less", "add over the first", "in two steps"])
def test_results_beyond_the_cache_are_numpys(name: str) -> None:
    """Written past it or not, to the last element and no further."""
    threads, n = 3, (1 << 26) // (1 if name == "less" else 4) + 5
    x = np.resize(np.arange(-999, 1000, dtype=np.float32), n)
    y, number = x[::-1].copy(), np.array(0.5, np.float32)
    if name == "in two steps":
        want, steps = (x + y) * number, ((np.add, 0, 1, 4), (np.multiply, 4, 2, 4))
    else:
        ufunc = getattr(np, name.partition(" ")[0])
        want, steps = ufunc(x, y), ((ufunc, 0, 1, 4),)
    room = x if "over" in name else bare.empty((n + 9,), want.dtype)
    room[n:] = 1
    register = np.empty(2048 * threads, np.float32)
    operands = x, y, number, register, room[:n]
    assert compiled.loops().ran(steps, operands, n, 2048, 3, 4, threads)
    assert np.array_equal(room[:n], want)
    assert (room[n:] == 1).all()


def test_results_beyond_the_cache_are_made_in_blocks_of_any_length() -> None:
    """Some of which begin between lines of it."""
    n = (1 << 26) + 5
    x = np.arange(n, dtype=np.uint32).view(np.bool_)[:n]
    x.view(np.uint8)[...] &= 1
    out = bare.empty((n,), x.dtype)
    assert compiled.loops().ran(((np.logical_not, 0, 1),), (x, out), n, 1001, 1, 1, 2)
    assert np.array_equal(out, ~x)


def test_small_arrays_are_joined_as_by_numpy() -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(3).reshape(1, 3)
    for arrays in ([a, b], [a, a.copy()], (a.T, b.T), [a, b.astype("f")], [a, b[0]], [a], []):
        for name in ("concatenate", "stack"):
            for axis in (-3, -1, 0, 1, 2, 1 << 70):
                try:
                    want = getattr(np, name)(arrays, axis)
                except (ValueError, TypeError, OverflowError):
                    with pytest.raises((ValueError, TypeError, OverflowError, IndexError)):
                        getattr(bare, name)(arrays, axis)
                    continue
                got = getattr(bare, name)(arrays, axis)
                assert got.dtype == want.dtype
                assert got.tolist() == want.tolist()


def test_who_asks_numpy_to_raise_is_not_asked_by_small_ops() -> None:
    with np.errstate(all="raise"):  # PyTorch's are silent
        assert (skimp.ones(2) / skimp.zeros(2)).tolist() == [float("inf")] * 2
        assert (skimp.ones(2).log() * 2).tolist() == [0, 0]


ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.722839, 88.72284, -87.33655, -103.97, -103.98, -1e30]


def test_exponentials_of_float32_are_within_one_unit_in_the_last_place() -> None:
    near = np.random.default_rng(0).uniform(-105, 90, 100_000)
    bits = np.random.default_rng(1).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    x = np.concatenate([near.astype("f"), bits, np.float32(ENDS)])
    y, exact = bare.exp(x), np.exp(x.astype("d"))
    theirs = torch.exp(torch.from_numpy(x)).numpy()
    assert np.array_equal(np.isnan(y), np.isnan(theirs))
    assert np.array_equal(np.isinf(y), np.isinf(theirs))
    some = np.isfinite(theirs)
    unit = np.spacing(theirs[some]).astype("d")
    limit = 3.0 if bare.EXP is np.exp else 0.8  # NumPy's is within three
    assert (np.abs(y[some] - exact[some]) <= limit * unit).all()


def test_an_exponentials_bits_are_its_own() -> None:
    x = np.random.default_rng(2).uniform(-110, 90, 70_000).astype("f")
    x[: len(ENDS)] = ENDS
    whole = bare.exp(x)
    for first, last, step in ((0, 1, 1), (3, 20, 1), (1, 4000, 1), (5, 9000, 1), (0, 700, 3)):
        part = x[first:last:step]
        assert np.array_equal(bare.exp(part), whole[first:last:step], equal_nan=True)
        assert np.array_equal(bare.EXP(part), whole[first:last:step], equal_nan=True)
        assert np.array_equal(bare.EXP(part[::-1])[::-1], bare.EXP(part), equal_nan=True)
    over = x.copy()
    assert np.array_equal(bare.EXP(over, out=over), whole, equal_nan=True)
    for defer in ("never", "always"):
        with skimp.config.using(defer=defer):
            y = (skimp.from_numpy(x.copy()) + 0.0).exp()
            assert np.array_equal(y.numpy(), whole, equal_nan=True)


def test_exponentials_of_what_is_no_number_warn_nobody() -> None:
    with np.errstate(all="raise"):
        bare.EXP(np.float32([np.nan, 1, -1]))
    with pytest.raises(FloatingPointError, match="overflow"), np.errstate(all="raise"):
        bare.EXP(np.float32([100.0]))


def test_exponentials_of_what_is_no_number_have_numpys_sign() -> None:
    """Else bits would depend on how often a way of an op turns its sign."""
    x = np.array([np.nan, -np.nan, 0, 1, -np.nan], np.float32)
    assert not np.signbit(bare.EXP(x)).any()
