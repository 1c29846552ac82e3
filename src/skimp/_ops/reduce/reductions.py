"""Reductions: sums and means, extremes, truth, spread and norms, with their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import NAMESPACES, OPS, export, move, reduction, watching
from skimp._engine.dispatch.reduction import dims_of, kept_shape, reduced
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.runners import run_out
from skimp._engine.eval import reducers as R
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops import batching, return_types
from skimp._ops.reduce import small

HALF = (dtypes.float16, dtypes.bfloat16)
_UNHASHED = (*dtypes.NARROW, dtypes.complex64, dtypes.complex128)
PLAIN = (dtypes.float32, dtypes.float64)


def spread(g: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A reduced gradient expanded over the reduced dims: nothing is written."""
    return opened(g, shape, dim, keepdim).expand(tuple(shape))


def opened(g: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A reduced tensor with size 1 in place of each reduced dim; of all dims as it is."""
    if not keepdim and g.ndim:
        for d in dims_of(dim, len(shape)):
            g = g.unsqueeze(d)
    return g


def count(shape: Any, dim: Any) -> int:
    """How many elements make one of the result."""
    return math.prod([shape[d] for d in dims_of(dim, len(shape))])


def wide(d: dtypes.dtype) -> dtypes.dtype:
    """The type in which results of `d` are accumulated."""
    promotion.refuse("sum_cpu", d, dtypes.FLOAT8)
    return dtypes.float32 if d in HALF else d


def number_dtype(name: str, t: Tensor, dtype: dtypes.dtype | None) -> dtypes.dtype:
    """The result type of mean and its like: floating, or an error that says what to do."""
    found: dtypes.dtype = dtypes.asked(dtype) or t._dtype
    if found.category < dtypes.FLOAT:
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"{name}(): could not infer output dtype. {what} dtype must be either a floating "
            f"point or complex dtype. "
            f"Got: {promotion.scalar_type_name(found)}"
        )
    return found


def by_dim(name: str, formulas: Any) -> Any:
    """PyTorch names the node of a whole reduction 0, of one along dims 1."""
    whole, along = Rule(f"{name}Backward0", formulas), Rule(f"{name}Backward1", formulas)

    def chosen(given: dict[str, Any]) -> Rule:
        dtype = given.get("dtype")
        if dtype is not None and (to := dtypes.asked(dtype)).category < dtypes.FLOAT:
            raise RuntimeError(f"Autograd not support dtype: {promotion.scalar_type_name(to)}")
        return whole if given["dim"] is None else along

    return watching(chosen, *whole.names)


# -- sums and means -------------------------------------------------------------------------------

SPREAD = {"input": lambda g, input_shape, dim, keepdim: spread(g, input_shape, dim, keepdim)}


def whole_dtype(t: Tensor, dtype: dtypes.dtype | None) -> dtypes.dtype:
    """Integers and bools are summed as int64."""
    if dtype is not None:
        return dtype
    return dtypes.int64 if t._dtype.category < dtypes.FLOAT else t._dtype


@reduction(
    "sum", out=True, fast=small.sum_, rule=by_dim("Sum", SPREAD), batch=batching.dims.reduces
)
def sum_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over some dims (all by default); integers are summed as int64."""
    dtype = dtypes.asked(dtype)
    result = whole_dtype(input, dtype)
    if dtype is not None and dtype.category < input._dtype.category:
        input = input.to(dtype)
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.SUM, result, wide(result))


def _nan_into(
    name: str, f: Any, input: Tensor, dim: Any, keepdim: bool, dtype: Any, out: Tensor
) -> Tensor:
    """The result in the type of `out`, which PyTorch's kernel computes in."""
    if dtype is not None and dtype is not out._dtype:
        kinds = [promotion.scalar_type_name(d) for d in (out._dtype, dtype)]
        raise RuntimeError(
            f"{name}: provided dtype must match dtype of result. Got {kinds[0]} and {kinds[1]}."
        )
    if input._dtype.is_floating_point and not out._dtype.is_floating_point:
        kind = promotion.scalar_type_name(out._dtype)
        raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{kind}'")
    made = f(input, dim, keepdim, dtype=out._dtype)
    outs.resize_out(name, out, tuple(made.shape))
    move(out, made)
    return out


@reduction("nansum", batch=batching.dims.reduces)
def nansum(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over some dims, nan counting as 0."""
    if input._dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    if out is not None:
        return _nan_into("nansum", nansum, input, dim, keepdim, dtype, out)
    if input._dtype.is_floating_point:
        input = input.masked_fill(input.isnan(), 0)
    return sum_(input, dim, keepdim, dtype=dtype)


@reduction(
    "mean",
    out=True,
    fast=small.mean,
    rule=by_dim(
        "Mean",
        {
            "input": lambda g, input_shape, dim, keepdim: (
                spread(g, input_shape, dim, keepdim) / count(input_shape, dim)
            )
        },
    ),
    batch=batching.dims.reduces,
)
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over some dims (all by default), of a floating or complex tensor."""
    result = number_dtype("mean", input, dtype)
    if dtype is not None and dtype is not input._dtype:
        input = input.to(dtype)
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.MEAN, result, wide(result))


@reduction("nanmean", batch=batching.dims.reduces)
def nanmean(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over some dims of the elements that are not nan."""
    number_dtype("nanmean", input, None)
    if out is not None:
        return _nan_into("nanmean", nanmean, input, dim, keepdim, dtype, out)
    n = input.isnan().logical_not().sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / n


def _prod_back(g: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Products of the others: by division where there is no zero, else from both sides."""
    if not bool((input == 0).any().item()):
        whole = opened(g * conj(result), tuple(input.shape), dim, keepdim)
        return whole / conj(input)  # type: ignore[no-any-return]
    if dim is None:
        flat = _others(input.reshape(-1), 0)
        return g * conj(flat).reshape(input.shape)  # type: ignore[no-any-return]
    others = conj(_others(input, dim))
    return opened(g, tuple(input.shape), dim, keepdim) * others  # type: ignore[no-any-return]


def _others(x: Tensor, dim: int) -> Any:
    """For each element the product of all others along `dim`."""
    if x.ndim == 0:
        return x * 0 + 1
    ones = x.narrow(dim, 0, 1) * 0 + 1
    n = x.shape[dim]
    cat, flip = OPS["cat"].forms["cat"], OPS["flip"].forms["flip"]
    before = cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    back = flip(x, (dim,))
    after = flip(cat([ones, back.narrow(dim, 0, n - 1)], dim).cumprod(dim), (dim,))
    return before * after


@reduction(
    "prod",
    out=True,
    rule=by_dim("Prod", {"input": _prod_back}),
    autocast="float32",
    batch=batching.dims.reduces_one,
)
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product over one dim (all by default); integers are multiplied as int64."""
    if isinstance(dim, (tuple, list)):
        raise TypeError(
            f"prod() received an invalid combination of arguments - dim must be int, not "
            f"{type(dim).__name__}"
        )
    dtype = dtypes.asked(dtype)
    result = whole_dtype(input, dtype)
    if dtype is not None and dtype is not input._dtype:
        input = input.to(dtype)
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.PROD, result, wide(result))


# -- spread ---------------------------------------------------------------------------------------


def _var_back(g: Tensor, input: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
    n = count(tuple(input.shape), dim)
    g = opened(g, tuple(input.shape), dim, keepdim)
    if n - degrees <= 0:
        return g * (input - mean(input, dim, True)) * math.nan
    return g * (input - mean(input, dim, True)) * (2.0 / (n - degrees))


def _degrees(unbiased: Any, correction: Any) -> float:
    if unbiased is not None:
        return 1.0 if unbiased else 0.0
    return 1.0 if correction is None else float(correction)


def _spread_args(name: str, input: Tensor, dim: Any, unbiased: Any) -> tuple[Any, Any]:
    """`var(x, unbiased)` and `var(x, dim, unbiased)` alike."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if not (unbiased is None or isinstance(unbiased, bool)):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: 'unbiased' must be bool, not "
            f"{type(unbiased).__name__}"
        )
    if input._dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")
    return dim, unbiased


VAR = Rule(
    "VarBackward0",
    {"input": lambda g, input, dim, keepdim, degrees: _var_back(g, input, dim, keepdim, degrees)},
)


@reduction("_var", method=False, namespaces=(), rule=VAR, batch=batching.dims.reduces)
def _var(input: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
    _warn_degrees("var", input, dim, degrees)
    real = input._dtype.to_real()
    return reduced(
        input, dims_of(dim, input.ndim), keepdim, R.var(degrees), real, wide(input._dtype)
    )


@reduction(
    "_std",
    method=False,
    namespaces=(),
    rule=Rule(
        "StdBackward0",
        {
            "input": lambda g, input, result, dim, keepdim, degrees: _var_back(
                (g / (result * 2)).masked_fill(result == 0, 0), input, dim, keepdim, degrees
            )
        },
    ),
    batch=batching.dims.reduces,
)
def _std(input: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
    _warn_degrees("std", input, dim, degrees)
    real = input._dtype.to_real()
    return reduced(
        input, dims_of(dim, input.ndim), keepdim, R.std(degrees), real, wide(input._dtype)
    )


def _warn_degrees(name: str, input: Tensor, dim: Any, degrees: float) -> None:
    if count(tuple(input.shape), dim) - degrees <= 0 and input.numel():
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            f"reduction factor "
            "(input numel divided by output numel).",
            UserWarning,
        )


def _small_var(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: Any = False,
    *,
    correction: Any = None,
) -> Tensor | None:
    if unbiased is not None or type(correction) not in (int, type(None)):
        return None
    degrees = 1.0 if correction is None else float(correction)
    found = small.moments(input, dim, keepdim, degrees)
    if found is None:
        return None
    made = fresh(found, input._dtype)
    if input._rg and modes.state.grad:
        given = {"input": input, "dim": dim, "keepdim": keepdim, "degrees": degrees}
        record(VAR, given, made)
    return made


@reduction("var", out=True, fast=_small_var)
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The variance over some dims: squared distances from the mean over n - correction (1 by
    default).
    """
    dim, unbiased = _spread_args("var", input, dim, unbiased)
    return _var(input, dim, keepdim, _degrees(unbiased, correction))


@reduction("std", out=True)
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The standard deviation over some dims: the square root of `var`."""
    dim, unbiased = _spread_args("std", input, dim, unbiased)
    return _std(input, dim, keepdim, _degrees(unbiased, correction))


@reduction("var_mean", method=False, out=True)
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """`var` and `mean`."""
    dim, unbiased = _spread_args("var_mean", input, dim, unbiased)
    return _var(input, dim, keepdim, _degrees(unbiased, correction)), mean(input, dim, keepdim)


@reduction("std_mean", method=False, out=True)
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """`std` and `mean`."""
    dim, unbiased = _spread_args("std_mean", input, dim, unbiased)
    return _std(input, dim, keepdim, _degrees(unbiased, correction)), mean(input, dim, keepdim)


# -- extremes -------------------------------------------------------------------------------------


def _extreme_back(g: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The gradient shared evenly among equal extremes."""
    shape = tuple(input.shape)
    best = opened(result, shape, dim, keepdim)
    mask = (input == best) | (input.isnan() & best.isnan())
    share = opened(g, shape, dim, keepdim) / mask.sum(None if dim in (None, ()) else dim, True)
    return mask * share


def _check_order(name: str, input: Tensor, dims: tuple[int, ...], dim: Any) -> None:
    if input._dtype.is_complex:
        title = promotion.scalar_type_name(input._dtype)
        if name in ("amax", "amin"):
            kernel = {"amax": "max", "amin": "min"}[name]
            raise NotImplementedError(f"\"{kernel}_values_cpu\" not implemented for '{title}'")
        raise RuntimeError(f"{name}(): does not support complex input")
    promotion.refuse(f"{name}_cpu", input._dtype, dtypes.NARROW)
    shape = tuple(input.shape)
    for d in dims:
        if shape and shape[d] == 0:
            if dim is None or dim == ():
                kind = IndexError if name.startswith("arg") else RuntimeError
                raise kind(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    f"Specify the reduction dim "
                    "with the 'dim' argument."
                )
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _extreme(name: str, how: R.Reducer) -> Any:
    @reduction(
        name,
        out=True,
        fast=small.extreme(np.maximum if how is R.AMAX else np.minimum),
        rule=Rule(f"{name.capitalize()}Backward0", {"input": _extreme_back}),
        batch=batching.dims.reduces,
    )
    def f(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        dims = dims_of(dim, input.ndim)
        _check_order(name, input, dims, dim)
        return reduced(input, dims, keepdim, how, input._dtype)

    return f


@reduction(out=True, composite=False)
def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The bits of all elements, widened to 64 bits, combined by exclusive or, as uint64."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    promotion.refuse("xor_sum_cpu", input._dtype, _UNHASHED)
    dims = dims_of(dim, input.ndim)
    for d in dims:
        if dim not in ((), None) and input.ndim and input.shape[d] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    exact = input._dtype.category < dtypes.FLOAT
    wide = input.detach().to(dtypes.int64 if exact else dtypes.float64)
    return reduced(wide.view(dtypes.uint64), dims, keepdim, R.XOR, dtypes.uint64)


amax = _extreme("amax", R.AMAX)
amin = _extreme("amin", R.AMIN)


def _place(name: str, how: R.Reducer) -> Any:
    @reduction(
        name,
        out=True,
        fast=small.place(name),
        composite=False,
        batch=batching.dims.reduces_one,
    )
    def f(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        dims = dims_of(dim, input.ndim)
        _check_order(name, input, dims, dim)
        if input._dtype is dtypes.bool:
            raise RuntimeError(f"\"{name}_cpu\" not implemented for 'Bool'")
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


def _with_places(name: str, best: Any, how: R.Reducer, pair: Any, **known: Any) -> Any:
    """max and min: of everything, along a dim with positions, or of two tensors."""

    rule = Rule(f"{name.capitalize()}Backward0", {"input": _at_back})

    @reduction(
        f"_{name}_dim",
        method=False,
        namespaces=(),
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
        at = places if keepdim else places.unsqueeze(dims[0])
        values = np.take_along_axis(input.array(), at.array(), dims[0])
        shape = kept_shape(tuple(input.shape), dims, keepdim)
        return pair(fresh(values.reshape(shape), input._dtype), places)

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
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{name}(): argument 'input' (position 1) must be Tensor, not "
                f"{type(input).__name__}"
            )
        dim = axis if axis is not None else dim
        if isinstance(dim, Tensor):
            other, dim = dim, None
        if other is not None:
            return OPS_PAIR[name](input, other, out=out)
        if dim is None:
            if input.numel() == 0:
                _check_order(name, input, dims_of(None, input.ndim), None)
            return best(input, out=out) if out is not None else best(input)
        keepdim = keepdim or keepdims
        if out is None:
            return along(input, dim, keepdim)

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
        if type(dim) is not int or keepdim or keepdims or other is not None or axis is not None:
            return None
        found = small.extremes(f"arg{name}", input, dim)
        if found is None:
            return None
        made = pair(*found)
        if input._rg and modes.state.grad:
            record(rule, {"input": input, "dim": dim, "keepdim": keepdim}, made, (1,))
        return made

    f.__name__ = f.__qualname__ = name
    f.__doc__ = (
        f"The {name}imum of all elements; along a dim with its positions; or of two tensors "
        "element by element."
    )
    export(name, f, fast=fast, **known)
    return f


OPS_PAIR: dict[str, Any] = {}  # filled below: the pointwise maximum and minimum


def _pairs(name: str) -> Any:
    def late(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
        return getattr(Tensor, f"{name}imum")(input, other, out=out)  # type: ignore[no-any-return]

    return late


OPS_PAIR.update({"max": _pairs("max"), "min": _pairs("min")})
max_ = _with_places("max", amax, R.ARGMAX, return_types.max, foreach=True)
min_ = _with_places("min", amin, R.ARGMIN, return_types.min)


@reduction("aminmax", out="same", batch=batching.dims.reduces_one)
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element."""
    return return_types.aminmax(
        amin(input, () if dim is None else dim, keepdim),
        amax(input, () if dim is None else dim, keepdim),
    )


# -- truth ----------------------------------------------------------------------------------------


def _truth(name: str, how: R.Reducer, doc: str) -> Any:
    def f(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        result = dtypes.uint8 if input._dtype is dtypes.uint8 else dtypes.bool
        dims = () if isinstance(dim, (tuple, list)) and not dim else dims_of(dim, input.ndim)
        return reduced(input, dims, keepdim, how, result, input._dtype)

    f.__doc__ = doc
    fast = small.truth(name == "all")
    return reduction(name, out=True, fast=fast, composite=False, batch=batching.dims.reduces)(f)


all_ = _truth("all", R.ALL, "Whether all elements are true (not zero).")
any_ = _truth("any", R.ANY, "Whether some element is true (not zero).")


@reduction("count_nonzero", composite=False, batch=batching.dims.reduces)
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero."""
    return reduced(
        input, dims_of(dim, input.ndim), False, R.COUNT_NONZERO, dtypes.int64, input._dtype
    )


# -- logsumexp and norms --------------------------------------------------------------------------


LOGSUMEXP = Rule(
    "LogsumexpBackward0",
    {
        "input": lambda g, input, result, dim, keepdim: (
            opened(g, tuple(input.shape), dim, keepdim)
            * conj((input - opened(result, tuple(input.shape), dim, keepdim)).exp())
        )
    },
)


@reduction(
    "logsumexp",
    out=True,
    fast=small.logsumexp,
    namespaces=("", "special"),
    rule=LOGSUMEXP,
    batch=batching.dims.reduces,
)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over some dims, without overflow."""
    if input._dtype.category < dtypes.FLOAT:
        input = input.to(promotion.get_default_dtype())
    return reduced(
        input, dims_of(dim, input.ndim), keepdim, R.LOGSUMEXP, input._dtype, wide(input._dtype)
    )


def _norm_back(
    g: Tensor, input: Tensor, result: Tensor, p: float, dim: Any, keepdim: bool
) -> Tensor:
    shape = tuple(input.shape)
    g, result = opened(g, shape, dim, keepdim), opened(result, shape, dim, keepdim)
    sign = input.sgn()
    if p == 0.0:
        return input * 0
    if p == 1.0:
        return sign * g
    if p == 2.0:
        return (input * (g / result)).masked_fill(result == 0, 0)
    size = input.abs()
    if math.isinf(p):
        mask = (size == result) | (size.isnan() & result.isnan())
        share = g / mask.sum(None if dim is None else dim, True)
        return sign * mask * share
    if p < 2.0:
        return (sign * size.pow(p - 1) * (g * result.pow(1 - p))).masked_fill(input == 0, 0)
    return (input * size.pow(p - 2) * (g / result.pow(p - 1))).masked_fill(result == 0, 0)


VECTOR_NORM = Rule("LinalgVectorNormBackward0", {"input": _norm_back})


def _small_vector_norm(
    input: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    if dim is not None or keepdim is not False or dtype is not None:
        return None
    if ord != 2 or type(ord) not in (int, float):
        return None
    made: Tensor | None = small.norm(input)
    if made is not None and input._rg and modes.state.grad:
        record(VECTOR_NORM, {"input": input, "p": 2.0, "dim": None, "keepdim": False}, made)
    return made


def _small_norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    order = 2 if type(p) is str and p == "fro" else p
    return _small_vector_norm(input, order, dim, keepdim, dtype=dtype)


@reduction("vector_norm", method=False, namespaces=("linalg",), out=True, fast=_small_vector_norm)
def vector_norm(
    input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The ord-norm of the elements as one vector, or along some dims."""
    if isinstance(ord, Tensor):
        ord = ord.item()
    if dtype is not None:
        input = input.to(dtype)
    if input._dtype.category < dtypes.FLOAT:
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{promotion.scalar_type_name(input._dtype)}"
        )
    return _vector_norm(input, float(ord), None if dim == () else dim, keepdim)


@reduction(
    "_vector_norm",
    method=False,
    namespaces=(),
    rule=VECTOR_NORM,
    batch=batching.dims.reduces,
)
def _vector_norm(input: Tensor, p: float, dim: Any, keepdim: bool) -> Tensor:
    dims = dims_of(dim, input.ndim)
    real = input._dtype.to_real()
    if math.isinf(p):
        if layouts.numel(tuple([input.shape[d] for d in dims])) == 0 and (p < 0 or dim is not None):
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {p} norm on an empty tensor because the "
                f"operation does not have an identity"
            )
        if input.numel() == 0:
            return fresh(np.zeros(kept_shape(tuple(input.shape), dims, keepdim), real.np), real)
        how = R.AMAX if p > 0 else R.AMIN
        return reduced(input.abs(), dims, keepdim, how, real)
    if p == 0.0:
        n = reduced(input, dims, keepdim, R.COUNT_NONZERO, dtypes.int64, input._dtype)
        return n.to(real)
    if p == 2.0:
        return reduced(input, dims, keepdim, R.NORM, real, wide(input._dtype))
    if p == 1.0:
        return reduced(input, dims, keepdim, R.SUM_ABS, real, wide(input._dtype))
    total = reduced(input, dims, keepdim, R.power_sum(p), real, wide(input._dtype))
    return total.pow_(1.0 / p)


@reduction("norm", out=True, fast=_small_norm)
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The p-norm of the elements ("fro": the 2-norm), of all of them or along some dims."""
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    if p == "nuc":
        both = (dim or (-2, -1)) if input.ndim == 2 or dim is not None else (0, 1)
        nuclear = NAMESPACES["linalg"]["matrix_norm"]
        return nuclear(input, "nuc", both, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    if input._dtype.category < dtypes.FLOAT and dtype is None:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{promotion.scalar_type_name(input._dtype)}"
        )
    return vector_norm(input, 2.0 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@reduction("dist")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other."""
    return norm(input - other, p)
