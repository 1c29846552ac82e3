"""Tensors of random numbers: rand, randn, randint, randperm, normal and draws by weight."""

from __future__ import annotations

from collections.abc import Callable
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
    few as draws_few,
    integers as draws_integers,
    rejection as draws_rejection,
    weighted as draws_weighted,
)
from skimp._kernels.random.mt19937 import Engine
from skimp._ops.create.options import (
    LikeOptions,
    Options,
    dense_tensor,
    empty_as,
    finish,
    making,
    size_of,
    sizes_of,
)
from skimp._ops.random import small_makers
from skimp._ops.random.generator import LOCK, drawn, engine_of
from skimp._ops.random.random import Draw, between, draw_into, floating, one_by_one


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
    export(name, made, method=False, fast=small_makers.few(few, draw), makes=True)
    title = f"{name}_like"
    shaped = named(like, title, f"A tensor of {doc}, shaped as the input.")
    export(title, drawn(shaped), method=False, fast=small_makers.few_like(few, draw), makes=True)


_maker(
    "rand",
    lambda a, engine: draws_few.uniform(a, 0.0, 1.0, engine),
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
    draw_into(t, between(t, engine, given["low"], given["high"]))
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
    draw_into(t, between(t, engine, given["low"], given["high"]))
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
    (randint, small_makers.few_integers),
    (randint_like, small_makers.few_integers_like),
    (randperm, small_makers.few_in_order),
    (normal, small_makers.few_normals),
    (poisson, None),
):
    makes = _made in (randint, randint_like, randperm)
    export(_made.__name__, drawn(_made), method=False, fast=_fast, makes=makes)
export("multinomial", drawn(multinomial))


SAYS = """\
Shape: the sizes given, or the input's.
Dtypes: what `dtype` asks for: floating point or complex numbers.
Raises: RuntimeError or NotImplementedError for dtypes that can't hold what is drawn."""
