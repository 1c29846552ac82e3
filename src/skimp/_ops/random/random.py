"""Random numbers: PyTorch's CPU generator and its draws, bit for bit. Numbers are drawn at the
call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout_overlap import assert_no_internal_overlap
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.random import (
    draws,
    few as draws_few,
    integers as draws_integers,
    normal as draws_normal,
    rejection as draws_rejection,
    weighted as draws_weighted,
)
from skimp._kernels.random.mt19937 import Engine
from skimp._ops.create.creation import dense_tensor, empty_as, finish, sizes_of
from skimp._ops.random.generator import LOCK, default_generator, drawn, engine_of
from skimp.config import config

_FEW = 1 << 12  # elements up to which a draw is handed out by few.py, or by a call of its own
_LARGE = 1 << 26  # numbers whose range is drawn from 32-bit words, in any case
_ONE_BITS = 0x3F800000  # of 1 in float32
_LISTED = 256  # elements up to which swapping in a list is faster
# -- filling --------------------------------------------------------------------------------------

Draw = Callable[[Array], None]


def draw_into(t: Tensor, draw: Draw, scattered: Draw | None = None) -> None:
    """Fill `t` in the order in which its elements lie in memory, unrecorded.

    `scattered` draws instead where the tensor is not contiguous (PyTorch has no vector code for
    those).
    """
    at_hand = t._np
    if at_hand is not None and at_hand.flags.c_contiguous:
        array = t.writable()
        with LOCK():
            draw(array)
        return
    layout = t.layout_of()
    if not layouts.is_contiguous(layout):
        assert_no_internal_overlap(layout)
        draw = scattered or draw
    array = t.writable().transpose(layouts.memory_order(layout))
    with LOCK():
        if array.flags.c_contiguous:
            draw(array)
        else:
            filled = np.empty(array.shape, array.dtype)
            draw(filled)
            copy(array, filled)


def _one_by_one(mean: float, std: float, engine: Engine) -> Draw:
    def draw(out: Array) -> None:
        parts = out.view(out.real.dtype) if out.dtype.kind == "c" else out
        scale = std / math.sqrt(2) if out.dtype.kind == "c" else std
        copy(parts.reshape(-1), draws_normal.serial_normal(parts.size, mean, scale, engine))

    return draw


FILLED = Rule("FillBackward0", {})


def _sampler(
    name: str,
    draw_of: Callable[..., Draw],
    defaults: dict[str, Any],
    doc: str,
    scattered_of: Any = None,
) -> None:
    """Declare `name_`: parameters by position or by name, then `generator`."""

    def f(self: Tensor, *args: Any, generator: Any = None, **words: Any) -> Tensor:
        if len(args) > len(defaults):
            raise TypeError(f"{name}() takes at most {len(defaults)} arguments ({len(args)} given)")
        values = {**defaults, **dict(zip(defaults, args, strict=False))}
        for word, value in words.items():
            if word not in values:
                raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
            values[word] = value
        engine = engine_of(generator)
        draw = draw_of(self, engine, *values.values())
        scattered = scattered_of and scattered_of(*values.values(), engine)
        overwrite(self, lambda: draw_into(self, draw, scattered))
        return self

    export(name, drawn(named(f, name, doc)), namespaces=())


def overwrite(t: Tensor, write: Callable[[], None]) -> None:
    """Replace all elements, recorded as a fill: no gradient passes."""
    history.before_inplace(t)
    kept = history.prepare(t, FILLED, {"input": t}) if modes.state.grad and t._rg else None
    write()
    if kept is not None:
        history.rebase(t, kept)


def _floating(t: Tensor, name: str) -> None:
    if t._dtype.category < dtypes.FLOAT or t._dtype in dtypes.FLOAT8:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{promotion.scalar_type_name(t._dtype)}'"
        )


def _uniform(t: Tensor, engine: Engine, low: float, high: float) -> Draw:
    _floating(t, "check_uniform_bounds")
    return lambda out: draws.uniform(out, low, high, engine)


def _normal(t: Tensor, engine: Engine, mean: float, std: float) -> Draw:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {float(std):g}")
    _floating(t, "normal_kernel_cpu")
    return lambda out: draws_normal.normal(out, mean, std, engine)


def random_(self: Tensor, *args: Any, generator: Any = None, **words: Any) -> Tensor:
    """Whole numbers: `random_(to)`, `random_(from, to)`, or all that the dtype can hold."""
    if len(args) > 2:
        raise TypeError(f"random_() takes 2 positional arguments but {len(args)} were given")
    low, high = 0, words.pop("to", None)
    if "from" in words:
        low = words.pop("from")
        if high is None and args:
            high = args[0]
    elif len(args) == 1:
        high = args[0]
    elif len(args) == 2:
        low, high = args
    if words:
        raise TypeError(f"random_() got an unexpected keyword argument '{next(iter(words))}'")
    engine = engine_of(generator)
    if not args and high is None and low == 0:
        overwrite(self, lambda: draw_into(self, lambda out: draws_integers.random_(out, engine)))
        return self
    if high is not None and low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    overwrite(
        self, lambda: draw_into(self, lambda out: draws_integers.random_(out, engine, low, high))
    )
    return self


export("random_", drawn(random_), namespaces=())


def _exponential(t: Tensor, engine: Engine, rate: float) -> Draw:
    if rate <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={float(rate):g}")
    _floating(t, "exponential")
    return lambda out: draws.exponential(out, rate, engine)


def _geometric(t: Tensor, engine: Engine, p: Any) -> Draw:
    if p is None:
        raise TypeError('geometric_() missing 1 required positional arguments: "p"')
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return lambda out: draws.geometric(out, p, engine)


def _cauchy(t: Tensor, engine: Engine, median: float, sigma: float) -> Draw:
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    if not t._dtype.is_floating_point:
        raise RuntimeError(
            f"Cauchy distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you "
            f"specified {promotion.scalar_type_name(t._dtype)}"
        )
    return lambda out: draws.cauchy(out, median, sigma, engine)


def _log_normal(t: Tensor, engine: Engine, mean: float, std: float) -> Draw:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _floating(t, "log_normal_cpu")
    return lambda out: draws.log_normal(out, mean, std, engine)


_sampler("uniform_", _uniform, {"from": 0.0, "to": 1.0}, "Uniform numbers in [from, to).")
_sampler("normal_", _normal, {"mean": 0.0, "std": 1.0}, "Normal numbers.", _one_by_one)
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
        return lambda out: draws.bernoulli(out, chance, engine)
    chances = p.array()
    if chances.dtype.kind in "iub":
        chances = chances.astype(np.float32)
    bad = (chances < 0) | (chances > 1)
    if bad.any():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    order = layouts.memory_order(t.layout_of())
    each = np.broadcast_to(chances, tuple(t.shape)).transpose(order)
    return lambda out: draws.bernoulli_each(out, each.copy(), engine)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with chance `p` (a number, or a tensor of chances), else zeros."""
    draw = _bernoulli_draw(p, engine_of(generator), self)
    overwrite(self, lambda: draw_into(self, draw))
    return self


BERNOULLI = Rule("BernoulliBackward0", {"input": lambda g: g.new_zeros(g.shape)})
NORMAL = Rule(
    "NormalBackward3",
    {
        "mean": lambda g, mean_shape: g.new_zeros(tuple(mean_shape)),
        "std": lambda g, std_shape: g.new_zeros(tuple(std_shape)),
    },
)


def bernoulli(
    input: Tensor, p: Any = None, *, generator: Any = None, out: Tensor | None = None
) -> Tensor:
    """Ones with the chances that `input` holds (or with chance `p`), else zeros."""
    target = empty_as(input) if out is None else out
    if out is not None:
        outs.refuse_grad("bernoulli", out, [input])
        outs.resize_out("bernoulli", out, tuple(input.shape))
    chances = input.detach() if p is None else p
    draw = _bernoulli_draw(chances, engine_of(generator), target)
    draw_into(target, draw)
    if out is None and modes.state.grad and input._rg:
        record(BERNOULLI, {"input": input}, target)
    return target


def _few_chances(input: Tensor, p: Any = None, *, generator: Any = None) -> Tensor | None:
    x = input._np
    if x is None or p is not None or input._rg or modes.state.vmaps or generator is not None:
        return None
    if input._dtype is not dtypes.float32 or not 0 < x.size <= _FEW or not x.flags.c_contiguous:
        return None
    row = x.reshape(-1)
    if np.maximum.reduce(row.view(np.uint32)) > _ONE_BITS:  # so are negative numbers, and NaN
        return None
    engine = default_generator._engine
    with engine.lock:
        numbers = draws_few.uniforms(row.size, engine)
        if numbers is None:
            numbers = draws.uniform24(row.size, engine)
    np.less(numbers, row, out=numbers)
    return fresh(numbers.reshape(x.shape), dtypes.float32)


export("bernoulli_", drawn(bernoulli_), namespaces=())
export("bernoulli", drawn(bernoulli), fast=_few_chances)


# -- making ---------------------------------------------------------------------------------------


def _shape_at_hand(size: tuple[Any, ...]) -> tuple[int, tuple[int, ...]] | None:
    """The number of elements and the shape of a small tensor; None where the general way looks."""
    if len(size) == 1 and type(size[0]) is not int:
        size = size[0]
        if type(size) not in (tuple, list, Size):
            return None
    n = 1
    for length in size:
        if type(length) is not int or length < 1:
            return None
        n *= length
    if n >= config.small_below or n > _FEW or modes.state.vmaps:
        return None
    return n, tuple(size)


def _few(draw: Callable[[int, Engine], Array | None]) -> Callable[..., Tensor | None]:
    """The fast path of a function that makes a small float32 tensor of the default stream."""
    engine = default_generator._engine
    lock, default_dtype = engine.lock, promotion.get_default_dtype

    def fast(*size: Any) -> Tensor | None:
        found = _shape_at_hand(size)
        if found is None or default_dtype() is not dtypes.float32:
            return None
        n, shape = found
        with lock:
            made = draw(n, engine)
        if made is None:
            return None
        return fresh(made if len(shape) == 1 else made.reshape(shape), dtypes.float32)

    return fast


def _maker(
    name: str,
    draw: Callable[[Array, Engine], None],
    few: Callable[[int, Engine], Array | None],
    normal: bool,
    doc: str,
) -> None:
    def f(
        *size: Any,
        generator: Any = None,
        out: Tensor | None = None,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        **words: Any,
    ) -> Tensor:
        if words:
            if "size" in words:
                size = (words.pop("size"),)
            if words.pop("names", None) is not None or words:
                raise TypeError(
                    f"{name}() got an unexpected keyword argument '{next(iter(words), 'names')}'"
                )
        shape = sizes_of(size)
        engine = engine_of(generator)
        if out is not None:
            outs.check_out_dtype(dtype, out)
            outs.resize_out(name, out, shape)
            _floating(out, "normal_kernel_cpu" if normal else "check_uniform_bounds")
            draw_into(
                out, lambda a: draw(a, engine), _one_by_one(0.0, 1.0, engine) if normal else None
            )
            return out
        t = dense_tensor(shape, dtype, device, layout)
        if t._dtype.category < dtypes.FLOAT:
            _floating(t, "normal_kernel_cpu" if normal else "check_uniform_bounds")
        draw_into(t, lambda a: draw(a, engine))
        return finish(t, requires_grad)

    def like(
        input: Tensor,
        *,
        generator: Any = None,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        t = empty_as(input, dtype, device, memory_format)
        if t._dtype.category < dtypes.FLOAT:
            _floating(t, "normal_kernel_cpu" if normal else "check_uniform_bounds")
        engine = engine_of(generator)
        draw_into(t, lambda a: draw(a, engine), _one_by_one(0.0, 1.0, engine) if normal else None)
        return finish(t, requires_grad)

    made = drawn(named(f, name, f"A tensor of {doc}."))
    export(name, made, method=False, fast=_few(few))
    export(
        f"{name}_like",
        drawn(named(like, f"{name}_like", f"A tensor of {doc}, shaped as the input.")),
        method=False,
    )


_maker(
    "rand",
    lambda a, engine: draws.uniform(a, 0.0, 1.0, engine),
    draws_few.uniforms,
    False,
    "uniform numbers in [0, 1)",
)
_maker(
    "randn",
    lambda a, engine: draws_normal.normal(a, 0.0, 1.0, engine),
    draws_few.normals,
    True,
    "standard normal numbers",
)


def randint(
    *args: Any,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **words: Any,
) -> Tensor:
    """Whole numbers: `randint(high, size)` or `randint(low, high, size)`."""
    if len(args) > 3:
        raise TypeError(f"randint() takes 3 positional arguments but {len(args)} were given")
    names = ["low", "high", "size"]
    given = dict(zip(names[-len(args) :] if args and not words else names, args, strict=False))
    if args and len(args) == 2 and not words:
        given = {"high": args[0], "size": args[1]}
    elif words:
        given = dict(
            zip(
                [n for n in names if n not in words][-len(args) :] if args else [],
                args,
                strict=False,
            )
        )
    given.update({k: words.pop(k) for k in list(words) if k in names})
    if words:
        raise TypeError(f"randint() got an unexpected keyword argument '{next(iter(words))}'")
    low, high = int(given.get("low", 0)), int(given["high"])
    shape = sizes_of((given["size"],))
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    engine = engine_of(generator)
    t = out if out is not None else dense_tensor(shape, dtype or dtypes.int64, device, layout)
    if out is not None:
        outs.resize_out("randint", out, shape)
    draw_into(t, lambda a: draws_integers.random_(a, engine, low, high))
    return finish(t, requires_grad) if out is None else t


def randint_like(
    input: Tensor,
    *args: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
    **words: Any,
) -> Tensor:
    """Whole numbers, shaped as the input: `randint_like(x, high)` or `randint_like(x,
    low, high)`.
    """
    low, high = (0, args[0]) if len(args) == 1 else args if len(args) == 2 else (0, None)
    low, high = int(words.pop("low", low)), int(words.pop("high", high))
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    t = empty_as(input, dtype, device, memory_format)
    draw_into(t, lambda a: draws_integers.random_(a, default_generator._engine, low, high))
    return finish(t, requires_grad)


def randperm(
    n: int,
    *,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers below n in random order."""
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    t = out if out is not None else dense_tensor((int(n),), dtype or dtypes.int64, device, layout)
    if out is not None:
        outs.resize_out("randperm", out, (int(n),))
    draw_into(t, lambda a: draws_integers.randperm(a, engine_of(generator)))
    return finish(t, requires_grad) if out is None else t


def _few_integers(*args: Any) -> Tensor | None:
    if not 2 <= len(args) <= 3:
        return None
    low: Any = args[0] if len(args) == 3 else 0
    high, size = args[-2:]
    if type(low) is not int or type(high) is not int or not low < high <= _LARGE or low < -_LARGE:
        return None
    found = None if type(size) is int else _shape_at_hand((size,))
    if found is None:
        return None
    n, shape = found
    engine = default_generator._engine
    with engine.lock:
        words = engine.random32(n)
    made = words.astype(np.int64)
    made %= high - low
    if low:
        made += low
    return fresh(made if len(shape) == 1 else made.reshape(shape), dtypes.int64)


def _few_in_order(n: Any, **words: Any) -> Tensor | None:
    if type(n) is not int or not 0 < n <= _LISTED or any(words.values()):
        return None
    if modes.state.vmaps or n >= config.small_below:
        return None
    engine = default_generator._engine
    with engine.lock:
        drawn: list[int] = engine.random32(n - 1).tolist()
    numbers = list(range(n))
    for i, word in enumerate(drawn):
        j = i + word % (n - i)
        numbers[i], numbers[j] = numbers[j], numbers[i]
    return fresh(np.array(numbers, np.int64), dtypes.int64)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Normal numbers; mean and std are numbers (with `size`) or tensors that broadcast."""
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        t = dense_tensor(sizes_of((size,)), dtype, device) if out is None else out
        if out is not None:
            outs.check_out_dtype(dtype, out)
            outs.resize_out("normal", out, sizes_of((size,)))
        t.normal_(mean, std, generator=generator)
        return finish(t, requires_grad) if out is None else t
    if size is not None:
        raise TypeError("normal() received an invalid combination of arguments: size with tensors")
    like = mean if isinstance(mean, Tensor) else std
    if isinstance(std, Tensor) and bool((std.detach() < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    shape = tuple(like.shape)
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = layouts.broadcast_shapes(tuple(mean.shape), tuple(std.shape))
    t = dense_tensor(shape, like._dtype, device) if out is None else out
    if out is not None:
        outs.resize_out("normal", out, shape)
    with modes.no_grad():
        t.normal_(0.0, 1.0, generator=generator)
        t.mul_(std).add_(mean)
    if (
        out is None
        and modes.state.grad
        and any([isinstance(v, Tensor) and v._rg for v in (mean, std)])
    ):
        record(NORMAL, {"mean": mean, "std": std}, t)
    return t


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Positions drawn with the weights that each row of `input` holds."""
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input._dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: "
            f"{promotion.scalar_type_name(input._dtype)}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    n = input.shape[-1]
    if not replacement and num_samples > n:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    with LOCK():
        found = draws_weighted.multinomial(
            input.array(), num_samples, replacement, engine_of(generator)
        )
    result = fresh(np.ascontiguousarray(found), dtypes.int64)
    if out is None:
        return result
    if out._dtype is not dtypes.int64:
        raise RuntimeError(
            f"multinomial expects Long tensor out, got: {promotion.scalar_type_name(out._dtype)}"
        )
    outs.resize_out("multinomial", out, tuple(result.shape))
    copy(out.writable(), result.array())
    return out


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson numbers of the rates that `input` holds."""
    with LOCK():
        return fresh(draws_rejection.poisson(input.array(), engine_of(generator)), input._dtype)


for _made, _fast in (
    (randint, _few_integers),
    (randint_like, None),
    (randperm, _few_in_order),
    (normal, None),
    (poisson, None),
):
    export(_made.__name__, drawn(_made), method=False, fast=_fast)
export("multinomial", drawn(multinomial))
