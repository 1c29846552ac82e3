"""torch.masked: reductions and normalisations over the elements that a mask holds.

What a mask leaves out is replaced by the element that changes nothing (0 in a sum, -inf in a
maximum), so a result where nothing is held is that element, or nan where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from skimp._compat import refusals
from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory.layout import left_out
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.index.masks import where

F = TypeVar("F", bound=Callable[..., Any])
Dims = tuple[int, ...]


def _declared(f: F) -> F:
    """Export a function of torch.masked (it has no method)."""
    export(f.__name__.rstrip("_"), f, ("masked",), method=False)
    return f


# -- masks ----------------------------------------------------------------------------------------


def _held(input: Tensor, mask: Tensor) -> Tensor:
    """The mask, broadcast, as bools."""
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            f"input): mask has {mask.ndim} dims, input {input.ndim}"
        )
    mask = mask.to(dtypes.bool)
    return mask if mask.shape == input.shape else mask.broadcast_to(input.shape)


def _lowest(dtype: dtypes.dtype, sign: int) -> Any:
    """The element below (sign -1) or above all others."""
    if dtype.is_floating_point:
        return sign * math.inf
    if dtype.category == dtypes.INT:
        info = np.iinfo(dtype.np)
        return int(info.min if sign < 0 else info.max)
    raise NotImplementedError(f"identity of an extreme on {dtype} input")


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """`input` with `value` where the mask doesn't hold."""
    if mask is None:
        return input
    return where(_held(input, mask), input, input.new_full((), value))  # type: ignore[no-any-return]


def _dims(dim: Any, ndim: int) -> Dims:
    if left_out(dim):
        return tuple(range(ndim))
    most = max(ndim, 1)
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if not -most <= d < most:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but "
                f"got {d})"
            )
        found.append(d % most)
    return tuple(sorted(found))


def _whole(dtype: dtypes.dtype) -> dtypes.dtype:
    """Sums and products of integers are int64."""
    return dtypes.int64 if dtype.category < dtypes.FLOAT else dtype


# -- reductions -----------------------------------------------------------------------------------


@_declared
def sum_(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum of what the mask holds."""
    dims = _dims(dim, input.ndim)
    return _filled(input, mask, 0).sum(dims, bool(keepdim), dtype=dtype or _whole(input._dtype))


@_declared
def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The product of what the mask holds."""
    result = _filled(input, mask, 1).to(dtype or _whole(input._dtype))
    for d in reversed(_dims(dim, input.ndim)):
        result = result.prod(d, bool(keepdim))
    return result


@_declared
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The running sum of what the mask holds."""
    at = _dims(dim, input.ndim)[0]
    kind = dtype or input._dtype
    return _filled(input, mask, 0).cumsum(at, dtype=kind).to(kind)


@_declared
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The running product of what the mask holds."""
    at = _dims(dim, input.ndim)[0]
    kind = dtype or input._dtype
    return _filled(input, mask, 1).cumprod(at, dtype=kind).to(kind)


@_declared
def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The largest of what the mask holds."""
    kept = _extreme(input, mask, -1)
    return kept.amax(_dims(dim, input.ndim), bool(keepdim)).to(dtype or input._dtype)


@_declared
def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The smallest of what the mask holds."""
    kept = _extreme(input, mask, 1)
    return kept.amin(_dims(dim, input.ndim), bool(keepdim)).to(dtype or input._dtype)


def _extreme(input: Tensor, mask: Tensor | None, sign: int) -> Tensor:
    return input if mask is None else _filled(input, mask, _lowest(input._dtype, sign))


@_declared
def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the largest of what the mask holds is; in the input's dtype, as PyTorch's."""
    return _extreme(input, mask, -1).argmax(dim, bool(keepdim)).to(dtype or input._dtype)


@_declared
def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the smallest of what the mask holds is; in the input's dtype, as PyTorch's."""
    return _extreme(input, mask, 1).argmin(dim, bool(keepdim)).to(dtype or input._dtype)


def _count(input: Tensor, mask: Tensor | None, dim: Any, keepdim: bool) -> Tensor:
    held = input.new_ones(input.shape, dtype=dtypes.bool) if mask is None else _held(input, mask)
    return held.sum(_dims(dim, input.ndim), keepdim)


@_declared
def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean of what the mask holds; nan of nothing."""
    kind = dtype or input._dtype
    if kind.category < dtypes.FLOAT:
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point "
            f"or complex dtype. Got: {kind}"
        )
    total = sum_(input, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return total / _count(input, mask, dim, bool(keepdim))


@_declared
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The median of what the mask holds; nan of nothing.

    Dtypes: integers and floating point.
    """
    at = _dims(dim, input.ndim)[0]
    floating = input._dtype.is_floating_point
    wide = input if floating else input.to(dtypes.float32)
    result = _filled(wide, mask, math.nan).nanmedian(at, keepdim)[0]
    if floating:
        return result  # type: ignore[no-any-return]
    if bool(result.isnan().any().item()):
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return result.to(dtype or input._dtype)  # type: ignore[no-any-return]


@_declared
def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The logarithm of the sum of the exponentials of what the mask holds."""
    if mask is not None:
        value = -math.inf if input._dtype.is_complex else _lowest(input._dtype, -1)
        kept = _filled(input, mask, value)
    else:
        kept = input
    return kept.logsumexp(_dims(dim, input.ndim), keepdim).to(dtype or input._dtype)


@_declared
def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The logarithm of the sum of two exponentials, where each has a mask of its own."""
    parts = [_extreme(input, input_mask, -1), _extreme(other, other_mask, -1)]
    return parts[0].logaddexp(parts[1]).to(dtype or input._dtype)


@_declared
def norm(
    input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The p-norm of what the mask holds."""
    value = math.inf if ord == -math.inf else 0
    vector_norm = NAMESPACES["linalg"]["vector_norm"]
    return vector_norm(  # type: ignore[no-any-return]
        _filled(input, mask, value), ord, _dims(dim, input.ndim), bool(keepdim),
        dtype=dtype or input._dtype,
    )  # fmt: skip


def _spread(
    input: Tensor, dim: Any, unbiased: bool | None, correction: float | None, keepdim: bool,
    dtype: Any, mask: Tensor | None,
) -> Tensor:  # fmt: skip
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 1.0 if unbiased is None or unbiased else 0.0
    dtype = dtype or (input._dtype if input._dtype.category >= dtypes.FLOAT else dtypes.float32)
    wide = dtype if dtype.category >= dtypes.FLOAT else dtypes.float32
    count = _count(input, mask, dim, True)
    from_mean = input - sum_(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    squares = from_mean * from_mean.conj()
    total = sum_(squares, dim, keepdim=keepdim, dtype=wide, mask=mask)
    count = count.reshape(total.shape)
    if correction:
        count = (count.to(wide.to_real()) - correction).clamp(min=0)
    return (total / count).to(dtype)


@_declared
def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance of what the mask holds."""
    return _spread(input, dim, unbiased, correction, bool(keepdim), dtype, mask)


@_declared
def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation of what the mask holds."""
    return _spread(input, dim, unbiased, correction, bool(keepdim), dtype, mask).sqrt()


# -- normalisations -------------------------------------------------------------------------------


@_declared
def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """softmax over what the mask holds."""
    at = _dims(dim, input.ndim)[0]
    return _extreme(input, mask, -1).softmax(at, dtype=dtype or input._dtype)  # type: ignore[no-any-return]


@_declared
def log_softmax(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """log_softmax over what the mask holds."""
    at = _dims(dim, input.ndim)[0]
    return _extreme(input, mask, -1).log_softmax(at, dtype=dtype or input._dtype)  # type: ignore[no-any-return]


@_declared
def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """softmax of the negative over what the mask holds."""
    at = _dims(dim, input.ndim)[0]
    return (-_extreme(input, mask, 1)).softmax(at, dtype=dtype or input._dtype)  # type: ignore[no-any-return]


@_declared
def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The input over the p-norm of what the mask holds, which is taken to be at least eps."""
    at = _dims(dim, input.ndim)[0]
    size = norm(input, ord, at, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / size.clamp(min=eps)


# -- which results stand for something ------------------------------------------------------------

_NORMALISATIONS = ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod")


@_declared
def _input_mask(input: Tensor, *args: Any, **words: Any) -> Tensor:
    """The mask that a function of this module would use.

    Memory: the mask itself where it has the shape, else a new tensor.
    """
    mask = words.get("mask")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    return _held(input, mask)


@_declared
def _output_mask(op: Any, input: Tensor, *args: Any, **words: Any) -> Tensor:
    """Where a result of `op`, a function of this module, comes from an element that was held."""
    held = _input_mask(input, *args, **words)
    name = op.__name__.rstrip("_")
    if name in _NORMALISATIONS:
        return held
    if name == "norm":
        args = args[1:]
    keepdim = bool(words.get("keepdim", False))
    for d in reversed(_dims(args[0] if args else words.get("dim"), input.ndim)):
        held = held.any(d, keepdim)
    return held


# -- tensors with a mask of their own -------------------------------------------------------------


def _refused(name: str) -> Callable[..., Any]:
    text = (
        f"torch.masked.{name}: skimp has no MaskedTensor; give the mask to the functions of "
        "torch.masked instead (mask=...), or use torch.where"
    )
    return refusals.refusing(name, NotImplementedError, text, "there is no MaskedTensor")


for _name in ("masked_tensor", "as_masked_tensor"):
    export(_name, _refused(_name), ("masked",), method=False)


@_declared
@sampled(lambda tensor: [(tensor([1]),)])
def is_masked_tensor(obj: Any) -> bool:
    """No tensor is."""
    return False


SAYS = """\
Shape: the input's, less the dims that are reduced (of size 1 with `keepdim`); softmax and
cumulative ones keep it. The mask broadcasts to the input.
Dtypes: as those of the op without a mask.
Raises: IndexError for a dim that is not there; what the op without a mask raises for a dtype.
Memory: the input itself where there is nothing to reduce, else a new tensor."""
