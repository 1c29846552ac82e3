"""Reductions: sums and means, extremes, truth, spread and norms, with their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Choice, Rule
from skimp._engine.autograd.shown import present, shown
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import OPS, hidden, move, reduction
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.reduction import dims_of, reduced
from skimp._engine.dispatch.rows import conj
from skimp._engine.eval import reducers as R
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.reduce import small, small_exact

UNHASHED = (*dtypes.NARROW, dtypes.complex64, dtypes.complex128)


def spread(g: Tensor, input_shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A reduced gradient expanded over the reduced dims: nothing is written."""
    if not keepdim and dim is not None:
        g = opened(g, input_shape, dim, keepdim)
    return g.expand(tuple(input_shape))


def opened(g: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A reduced tensor with size 1 in place of each reduced dim; of all dims as it is."""
    if not keepdim and g.ndim:
        for d in dims_of(dim, len(shape)):
            g = g.unsqueeze(d)
    return g


def count(shape: Any, dim: Any) -> int:
    """How many elements make one of the result."""
    return math.prod([shape[d] for d in dims_of(dim, len(shape))])


def sum_dtype(d: dtypes.dtype) -> dtypes.dtype:
    """The type in which results of `d` are accumulated."""
    promotion.refuse("sum_cpu", d, dtypes.FLOAT8)
    return dtypes.accumulator(d)


def number_dtype(name: str, t: Tensor, dtype: dtypes.dtype | None) -> dtypes.dtype:
    """The result type of mean and its like: floating, or an error that says what to do."""
    found: dtypes.dtype = dtypes.asked(dtype) or t._dtype
    if found.category < dtypes.FLOAT:
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"{name}(): could not infer output dtype. {what} dtype must be either a floating point "
            f"or complex dtype. Got: {promotion.scalar_type_name(found)}"
        )
    return found


def by_dim(name: str, formulas: Any) -> Any:
    """PyTorch names the node of a whole reduction 0, of one along dims 1."""
    whole, along = Rule(f"{name}Backward0", formulas), Rule(f"{name}Backward1", formulas)

    def pick(dim: Any, dtype: Any) -> Rule:
        if dtype is not None and (to := dtypes.asked(dtype)).category < dtypes.FLOAT:
            raise RuntimeError(f"Autograd not support dtype: {promotion.scalar_type_name(to)}")
        return whole if dim is None else along

    return Choice(pick, ("dim", "dtype"), whole)


# -- sums and means -------------------------------------------------------------------------------

SPREAD = {"input": spread}


def whole_dtype(t: Tensor, dtype: dtypes.dtype | None) -> dtypes.dtype:
    """Integers and bools are summed as int64."""
    if dtype is not None:
        return dtype
    return dtypes.int64 if t._dtype.category < dtypes.FLOAT else t._dtype


@reduction(
    "sum",
    out=outs.in_its_type,
    fast=small.sum_,
    rule=by_dim("Sum", SPREAD),
    batch=batching.dims.reduces,
)
def sum_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over some dims (all by default); integers are summed as int64.

    >>> torch.tensor([200, 100], dtype=torch.uint8).sum()
    tensor(300)
    """
    dtype = dtypes.asked(dtype)
    result = whole_dtype(input, dtype)
    if dtype is not None and dtype.category < input._dtype.category:
        input = input.to(dtype)
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.SUM, result, sum_dtype(result))


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
        raise no_kernel("nansum_cpu", out._dtype)
    made = f(input, dim, keepdim, dtype=out._dtype)
    outs.resize_out(name, out, tuple(made.shape))
    move(out, made)
    return out


def _nansum_back(g: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return spread(g, input.shape, dim, keepdim) * input.isnan().logical_not()


def _small_nansum(
    input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    if dtype is not None:
        return None
    found = _without_nan(input)
    return None if found is None else small.sum_(found[0], dim, keepdim)


def _without_nan(input: Any) -> tuple[Tensor, Array] | None:
    """A small tensor with zeros in place of nan, and where there are numbers."""
    x = small.floats(input)
    if x is None:
        return None
    there = x == x
    if bare.count_nonzero(there) == x.size:
        return input, there
    return fresh(bare.where(there, x, x.dtype.type(0)), input._dtype), there


def _small_nanmean(
    input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None
) -> Tensor | None:
    if dtype is not None or (input._rg and modes.state.grad):
        return None
    found = _without_nan(input)
    if found is None:
        return None
    sums = small.sum_(found[0], dim, keepdim)
    n = None if sums is None else small.sum_(fresh(found[1], dtypes.bool), dim, keepdim)
    if n is None or n._np is None or sums._np is None:
        return None
    return fresh(quietly(np.divide, sums._np, n._np.astype(sums._np.dtype)), input._dtype)


@reduction(
    batch=batching.dims.reduces,
    fast=_small_nansum,
    rule=Rule("NansumBackward0", input=_nansum_back),
)
def nansum(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over some dims, nan counting as 0.

    Dtypes: bool, integers and floating point.
    """
    if input._dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    if out is not None:
        return _nan_into("nansum", nansum, input, dim, keepdim, dtype, out)
    if input._dtype.is_floating_point:
        input = input.masked_fill(input.isnan(), 0)
    return sum_(input, dim, keepdim, dtype=dtype)


def _mean_in_its_type(given: dict[str, Any], out: Tensor) -> dict[str, Any]:
    number_dtype("mean", given["input"], given["dtype"])
    return outs.in_its_type(given, out)


MEAN = by_dim(
    "Mean",
    {
        "input": lambda g, input_shape, dim, keepdim: (
            spread(g, input_shape, dim, keepdim) / count(input_shape, dim)
        )
    },
)


@reduction(out=_mean_in_its_type, fast=small.mean, rule=MEAN, batch=batching.dims.reduces)
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over some dims (all by default), of a floating or complex tensor.

    Dtypes: floating point and complex numbers.
    """
    result = number_dtype("mean", input, dtype)
    if dtype is not None and dtype is not input._dtype:
        input = input.to(dtype)
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.MEAN, result, sum_dtype(result))


@reduction(batch=batching.dims.reduces, fast=_small_nanmean)
def nanmean(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over some dims of the elements that are not nan.

    Dtypes: floating point.
    """
    if input._dtype.category < dtypes.FLOAT:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{promotion.scalar_type_name(input._dtype)}"
        )
    number_dtype("nanmean", input, dtype)
    if out is not None:
        return _nan_into("nanmean", nanmean, input, dim, keepdim, dtype, out)
    n = input.isnan().logical_not().sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / n


def _prod_back(g: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Products of the others: by division where there is no zero, else from both sides."""
    if not input.ndim:
        return g.clone()
    if input._hollow or not bool((input == 0).any().item()):
        whole = opened(g * conj(result), tuple(input.shape), dim, keepdim)
        return whole / conj(input)  # type: ignore[no-any-return]
    if dim is None:
        if not modes.state.grad and int((input == 0).sum().item()) > 1:  # whatever is NaN
            return input.new_zeros(input.shape)
        flat = products_of_others(input.reshape(-1), 0)
        return g * conj(flat).reshape(input.shape)  # type: ignore[no-any-return]
    others = conj(products_of_others(input, dim))
    return opened(g, tuple(input.shape), dim, keepdim) * others  # type: ignore[no-any-return]


def products_of_others(x: Tensor, dim: int) -> Any:
    """For each element the product of all others along `dim`."""
    if x.ndim == 0 or x.shape[dim] == 1:
        return x.new_ones(x.shape)
    n = x.shape[dim]
    ones = x.new_ones(x.narrow(dim, 0, 1).shape)
    cat, flip = OPS["cat"].forms["cat"], OPS["flip"].forms["flip"]
    before = cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    back = flip(x, (dim,))
    after = flip(cat([ones, back.narrow(dim, 0, n - 1)], dim).cumprod(dim), (dim,))
    return before * after


@reduction(
    out=outs.in_its_type,
    fast=small_exact.prod,
    overlap="free",
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
    return reduced(input, dims_of(dim, input.ndim), keepdim, R.PROD, result, sum_dtype(result))


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


def _warn_degrees(name: str, input: Tensor, dim: Any, degrees: float) -> None:
    if count(tuple(input.shape), dim) - degrees <= 0 and input.numel():
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel).",
            UserWarning,
        )


# whose sums may be beyond them where their mean is not
_WIDE: Final = {
    dtypes.float32: dtypes.float64,
    dtypes.bfloat16: dtypes.float64,
    dtypes.complex64: dtypes.complex128,
}
_OR_NONE: Final = {kind: (kind, type(None)) for kind in (bool, int)}


def _small_spread(
    rule: Rule, finish: Callable[[Any], Any], how: Callable[[float], R.Reducer]
) -> Callable[..., Tensor | None]:
    """What `var` and `std` do with small tensors: `finish` is of the variance of rows."""
    recorded = recording(rule, ("input", "dim", "keepdim", "degrees"))

    def fast(
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: Any = False,
        *,
        correction: Any = None,
    ) -> Tensor | None:
        if type(dim) is bool:
            dim, unbiased = None, dim
        if unbiased is not None and correction is not None:
            return None
        if type(unbiased) not in _OR_NONE[bool] or type(correction) not in _OR_NONE[int]:
            return None
        degrees = _degrees(unbiased, correction)
        found = small.moments(input, dim, keepdim, degrees)
        if found is None:
            made = small.blocked(input, dim, keepdim, how(degrees), degrees)
            if made is None:
                return None
        else:
            made = fresh(finish(found), input._dtype)
        if input._rg and modes.state.grad:
            recorded.record(made, input, dim, keepdim, degrees)
        return made

    return fast


def _declare_spread(
    name: str, rule: Rule, how: Callable[[float], R.Reducer], fast: Any, doc: str
) -> None:
    """`var` or `std`, and `NAME_mean`, whose arguments PyTorch takes in two orders; and the op
    that they are recorded as."""

    @hidden(f"_{name}", kind="reduction", rule=rule, batch=batching.dims.reduces)
    def op(input: Tensor, dim: Any, keepdim: bool, degrees: float) -> Tensor:
        _warn_degrees(name, input, dim, degrees)
        dims, real = dims_of(dim, input.ndim), input._dtype.to_real()
        return reduced(input, dims, keepdim, how(degrees), real, sum_dtype(input._dtype))

    def alone(
        input: Tensor,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Tensor:
        dim, unbiased = _spread_args(name, input, dim, unbiased)
        return op(input, dim, keepdim, _degrees(unbiased, correction))

    def with_mean(
        input: Tensor,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        dim, unbiased = _spread_args(f"{name}_mean", input, dim, unbiased)
        spread = public(input, dim, unbiased, keepdim, correction=correction)
        wide = _WIDE.get(input._dtype)
        if wide is None:
            return spread, mean(input, dim, keepdim)
        return spread, mean(input, dim, keepdim, dtype=wide).to(input._dtype)

    def small_both(
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: Any = False,
        *,
        correction: Any = None,
    ) -> Any:
        x = input._np
        spread = None if x is None else fast(input, dim, unbiased, keepdim, correction=correction)
        if spread is None:
            return None
        dim, wide = None if type(dim) is bool else dim, _WIDE.get(input._dtype)
        wider = input if wide is None else fresh(x.astype(wide.np), wide)
        middle = small.mean(wider, dim, keepdim)
        if middle is None:
            return None
        if wide is not None:
            middle = fresh(middle._np.astype(x.dtype), input._dtype)
        if input._rg and modes.state.grad:
            given = {"input": input, "dim": dim, "keepdim": keepdim}
            record(MEAN.pick(dim, None), given, middle)
            present((spread, middle), f"{name.title()}MeanBackward0", [input], [input])
        return spread, middle

    says = "Dtypes: floating point and complex numbers."
    wrapped = reduction(out=True, overlap="free", fast=fast)
    public = wrapped(named(alone, name, f"{doc}\n\n{says}"))
    both = named(with_mean, f"{name}_mean", f"`{name}` and `mean`.\n\n{says}")
    both = shown(f"{name.title()}MeanBackward0", "input")(both)
    reduction(method=False, out=True, fast=small_both)(both)


VAR = Rule(
    "VarBackward0",
    input=lambda g, input, dim, keepdim, degrees: _var_back(g, input, dim, keepdim, degrees),
)
STD = Rule(
    "StdBackward0",
    input=lambda g, input, result, dim, keepdim, degrees: _var_back(
        (g / (result * 2)).masked_fill(result == 0, 0), input, dim, keepdim, degrees
    ),
)
_declare_spread(
    "var",
    VAR,
    R.var,
    _small_spread(VAR, lambda variance: variance, R.var),
    "The variance over some dims: squared distances from the mean over n - correction (1 by "
    "default).",
)
_declare_spread(
    "std",
    STD,
    R.std,
    _small_spread(STD, np.sqrt, R.std),
    """The standard deviation over some dims: the square root of `var`.

>>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])
>>> x.std(), x.std(correction=0)  # of a sample, of a population
(tensor(1.2910), tensor(1.1180))""",
)
