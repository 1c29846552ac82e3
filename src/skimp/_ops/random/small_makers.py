"""The fast paths of makers of random numbers: small tensors, of the words that lie at hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled
from skimp._kernels.random import few as draws_few, integers as draws_integers
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.shuffle import permutation
from skimp._ops.create.options import small_shape
from skimp._ops.random.generator import default_generator, engine_of
from skimp._ops.random.random import COMPUTED, FEW
from skimp.config import config

_LARGE = 1 << 26  # numbers whose range is drawn from 32-bit words, in any case
_COUNTING = frozenset({dtypes.int16, dtypes.int32, dtypes.int64})  # of which each holds FEW
_OTHER_FLOATS = frozenset({*dtypes.HALVES, dtypes.float64})


def _small_shape(size: tuple[Any, ...]) -> tuple[int, tuple[int, ...]] | None:
    """The number of elements and the shape of a small tensor; None where the general way looks."""
    alone = len(size) == 1 and type(size[0]) is int and 0 < size[0] < config.small_below
    shape = size if alone else small_shape(size)
    if shape is None:
        return None
    n = shape[0] if len(shape) == 1 else math.prod(shape)
    return None if modes.state.vmaps else (n, shape)


def few(
    draw: Callable[[int, Engine], Array | None], fill: Callable[[Array, Engine], None]
) -> Callable[..., Tensor | None]:
    """The fast path of a function that makes a small tensor: of few float32 numbers by `draw`."""
    default_dtype = promotion.get_default_dtype

    def fast(size: tuple[Any, ...], dtype: Any = None, generator: Any = None) -> Tensor | None:
        found = _small_shape(size)
        if found is None:
            return None
        n, shape = found
        engine = default_generator._engine if generator is None else engine_of(generator)
        return _small(n, shape, dtype or default_dtype(), engine, draw, fill)

    return fast


def few_like(
    draw: Callable[[int, Engine], Array | None], fill: Callable[[Array, Engine], None]
) -> Callable[..., Tensor | None]:
    """The same of one shaped as another."""

    def fast(input: Any, dtype: Any = None, generator: Any = None) -> Tensor | None:
        x = input._np
        if x is None or not x.flags.c_contiguous or not 0 < x.size < config.small_below:
            return None
        if modes.state.vmaps:
            return None
        engine = default_generator._engine if generator is None else engine_of(generator)
        return _small(x.size, x.shape, dtype or input._dtype, engine, draw, fill)

    return fast


def _small(
    n: int,
    shape: tuple[int, ...],
    dtype: Any,
    engine: Engine,
    draw: Callable[[int, Engine], Array | None],
    fill: Callable[[Array, Engine], None],
) -> Tensor | None:
    if dtype is dtypes.float32:
        with engine.lock:
            made = draw(n, engine)
        if made is None:
            return None
        return fresh(made if len(shape) == 1 else made.reshape(shape), dtype)
    if dtype not in _OTHER_FLOATS:
        return None
    made = np.empty(shape, dtype.np)
    fill(made, engine)
    return fresh(made, dtype)


def few_integers(
    args: tuple[Any, ...], low: Any = None, high: Any = None, size: Any = None, dtype: Any = None,
    generator: Any = None,
) -> Tensor | None:  # fmt: skip
    if size is not None or high is not None:  # those by name come last
        args = (*args, *[word for word in (low, high, size) if word is not None])
    elif low is not None:
        return None
    if not 2 <= len(args) <= 3 or type(args[-1]) is int:
        return None
    found = _small_shape((args[-1],))
    if found is None:
        return None
    n, shape = found
    low = args[0] if len(args) == 3 else 0
    return _few_between(low, args[-2], n, shape, dtype or dtypes.int64, engine_of(generator))


def few_integers_like(
    input: Tensor, args: tuple[Any, ...], dtype: Any = None, generator: Any = None
) -> Tensor | None:
    x = input._np
    if x is None or not x.flags.c_contiguous or not x.size or not 1 <= len(args) <= 2:
        return None
    if modes.state.vmaps:
        return None
    low: Any = args[0] if len(args) == 2 else 0
    engine = default_generator._engine if generator is None else engine_of(generator)
    return _few_between(low, args[-1], x.size, x.shape, dtype or input._dtype, engine)


def _few_between(
    low: Any, high: Any, n: int, shape: tuple[int, ...], dtype: Any, engine: Engine
) -> Tensor | None:
    if type(low) is not int or type(high) is not int or not low < high or dtype not in COMPUTED:
        return None
    if n > FEW or high > _LARGE or low < -_LARGE or not _holds(dtype, low, high):
        made = np.empty(shape, dtype.np)
        draws_integers.random_(made, engine, low, high)
        return fresh(made, dtype)
    with engine.lock:
        words, at = engine.place32(n)
    if (loops := compiled.loops()) is not None:
        made = loops.between(words, at, n, low, high - low)
    else:
        made = bare.remainder(words[at : at + n], _span(high - low)).astype(np.int64)
        made += low
    if dtype is not dtypes.int64:
        made = made.astype(dtype.np)
    return fresh(made if len(shape) == 1 else made.reshape(shape), dtype)


@lru_cache(maxsize=64)
def _holds(dtype: dtypes.dtype, low: int, high: int) -> bool:
    """Whether both ends of a range are numbers of the type, to which int64 is converted at once."""
    return dtype not in dtypes.HALVES and draws_integers.bounds(dtype.np, low, high) == (
        low,
        high - 1,
    )


def few_in_order(n: Any, dtype: Any = None, generator: Any = None) -> Tensor | None:
    dtype = dtype or dtypes.int64
    if type(n) is not int or not 0 < n <= FEW or dtype not in _COUNTING:
        return None
    if modes.state.vmaps or n >= config.small_below:
        return None
    engine = engine_of(generator)
    with engine.lock:
        words, at = engine.place32(n - 1)
    made = permutation(words[at : at + n - 1])
    return fresh(made if dtype is dtypes.int64 else made.astype(dtype.np), dtype)


@lru_cache(maxsize=64)
def _span(n: int) -> Array:
    """A number of choices as ufuncs take it soonest beside words."""
    return np.array(n, np.uint32)


def few_normals(
    mean: Any, std: Any = 1.0, size: Any = None, dtype: Any = None, generator: Any = None
) -> Tensor | None:
    plain = type(mean) in (float, int) and type(std) in (float, int) and std >= 0
    found = _small_shape((size,)) if plain and type(size) is not int else None
    if found is None or (dtype or promotion.get_default_dtype()) is not dtypes.float32:
        return None
    made = np.empty(found[1], np.float32)
    draws_few.normal(made, mean, std, engine_of(generator))
    return fresh(made, dtypes.float32)
