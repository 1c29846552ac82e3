"""Tensors filled with random numbers: PyTorch's CPU draws, bit for bit, at the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.fast_path import to_write
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import sampled
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout_overlap import assert_no_internal_overlap
from skimp._engine.memory.layout_views import expand
from skimp._engine.tensor import dtypes, formats, meta, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._kernels.random import (
    draws,
    few as draws_few,
    integers as draws_integers,
    normal as draws_normal,
)
from skimp._kernels.random.mt19937 import Engine
from skimp._ops.create.options import empty_as
from skimp._ops.random.generator import (
    LOCK,
    default_generator,
    draw as drawn_into,
    drawing,
    drawn,
    engine_of,
)

FEW = 1 << 12  # elements up to which a draw is handed out by few.py, or by a call of its own
_ONE_BITS = 0x3F800000  # of 1 in float32

Draw = Callable[[Array], None]


def draw_into(t: Tensor, draw: Draw, scattered: Draw | None = None) -> None:
    """Fill `t` in the order in which its elements lie in memory, unrecorded.

    `scattered` draws instead where the tensor is not contiguous (PyTorch has no vector code for
    those).
    """
    array = t._np
    if array is not None and array.flags.c_contiguous:
        drawn_into(t._skimp_writable(), draw)
        return
    layout = t._skimp_layout_of()
    if not layouts.is_contiguous(layout):
        assert_no_internal_overlap(layout)
        draw = scattered or draw
    if t._hollow:
        t._skimp_bump()
        return
    array = t._skimp_writable().transpose(layouts.memory_order(layout))
    if array.flags.c_contiguous:
        drawn_into(array, draw)
        return
    filled = np.empty(array.shape, array.dtype)
    drawn_into(filled, draw)
    copy(array, filled)


def one_by_one(mean: float, std: float, engine: Engine) -> Draw:
    def draw(out: Array) -> None:
        parts = out.view(out.real.dtype) if out.dtype.kind == "c" else out
        scale = std / math.sqrt(2) if out.dtype.kind == "c" else std
        copy(parts.reshape(-1), draws_normal.serial_normal(parts.size, mean, scale, engine))

    return draw


FILLED = Rule("FillBackward0", {})


_INTS = frozenset({int})
_NUMBERS = frozenset({int, float})


def _plainly(kinds: frozenset[type], args: tuple[Any, ...], words: dict[str, Any]) -> bool:
    """Whether all is given by position, or all by name, and in these types: nobody has to judge."""
    if words:
        return not args and kinds.issuperset(map(type, words.values()))
    return kinds.issuperset(map(type, args))


def _sampler(
    name: str,
    draw_of: Callable[..., Draw],
    defaults: dict[str, Any],
    doc: str,
    scattered_of: Any = None,
) -> None:
    """Declare `name_`: parameters by position or by name, then `generator`."""

    usual = tuple(defaults.values())

    def values_of(args: tuple[Any, ...], words: dict[str, Any]) -> tuple[Any, ...]:
        if len(args) > len(usual):
            raise TypeError(f"{name}() takes at most {len(usual)} arguments ({len(args)} given)")
        if not words:
            return (*args, *usual[len(args) :])
        values = {**defaults, **dict(zip(defaults, args, strict=False))}
        for word, value in words.items():
            if word not in values:
                raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
            values[word] = value
        return tuple(values.values())

    def f(self: Tensor, *args: Any, generator: Any = None, **words: Any) -> Tensor:
        values = values_of(args, words)
        engine = engine_of(generator)
        draw = draw_of(self, engine, *values)
        scattered = scattered_of and scattered_of(*values, engine)
        overwrite(self, lambda: draw_into(self, draw, scattered))
        return self

    def fast(
        self: Tensor, args: tuple[Any, ...], words: dict[str, Any], generator: Any = None
    ) -> Tensor | None:
        if not _fills(self) or not _plainly(_NUMBERS, args, words):
            return None
        return _filled(self, draw_of(self, engine_of(generator), *values_of(args, words)))

    given = (0.5,) if None in defaults.values() else ()
    f = sampled(lambda tensor: [(tensor([0.0, 0.0, 0.0]), *given)])(named(f, name, doc))
    export(name, drawn(f), namespaces=(), fast=fast)


def _fills(t: Tensor) -> bool:
    """Whether all that a draw does is to write to a small array."""
    x = t._np
    return x is not None and not t._rg and not modes.state.vmaps and bool(x.flags.c_contiguous)


def _filled(t: Tensor, draw: Draw) -> Tensor:
    with LOCK():
        draw(to_write(t))
    return t


def overwrite(t: Tensor, write: Callable[[], None]) -> None:
    """Replace all elements, recorded as a fill: no gradient passes."""
    history.before_inplace(t)
    kept = history.prepare(t, FILLED, {"input": t}) if modes.state.grad and t._rg else None
    write()
    if kept is not None:
        history.rebase(t, kept)


def floating(t: Tensor, name: str) -> None:
    """Refuse other types; of an empty tensor PyTorch asks nothing but its bounds."""
    if t._dtype.category >= dtypes.FLOAT and t._dtype not in dtypes.FLOAT8:
        return
    if t.numel() or name == "check_uniform_bounds":
        raise no_kernel(name, t._dtype)


COMPUTED = frozenset({dtypes.bool, *dtypes.INTEGRAL, *dtypes.FLOATING, *dtypes.HALVES})


def _computes(t: Tensor, name: str, types: Set[dtypes.dtype] = COMPUTED) -> None:
    """Refuse types that a kernel is not written for, unless the tensor is empty."""
    if t._dtype not in types and t.numel():
        raise no_kernel(name, t._dtype)


def _uniform(t: Tensor, engine: Engine, low: float, high: float) -> Draw:
    floating(t, "check_uniform_bounds")
    return lambda out: draws_few.uniform(out, low, high, engine)


def _normal(t: Tensor, engine: Engine, mean: Any, std: Any) -> Draw:
    mean = mean.item() if isinstance(mean, Tensor) else mean
    std = std.item() if isinstance(std, Tensor) else std
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {float(std):g}")
    floating(t, "normal_kernel_cpu")
    return lambda out: draws_few.normal(out, mean, std, engine)


@sampled(lambda tensor: [(tensor([0.0, 0.0, 0.0]), 5)])
def random_(self: Tensor, *args: Any, generator: Any = None, **words: Any) -> Tensor:
    """Whole numbers: `random_(to)`, `random_(from, to)`, or all that the dtype can hold.

    Dtypes: integers and floating point.
    """
    draw = _whole(self, engine_of(generator), args, words)
    overwrite(self, lambda: draw_into(self, draw))
    return self


def _whole(t: Tensor, engine: Engine, args: tuple[Any, ...], words: dict[str, Any]) -> Draw:
    low, high = _ends(args, words) if args or words else (0, None)
    if not args and not words:
        _computes(t, "random_kernel_cpu")
        return lambda out: draws_integers.random_(out, engine) if out.size else None
    if high is not None and low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    return between(t, engine, low, high)


def _ends(args: tuple[Any, ...], words: dict[str, Any]) -> tuple[int, int | None]:
    """The range of a call `random_(to)` or `random_(from, to)`, where `to` may be None."""
    if len(args) > 2:
        raise TypeError(f"random_() takes 2 positional arguments but {len(args)} were given")
    alone = len(args) + len(words) == 1
    given = dict(zip(("to",) if alone else ("from", "to"), args, strict=False))
    for word in words:
        if word in given:
            raise TypeError(f"random_() got multiple values for argument '{word}'")
        if word not in ("from", "to"):
            raise TypeError(f"random_() got an unexpected keyword argument '{word}'")
    given |= words
    high = given.get("to")
    if alone and high is None:
        raise TypeError("random_(): a range needs a number 'to', or 'from' and 'to'")
    low = 0 if alone else given["from"]
    for end in (low, high):
        if isinstance(end, int) and not -INT64_END <= end < INT64_END:
            raise ValueError("Overflow when unpacking long long")
    return low, high


def between(t: Tensor, engine: Engine, low: Any, high: Any) -> Draw:
    """How `t` is filled with whole numbers of a range; without `high`, to all that it can hold."""
    if t._dtype.is_complex:
        says = "check_random_bounds handles only integral, floating-point and boolean types"
        raise RuntimeError(says)
    if t._dtype in dtypes.FLOAT8:
        raise no_kernel("random_update_from_to", t._dtype)
    return lambda out: draws_integers.random_(out, engine, low, high)


def _few_whole(
    self: Tensor, args: tuple[Any, ...], words: dict[str, Any], generator: Any = None
) -> Tensor | None:
    if not _fills(self) or not _plainly(_INTS, args, words):
        return None
    return _filled(self, _whole(self, engine_of(generator), args, words))


export("random_", drawn(random_), namespaces=(), fast=_few_whole)


def _continuous(name: str, t: Tensor) -> None:
    if not t._dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {promotion.scalar_type_name(t._dtype)}"
        )


def _exponential(t: Tensor, engine: Engine, rate: float) -> Draw:
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={float(rate):g}")
    if t.numel():
        _continuous("Exponential", t)
    _computes(t, "exponential_cpu")
    return lambda out: draws.exponential(out, rate, engine)


def _geometric(t: Tensor, engine: Engine, p: Any) -> Draw:
    if p is None:
        raise TypeError('geometric_() missing 1 required positional arguments: "p"')
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    _computes(t, "geometric_cpu", COMPUTED - {dtypes.bool})
    return lambda out: draws.geometric(out, p, engine)


def _cauchy(t: Tensor, engine: Engine, median: float, sigma: float) -> Draw:
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    _continuous("Cauchy", t)
    _computes(t, "cauchy_cpu")
    return lambda out: draws.cauchy(out, median, sigma, engine)


def _log_normal(t: Tensor, engine: Engine, mean: float, std: float) -> Draw:
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _computes(t, "log_normal_cpu", dtypes.FLOATING.union(dtypes.HALVES))
    return lambda out: draws.log_normal(out, mean, std, engine)


_sampler("uniform_", _uniform, {"from": 0.0, "to": 1.0}, "Uniform numbers in [from, to).")
_sampler("normal_", _normal, {"mean": 0.0, "std": 1.0}, "Normal numbers.", one_by_one)
_sampler("exponential_", _exponential, {"lambd": 1.0}, "Exponential numbers of rate `lambd`.")
_sampler("geometric_", _geometric, {"p": None}, "Numbers of trials until the first success.")
_sampler("cauchy_", _cauchy, {"median": 0.0, "sigma": 1.0}, "Cauchy numbers.")
_sampler(
    "log_normal_", _log_normal, {"mean": 1.0, "std": 2.0}, "Numbers whose logarithm is normal."
)


def _check_p(p: float) -> float:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return float(p)


def _bernoulli_draw(p: Any, engine: Engine, t: Tensor) -> Draw:
    """How `t` is filled; `draw_into` hands out its elements in the order of memory."""
    if not isinstance(p, Tensor):
        chance = _check_p(p)
        _computes(t, "bernoulli_scalar_cpu_")
        return lambda out: draws.bernoulli(out, chance, engine)
    chances = meta.checked(p)
    if t._dtype.is_complex:
        raise no_kernel("bernoulli_tensor_cpu_self_", t._dtype)
    if not p._dtype.is_floating_point:
        raise no_kernel("bernoulli_tensor_cpu_p_", p._dtype)
    bad = (chances < 0) | (chances > 1)
    if bad.any():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    order = layouts.memory_order(t._skimp_layout_of())
    if t.numel():
        expand(p._skimp_layout_of(), tuple(t.shape), p._dtype)  # refuses other shapes
    else:
        chances = np.empty(tuple(t.shape))
    each = shaping.broadcast(chances, tuple(t.shape)).transpose(order)
    return lambda out: draws.bernoulli_each(out, each.copy(), engine)


@sampled(lambda tensor: [(tensor([0.0, 0.0, 0.0]), 0.5)])
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with chance `p` (a number, or a tensor of chances), else zeros.

    Dtypes: bool, integers and floating point.
    """
    draw = _bernoulli_draw(p, engine_of(generator), self)
    overwrite(self, lambda: draw_into(self, draw))
    return self


def bernoulli(
    input: Tensor, p: Any = None, *, generator: Any = None, out: Tensor | None = None
) -> Tensor:
    """Ones with the chances that `input` holds (or with chance `p`), else zeros.

    Dtypes: floating point.
    """
    if isinstance(p, Tensor) and p.ndim:
        raise TypeError(
            "bernoulli() received an invalid combination of arguments - got (Tensor, p=Tensor)"
        )
    if out is None:
        return _bernoulli(input, p, generator)
    outs.refuse_grad("bernoulli", out, [input])
    outs.check_overlap(out, [input])
    outs.resize_out("bernoulli", out, tuple(input.shape))
    return _drawn_by(input, p, generator, out)


def _drawn_by(input: Tensor, p: Any, generator: Any, target: Tensor) -> Tensor:
    chances = input.detach() if p is None else p
    draw_into(target, _bernoulli_draw(chances, engine_of(generator), target))
    return target


@hidden(rule=Rule("BernoulliBackward0", input=lambda g: g.new_zeros(g.shape)))
@drawing
def _bernoulli(input: Tensor, p: Any, generator: Any) -> Tensor:
    target = empty_as(input, memory_format=formats.contiguous_format)
    return _drawn_by(input, p, generator, target)


def _few_chances(input: Tensor, p: Any = None, *, generator: Any = None) -> Tensor | None:
    x = input._np
    if x is None or p is not None or input._rg or modes.state.vmaps or generator is not None:
        return None
    if input._dtype is not dtypes.float32 or not 0 < x.size <= FEW or not x.flags.c_contiguous:
        return None
    row = x.reshape(-1)
    if bare.highest(row.view(np.uint32)) > _ONE_BITS:  # so are negative numbers, and NaN
        return None
    engine = default_generator._engine
    with engine.lock:
        numbers = draws_few.drawn_uniforms(row.size, engine)
    if numbers is None:
        return None
    bare.less(numbers, row, out=numbers)
    return fresh(numbers.reshape(x.shape), dtypes.float32)


def _few_ones(self: Tensor, p: Any = 0.5, generator: Any = None) -> Tensor | None:
    if isinstance(p, Tensor) or not _fills(self):
        return None
    return _filled(self, _bernoulli_draw(p, engine_of(generator), self))


export("bernoulli_", drawn(bernoulli_), namespaces=(), fast=_few_ones)
export("bernoulli", drawn(bernoulli), fast=_few_chances)


SAYS = """\
Shape: any.
Dtypes: floating point; integers too where a method says so.
Raises: RuntimeError or NotImplementedError for dtypes that can't hold what is drawn, RuntimeError
for parameters out of range."""
