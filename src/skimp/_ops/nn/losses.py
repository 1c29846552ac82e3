"""The losses of nn.functional: pointwise rows and reductions, deferred where they are large."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present, recorded
from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import same
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel, refuse_cast, same_shape
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import bare
from skimp._kernels.pointwise import BLENDED, select
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.nn.losses_reduced import loss_of, reduced, small_loss
from skimp._ops.nn.reduction import loss

PAIR = ("input", "target")


def _warn_sizes(input: Any, target: Any) -> None:
    if tuple(input.shape) != tuple(target.shape):
        warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely "
            "lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )


def _weighted(loss: Any, weight: Any) -> Any:
    return loss if weight is None else loss * weight


# -- distances between pairs of elements ----------------------------------------------------------


def _square(x: Array, y: Array, *, out: Array) -> None:
    bare.subtract(x, y, out=out)
    bare.multiply(out, out, out=out)


def _smooth(x: Array, y: Array, beta: Any, *, out: Array) -> None:
    """Quadratic below beta, linear above."""
    bare.subtract(x, y, out=out)
    np.absolute(out, out=out)
    near = out < beta
    far = None if _all(near) else out - 0.5 * np.asarray(beta, out.dtype)
    bare.multiply(out, out, out=out)
    bare.multiply(out, 0.5 / beta, out=out)
    _unless(near, far, out)


def _huber(x: Array, y: Array, delta: Any, *, out: Array) -> None:
    bare.subtract(x, y, out=out)
    np.absolute(out, out=out)
    near = out <= delta
    far = None if _all(near) else (out - 0.5 * np.asarray(delta, out.dtype)) * delta
    bare.multiply(out, out, out=out)
    bare.multiply(out, 0.5, out=out)
    _unless(near, far, out)


def _all(near: Array) -> bool:
    return bare.count_nonzero(near) == near.size


def _unless(near: Array, far: Array | None, out: Array) -> None:
    """Put what is far where it is not near."""
    if far is None:
        return
    if out.size < BLENDED:
        bare.copyto(out, far, where=~near)
    else:
        select(near, out, far, out=out)


def _both(f: Any) -> dict[str, Any]:
    """A formula that is antisymmetric in its two tensors, as the rule of both."""
    return {"input": f, "target": lambda g, input, target: -f(g, input, target)}


MSE = Pointwise(
    "mse_loss",
    Kernel("mse_loss", _square, steps=((np.subtract, 0, 1), (np.multiply, -1, -1))),
    same,
    Rule("MseLossBackward0", _both(lambda g, input, target: g * 2 * (input - target))),
    PAIR,
)
SMOOTH = Pointwise(
    "smooth_l1_loss",
    _smooth,
    same,
    Rule(
        "SmoothL1LossBackward0",
        input=lambda g, input, target, beta: g * ((input - target) / beta).clamp(-1, 1),
        target=lambda g, input, target, beta: -g * ((input - target) / beta).clamp(-1, 1),
    ),
    PAIR,
    ("beta",),
)
HUBER = Pointwise(
    "huber_loss",
    _huber,
    same,
    Rule(
        "HuberLossBackward0",
        input=lambda g, input, target, delta: g * (input - target).clamp(-delta, delta),
        target=lambda g, input, target, delta: -g * (input - target).clamp(-delta, delta),
    ),
    PAIR,
    ("delta",),
)


def _small_mse(
    input: Any, target: Any, size_average: Any, reduce: Any, reduction: Any, weight: Any
) -> Any:
    plain = size_average is None is reduce and weight is None
    return small_loss(MSE, input, target, (), reduction) if plain else None


@loss(composite=False, fast=_small_mse, batch="parts")
def mse_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Any:
    """The squares of the differences.

    Dtypes: floating point.
    """
    _warn_sizes(input, target)
    _check_square(input, target)
    if weight is None:
        return loss_of(MSE, input, target, (), reduction)
    return _weighted_mean(input, call(MSE, (input, target)), weight, reduction)


def _check_square(input: Any, target: Any) -> None:
    if input._dtype.is_complex or target._dtype.is_complex:
        raise no_kernel("mse_cpu", input._dtype)
    _real("mse_cpu", input, target)


def _times_weights(input: Any, loss: Any, weight: Any, reduction: str) -> Any:
    """Weighted losses, or their sum or mean."""
    same_shape(input, weight, "Weights and input must have the same size.")
    return reduced(loss * weight, reduction)


def _weighted_mean(input: Any, loss: Any, weight: Any, reduction: str) -> Any:
    """The same with a mean over the sum of the weights, of which a target that broadcasts the input
    makes no more."""
    if reduction != "mean":
        return _times_weights(input, loss, weight, reduction)
    return _times_weights(input, loss, weight, "sum") / weight.sum()


@loss(composite=False, batch="parts")
def l1_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Any:
    """The absolute differences.

    Dtypes: floating point (l1_loss: complex too, with a real result).
    """
    _warn_sizes(input, target)
    loss = (input - target).abs()
    if weight is None:
        return reduced(loss, reduction)
    return _weighted_mean(input, loss, weight, reduction)


def _small_smooth(
    input: Any, target: Any, size_average: Any, reduce: Any, reduction: Any, beta: Any
) -> Any:
    plain = size_average is None is reduce and type(beta) is float and beta > 0
    return small_loss(SMOOTH, input, target, (beta,), reduction) if plain else None


@loss(composite=False, fast=_small_smooth, batch="parts")
def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    """Half the squared difference over beta where it is below beta, else the absolute one less
    half of beta.

    Dtypes: floating point.
    Raises: ValueError for an unknown reduction, RuntimeError for shapes that don't broadcast or a
    negative beta.
    """
    _warn_sizes(input, target)
    if not beta >= 0:  # nor nan
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0.0:
        return l1_loss(input, target, reduction=reduction)
    _real("smooth_l1_cpu", input, target)
    return loss_of(SMOOTH, input, target, (float(beta),), reduction)


def _small_huber(input: Any, target: Any, reduction: Any, delta: Any, weight: Any) -> Any:
    plain = weight is None and type(delta) is float and delta > 0
    return small_loss(HUBER, input, target, (delta,), reduction) if plain else None


def huber_loss(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    """Half the squared difference where it is at most delta, else linear.

    Shape: input and target alike, or broadcasting; one number, or theirs with reduction="none".
    Dtypes: floating point.
    Raises: ValueError for an unknown reduction, RuntimeError for shapes that don't broadcast or a
    negative delta.
    """
    _warn_sizes(input, target)
    if not delta > 0:  # nor nan
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    kind = _computed_in(input, target)
    if kind is input._dtype:
        _real("huber_cpu", input)
    else:
        refuse_cast(kind, input._dtype)
    if weight is None and input._dtype is target._dtype:
        return loss_of(HUBER, input, target, (float(delta),), reduction)
    loss = as_input(input, call(HUBER, (input, target), (float(delta),)))
    return (
        reduced(loss, reduction)
        if weight is None
        else _times_weights(input, loss, weight, reduction)
    )


def _computed_in(*tensors: Any) -> dtypes.dtype:
    return promotion.result_dtype(tuple([(t._dtype, t.ndim == 0, False) for t in tensors]))


def _real(name: str, *tensors: Any) -> None:
    """Refuse what is not computed in floating point."""
    kind = _computed_in(*tensors)
    if not kind.is_floating_point:
        raise no_kernel(name, kind)


def as_input(input: Any, loss: Any) -> Any:
    """A loss that has the input's type, as where PyTorch writes it into a tensor like the input."""
    kind = input._dtype
    if loss._dtype is kind:
        return loss
    refuse_cast(loss._dtype, kind)
    return loss.to(kind)


def _kept(loss: Any, made: Any) -> Any:
    """What PyTorch writes over `loss`, whose type and shape stay."""
    if tuple(made.shape) != tuple(loss.shape):
        raise RuntimeError(
            f"output with shape {list(loss.shape)} doesn't match the broadcast shape "
            f"{list(made.shape)}"
        )
    return as_input(loss, made)


def _scaled(loss: Any, weight: Any) -> Any:
    return loss if weight is None else _kept(loss, loss * weight)


# -- probabilities --------------------------------------------------------------------------------


def _bce(x: Array, y: Array, *, out: Array) -> None:
    """(y - 1) max(log(1 - x), -100) - y max(log(x), -100)."""
    bare.negative(x, out=out)
    bare.log1p(out, out=out)
    bare.maximum(out, -100, out=out)
    first = bare.subtract(y, 1, out=np.empty_like(out))
    bare.multiply(out, first, out=first)
    bare.log(x, out=out)
    bare.maximum(out, -100, out=out)
    bare.multiply(out, y, out=out)
    bare.subtract(first, out, out=out)


def _bce_back(g: Any, input: Any, target: Any) -> Any:
    """Its gradient, on arrays where they are small and not recorded."""
    share, x, y = g._np, input._np, target._np
    if (
        share is None
        or x is None
        or y is None
        or modes.state.grad
        or input._dtype not in dtypes.FLOATING
        or g._dtype is not input._dtype
        or input._skimp_turned
        or target._skimp_turned
    ):
        return g * (input - target) / ((1 - input) * input).clamp_min(1e-12)
    return fresh(quietly(_bce_slope, share, x, y), input._dtype)


def _bce_slope(g: Array, x: Array, y: Array) -> Array:
    """The steps of the formula in ops, in two arrays."""
    slope, variance = np.empty_like(x), np.empty_like(x)
    bare.subtract(x, y, out=slope)
    bare.multiply(g, slope, out=slope)
    bare.subtract(1, x, out=variance)
    bare.multiply(variance, x, out=variance)
    bare.maximum(variance, 1e-12, out=variance)
    bare.divide(slope, variance, out=slope)
    return slope


BCE = Pointwise(
    "binary_cross_entropy",
    _bce,
    same,
    Rule(
        "BinaryCrossEntropyBackward0",
        input=_bce_back,
        target=lambda g, input: (
            g * ((1 - input).log().clamp_min(-100) - input.log().clamp_min(-100))
        ),
    ),
    PAIR,
)


@loss(composite=False, batch=batching.layers.binary)
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Minus the log-likelihood of targets in [0, 1] under probabilities; logarithms are at least
    -100.

    Shape: input and target alike, weight broadcasting; one number, or theirs with reduction="none".
    Dtypes: floating point.
    Raises: ValueError for shapes that differ, RuntimeError for inputs outside [0, 1].
    """
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    _same_type(input, target)
    _real("binary_cross_entropy", input)
    for name, t in (("input", input), ("target", target)):
        values = meta.checked(t.detach())
        if values.size and not _within(values):
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    if weight is None:
        return loss_of(BCE, input, target, (), reduction)
    return _own(BCE, reduced(_scaled(call(BCE, (input, target)), weight), reduction), input, target)


def _within(x: Array) -> bool:
    """Whether all are in [0, 1], and none is nan."""
    return bool(bare.lowest(x, None) >= 0 and bare.highest(x, None) <= 1)


def _own(row: Pointwise, loss: Any, input: Any, target: Any) -> Any:
    """A loss of several ops, whose last node shows itself as the row's."""
    if recorded(loss) and row.rule is not None:
        present(loss, row.rule.name, [input, target], [input, target])
    return loss


def _same_type(input: Any, target: Any) -> None:
    if input._dtype is not target._dtype:
        a, b = promotion.scalar_type_name(input._dtype), promotion.scalar_type_name(target._dtype)
        raise RuntimeError(f"Found dtype {b} but expected {a}")


def _bce_logits(x: Array, y: Array, *, out: Array) -> None:
    """(1 - y) x - (min(x, 0) - log(1 + exp(-|x|))): in this order nothing is lost of a small loss
    where y is 1.
    """
    both = x.dtype.type(1) - y
    both *= x
    np.absolute(x, out=out)
    bare.negative(out, out=out)
    bare.exp(out, out=out)
    bare.log1p(out, out=out)
    bare.subtract(bare.minimum(x, x.dtype.type(0)), out, out=out)
    bare.subtract(both, out, out=out)


BCE_LOGITS = Pointwise(
    "binary_cross_entropy_with_logits",
    _bce_logits,
    same,
    Rule(
        "BinaryCrossEntropyWithLogitsBackward0",
        input=lambda g, input, target: g * (input.sigmoid() - target),
        target=lambda g, input: -g * input,
    ),
    PAIR,
)


def _small_bce_logits(
    input: Any,
    target: Any,
    weight: Any,
    size_average: Any,
    reduce: Any,
    reduction: Any,
    pos_weight: Any,
) -> Any:
    plain = weight is None is pos_weight and size_average is None is reduce
    return small_loss(BCE_LOGITS, input, target, (), reduction) if plain else None


@loss(fast=_small_bce_logits)
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """`binary_cross_entropy` of sigmoid(input), without its overflow; `pos_weight` multiplies
    positive targets.

    Shape: input and target alike; weight and pos_weight broadcast.
    Dtypes: floating point.
    Raises: ValueError for shapes that differ.
    """
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    _real("log_sigmoid_cpu", input)
    if target._dtype is dtypes.bool:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    refuse_cast(input._dtype, target._dtype)
    if pos_weight is None and weight is None and input._dtype is target._dtype:
        return loss_of(BCE_LOGITS, input, target, (), reduction)
    if pos_weight is None:
        loss = as_input(target, call(BCE_LOGITS, (input, target)))
    else:
        log_weight = (pos_weight - 1) * target + 1
        negative = _kept(target, (1 - target) * input)
        logs = NAMESPACES["nn.functional"]["logsigmoid"](input)
        loss = _kept(negative, negative - _kept(log_weight, log_weight * logs))
    return _own(BCE_LOGITS, reduced(_scaled(loss, weight), reduction), input, target)


export(
    "huber_loss", huber_loss, ("nn.functional",), method=False, composite=False, autocast="float32",
    fast=_small_huber, batch="parts",
)  # fmt: skip
