"""Numbers held within limits (clamp), mixtures (lerp), sums with products (addcmul, addcdiv)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present_gap, recorded
from skimp._engine.dispatch import older
from skimp._engine.dispatch.bodies import pointwise
from skimp._engine.dispatch.fast_path import to_write
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import (
    all_hold,
    check_number,
    number_of,
    refuse_complex,
    require_tensor,
    unrecorded,
)
from skimp._engine.dispatch.pointwise import Pointwise, Refused
from skimp._engine.dispatch.pointwise_forms import named, target_is_small
from skimp._engine.dispatch.result_types import common, same
from skimp._engine.dispatch.rows import COMPLEX, FLOAT, INT, conj
from skimp._engine.dispatch.settled import Run, settle
from skimp._engine.dispatch.targets import c_name
from skimp._engine.eval.expr import Kernel
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, pointwise as K
from skimp._ops.index.masks import where

# -- clamp ----------------------------------------------------------------------------------------

NO_COMPLEX = Refused(NotImplementedError, "clamp is not supported for complex types")


_CLAMP = Kernel("clamp", K.clamp)
_CLAMP_ONE = Kernel("clamp", K.clamp, aliases=True)  # by numbers, or by one tensor


def _kernels(kernel: Any) -> Any:
    return {**dict.fromkeys(range(3), kernel), COMPLEX: NO_COMPLEX}


@K.loose
def _above(x: Any, high: Any, *, out: Any) -> None:
    K.clamp(x, None, high, out=out)


_CLAMP_ABOVE = Kernel("clamp", _above, aliases=True)


def _inside(g: Tensor, input: Tensor, min: Any, max: Any) -> Any:
    """`g` where the input is within its limits, of which one may be None; else 0."""
    found = unrecorded(g, input)
    if found is not None and found[0].shape == found[1].shape and _numbers(g._dtype, min, max):
        a, x = found
        inside: Any = None if min is None else bare.greater_equal(x, min)
        if max is not None:
            below = bare.less_equal(x, max)
            inside = below if inside is None else bare.logical_and(inside, below)
        return fresh(bare.where(inside, a, bare.zero(a.dtype)), g._dtype)
    if min is None or max is None:
        return where(input <= max if min is None else input >= min, g, 0)
    return where((input >= min) & (input <= max), g, 0)


BY_MIN = {"input": lambda g, input, min: _inside(g, input, min, None)}
BY_MAX = {"input": lambda g, input, max: _inside(g, input, None, max)}
OF_MIN = {"min": lambda g, input, min: where(input < min, g, 0)}
OF_MAX = {"max": lambda g, input, max: where(input > max, g, 0)}
OF_BOTH = {
    "input": lambda g, input, min, max: _inside(g, input, min, max),
    "min": lambda g, input, min, max: where((input < min) & (min < max), g, 0),
    "max": lambda g, input, min, max: where((input > max) | (max < min), g, 0),
}


def _limits(node: str, kernel: Any, formulas: Any, *args: str) -> Pointwise:
    numbers = "min" not in formulas and "max" not in formulas
    return Pointwise(
        "clamp",
        _kernels(kernel),
        same,
        Rule(node, formulas),
        ("input", *args),
        title="clamp_cpu",
        own=numbers,  # by tensors it converts
    )


# By the limits that are given, and whether tensors are among them.
CLAMPS = {
    ("min", "max", True): _limits("ClampBackward0", _CLAMP, OF_BOTH, "min", "max"),
    ("min", True): _limits("ClampBackward0", _CLAMP_ONE, BY_MIN | OF_MIN, "min"),
    ("max", True): _limits("ClampBackward0", _CLAMP_ABOVE, BY_MAX | OF_MAX, "max"),
    ("min", "max", False): _limits(
        "ClampBackward1", _CLAMP_ONE, {"input": OF_BOTH["input"]}, "min", "max"
    ),
    ("min", False): _limits("ClampBackward1", _CLAMP_ONE, BY_MIN, "min"),
    ("max", False): _limits("ClampBackward1", _CLAMP_ABOVE, BY_MAX, "max"),
}
ONE_SIDED = {
    ("min", True): _limits("ClampMinBackward1", _CLAMP_ONE, BY_MIN | OF_MIN, "min"),
    ("min", False): _limits("ClampMinBackward0", _CLAMP_ONE, BY_MIN, "min"),
    ("max", True): _limits("ClampMaxBackward1", _CLAMP_ABOVE, BY_MAX | OF_MAX, "max"),
    ("max", False): _limits("ClampMaxBackward0", _CLAMP_ABOVE, BY_MAX, "max"),
}


def _check_limits(name: str, input: Any, given: dict[str, Any], alike: bool = True) -> None:
    kinds = (Tensor, int, float, complex, np.generic)
    if (
        not alike
        or not isinstance(input, Tensor)
        or not all([isinstance(v, kinds) for v in given.values()])
    ):
        what = ", ".join([type(v).__name__ for v in (input, *given.values())])
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({what})")
    numbers = [v for v in given.values() if not isinstance(v, Tensor)]
    common_type = common((input, *given.values())) if numbers else input._dtype
    if numbers or len(given) == 2:  # one tensor is a maximum or minimum, which bool has
        of = "clamp" if len(given) == 2 else f"clamp_{next(iter(given))}"
        promotion.refuse(f"{of}{'_scalar' * bool(numbers)}_cpu", common_type, (dtypes.bool,))
    if not common_type.is_complex:
        for v in numbers:
            check_number(v, common_type)


def _plain(v: Any) -> Any:
    """A limit; NumPy's numbers as Python's, which are checked against the type."""
    return number_of(v) if isinstance(v, np.generic) else v


def _limit(v: Any, input: Any) -> Any:
    """A limit of `clamp`: what is written as a complex number is a real one beside floats."""
    v = _plain(v)
    if not isinstance(v, complex) or not isinstance(input, Tensor):
        return v
    if input._dtype.category != FLOAT:
        return v
    refuse_complex(dtypes.float64, v)
    return v.real


def _as_number(v: Any) -> Any:
    return v.item() if isinstance(v, Tensor) and v.ndim == 0 and not (v._hollow or v._rg) else v


_HALF_END = float(np.finfo(np.float16).max)
# The numbers between which the limits are of types other than the long floats, and their types.
_ENDS: dict[dtypes.dtype, tuple[float, float, tuple[type, ...]]] = {
    dtypes.float16: (-_HALF_END, _HALF_END, (int, float)),
    **{d: (np.iinfo(d.np).min - 1, np.iinfo(d.np).max + 1, (int,)) for d in dtypes.INTEGRAL},
}
_FAR: tuple[float, float, tuple[type, ...]] = (-INT64_END, INT64_END, (int, float))


def _numbers(dtype: dtypes.dtype, min: Any, max: Any) -> bool:
    """Whether the limits are finite numbers that the type has, or left out, and one is there."""
    low, high, kinds = _ENDS.get(dtype, _FAR)
    for v in (min, max):
        if v is not None and (type(v) not in kinds or not low < v < high):
            return False
    return min is not None or max is not None


def _shown(made: Tensor, input: Tensor, min: Any, max: Any) -> None:
    """The limit that is left out is an edge to nothing."""
    if recorded(made):
        present_gap(made, "ClampBackward0", 1 if min is None else 2)


@pointwise(CLAMPS["min", "max", True], aliases=("clip",))
def clamp(
    input: Tensor,
    min: Any = None,
    max: Any = None,
    *,
    out: Tensor | None = None,
    inplace: bool = False,
) -> Run:
    """Each element, but not below `min` nor above `max` (numbers or tensors); `max` wins."""
    limits = (("min", min), ("max", max))
    given = {name: _limit(v, input) for name, v in limits if v is not None}
    if not given:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    tensors = [isinstance(v, Tensor) for v in given.values()]
    if any(tensors) and not all(tensors):  # beside a number, a tensor must be a number too
        given = {name: _as_number(v) for name, v in given.items()}
        tensors = [isinstance(v, Tensor) for v in given.values()]
    _check_limits("clamp_" if inplace else "clamp", input, given, all(tensors) or not any(tensors))
    row = CLAMPS[(*given, all(tensors))]
    then = _shown if len(given) == 1 and all(tensors) else None
    return Run(row, (input, *given.values()), (), then)


@pointwise(ONE_SIDED["min", True], foreach=2)
def clamp_min(input: Tensor, min: Any, *, out: Tensor | None = None, inplace: bool = False) -> Run:
    """Each element, but not below `min`."""
    min = _plain(min)
    _check_limits("clamp_min", input, {"min": min})
    return Run(ONE_SIDED["min", isinstance(min, Tensor)], (input, min))


@pointwise(ONE_SIDED["max", True], foreach=2)
def clamp_max(input: Tensor, max: Any, *, out: Tensor | None = None, inplace: bool = False) -> Run:
    """Each element, but not above `max`."""
    max = _plain(max)
    _check_limits("clamp_max", input, {"max": max})
    return Run(ONE_SIDED["max", isinstance(max, Tensor)], (input, max))


# -- lerp -----------------------------------------------------------------------------------------


def _end_type(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    return args[0]._dtype, args[0]._dtype


LERP_NUMBER = Pointwise(
    "lerp",
    {FLOAT: K.lerp, COMPLEX: K.lerp},
    _end_type,
    Rule(
        "LerpBackward0",
        input=lambda g, weight: g * (1 - conj(weight)),
        end=lambda g, weight: g * conj(weight),
    ),
    ("input", "end", "weight"),
    title="lerp_kernel_scalar",
    numbers=(2,),
)
LERP = Pointwise(
    "lerp",
    {FLOAT: K.lerp, COMPLEX: K.lerp},
    _end_type,
    Rule(
        "LerpBackward1",
        input=lambda g, weight: g * conj(1 - weight),
        end=lambda g, weight: g * conj(weight),
        weight=lambda g, input, end: g * conj(end - input),
    ),
    ("input", "end", "weight"),
    title="lerp_kernel_tensor",
    own=True,
    numbers=(),
)


def _small_lerp_(input: Any, end: Any, weight: Any) -> Tensor | None:
    if type(weight) is not float:
        alike = type(weight) is Tensor and weight._dtype is input._dtype is end._dtype
        return input if alike and LERP.fast_inplace(input, end, weight) else None
    if not target_is_small(input, end):
        alike = end._dtype is input._dtype
        return input if alike and LERP_NUMBER.fast_inplace(input, end, weight) else None
    x, y = input._np, end._np
    if x is None or y is None:  # another thread's budget has taken them meanwhile
        return None
    share, near = (_share if weight else _share.__wrapped__)(weight, x.dtype)  # zeros have signs
    step = bare.subtract(y, x)
    if not x.ndim:  # NumPy made a number
        step = np.asarray(step)
    out = to_write(input)
    bare.multiply(step, share, out=step)
    if near:
        bare.add(x, step, out=out)
    else:
        bare.subtract(y, step, out=out)
    return input  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _share(weight: float, dtype: Any) -> tuple[Array, bool]:
    """What `lerp` takes of a step, as ufuncs take it soonest beside arrays, and whether it goes
    from the first end, the nearer one, as `K.lerp` does.
    """
    w = dtype.type(weight)
    near = bool(-0.5 < w < 0.5)
    return np.array(w if near else 1 - w, dtype), near


@pointwise(LERP, in_place=(), fast_in_place=_small_lerp_, free="weight")
def lerp(
    input: Tensor, end: Tensor, weight: Any, *, out: Tensor | None = None, inplace: bool = False
) -> Run:
    """input + weight * (end - input), for a number or a tensor of weights."""
    for i, (name, t) in enumerate((("input", input), ("end", end))):
        require_tensor("lerp", name, t, i + 1)
    loose = not isinstance(weight, Tensor) or (
        weight.ndim == 0 and weight._dtype.category <= input._dtype.category
    )
    for name, t in (("end", end), *((("weight", weight),) if not loose else ())):
        if t._dtype is not input._dtype:
            raise RuntimeError(
                f"expected dtype {c_name(input._dtype)} for `{name}` but got dtype "
                f"{c_name(t._dtype)}"
            )
    refuse_complex(input._dtype, weight)
    return Run(LERP if isinstance(weight, Tensor) else LERP_NUMBER, (input, end, weight))


# -- addcmul, addcdiv -----------------------------------------------------------------------------


def _without_value(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = common(args[:3])
    return d, d


def _check_value(compute: dtypes.dtype, args: tuple[Any, ...]) -> None:
    """Refuse a value that the type, of halves float32, can't hold."""
    value = args[3]
    if not all_hold(value, compute) and not isinstance(value, Tensor):
        check_number(value, dtypes.float32 if compute in dtypes.HALVES else compute)


THREE = ("input", "tensor1", "tensor2", "value")
ADDCMUL = Pointwise(
    "addcmul",
    {INT: K.addcmul, FLOAT: K.addcmul, COMPLEX: K.addcmul},
    _without_value,
    Rule(
        "AddcmulBackward0",
        input=lambda g: g,
        tensor1=lambda g, tensor2, value: g * conj(tensor2 * value),
        tensor2=lambda g, tensor1, value: g * conj(tensor1 * value),
    ),
    THREE,
    title="addcmul_cpu_out",
    numbers=(3,),
    check=_check_value,
)
ADDCDIV = Pointwise(
    "addcdiv",
    {INT: K.addcdiv, FLOAT: K.addcdiv, COMPLEX: K.addcdiv},
    _without_value,
    Rule(
        "AddcdivBackward0",
        input=lambda g: g,
        tensor1=lambda g, tensor2, value: g * conj(value / tensor2),
        tensor2=lambda g, tensor1, tensor2, value: -g * conj(value * tensor1 / (tensor2 * tensor2)),
    ),
    THREE,
    title="addcdiv_cpu_out",
    numbers=(3,),
    check=_check_value,
)

_VALUE_FIRST = (
    "Number value, Tensor tensor1, Tensor tensor2",
    "Tensor tensor1, Tensor tensor2, *, Number value = 1",
)
INTEGER_DIVISION = (
    "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
    "perform a true division of tensor1 and tensor2. The historic addcdiv behavior can be "
    "implemented as (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer "
    "inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv "
    "behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all "
    "dtypes."
)


def _add_product(row: Pointwise, doc: str, takes: str) -> None:
    def decide(
        input: Tensor,
        tensor1: Any,
        tensor2: Any,
        value: Any = 1,
        out: Tensor | None = None,
        inplace: bool = False,
    ) -> Run:
        args = (input, tensor1, tensor2)
        if row is ADDCDIV and all(
            [isinstance(t, Tensor) and t._dtype.category <= INT for t in args[1:]]
        ):
            raise RuntimeError(INTEGER_DIVISION)
        if isinstance(value, complex):
            tensors = [t for t in args if isinstance(t, Tensor)]
            wide = next((t for t in tensors if t._dtype.is_complex), tensors[0])
            refuse_complex(wide._dtype, value)
        return Run(row, (*args, value))

    run, fast, fast_in_place = settle(decide, "value")

    def in_order(name: str, args: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of (input, value, tensor1, tensor2), which PyTorch has deprecated, the value last."""
        if len(rest) > 1 or isinstance(args[1], Tensor):
            says = f"takes 3 positional arguments but {3 + len(rest)} were given"
            raise TypeError(f"{row.name}() {says}")
        older.say(name, *_VALUE_FIRST)
        return args[0], args[2], rest[0], args[1]

    def function(
        input: Tensor,
        tensor1: Any,
        tensor2: Any,
        *rest: Any,
        value: Any = 1,
        out: Tensor | None = None,
    ) -> Tensor:
        if rest:
            given = in_order(row.name, (input, tensor1, tensor2), rest)
            return run(*given, out)  # type: ignore[no-any-return]
        return run(input, tensor1, tensor2, value, out)  # type: ignore[no-any-return]

    def function_(input: Tensor, tensor1: Any, tensor2: Any, *rest: Any, value: Any = 1) -> Tensor:
        if rest:
            given = in_order(f"{row.name}_", (input, tensor1, tensor2), rest)
            return run(*given, None, True)  # type: ignore[no-any-return]
        return run(input, tensor1, tensor2, value, None, True)  # type: ignore[no-any-return]

    kinds = f"Dtypes: {takes}."
    main = named(function, row.name, f"{doc}\n\n{kinds}")
    export(row.name, main, foreach=3, fast=fast)
    in_place = named(function_, f"{row.name}_", f"{doc} In place.\n\n{kinds}")
    export(f"{row.name}_", in_place, namespaces=(), fast=fast_in_place)


_add_product(
    ADDCMUL, "input + value * tensor1 * tensor2.", "integers, floating point and complex numbers"
)
_add_product(ADDCDIV, "input + value * tensor1 / tensor2.", "floating point and complex numbers")


SAYS = """\
Shape: tensors (and numbers) that broadcast; the result has their common shape.
Raises: RuntimeError for shapes that don't broadcast; NotImplementedError or RuntimeError for
dtypes that are none of these."""
