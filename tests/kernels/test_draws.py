"""skimp's random numbers against PyTorch's: the same bits, and the same state afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from skimp._kernels.random import (
    draws,
    integers as draws_integers,
    mt19937,
    normal as normal_draws,
    weighted,
)
from skimp._kernels.random.mt19937 import Engine
from skimp.config import using
from tests.support.peaks import peak_of

NUMPY: dict[torch.dtype, Any] = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REALS = [torch.bool, *INTEGERS, *FLOATS]

seeds = st.integers(-(2**63), 2**64 - 1)
near_blocks = st.sampled_from([15, 16, 17, 31, 32, 33, 311, 312, 313, 511, 512, 623, 624, 625])
sizes = st.one_of(st.integers(0, 40), near_blocks, st.integers(0, 5000))
Draw = tuple[Callable[[torch.Tensor, torch.Generator], Any], Callable[[Any, draws.Engine], Any]]


def mkl_draws() -> bool:
    """Whether this torch hands scalar bernoulli_ to MKL, as it does on Intel CPUs."""
    generator = torch.Generator().manual_seed(1)
    torch.empty(100).bernoulli_(0.5, generator=generator)
    used_one_word = torch.Generator().manual_seed(1)
    torch.empty(1, dtype=torch.int32).random_(generator=used_one_word)
    return bool(torch.equal(generator.get_state(), used_one_word.get_state()))


unlike_mkl = pytest.mark.skipif(mkl_draws(), reason="this CPU's torch draws these with MKL")


def as_numpy(tensor: torch.Tensor) -> Any:
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b""
    return np.frombuffer(bytes(raw), NUMPY[tensor.dtype]).reshape(tensor.shape)


def same_bits(expected: torch.Tensor, actual: Any) -> None:
    ours = np.asarray(actual).reshape(-1)
    theirs = as_numpy(expected).reshape(-1)
    assert theirs.dtype == ours.dtype
    different = theirs.view(np.uint8) != ours.view(np.uint8)
    places = np.unique(np.flatnonzero(different) // ours.itemsize)
    assert not places.size, (places[:5], theirs[places[:5]], ours[places[:5]])


def check(seed: int, dtype: torch.dtype, n: int, *sequence: Draw) -> None:
    """Do the same draws twice in a row on both sides; compare numbers and states."""
    check_all(seed, [(draw, n, dtype) for draw in sequence * 2])


def check_all(seed: int, program: list[tuple[Draw, int, torch.dtype]]) -> None:
    """The same draws on both sides, each of so many numbers of a type."""
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    for (theirs, ours), n, dtype in program:
        expected, actual = torch.zeros(n, dtype=dtype), np.zeros(n, NUMPY[dtype])
        theirs(expected, generator)
        ours(actual, engine)
        same_bits(expected, actual)
    assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()


def error_of(call: Callable[[], Any]) -> tuple[type, str] | None:
    """The type and message of what a call raises."""
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


# ---------------------------------------------------------------------------------- the engine


@given(seeds, sizes)
@settings(max_examples=30, deadline=None)
def test_words(seed: int, n: int) -> None:
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    assert generator.initial_seed() == engine.initial_seed()
    words = torch.empty(n, dtype=torch.int64).random_(0, 2**27, generator=generator)
    assert (engine.random32(n) % 2**27 == words.numpy()).all()
    pairs = torch.empty(n, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    assert (engine.random64(n).view(np.int64) == pairs.numpy()).all()
    engine.skip(n)
    torch.empty(n, dtype=torch.int32).random_(generator=generator)
    assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()


@given(seeds, sizes, st.integers(0, 9), st.booleans())
@settings(max_examples=30, deadline=None)
def test_state_travels_both_ways(seed: int, n: int, singles: int, float_sample: bool) -> None:
    """With fewer than 16 numbers drawn, half of a Box-Muller pair may wait in the state."""
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine()
    torch.empty(n).uniform_(generator=generator)
    torch.empty(singles).normal_(generator=generator)
    state = generator.get_state()
    if float_sample:
        state[5048:5053] = torch.tensor([0, 0, 128, 63, 1], dtype=torch.uint8)
    engine.set_state(state.numpy())
    assert engine.get_state().tobytes() == bytes(state.numpy())
    twin = engine.clone()

    drawn = np.empty(3, np.float32)
    draws.normal(drawn, 0, 1, engine)
    same_bits(torch.empty(3).normal_(generator=generator), drawn)
    assert twin.get_state().tobytes() == bytes(state.numpy())
    generator.set_state(torch.from_numpy(twin.get_state()))
    draws.normal(drawn, 0, 1, twin)
    same_bits(torch.empty(3).normal_(generator=generator), drawn)


def test_engine_refuses_what_torch_refuses() -> None:
    engine, generator = draws.Engine(), torch.Generator()
    assert engine.initial_seed() == generator.initial_seed()
    for seed in (2**64, -(2**63) - 1):
        ours = error_of(lambda: engine.manual_seed(seed))  # noqa: B023
        assert ours is not None
        assert ours[0] is ValueError
    good = torch.Generator().manual_seed(0).get_state()
    late, unseeded = good.clone(), good.clone()
    late[8:12] = torch.tensor([113, 2, 0, 0])
    unseeded[12] = 0
    wrong = (torch.zeros(10, dtype=torch.uint8), torch.zeros(5056), late, unseeded)
    for state in wrong:
        ours = error_of(lambda: engine.set_state(state.numpy()))  # noqa: B023
        assert ours is not None
        assert ours == error_of(lambda: generator.set_state(state))  # noqa: B023


def test_seed_is_new_every_time() -> None:
    engine = draws.Engine()
    first, second = engine.seed(), engine.seed()
    assert first != second == engine.initial_seed() < 2**53


# ---------------------------------------------------------------------------- the distributions

means = st.sampled_from([0.0, 1.0, -2.5, 0.1, 1e-3])
stds = st.sampled_from([1.0, 0.0, 2.0, 0.02, 1.7, 1e-6])


@given(seeds, sizes, st.sampled_from(FLOATS + COMPLEX), means, stds)
@settings(max_examples=80, deadline=None)
def test_normal(seed: int, n: int, dtype: torch.dtype, mean: float, std: float) -> None:
    check(
        seed,
        dtype,
        n,
        (
            lambda t, g: t.normal_(mean, std, generator=g),
            lambda a, e: draws.normal(a, mean, std, e),
        ),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 3])
def test_large_normal(dtype: torch.dtype, threads: int) -> None:
    with using(threads=threads):
        _check_large_normal(dtype)


def _check_large_normal(dtype: torch.dtype) -> None:
    check(
        7,
        dtype,
        (1 << 19) + 5,
        (lambda t, g: t.normal_(0.5, 3, generator=g), lambda a, e: draws.normal(a, 0.5, 3, e)),
    )


ranges = st.sampled_from(
    [(0, 1), (-1, 1), (0.1, 0.7), (-3.3, 3.3), (0, 5), (2, 2), (-1e-40, 1e-38), (1, 1.0001)]
)


@given(seeds, sizes, st.sampled_from(FLOATS + COMPLEX), ranges)
@settings(max_examples=80, deadline=None)
def test_uniform(seed: int, n: int, dtype: torch.dtype, limits: tuple[float, float]) -> None:
    check(
        seed,
        dtype,
        n,
        (lambda t, g: t.uniform_(*limits, generator=g), lambda a, e: draws.uniform(a, *limits, e)),
    )


@given(seeds, sizes, st.sampled_from(FLOATS), means, st.sampled_from([1.0, 2.0, 0.3, 3.7]))
@settings(max_examples=40, deadline=None)
def test_cauchy_and_log_normal(
    seed: int, n: int, dtype: torch.dtype, mean: float, scale: float
) -> None:
    check(
        seed,
        dtype,
        n,
        (
            lambda t, g: t.cauchy_(mean, scale, generator=g),
            lambda a, e: draws.cauchy(a, mean, scale, e),
        ),
        (
            lambda t, g: t.log_normal_(mean, scale, generator=g),
            lambda a, e: draws.log_normal(a, mean, scale, e),
        ),
    )


@unlike_mkl
@given(seeds, sizes, st.sampled_from(FLOATS), st.sampled_from([1.0, 0.37, 25.0]))
@settings(max_examples=30, deadline=None)
def test_exponential(seed: int, n: int, dtype: torch.dtype, rate: float) -> None:
    check(
        seed,
        dtype,
        n,
        (
            lambda t, g: t.exponential_(rate, generator=g),
            lambda a, e: draws.exponential(a, rate, e),
        ),
    )


@given(seeds, sizes, st.sampled_from(INTEGERS + FLOATS), st.sampled_from([0.5, 0.01, 0.9, 1e-12]))
@settings(max_examples=40, deadline=None)
def test_geometric(seed: int, n: int, dtype: torch.dtype, p: float) -> None:
    check(
        seed,
        dtype,
        n,
        (lambda t, g: t.geometric_(p, generator=g), lambda a, e: draws.geometric(a, p, e)),
    )


@unlike_mkl
@given(seeds, sizes, st.sampled_from(REALS), st.sampled_from([0.5, 0.1, 0.0, 1.0]))
@settings(max_examples=30, deadline=None)
def test_bernoulli(seed: int, n: int, dtype: torch.dtype, p: float) -> None:
    check(
        seed,
        dtype,
        n,
        (lambda t, g: t.bernoulli_(p, generator=g), lambda a, e: draws.bernoulli(a, p, e)),
    )


@given(seeds, sizes, st.sampled_from(REALS), st.sampled_from(FLOATS))
@settings(max_examples=30, deadline=None)
def test_bernoulli_each(seed: int, n: int, dtype: torch.dtype, chance: torch.dtype) -> None:
    p = torch.rand(n, generator=torch.Generator().manual_seed(1), dtype=chance)
    check(
        seed,
        dtype,
        n,
        (
            lambda t, g: t.bernoulli_(p, generator=g),
            lambda a, e: draws.bernoulli_each(a, as_numpy(p), e),
        ),
    )


@given(seeds, sizes, st.sampled_from(REALS))
@settings(max_examples=30, deadline=None)
def test_random(seed: int, n: int, dtype: torch.dtype) -> None:
    check(seed, dtype, n, (lambda t, g: t.random_(generator=g), draws.random_))


edges = st.sampled_from([0, 1, 5, 127, 255, 2049, 2**24, 2**28, 2**31, 2**32, 2**53, 2**63])
# From 2**63 - 1, PyTorch's search for the next float never ends.
bounds = st.tuples(edges, st.sampled_from([-1, 1]), st.integers(-3, 3)).map(
    lambda parts: max(-(2**63), min(2**63 - 2, parts[0] * parts[1] + parts[2]))
)


@given(seeds, st.integers(0, 700), st.sampled_from(REALS), bounds, st.none() | bounds)
@settings(max_examples=250, deadline=None)
@pytest.mark.filterwarnings("ignore:.*is out of bounds:UserWarning")
def test_random_range(seed: int, n: int, dtype: torch.dtype, low: int, high: int | None) -> None:
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    expected, actual = torch.zeros(n, dtype=dtype), np.zeros(n, NUMPY[dtype])
    theirs = error_of(lambda: expected.random_(low, high, generator=generator))
    assert error_of(lambda: draws.random_(actual, engine, low, high)) == theirs
    if theirs is None:
        same_bits(expected, actual)
        assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()


@given(seeds, sizes, st.sampled_from([torch.int64, torch.int32, torch.float64]))
@settings(max_examples=30, deadline=None)
def test_randperm(seed: int, n: int, dtype: torch.dtype) -> None:
    check(
        seed,
        dtype,
        n,
        (lambda t, g: t.copy_(torch.randperm(n, generator=g, dtype=dtype)), draws.randperm),
    )


def test_randperm_of_more_than_is_kept() -> None:
    n = 70_001
    expected = torch.randperm(n, generator=torch.Generator().manual_seed(3))
    actual = np.empty(n, np.int64)
    draws.randperm(actual, draws.Engine(3))
    np.testing.assert_array_equal(actual, expected.numpy())


@given(st.integers(0, 2**32), st.integers(2, 200))
@settings(max_examples=30, deadline=None)
def test_wide_randperm(seed: int, n: int) -> None:
    """Past 2**32 / 20 elements PyTorch shuffles another way; here against its plain loop."""
    engine, twin = draws.Engine(seed), draws.Engine(seed)
    expected = [0] * n
    for i, word in enumerate(twin.random64(n).tolist()):
        expected[i] = expected[word % (i + 1)]
        expected[word % (i + 1)] = i
    actual = np.empty(n, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws_integers, "_WIDE_PERMUTATION", 2)
        draws.randperm(actual, engine)
    assert actual.tolist() == expected


@pytest.mark.parametrize("joined_by_numpy", [True, False])
@pytest.mark.parametrize("before", [0, 1, 623, 624, 625, 5000])
def test_pairs_are_words_side_by_side(
    before: int, joined_by_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not joined_by_numpy:
        monkeypatch.setattr(mt19937, "_draws_pairs", lambda: False)
    engine, twin = draws.Engine(7), draws.Engine(7)
    for each in (engine, twin):
        each.random32(before)
    for n in (40_000, 3, 50_000):
        firsts, seconds = twin.random32(2 * n).astype(np.uint64).reshape(n, 2).T
        np.testing.assert_array_equal(engine.random64(n), (firsts << np.uint64(32)) | seconds)
        np.testing.assert_array_equal(engine.get_state(), twin.get_state())


@unlike_mkl
@given(
    seeds,
    st.sampled_from([(5,), (1,), (3, 7), (2, 300)]),
    st.integers(1, 7),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=40, deadline=None)
def test_multinomial(
    seed: int, shape: tuple[int, ...], n: int, replacement: bool, dtype: torch.dtype
) -> None:
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    weights = torch.rand(shape, generator=generator, dtype=dtype)
    generator.manual_seed(seed)
    if not replacement:
        n = min(n, shape[-1])
    expected = torch.multinomial(weights, n, replacement, generator=generator)
    same_bits(expected, draws.multinomial(weights.numpy(), n, replacement, engine))
    assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()


@given(
    seeds,
    st.integers(0, 300),
    st.sampled_from([0.0, 0.5, 3.0, 9.99, 40.0, 1e4, 1e9]),
    st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=40, deadline=None)
def test_poisson_and_gamma(seed: int, n: int, scale: float, dtype: torch.dtype) -> None:
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    rates = torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=dtype) * scale
    same_bits(torch.poisson(rates, generator=generator), draws.poisson(rates.numpy(), engine))
    same_bits(
        torch._standard_gamma(rates, generator=generator),
        draws.standard_gamma(rates.numpy(), engine),
    )
    assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()


def test_a_short_draw_by_rejection_leaves_the_words_at_hand() -> None:
    """It used to make 8,192 words, put the state back and skip what it had used."""
    engine = Engine(0)
    engine.random32(3)
    words = engine.words
    rates = np.array([0.5, 3.0, 20.0], np.float32)
    draws.poisson(rates, engine)
    draws.standard_gamma(rates, engine)
    assert engine.words is words
    assert 3 < engine.at < 200


def test_shapes_are_filled_in_memory_order() -> None:
    for shape in ((), (3, 4), (2, 3, 5)):
        actual = np.zeros(shape, np.float32)
        draws.normal(actual, 0, 1, draws.Engine(3))
        same_bits(torch.empty(shape).normal_(generator=torch.Generator().manual_seed(3)), actual)
    with pytest.raises(ValueError, match="copy"):
        draws.normal(np.zeros((4, 4), np.float32).T[:, 1:], 0, 1, draws.Engine())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda t: t.normal_(0, -1), lambda a, e: draws.normal(a, 0, -1, e)),
        (lambda t: t.uniform_(3, 1), lambda a, e: draws.uniform(a, 3, 1, e)),
        (lambda t: t.uniform_(-3e38, 3e38), lambda a, e: draws.uniform(a, -3e38, 3e38, e)),
        (lambda t: t.uniform_(0, 1e39), lambda a, e: draws.uniform(a, 0, 1e39, e)),
        (lambda t: t.uniform_(-1e39, 0), lambda a, e: draws.uniform(a, -1e39, 0, e)),
        (lambda t: t.exponential_(0), lambda a, e: draws.exponential(a, 0, e)),
        (lambda t: t.cauchy_(0, -0.5), lambda a, e: draws.cauchy(a, 0, -0.5, e)),
        (lambda t: t.log_normal_(0, 0), lambda a, e: draws.log_normal(a, 0, 0, e)),
        (lambda t: t.geometric_(1), lambda a, e: draws.geometric(a, 1, e)),
        (lambda t: t.bernoulli_(1.5), lambda a, e: draws.bernoulli(a, 1.5, e)),
        (lambda t: torch.poisson(t - 1), lambda a, e: draws.poisson(a - 1, e)),
        (lambda t: t.multinomial(9), lambda a, e: draws.multinomial(a, 9, False, e)),
        (lambda t: t.multinomial(2), lambda a, e: draws.multinomial(a, 2, False, e)),
        (lambda t: t.multinomial(2, True), lambda a, e: draws.multinomial(a, 2, True, e)),
        (lambda t: (t - 1).multinomial(2), lambda a, e: draws.multinomial(a - 1, 2, False, e)),
        *(
            (
                lambda t, last=last: (t + torch.tensor([1.0, 0, 0, 0, last])).multinomial(2, True),
                lambda a, e, last=last: draws.multinomial(
                    a + np.array([1, 0, 0, 0, last], np.float32), 2, True, e
                ),
            )
            for last in (-0.5, math.inf, -math.inf, math.nan)
        ),
    ],
)
def test_refusals(theirs: Callable[[torch.Tensor], Any], ours: Callable[..., Any]) -> None:
    expected = error_of(lambda: theirs(torch.zeros(5)))
    assert expected is not None
    assert error_of(lambda: ours(np.zeros(5, np.float32), draws.Engine())) == expected


def test_no_helper_makes_the_generators(monkeypatch: Any) -> None:
    """It would wait for the engine's lock, which the thread has that waits for the helper."""
    engine = Engine(5)

    def share(work: Any, threads: int) -> None:
        assert object.__getattribute__(engine, "_bits") is not None  # AttributeError: not made yet
        work()

    monkeypatch.setattr(normal_draws, "share", share)
    normal_draws.normal(np.empty(1 << 19, np.float32), 0.0, 1.0, engine)


@pytest.mark.parametrize("n", [50_000, 100_001, 1_000_003])
@pytest.mark.parametrize("into", [False, True])
def test_what_stays_is_drawn_a_part_at_a_time(n: int, into: bool) -> None:
    whole, parts = Engine(), Engine()
    words = whole.random64(n) & np.uint64((1 << 53) - 1)
    found: Any = None

    def draw() -> None:
        nonlocal found
        if into:
            found = np.empty((n, 1), np.bool_)
            draws.bernoulli(found, 0.25, parts)
        else:
            found = draws.stays(n, 0.25, parts)

    # words of a part beside it: of all they are 8 n
    assert peak_of(draw) < n + max(min(4 * n, 8 << 16), 8 << 14) + (70 << 10)
    found = found.reshape(-1)
    assert (found == (words < np.uint64(1 << 51))).all()
    assert (whole.get_state() == parts.get_state()).all()


def test_multinomial_takes_few_of_pythons_numbers_at_a_time() -> None:
    """The C library's log1p of each number is no list of all of them, nor are the clocks."""
    weights = np.ones((1 << 17, 4), np.float32)
    engine = Engine(0)
    found = []
    peak = peak_of(lambda: found.append(weighted.multinomial(weights, 1, False, engine)))
    assert found[0].shape == (1 << 17, 1)
    assert peak < 6 << 20  # bytes: what is found, 1 MiB, and some blocks; all clocks were 20 MiB
