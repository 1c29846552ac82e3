"""Small tensors at hand: the fast paths of reductions and functions of rows, of in-place arithmetic
and of activations give the bits, types, layouts and nodes of the general way, and PyTorch's values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import compiled
from skimp._ops.reduce import small
from skimp.config import config, using
from tests.support.running import default_mode

SHAPES = [
    (), (1,), (5,), (0,), (512,), (513,), (1024,), (1, 1), (3, 4), (16, 32), (64, 2), (70, 3),
    (4, 1), (1, 7), (2, 512), (3, 600), (2, 3, 4), (3, 5, 1), (0, 3), (3, 0),
]  # fmt: skip
DTYPES = ["float32", "float64", "int64", "bool"]
# Calls that PyTorch refuses for a type, whatever the shape; those of a dim 5 too.
_FLOATS_ONLY = (r"mean_.*|var.*|std(_whole|_kept|_biased)?|norm.*|vector_norm.*|gelu.*|lerp_.*"
                r"|glu|add_scaled|clamp_|add_|matrix_norm")  # fmt: skip
REFUSED = {
    "float32": r"one_hot.*",
    "float64": r"one_hot.*",
    "int64": _FLOATS_ONLY,
    "bool": _FLOATS_ONLY + r"|arg(max|min).*|one_hot.*|relu|trace|sub(_|_number)?",
}
# whose order among equals PyTorch leaves open; medians of bools are refused here
TIED = ("sort", "topk", "median", "nanmedian")
Call = Callable[[Any, Any], Any]


def _by_dim(f: Callable[..., Any]) -> dict[str, Call]:
    """`f(t, x, *dims)` whole, and along dims from the front and the back."""
    return {
        "whole": lambda t, x: f(t, x),
        **{f"dim{d}": (lambda t, x, d=d: f(t, x, d)) for d in (-1, 0, 1, 5)},
        "kept": lambda t, x: f(t, x, -1, keepdim=True),
    }


def _row(x: Any) -> Any:
    """All numbers in order; bools as integers."""
    return (x.detach() * 1).reshape(-1).sort()[0]


CALLS: dict[str, Call] = {
    f"{name}_{which}": call
    for name, f in {
        "sum": lambda t, x, *d, **k: x.sum(*d, **k),
        "mean": lambda t, x, *d, **k: x.mean(*d, **k),
        "amax": lambda t, x, *d, **k: x.amax(*d, **k),
        "amin": lambda t, x, *d, **k: x.amin(*d, **k),
        "max": lambda t, x, *d, **k: x.max(*d, **k),
        "min": lambda t, x, *d, **k: x.min(*d, **k),
        "argmax": lambda t, x, *d, **k: x.argmax(*d, **k),
        "argmin": lambda t, x, *d, **k: x.argmin(*d, **k),
        "all": lambda t, x, *d, **k: x.all(*d, **k),
        "any": lambda t, x, *d, **k: x.any(*d, **k),
    }.items()
    for which, call in _by_dim(f).items()
} | {
    "var": lambda t, x: x.var(-1),
    "var_kept": lambda t, x: t.var(x, -1, keepdim=True),
    "var_biased": lambda t, x: x.var(-1, correction=0),
    "var_whole": lambda t, x: x.var(),
    "var_0": lambda t, x: x.var(0),
    "std": lambda t, x: x.std(-1),
    "std_whole": lambda t, x: x.std(),
    "std_kept": lambda t, x: t.std(x, 0, keepdim=True),
    "std_biased": lambda t, x: x.std(1, correction=0),
    "std_tiny": lambda t, x: (x * 1e-17).std(-1),
    "norm": lambda t, x: x.norm(),
    "norm_1": lambda t, x: x.norm(1),
    "vector_norm": lambda t, x: t.linalg.vector_norm(x),
    "norm_rows": lambda t, x: x.norm(2, -1),
    "norm_columns": lambda t, x: x.norm(dim=0),
    "norm_kept": lambda t, x: t.norm(x, dim=-1, keepdim=True),
    "vector_norm_dims": lambda t, x: t.linalg.vector_norm(x, dim=(0, -1)),
    "logsumexp": lambda t, x: x.logsumexp(-1),
    "logsumexp_kept": lambda t, x: t.logsumexp(x, -1, True),
    "logsumexp_0": lambda t, x: x.logsumexp(0),
    "logsumexp_0_kept": lambda t, x: x.logsumexp(0, True),
    "logsumexp_dims": lambda t, x: x.logsumexp((0, -1)),
    "softmax": lambda t, x: x.softmax(-1),
    "softmax_0": lambda t, x: t.softmax(x, 0),
    "softmax_inner": lambda t, x: t.softmax(x, -2),
    "log_softmax_inner": lambda t, x: t.log_softmax(x, -2),
    "softmax_wide": lambda t, x: t.nn.functional.softmax(x, -1, dtype=t.float64),
    "log_softmax": lambda t, x: t.nn.functional.log_softmax(x, dim=-1),
    "sort": lambda t, x: x.sort(),
    "sort_down": lambda t, x: t.sort(x, -1, True),
    "sort_0": lambda t, x: x.sort(0),
    "topk": lambda t, x: x.topk(3),
    "topk_least": lambda t, x: t.topk(x, 2, largest=False),
    "topk_all": lambda t, x: x.topk(x.shape[-1]),
    "topk_0": lambda t, x: x.topk(1, 0),
    "one_hot": lambda t, x: t.nn.functional.one_hot(x.abs() % 5, 5),
    "one_hot_more": lambda t, x: t.nn.functional.one_hot(x.abs() % 5, 8),
    "one_hot_open": lambda t, x: t.nn.functional.one_hot(x.abs() % 5),
    "one_hot_beyond": lambda t, x: t.nn.functional.one_hot(x, 3),
    "argsort": lambda t, x: t.argsort(x, dim=-1, stable=True),
    "argsort_down": lambda t, x: t.argsort(x, dim=0, descending=True, stable=True),
    "median": lambda t, x: x.median(),
    "nanmedian": lambda t, x: x.nanmedian(),
    "median_dim": lambda t, x: x.median(-1),
    "median_0": lambda t, x: t.median(x, 0, keepdim=True),
    "nanmedian_dim": lambda t, x: x.nanmedian(0),
    "sort_kth": lambda t, x: x.kthvalue(2),
    "sort_kth_0": lambda t, x: x.kthvalue(1, 0, True),
    "sort_down_0": lambda t, x: x.sort(0, True),
    "topk_least_0": lambda t, x: x.topk(2, 0, largest=False),
    "cummax": lambda t, x: x.cummax(-1),
    "cummin": lambda t, x: t.cummin(x, 0),
    "prod": lambda t, x: x.prod(),
    "prod_0": lambda t, x: x.prod(0, keepdim=True),
    "sum_ends": lambda t, x: x.sum((0, -1)),
    "mean_ends": lambda t, x: x.mean([0, -1], True),
    "var_ends": lambda t, x: x.var((0, -1)),
    "var_of_all": lambda t, x: x.std(tuple(range(x.ndim)), keepdim=True, correction=0),
    "amax_ends": lambda t, x: x.amax((0, -1)),
    "vector_norm_0": lambda t, x: t.linalg.vector_norm(x, 2, 0, True),
    "vector_norm_1": lambda t, x: t.linalg.vector_norm(x, 1, -1),
    "norm_ends": lambda t, x: x.norm(dim=(0, -1), keepdim=True),
    "sum_list": lambda t, x: x.sum([0]),
    "mean_all": lambda t, x: x.mean(list(range(x.ndim))),
    "any_list": lambda t, x: x.any([0, -1]),
    "aminmax": lambda t, x: tuple(x.aminmax()),
    "aminmax_0": lambda t, x: tuple(t.aminmax(x, dim=0, keepdim=True)),
    "var_mean": lambda t, x: t.var_mean(x, -1),
    "var_mean_all": lambda t, x: t.std_mean(x, correction=0),
    "sorted_first": lambda t, x: x.msort(),
    "diff": lambda t, x: x.diff(dim=0),
    "unique": lambda t, x: x.detach().unique(),
    "isin": lambda t, x: t.isin(x * 1, (x * 1).detach().reshape(-1)[:3]),
    "searchsorted": lambda t, x: t.searchsorted(_row(x), x * 1, right=True),
    "bucketize": lambda t, x: t.bucketize(x * 1, _row(x), out_int32=True),
    "cumprod": lambda t, x: x.cumprod(-1),
    "cumsum": lambda t, x: x.cumsum(0),
    "trace": lambda t, x: x.trace(),
    "equal": lambda t, x: t.tensor([t.equal(x, x), t.equal(x, x * 1), t.equal(x, x[:1])]),
    "column": lambda t, x: x[..., 0].sum(),
    "gaps": lambda t, x: x[..., 1:] * x[..., :-1] + 1,
    "gaps_mixed": lambda t, x: x[..., 1:] / x[..., :-1].to(t.int32).add(7),
    "gaps_": lambda t, x: (lambda y: y[..., 1:].mul_(y[..., :-1].clone()))(x.detach().clone()),
    "glu": lambda t, x: t.nn.functional.glu(x[..., : x.shape[-1] // 2 * 2]),
    "relu": lambda t, x: t.nn.functional.relu(x),
    "sigmoid": lambda t, x: x.sigmoid(),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "gelu_tanh": lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    "clamp": lambda t, x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda t, x: t.clamp(x, min=0),
    "clamp_crossed": lambda t, x: x.clamp(1, -1),
    "add_scaled": lambda t, x: x.add(x, alpha=0.3),
    "sub": lambda t, x: t.sub(x, x),
    "sub_number": lambda t, x: x.sub(2),
    "clamp_": lambda t, x: (x * 1).clamp_(-0.5, 0.5),
    "add_": lambda t, x: x.detach().clone().add_(x.detach(), alpha=0.3),
    "add_self": lambda t, x: (lambda y: y.add_(y, alpha=2))(x.detach().clone()),
    "sub_": lambda t, x: x.detach().clone().sub_(x.detach(), alpha=-3),
    "add_beside": lambda t, x: x.detach().clone().add_(t.ones((), dtype=x.dtype), alpha=2),
    "lerp_near": lambda t, x: x.detach().clone().lerp_(x.detach() * 3, 0.1),
    "lerp_far": lambda t, x: x.detach().clone().lerp_(x.detach() * 3, 0.9),
    "lerp_half": lambda t, x: x.detach().clone().lerp_(x.detach() * 3, 0.49999999),
    "lerp_none": lambda t, x: x.detach().clone().lerp_(-x.detach(), -0.0),
    "norm_of_dims": lambda t, x: t.linalg.vector_norm(x, 2, tuple(range(x.ndim))),
    "matrix_norm": lambda t, x: t.linalg.matrix_norm(x),
    "new_full": lambda t, x: x.new_full((2, 3), 1),
    "new_full_typed": lambda t, x: x.new_full([2], 1.5, dtype=t.float32),
    "inner": lambda t, x: t.inner(x.detach() * 1, x.detach() * 2),
    "inner_recorded": lambda t, x: t.inner(x * 1, x),
    "take_along": lambda t, x: t.take_along_dim(x.detach(), _places(t, x, 0), -1),
    "take_along_back": lambda t, x: t.take_along_dim(x.detach(), _places(t, x, -1), -1),
    "tensor_split": lambda t, x: t.tensor_split(x, 3),
    "tensor_split_at": lambda t, x: t.tensor_split(x, [1, 2], -1),
    "tensor_split_badly_refused": lambda t, x: t.tensor_split(x, 0),
    "shuffle": lambda t, x: t.pixel_shuffle(_image(t, x, 8), 2),
    "shuffle_odd_refused": lambda t, x: t.pixel_shuffle(x.reshape(1, 1, -1), 2),
    "unshuffle": lambda t, x: t.pixel_unshuffle(_image(t, x, 1), 2),
    "unshuffle_odd_refused": lambda t, x: t.pixel_unshuffle(x.reshape(1, 1, -1), 2),
    "lerp_self": lambda t, x: (lambda y: y.lerp_(y, 0.3))(x.detach().clone()),
}  # fmt: skip


def _places(t: Any, x: Any, place: int) -> Any:
    return t.full((*x.shape[:-1], 2), place, dtype=t.int64)


def _image(t: Any, x: Any, channels: int) -> Any:
    """Of sides that are even; where `x` is empty one of ones."""
    x = t.cat([x.reshape(-1), t.ones(1, dtype=x.dtype)])
    return t.stack([x] * (channels * 4)).reshape(1, channels, 2, -1)


@cache
def _numbers(shape: tuple[int, ...], dtype: str, special: bool) -> Any:
    """For all calls of a type; who changes them takes a copy."""
    a = np.asarray(np.random.default_rng(len(shape)).normal(size=shape) * 3)
    if special and a.size > 3:
        a.reshape(-1)[:4] = [0.0, -0.0, np.inf, np.nan]
        a.reshape(-1)[-1] = -np.inf
    elif special:
        a = np.round(a)  # with ties
    with np.errstate(invalid="ignore"):
        return np.asarray(a.astype(dtype))


def _outcome(t: Any, call: Call, a: Any) -> Any:
    """What a call gives and what its backward does, or the type of its error."""
    x = t.from_numpy(a.copy()).clone()
    if a.dtype.kind == "f":
        x.requires_grad_()
    try:
        found = call(t, x)
    except Exception as e:
        return type(e).__name__
    parts = found if isinstance(found, tuple) else (found,)
    grad = None
    if parts[0].requires_grad:
        weights = np.arange(1.0, parts[0].numel() + 1).reshape(tuple(parts[0].shape))
        parts[0].backward(t.from_numpy(weights).to(parts[0].dtype))
        grad = x.grad.numpy().copy()
    return (
        [(p.detach().numpy().copy(), str(p.dtype), tuple(p.stride())) for p in parts],
        [type(p.grad_fn).__name__ for p in parts],
        grad,
    )


def _identical(one: Any, other: Any) -> None:
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    assert one[1] == other[1]
    for (a, *kind), (b, *kind2) in zip(one[0], other[0], strict=True):
        assert (kind, a.shape) == (kind2, b.shape)
        assert a.tobytes() == b.tobytes()
    assert (one[2] is None) == (other[2] is None)
    assert one[2] is None or one[2].tobytes() == other[2].tobytes()


def _close(one: Any, other: Any) -> bool:
    """Whether both are values; else both are refusals, whose words are compared elsewhere."""
    if isinstance(one, str) or isinstance(other, str):
        assert type(one) is type(other), (one, other)
        return False
    for (a, kind, _), (b, kind2, _) in zip(one[0], other[0], strict=True):
        assert (kind, a.shape) == (kind2, b.shape)
        _near(a, b)
    assert (one[2] is None) == (other[2] is None)
    if one[2] is not None:
        _near(one[2], other[2])
    return True


def _near(a: Any, b: Any) -> None:
    size = float(np.abs(b).max()) if b.size and b.dtype.kind == "f" else 1.0
    atol = 1e-4 * max(size, 1.0)
    same = np.array_equal(a, b) or (
        a.dtype.kind == "f" and (abs(a - b) <= atol + 1e-4 * abs(b)).all()
    )
    if not same:  # or NaN beside NaN; NumPy's own takes 20 times as long
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fast_and_general_way_agree(name: str, dtype: str) -> None:
    call = CALLS[name]
    arrays = [_numbers(shape, dtype, False) for shape in SHAPES]
    if config.small_below:  # else there is no fast path in this mode
        # beside a zero each element's products are taken by themselves
        few = [s for s in SHAPES if name != "cumprod" or max(s, default=0) <= 100]
        arrays += [_numbers(shape, dtype, True) for shape in few]
    ours = [_outcome(skimp, call, a) for a in arrays]
    if config.small_below:
        with using(small_below=0):
            general = [_outcome(skimp, call, a) for a in arrays]
        for one, other in zip(ours, general, strict=True):
            _identical(one, other)
    if not (dtype in ("int64", "bool") and name.startswith(TIED)):
        plain = zip(ours[: len(SHAPES)], arrays, strict=False)
        values = any([_close(one, _outcome(torch, call, a)) for one, a in plain])
        assert values is not bool(re.fullmatch(f".*_(dim5|refused)|{REFUSED[dtype]}", name))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_of_middle_size_are_reduced_to_the_bits_of_units_on_threads(dtype: str) -> None:
    unit = 1 << 18
    for n in (
        65_536,
        100_001,
        unit - 1,
        unit,
        unit + 1,
        unit + 20_000,
        3 * unit + 7,
        3 * unit + 8,
        7 * unit,
    ):
        a = np.random.default_rng(n).normal(1, 1000, n).astype(dtype)
        x = skimp.from_numpy(a).clone()
        quick = [x.sum(), x.mean(), x.amax(), x.min()]
        with using(small_below=0, threads=3, threads_from=0):
            general = [x.sum(), x.mean(), x.amax(), x.min()]
        for one, other in zip(quick, general, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
        np.testing.assert_allclose(quick[0].item(), float(a.astype("f8").sum()), rtol=2e-5)


_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "apart": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "offset": lambda x: skimp.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].view(x.shape),
}


@default_mode  # others are asked beside it
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "complex64"])
@pytest.mark.parametrize(
    "shape",
    [
        (768, 512), (704, 192), (4100, 130), (30, 20_000), (3, 150_000), (12, 64, 512),
        (3, 600, 160), (16, 32, 18, 18), (2, 270_000, 1),
    ],
)  # fmt: skip
def test_dims_of_middle_size_are_reduced_to_the_same_bits(
    shape: tuple[int, ...], dtype: str
) -> None:
    """Of one thread that takes what lies in memory, of units on threads, and of what waits."""
    a = np.random.default_rng(shape[0]).normal(1, 100, shape).astype(dtype)
    dense = skimp.from_numpy(a).clone()
    dims = [0, -1, 1, (0, 1), (-2, -1), (0, -1), None]
    if len(shape) == 2:  # where the others say the same in other words
        dims = [0, -1, (0, -1)]
    asked = [*[(dim, False) for dim in dims], (0, True), (None, True)]
    calls: list[Callable[[Any, Any, bool], Any]] = [lambda x, d, k: x.sum(d, keepdim=k)]
    if dtype not in ("int64", "float16"):
        calls.append(lambda x, d, k: x.mean(d, keepdim=k))
    if dtype == "float32":
        calls.append(lambda x, d, k: x.amax(() if d is None else d, keepdim=k))
        calls.append(lambda x, d, k: x.var(d, correction=0, keepdim=k))
    for name, turn in _LAYOUTS.items():
        x = turn(dense)
        for (dim, keepdim), call in product(asked, calls):
            quick = call(x, dim, keepdim)
            for mode in (
                {"defer": "never"},
                {"defer": "always"},
                {"defer": "always", "threads": 3, "threads_from": 0, "block": 5000},
            ):
                with using(**mode):
                    other = call(x * 1 if len(mode) > 1 else x, dim, keepdim)
                    assert other.numpy().tobytes() == quick.numpy().tobytes(), (name, dim, mode)
                    assert other.stride() == quick.stride()


def test_a_sum_over_rows_of_middle_size_is_taken_where_it_lies() -> None:
    with using(defer="auto"):
        x = skimp.ones(768, 512)
        for one in (x, x.data, x.detach()):
            assert small.sum_(one, 0).tolist() == [768.0] * 512
        assert small.sum_(x.t(), 0) is None  # in another order
        assert small.sum_(x * 2, 0) is None  # it waits
        with using(threads_from=0, threads=2):
            shared = small.sum_(x, 0)  # for threads, unless a loop has a team
        assert (shared is None) is (compiled.loops() is None)


def test_softmax_decides_alike_beside_negative_zero_and_nan() -> None:
    """Whether the largest elements are subtracted first is one question to all rows of a call."""
    rows = np.array([[-0.0, -1, -2], [1, 2, 3], [0.5, 0.25, 0]], np.float32)
    for top in (-0.0, 0.0, 64.0, 65.0, 100.0, np.nan, np.inf, -np.inf, -1.0, -30.0, -200.0):
        a = rows.copy()
        a[0] += top
        small = skimp.from_numpy(a).clone().softmax(-1).numpy().copy()
        with using(small_below=0):
            behind = skimp.from_numpy(a).clone().softmax(-1).numpy().copy()
        assert small.tobytes() == behind.tobytes()
        theirs = torch.from_numpy(a).softmax(-1).numpy()
        np.testing.assert_allclose(small, theirs, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 31, 1000, 8192, 8193, 20_000])
@pytest.mark.parametrize("start", [0.0, 300.0, -200.0, np.nan])
def test_softmax_of_a_row_has_the_bits_of_one_among_others(length: int, start: float) -> None:
    row = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    row[0] += np.float32(start)
    alone = skimp.from_numpy(row).softmax(0).numpy()
    among = skimp.from_numpy(np.stack([row, row + 1, row])).softmax(-1).numpy()
    np.testing.assert_array_equal(alone, among[0])
    np.testing.assert_array_equal(alone, among[2])
    theirs = torch.from_numpy(row).softmax(0).numpy()
    np.testing.assert_allclose(alone, theirs, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["float", "double", "int", "half", "bool"])
def test_bools_become_numbers_alike(name: str) -> None:
    a = np.array([[True, False, True], [False, False, True]])
    ours = getattr(skimp.from_numpy(a).clone(), name)()
    theirs = getattr(torch.from_numpy(a), name)()
    assert ours.numpy().tobytes() == theirs.numpy().tobytes()
    assert str(ours.dtype) == str(theirs.dtype)


@default_mode
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "cut"),
    [
        ((16, 32), np.s_[:, 1:30]), ((9000, 3), np.s_[:]), ((300, 400), np.s_[:, 3:390]),
        ((40, 50, 70), np.s_[:, 1:40]), ((130, 1100), np.s_[:100, :1030]), ((7,), np.s_[1:]),
        ((512, 300), np.s_[:, :64]),
    ],
)  # fmt: skip
def test_extremes_of_rows_are_the_same_zeros_in_all_ways(
    shape: tuple[int, ...], cut: Any, dtype: str
) -> None:
    """Where zeros of both signs are equal, and one NaN is in a row; with gaps between rows."""
    rng = np.random.default_rng(len(shape))
    a = np.where(rng.random(shape) < 0.5, -0.0, 0.0).astype(dtype)
    whole = skimp.from_numpy(a).clone()
    plain = skimp.from_numpy(a[cut].copy()).clone()
    for call in (
        lambda x: x.amax(-1), lambda x: x.amin(-1, keepdim=True), lambda x: x.amax(),
        lambda x: x.amax(0), lambda x: x.sum(-1), lambda x: x.min(),
    ):  # fmt: skip
        quick = call(whole[cut]).numpy().tobytes()
        assert call(plain).numpy().tobytes() == quick
        for mode in ({"small_below": 0}, {"defer": "always"}, {"threads": 3, "threads_from": 0}):
            with using(**mode):
                assert call(whole[cut] * 1).numpy().tobytes() == quick
    whole.view(-1)[a.size // 2] = skimp.nan
    theirs = torch.from_numpy(whole.numpy().copy())[cut]
    np.testing.assert_array_equal(whole[cut].amax(-1).numpy(), theirs.amax(-1).numpy())
    np.testing.assert_array_equal(whole[cut].amin(-1).numpy(), theirs.amin(-1).numpy())


def test_few_rows_with_gaps_are_reduced_at_once() -> None:
    with using(defer="auto"):
        x = skimp.ones(512, 2048)
        assert small.sum_(x[:, :64], -1).tolist() == [64.0] * 512
        assert small.sum_(x[:, :512], -1) is None  # too many to be copied


def test_columns_of_a_gradient_are_added_up_to_the_bits_of_units_on_threads() -> None:
    """What a bias gets, in one unit and in three, of a small tensor and in memory."""
    for rows, columns in ((704, 48), (1040, 700)):
        a = np.random.default_rng(rows).normal(1, 1000, (rows, columns)).astype("f4")
        x = skimp.from_numpy(a).clone()
        quick = x.sum((0,)).numpy().tobytes()
        with using(small_below=0, threads=3, threads_from=0):
            assert x.sum((0,)).numpy().tobytes() == quick
