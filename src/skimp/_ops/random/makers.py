"""Tensors of random numbers: rand, randn, randint, randperm, normal and draws by weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Formula, Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.operands import check_number
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import sampled
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.random import (
    draws,
    few as draws_few,
    integers as draws_integers,
    rejection as draws_rejection,
    weighted as draws_weighted,
)
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.shuffle import permutation
from skimp._ops.create.options import (
    LikeOptions,
    Options,
    dense_tensor,
    empty_as,
    finish,
    making,
    size_of,
    sizes_of,
    small_shape,
)
from skimp._ops.random.generator import LOCK, default_generator, drawn, engine_of
from skimp._ops.random.random import FEW, Draw, draw_into, floating, one_by_one
from skimp.config import config

_LARGE = 1 << 26  # numbers whose range is drawn from 32-bit words, in any case
_EXACT = 1 << 24  # numbers that float32 holds, all of them


def _small_shape(size: tuple[Any, ...]) -> tuple[int, tuple[int, ...]] | None:
    """The number of elements and the shape of a small tensor; None where the general way looks."""
    alone = len(size) == 1 and type(size[0]) is int and 0 < size[0] < config.small_below
    shape = size if alone else small_shape(size)
    if shape is None:
        return None
    n = shape[0] if len(shape) == 1 else math.prod(shape)
    return None if modes.state.vmaps else (n, shape)


def _few(draw: Callable[[int, Engine], Array | None]) -> Callable[..., Tensor | None]:
    """The fast path of a function that makes a small float32 tensor of the default stream."""
    own, default_dtype = default_generator._engine, promotion.get_default_dtype

    def fast(size: tuple[Any, ...], dtype: Any = None, generator: Any = None) -> Tensor | None:
        engine = own if generator is None else engine_of(generator)
        found = _small_shape(size)
        if found is None or (dtype or default_dtype()) is not dtypes.float32:
            return None
        n, shape = found
        with engine.lock:
            made = draw(n, engine)
        if made is None:
            return None
        return fresh(made if len(shape) == 1 else made.reshape(shape), dtypes.float32)

    return fast


def _few_like(draw: Callable[[int, Engine], Array | None]) -> Callable[..., Tensor | None]:
    """The same of one shaped as another."""
    engine = default_generator._engine

    def fast(input: Any, dtype: Any = None) -> Tensor | None:
        x = input._np
        if x is None or input._dtype is not dtypes.float32 or not x.flags.c_contiguous:
            return None
        if dtype is not None and dtype is not dtypes.float32:
            return None
        if x.size >= config.small_below or modes.state.vmaps:
            return None
        with engine.lock:
            made = draw(x.size, engine)
        return None if made is None else fresh(made.reshape(x.shape), dtypes.float32)

    return fast


def _maker(
    name: str,
    draw: Callable[[Array, Engine], None],
    few: Callable[[int, Engine], Array | None],
    doc: str,
    checked: str,
    scattered: Callable[[Engine], Draw] | None = None,
) -> None:
    def filled(t: Tensor, engine: Engine) -> Tensor:
        floating(t, checked)
        draw_into(t, lambda a: draw(a, engine), scattered and scattered(engine))
        return t

    @sampled(lambda tensor: [((2, 3),)])
    @making()
    def f(
        *size: Any,
        generator: Any = None,
        out: Tensor | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> Tensor:
        shape = sizes_of(size_of(name, size, options, Options))
        engine = engine_of(generator)
        if out is None:
            return finish(filled(dense_tensor(shape, dtype, **options), engine), **options)
        outs.check_out_dtype(dtype, out)
        outs.resize_out(name, out, shape)
        return filled(out, engine)

    @making(LikeOptions)
    def like(
        input: Tensor, *, generator: Any = None, dtype: Any = None, **options: Unpack[LikeOptions]
    ) -> Tensor:
        return finish(filled(empty_as(input, dtype, **options), engine_of(generator)), **options)

    made = drawn(named(f, name, f"A tensor of {doc}."))
    export(name, made, method=False, fast=_few(few), makes=True)
    title = f"{name}_like"
    shaped = named(like, title, f"A tensor of {doc}, shaped as the input.")
    export(title, drawn(shaped), method=False, fast=_few_like(few), makes=True)


_maker(
    "rand",
    lambda a, engine: draws.uniform(a, 0.0, 1.0, engine),
    draws_few.drawn_uniforms,
    "uniform numbers in [0, 1)",
    "check_uniform_bounds",
)
_maker(
    "randn",
    lambda a, engine: draws_few.normal(a, 0.0, 1.0, engine),
    draws_few.normals,
    "standard normal numbers",
    "normal_kernel_cpu",
    lambda engine: one_by_one(0.0, 1.0, engine),
)


def _whole_range(
    name: str, names: tuple[str, ...], args: tuple[Any, ...], words: dict[str, Any], kind: type
) -> dict[str, Any]:
    """`low`, `high` and what else `names` has, by position (the first may be left out) or by name;
    `words` keeps the options.
    """
    if len(args) > len(names):
        raise TypeError(
            f"{name}() takes {len(names)} positional arguments but {len(args)} were given"
        )
    given = {n: words.pop(n) for n in names if n in words}
    free = [n for n in names if n not in given]
    given.update(zip(free[max(0, len(free) - len(args)) :], args, strict=False))
    for word in words:
        if word not in kind.__annotations__:
            raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
    low, high = given["low"], given["high"] = int(given.get("low", 0)), int(given["high"])
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    return given


@making()
def randint(
    *args: Any,
    low: Any = None,
    high: Any = None,
    size: Any = None,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Any,
) -> Tensor:
    """Whole numbers: `randint(high, size)` or `randint(low, high, size)`.

    Dtypes: bool, integers, floating point and complex numbers.
    """
    words = {"low": low, "high": high, "size": size}
    named = {word: value for word, value in words.items() if value is not None}
    given = _whole_range("randint", tuple(words), args, {**options, **named}, Options)
    shape = sizes_of((given["size"],))
    engine = engine_of(generator)
    t = dense_tensor(shape, dtype or dtypes.int64, **options) if out is None else out
    if out is not None:
        outs.resize_out("randint", out, shape)
    draw_into(t, lambda a: draws_integers.random_(a, engine, given["low"], given["high"]))
    return finish(t, **options) if out is None else t


@making(LikeOptions)
def randint_like(
    input: Tensor, *args: Any, generator: Any = None, dtype: Any = None, **options: Any
) -> Tensor:
    """Whole numbers below `high`, from `low` on if it is given, shaped as the input.

    Dtypes: integers and floating point.
    """
    given = _whole_range("randint_like", ("low", "high"), args, options, LikeOptions)
    engine = engine_of(generator)
    t = empty_as(input, dtype, **options)
    if t._dtype.is_complex:
        says = "check_random_bounds handles only integral, floating-point and boolean types"
        raise RuntimeError(says)
    draw_into(t, lambda a: draws_integers.random_(a, engine, given["low"], given["high"]))
    return finish(t, **options)


@making()
@sampled(lambda tensor: [(5,)])
def randperm(
    n: int,
    *,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """The numbers below n in random order.

    Shape: (n,).
    Dtypes: what `dtype` asks for: integers to 64 bits with a sign, uint8, floating point.
    Raises: RuntimeError where the dtype lacks some of the numbers; NotImplementedError for others.
    """
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    _check_permuted(n, out._dtype if out is not None else dtypes.asked(dtype or dtypes.int64))
    t = dense_tensor((int(n),), dtype or dtypes.int64, **options) if out is None else out
    if out is not None:
        outs.resize_out("randperm", out, (int(n),))
    draw_into(t, lambda a: draws_integers.randperm(a, engine_of(generator)))
    return finish(t, **options) if out is None else t


def _check_permuted(n: int, dtype: dtypes.dtype) -> None:
    unsigned = (dtypes.uint16, dtypes.uint32, dtypes.uint64)
    if dtype in (*dtypes.FLOAT8, dtypes.bool, *unsigned) or dtype.is_complex:
        raise no_kernel("randperm", dtype)
    if dtype.category == dtypes.INT:
        check_number(n - 1, dtype)
    elif dtype in _LAST_WHOLE and n > _LAST_WHOLE[dtype][0]:
        most = _LAST_WHOLE[dtype][1]
        title = promotion.scalar_type_name(dtype)
        raise RuntimeError(f"n cannot be greater than {most} for {title} type.")


_LAST_WHOLE = {  # bfloat16 is not asked
    dtypes.float16: (2049, "2049"),
    dtypes.float32: ((1 << 24) + 1, "2^24+1"),
    dtypes.float64: ((1 << 53) + 1, "2^53+1"),
}


def _few_integers(
    args: tuple[Any, ...], low: Any = None, high: Any = None, size: Any = None, dtype: Any = None,
    generator: Any = None,
) -> Tensor | None:  # fmt: skip
    if size is not None or high is not None:  # those by name come last
        args = (*args, *[word for word in (low, high, size) if word is not None])
    elif low is not None:
        return None
    dtype = dtypes.int64 if dtype is None else dtype
    if not 2 <= len(args) <= 3 or dtype not in (dtypes.int64, dtypes.float32):
        return None
    low = args[0] if len(args) == 3 else 0
    found = None if type(args[-1]) is int else _small_shape((args[-1],))
    if found is None:
        return None
    n, shape = found
    if dtype is dtypes.float32 and not (
        type(args[-2]) is int and -_EXACT <= low < args[-2] <= _EXACT
    ):
        return None
    made = _few_between(low, args[-2], n, engine_of(generator))
    if made is None:
        return None
    made = made if dtype is dtypes.int64 else made.astype(dtype.np)
    return fresh(made if len(shape) == 1 else made.reshape(shape), dtype)


def _few_integers_like(input: Tensor, args: tuple[Any, ...], dtype: Any = None) -> Tensor | None:
    x = input._np
    if x is None or input._dtype is not dtypes.int64 or not x.flags.c_contiguous or not x.size:
        return None
    if not 1 <= len(args) <= 2 or not (dtype is None or dtype is dtypes.int64):
        return None
    if modes.state.vmaps:
        return None
    low: Any = args[0] if len(args) == 2 else 0
    made = _few_between(low, args[-1], x.size, default_generator._engine)
    return None if made is None else fresh(made.reshape(x.shape), dtypes.int64)


def _few_between(low: Any, high: Any, n: int, engine: Engine) -> Array | None:
    if type(low) is not int or type(high) is not int or n > FEW:
        return None
    if not low < high <= _LARGE or low < -_LARGE:
        return None
    with engine.lock:
        words = engine.seen32(n)
    made = np.remainder(words, _span(high - low)).astype(np.int64)
    if low:
        made += low
    return made


def _few_in_order(n: Any, dtype: Any = None, generator: Any = None) -> Tensor | None:
    if type(n) is not int or not 0 < n <= FEW or not (dtype is None or dtype is dtypes.int64):
        return None
    if modes.state.vmaps or n >= config.small_below:
        return None
    engine = engine_of(generator)
    with engine.lock:
        words = engine.seen32(n - 1)
    return fresh(permutation(words), dtypes.int64)


@lru_cache(maxsize=64)
def _span(n: int) -> Array:
    """A number of choices as ufuncs take it soonest beside words."""
    return np.array(n, np.uint32)


@making()
@sampled(lambda tensor: [(tensor([1.0, 2.0]), 0.5)])
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """Normal numbers; mean and std are numbers (with `size`) or tensors that broadcast.

    Shape: what mean and std broadcast to, or `size`.
    Dtypes: floating point and complex numbers.
    """
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        t = dense_tensor(sizes_of((size,)), dtype, **options) if out is None else out
        if out is not None:
            outs.check_out_dtype(dtype, out)
            outs.resize_out("normal", out, sizes_of((size,)))
        t.normal_(mean, std, generator=generator)
        return finish(t, **options) if out is None else t
    if size is not None:
        raise TypeError("normal() received an invalid combination of arguments: size with tensors")
    if word := next((word for word, value in options.items() if value), None):
        raise TypeError(f"normal() got an unexpected keyword argument '{word}'")
    like = mean if isinstance(mean, Tensor) else std
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if isinstance(std, Tensor) and std._dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if isinstance(std, Tensor) and not std._hollow and bool((std.detach() < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    shape = tuple(like.shape)
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = layouts.broadcast_shapes(tuple(mean.shape), tuple(std.shape))
    if out is None:
        return _normal_around(mean, std, shape, generator)
    outs.resize_out("normal", out, shape)
    with modes.no_grad():
        return _drawn_around(mean, std, generator, out)


def _drawn_around(mean: Any, std: Any, generator: Any, target: Tensor) -> Tensor:
    made: Tensor = target.normal_(0.0, 1.0, generator=generator).mul_(std).add_(mean)
    return made


def _few_normals(
    mean: Any, std: Any = 1.0, size: Any = None, dtype: Any = None, generator: Any = None
) -> Tensor | None:
    plain = type(mean) in (float, int) and type(std) in (float, int) and std >= 0
    found = _small_shape((size,)) if plain and type(size) is not int else None
    if found is None or (dtype or promotion.get_default_dtype()) is not dtypes.float32:
        return None
    made = np.empty(found[1], np.float32)
    draws_few.normal(made, mean, std, engine_of(generator))
    return fresh(made, dtypes.float32)


_BY_MEAN: dict[str, Formula] = {"mean": lambda g, mean_shape: g.new_zeros(tuple(mean_shape))}
_BY_STD: dict[str, Formula] = {"std": lambda g, std_shape: g.new_zeros(tuple(std_shape))}
_OF_NUMBERS = {"std": Rule("NormalBackward1", _BY_MEAN), "mean": Rule("NormalBackward2", _BY_STD)}


@hidden(rule=Rule("NormalBackward3", _BY_MEAN | _BY_STD, numbers=_OF_NUMBERS))
def _normal_around(mean: Any, std: Any, shape: tuple[int, ...], generator: Any) -> Tensor:
    like = mean if isinstance(mean, Tensor) else std
    target = dense_tensor(shape, like._dtype, device=like.device)
    return _drawn_around(mean, std, generator, target)


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Positions drawn with the weights that each row of `input` holds.

    Shape: (rows, n) or (n); the result has num_samples in place of n.
    Dtypes: floating point.
    """
    shape = tuple(input.shape)
    if len(shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input._dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: "
            f"{promotion.scalar_type_name(input._dtype)}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    if input._hollow:
        return meta.empty((*shape[:-1], num_samples), dtypes.int64)
    with LOCK():
        found = draws_weighted.multinomial(
            input._skimp_array(), num_samples, replacement, engine_of(generator)
        )
    result = fresh(np.ascontiguousarray(found), dtypes.int64)
    if out is None:
        return result
    if out._dtype is not dtypes.int64:
        raise RuntimeError(
            f"multinomial expects Long tensor out, got: {promotion.scalar_type_name(out._dtype)}"
        )
    outs.resize_out("multinomial", out, tuple(result.shape))
    outs.check_no_overlap(out, (input,))
    copy(out._skimp_writable(), result._skimp_array())
    return out


@sampled(lambda tensor: [(tensor([1.0, 4.0, 9.0]),)])
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson numbers of the rates that `input` holds.

    Dtypes: floating point.
    """
    if not input._dtype.is_floating_point:
        raise no_kernel("poisson_cpu", input._dtype)
    if input._hollow:
        return meta.like(input)
    with LOCK():
        return fresh(
            draws_rejection.poisson(input._skimp_array(), engine_of(generator)), input._dtype
        )


for _made, _fast in (
    (randint, _few_integers),
    (randint_like, _few_integers_like),
    (randperm, _few_in_order),
    (normal, _few_normals),
    (poisson, None),
):
    makes = _made in (randint, randint_like, randperm)
    export(_made.__name__, drawn(_made), method=False, fast=_fast, makes=makes)
export("multinomial", drawn(multinomial))


SAYS = """\
Shape: the sizes given, or the input's.
Dtypes: what `dtype` asks for: floating point or complex numbers.
Raises: RuntimeError or NotImplementedError for dtypes that can't hold what is drawn."""
