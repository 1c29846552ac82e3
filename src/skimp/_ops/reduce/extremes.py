"""The smallest and largest elements, their places, and truth."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import OPS, export, hidden, reduction
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.reduction import dims_of, kept_shape, reduced
from skimp._engine.dispatch.runners import move, run_out
from skimp._engine.dispatch.targets import check_type
from skimp._engine.eval import reducers as R
from skimp._engine.memory.layout import left_out
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import shaping
from skimp._ops import batching, return_types
from skimp._ops.reduce import small_exact, small_order
from skimp._ops.reduce.reductions import UNHASHED, opened


def _extreme_back(g: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The gradient shared evenly among equal extremes; nan where the extreme is."""
    shape = tuple(input.shape)
    mask = input == opened(result, shape, dim, keepdim)
    share = opened(g, shape, dim, keepdim) / mask.sum(None if left_out(dim) else dim, True)
    return share * mask


def _whole_back(g: Tensor, input: Tensor, result: Tensor) -> Tensor:
    """The same of all elements, where those that are nan share what is nan's."""
    mask = (input == result) | (input.isnan() & result.isnan())
    return g.new_zeros(input.shape).masked_fill(mask, g / mask.sum())


def _check_order(name: str, input: Tensor, dims: tuple[int, ...], dim: Any) -> None:
    if input._dtype.is_complex:
        if name in ("amax", "amin"):
            raise no_kernel(f"{name[1:]}_values_cpu", input._dtype)
        raise RuntimeError(f"{name}(): does not support complex input")
    promotion.refuse(f"{name}_cpu", input._dtype, dtypes.NARROW)
    shape = tuple(input.shape)
    for d in dims:
        if shape and shape[d] == 0:
            if left_out(dim):
                kind = IndexError if name.startswith("arg") else RuntimeError
                raise kind(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument."
                )
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


_lowest = small_exact.extreme(np.minimum, R.AMIN)
_highest = small_exact.extreme(np.maximum, R.AMAX)


def _extreme(name: str, how: R.Reducer, doc: str) -> Any:
    def f(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        dims = dims_of(dim, input.ndim)
        _check_order(name, input, dims, dim)
        return reduced(input, dims, keepdim, how, input._dtype)

    f.__doc__ = doc
    return reduction(
        name,
        out="own",
        fast=_highest if how is R.AMAX else _lowest,
        rule=Rule(f"{name.capitalize()}Backward0", input=_extreme_back),
        batch=batching.dims.reduces,
    )(f)


@reduction(out="own", composite=False)
def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The bits of all elements, widened to 64 bits, combined by exclusive or, as uint64."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    promotion.refuse("xor_sum_cpu", input._dtype, UNHASHED)
    dims = dims_of(dim, input.ndim)
    if left_out(dim) and not input.numel():
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if not left_out(dim) and input.ndim and input.shape[d] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    exact = input._dtype.category < dtypes.FLOAT
    wide = input.detach().to(dtypes.int64 if exact else dtypes.float64)
    return reduced(wide.view(dtypes.uint64), dims, keepdim, R.XOR, dtypes.uint64)


amax = _extreme(
    "amax", R.AMAX, "The largest of all elements, or along dims; equal ones share the gradient."
)
amin = _extreme(
    "amin", R.AMIN, "The smallest of all elements, or along dims; equal ones share the gradient."
)


def _place(name: str, how: R.Reducer) -> Any:
    @reduction(
        name,
        out="own",
        fast=small_order.place(name),
        composite=False,
        batch=batching.dims.reduces_one,
    )
    def f(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if input._dtype is dtypes.bool or input._dtype.is_complex:
            kind = "complex" if input._dtype.is_complex else "bool"
            raise RuntimeError(f"{name}(): does not support {kind} input")
        dims = dims_of(dim, input.ndim)
        _check_order(name, input, dims, dim)
        return reduced(input, dims, keepdim, how, dtypes.int64, input._dtype, in_order=True)

    which = "largest" if name == "argmax" else "smallest"
    f.__doc__ = f"The position of the {which} element (nan wins); the first of equals."
    return f


argmax = _place("argmax", R.ARGMAX)
argmin = _place("argmin", R.ARGMIN)


def _at_back(g: Tensor, input_shape: Any, dim: Any, keepdim: bool, result1: Tensor) -> Tensor:
    zeros = g.new_zeros(tuple(input_shape))
    if not input_shape:
        return g
    return zeros.scatter(
        dim, opened(result1, input_shape, dim, keepdim), opened(g, input_shape, dim, keepdim)
    )


def _whole_into(name: str, best: Any, input: Tensor, out: Tensor) -> Tensor:
    """The one of all elements, in whatever type holds it."""
    outs.refuse_grad(name, out, [input])
    outs.check_cast(input._dtype, out._dtype)
    outs.resize_out(name, out, ())
    move(out, best(input))
    return out


def _with_places(name: str, best: Any, how: R.Reducer, pair: Any, **known: Any) -> Any:
    """max and min: of everything, along a dim with positions, or of two tensors."""

    rule = Rule(f"{name.capitalize()}Backward0", input=_at_back)
    find = f"arg{name}"
    highest = _highest if name == "max" else _lowest

    @hidden(
        f"_{name}_dim",
        kind="reduction",
        nondiff=(1,),
        rule=rule,
        batch=batching.dims.by_dims("dim"),
    )
    def along(input: Tensor, dim: int, keepdim: bool) -> Any:
        dims = dims_of(dim, input.ndim)
        _check_order(name, input, dims, dim)
        places = reduced(input, dims, keepdim, how, dtypes.int64, input._dtype, in_order=True)
        if not dims:
            return pair(input.clone(), places)
        if input._hollow:
            return pair(meta.empty(places.shape, input._dtype), places)
        at = places if keepdim else places.unsqueeze(dims[0])
        values = shaping.along(input._skimp_array(), at._skimp_array(), dims[0])
        shape = kept_shape(tuple(input.shape), dims, keepdim)
        return pair(fresh(values.reshape(shape), input._dtype), places)

    of_all = Rule(f"{name.capitalize()}Backward1", input=_whole_back)
    recorded = recording(of_all, ("input",))

    @hidden(f"_{name}_all", kind="reduction", rule=of_all)
    def whole(input: Tensor) -> Any:
        return best(input)

    def f(
        input: Tensor,
        dim: Any = None,
        keepdim: bool = False,
        *,
        other: Any = None,
        out: Any = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Any:
        require_tensor(name, "input", input)
        if axis is not None and (dim is not None or other is not None):
            raise TypeError(f"{name}() got an unexpected keyword argument 'axis'")
        dim = axis if axis is not None else dim
        if isinstance(dim, Tensor):
            other, dim = dim, None
        if other is not None:
            return OPS_PAIR[name](input, other, out=out)
        if dim is None:
            if input.numel() == 0:
                _check_order(name, input, dims_of(None, input.ndim), None)
            return whole(input) if out is None else _whole_into(name, best, input, out)
        keepdim = keepdim or keepdims
        if out is None:
            return along(input, dim, keepdim)
        dims_of(dim, input.ndim)
        if isinstance(out, (tuple, list)) and len(out) == 2:
            for one, dtype in zip(out, (input._dtype, dtypes.int64), strict=True):
                check_type(one, dtype, name)
        return run_out(
            OPS[f"_{name}_dim"], {"input": input, "dim": dim, "keepdim": keepdim}, out, [input]
        )

    def fast(
        input: Any,
        dim: Any = None,
        keepdim: bool = False,
        *,
        other: Any = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Any:
        if keepdims or other is not None or axis is not None:
            return None
        if type(dim) is not int:
            if keepdim is not False:
                return None
            if dim is None:
                made = highest(input)
                if made is not None and input._rg and modes.state.grad:
                    recorded.record(made, input)
                return made
            return OPS_PAIR[name](input, dim) if isinstance(dim, Tensor) else None
        found = small_order.extremes(find, input, dim, keepdim)
        if found is None:
            return None
        made = pair._of(found)
        if input._rg and modes.state.grad:
            record(rule, {"input": input, "dim": dim, "keepdim": keepdim}, made, (1,))
        return made

    f.__name__ = f.__qualname__ = name
    f.__doc__ = (
        f"The {name}imum of all elements; along a dim with its positions; or of two tensors "
        "element by element.\n\n"
        "Shape: without a dim one number; along one the input's less `dim`, which `keepdim` leaves "
        "with size\n1; of two tensors what they broadcast to."
    )
    export(name, f, fast=fast, **known)
    return f


OPS_PAIR: dict[str, Any] = {}  # filled below: the pointwise maximum and minimum


def _pairs(name: str) -> Any:
    title = f"{name}imum"

    def late(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
        return getattr(Tensor, title)(input, other, out=out)  # type: ignore[no-any-return]

    return late


OPS_PAIR.update({"max": _pairs("max"), "min": _pairs("min")})
max_ = _with_places("max", amax, R.ARGMAX, return_types.max, foreach=1)
min_ = _with_places("min", amin, R.ARGMIN, return_types.min)


def _both_back(
    g0: Any, g1: Any, input: Tensor, result0: Tensor, result1: Tensor, dim: Any, keepdim: bool
) -> Tensor:
    dim = () if dim is None else dim
    low = None if g0 is None else _extreme_back(g0, input, result0, dim, keepdim)
    high = None if g1 is None else _extreme_back(g1, input, result1, dim, keepdim)
    if low is None or high is None:
        return high if low is None else low  # type: ignore[return-value]
    return low + high


def _small_both(input: Any, *, dim: Any = None, keepdim: Any = False) -> Any:
    if input._np is None or type(dim) is tuple or type(dim) is list:
        return None
    dim = () if dim is None else dim
    low = _lowest(input, dim, keepdim)
    high = None if low is None else _highest(input, dim, keepdim)
    return None if high is None else return_types.aminmax._of((low, high))


@reduction(
    out="same",
    fast=_small_both,
    rule=Rule("AminmaxBackward0", input=_both_back),
    batch=batching.dims.reduces_one,
)
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element."""
    if dim is not None and not hasattr(dim, "__index__"):
        raise TypeError(f"aminmax(): argument 'dim' must be int, not {type(dim).__name__}")
    return return_types.aminmax(
        amin(input, () if dim is None else dim, keepdim),
        amax(input, () if dim is None else dim, keepdim),
    )


# -- truth ----------------------------------------------------------------------------------------


def _truth_into(name: str, given: dict[str, Any], out: Tensor) -> dict[str, Any]:
    """Whatever is asked, a bool or a byte says; a byte's input may be said by a bool."""
    if out._dtype not in (dtypes.bool, dtypes.uint8):
        kind = promotion.scalar_type_name(out._dtype)
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {kind}")
    asked = given["input"]
    if out._dtype is dtypes.bool and asked._dtype is dtypes.uint8:
        return {**given, "input": asked != 0}
    return given


def _truth(name: str, how: R.Reducer, doc: str) -> Any:
    def f(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        result = dtypes.uint8 if input._dtype is dtypes.uint8 else dtypes.bool
        dims = () if isinstance(dim, (tuple, list)) and not dim else dims_of(dim, input.ndim)
        return reduced(input, dims, keepdim, how, result, input._dtype)

    f.__doc__ = doc
    fast = small_exact.truth(name == "all")
    return reduction(
        name,
        out=partial(_truth_into, name),
        fast=fast,
        composite=False,
        batch=batching.dims.reduces,
    )(f)


all_ = _truth("all", R.ALL, "Whether all elements are true (not zero).")
any_ = _truth("any", R.ANY, "Whether some element is true (not zero).")


@reduction(composite=False, batch=batching.dims.reduces, one_by_one="dim")
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero.

    Shape: one number without `dim`.
    """
    return reduced(
        input, dims_of(dim, input.ndim), False, R.COUNT_NONZERO, dtypes.int64, input._dtype
    )


SAYS = """\
Dtypes: integers and floating point; bool but for positions, complex numbers where none is
compared.
Raises: IndexError for a dim that is not there, and for an empty one that has no extreme."""
