"""cross_entropy and nll_loss. With class indices, log-probabilities are never written: rows are
reduced as they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import errors, modes
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled, cross_entropy as kernels, shaping
from skimp._kernels.normalization import loops
from skimp._kernels.scratch import Scratch, less_column, starts, working
from skimp._kernels.softmax import exp_rows
from skimp._ops import batching
from skimp._ops.index.masks import where
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.reduction import check_reduction, reduction_of
from skimp._ops.reduce.small_sums import total
from skimp._ops.reduce.softmax import SMALL, _log_softmax, floating, over_rows, row_numbers, sides

# -- what a target says about its rows -------------------------------------------------------------


class Rows:
    """Class indices as (outer, 1, inner) beside a (outer, classes, inner) input, with each row's
    weight."""

    def __init__(
        self, shape: tuple[int, ...], target: Tensor, weight: Tensor | None, ignore: int, acc: Any
    ) -> None:
        self.dim = 1 if len(shape) > 1 else 0
        outer, self.classes, inner = sides(shape, self.dim)
        t = target._skimp_array().reshape((outer, 1, inner) if inner != 1 else (outer, 1))
        self.valid: Array | None = None
        used = t
        if _outside(t, self.classes):
            self.valid = t != ignore
            used = bare.where(self.valid, t, 0)
            _check_classes(used, self.classes)
        elif 0 <= ignore < self.classes:
            self.valid = t != ignore
        self.at = used
        self.weight = None if weight is None else weight._skimp_array().astype(acc, copy=False)
        self.share: Any = acc.type(1)  # the weight of each row
        if self.weight is not None:
            self.share = self.weight[used]
        if self.valid is not None:
            self.share = self.share * self.valid.astype(acc)

    def total(self) -> Any:
        """What the mean divides by."""
        if self.weight is None and self.valid is None:
            return self.at.size
        return self.share.sum()

    def used(self, values: Array) -> Array:
        """The values, and 0 for rows that are ignored, whatever was computed of them."""
        if self.valid is None:
            return values
        return bare.where(self.valid, values, values.dtype.type(0))

    def per_class(self, ndim: int) -> Any:
        """The weights as they broadcast against a block."""
        if self.weight is None:
            return None
        return self.weight if ndim == 2 else self.weight[:, None]


def _outside(t: Array, classes: int) -> bool:
    return bool(t.size and (int(t.max()) >= classes or int(t.min()) < 0))


def _check_classes(t: Array, classes: int) -> None:
    bad = t[(t < 0) | (t >= classes)]
    if bad.size:
        raise IndexError(f"Target {int(bad[0])} is out of bounds.")


def _pick(block: Array, at: Array) -> Array:
    """Each row's element at its target, (a, 1) or (a, 1, c)."""
    if block.ndim == 2:
        return block[np.arange(len(block)), at[:, 0]][:, None]
    return shaping.along(block, at, 1)


def _take_from(block: Array, at: Array, value: Array) -> None:
    """block[row, target] -= value."""
    if block.ndim == 2:
        block[np.arange(len(block)), at[:, 0]] -= value[:, 0]
    else:
        np.put_along_axis(block, at, shaping.along(block, at, 1) - value, 1)


# -- the fused op ---------------------------------------------------------------------------------


def _forward(
    x: Array, at: Array, loss: Array, lse: Array, spread: Array | None, weight: Any
) -> None:
    """Of a block of rows: minus the target's log-probability, the logsumexp, the sum of
    (weighted) log-probabilities."""
    looped = kernels.losses(x, at, loss, lse)
    if looped and spread is None:
        return
    with Scratch(x.shape, loss.dtype) as z:
        wide = x if x.dtype == z.dtype else x.astype(z.dtype)
        if not looped:
            sums, shift = exp_rows(wide, z)
            log, own = np.log(sums), _pick(wide, at)
            np.subtract(log, own if shift is None else own - shift, out=loss)
            np.add(log, 0 if shift is None else shift, out=lse)
        if spread is not None:
            np.subtract(wide, lse, out=z)
            spread[...] = np.add.reduce(z if weight is None else z * weight, axis=1, keepdims=True)


def _rule(
    g: Any,
    input: Any,
    target: Any,
    result1: Any,
    weight: Any,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    if input._skimp_meta is not None:
        return (g * input).expand_as(input) if g.ndim == 0 else input * g.unsqueeze(1)
    rows = Rows(tuple(input.shape), target, weight, ignore_index, _acc(input))
    if modes.state.grad or g._hollow:
        return _rematerialize(g, input, rows, reduction, label_smoothing)
    return _gradient(g, input, result1, rows, reduction, label_smoothing)


def _factors(rows: Rows, smoothing: float, acc: Any) -> tuple[Any, Any, Any]:
    """Of each row: the factor of its softmax, what its target's class has less, and what every
    class has less."""
    pick = (1.0 - smoothing) * rows.share
    if not smoothing:
        return pick, pick, 0.0
    each = smoothing / rows.classes
    whole = rows.classes if rows.weight is None else rows.weight.sum()
    live = acc.type(1) if rows.valid is None else rows.valid.astype(acc)
    return pick + live * (each * whole), pick, live * each


def _gradient(
    g: Any, input: Any, result1: Any, rows: Rows, reduction: str, smoothing: float
) -> Any:
    acc = _acc(input)
    factors = _factors(rows, smoothing, acc)
    scale = (
        g._skimp_array()
        .astype(acc, copy=False)
        .reshape(rows.at.shape if reduction == "none" else ())
    )
    if reduction == "mean":
        scale = scale / rows.total()
    whole, pick, each = [
        shaping.broadcast(rows.used(np.asarray(f * scale, acc)), rows.at.shape) for f in factors
    ]
    result, into = blank(tuple(input.shape), input._dtype)
    whole, pick, each = (np.ascontiguousarray(a) for a in (whole, pick, each))

    def block(
        x: Array, at: Array, lse: Array, whole: Array, pick: Array, each: Array, out: Array
    ) -> None:
        with working(out, lse.dtype) as d:
            if not kernels.gradients(x, at, lse, whole, pick, d):
                np.subtract(x, lse, out=d)
                bare.exp(d, out=d)
                np.multiply(d, whole, out=d)
                _take_from(d, at, pick)
            if smoothing:
                weight = rows.per_class(d.ndim)
                d -= each if weight is None else each * weight
            if d is not out:
                out[...] = d

    parts = rows.at, result1._skimp_array(), whole, pick, each, into
    over_rows(input, rows.dim, block, *parts, shares=_shares(input, smoothing))
    return result


def _shares(input: Any, smoothing: float) -> bool:
    """Whether a loop takes all rows at once, which needs no memory beside them."""
    return not smoothing and loops(input._dtype.np) is not None


def _rematerialize(g: Any, input: Any, rows: Rows, reduction: str, smoothing: float) -> Any:
    """The same in ops, for derivatives of the derivative."""
    acc = _acc(input)
    shape = (
        tuple([1 if d == rows.dim else n for d, n in enumerate(input.shape)])
        if input.ndim
        else (1,)
    )

    def tensor(a: Any) -> Any:
        whole = shaping.broadcast(np.asarray(a, acc), rows.at.shape).reshape(shape)
        return fresh(
            np.ascontiguousarray(whole),
            input._dtype if input._dtype.itemsize > 2 else dtypes.float32,
        )

    whole, pick, each = [tensor(f) for f in _factors(rows, smoothing, acc)]
    if reduction == "none":
        g = g.reshape(shape)
    elif reduction == "mean":
        g = g / float(rows.total())
    hot = np.zeros((rows.at.shape[0], rows.classes, *rows.at.shape[2:]), acc)
    np.put_along_axis(hot, rows.at, 1, 1)
    one = fresh(hot.reshape(tuple(input.shape)), whole._dtype)
    less = pick * one
    if smoothing:
        classes = rows.weight if rows.weight is not None else np.ones(rows.classes, acc)
        trailing = [1] * (input.ndim - rows.dim - 1)
        less = less + each * fresh(classes.reshape(-1, *trailing).copy(), whole._dtype)
    if rows.valid is not None:
        g = where(fresh(rows.valid.reshape(shape), dtypes.bool), g, 0)
    return (_log_softmax(input, rows.dim).exp() * whole - less) * g


def _acc(t: Tensor) -> Any:
    return dtypes.accumulator(t._dtype).np


# -- the fast path of small matrices: as little as NumPy allows ------------------------------------


def _small(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """The mean over the rows of a small matrix with a class index each, recorded; None where the
    general way is needed.
    """
    x, t = input._np, getattr(target, "_np", None)
    if x is None or t is None or x.ndim != 2 or t.shape != x.shape[:1]:
        return None
    rows, classes = x.shape
    if (
        not 0 < x.size < SMALL
        or not (weight is size_average is reduce is None and reduction == "mean")
        or type(label_smoothing) not in (float, int)
        or label_smoothing
        or type(ignore_index) is not int
        or 0 <= ignore_index < classes
        or input._dtype not in dtypes.FLOATING
        or target._dtype is not dtypes.int64
        or not t.flags.c_contiguous
    ):
        return None
    found = compiled.loops()
    made = None if found is None else found.made_class_losses(x, t)
    if made is None:
        if not x.flags.c_contiguous:
            x = np.ascontiguousarray(x)
        made = kernels.small_losses(x, t)
        if made is None:
            return None
        losses, lse = made
        mean = total(losses) / rows
    else:
        mean, lse = made
    loss = fresh(mean, input._dtype)
    if input._rg and modes.state.grad:
        _SMALL.record(loss, input, target, fresh(lse, input._dtype))
    return loss


def _small_back(g: Any, input: Any, target: Any, lse: Any) -> Any:
    if modes.state.grad or g._hollow:
        rows = Rows(tuple(input.shape), target, None, -100, _acc(input))
        return _rematerialize(g, input, rows, "mean", 0.0)
    x, t, level = input._skimp_array(), target._skimp_array(), lse._skimp_array()
    share = g._skimp_array() / x.dtype.type(len(t))
    shares = np.empty(len(t), x.dtype)
    shares.fill(share)
    d = np.empty(x.shape, x.dtype)
    if kernels.gradients(x, t, level, shares, shares, d):
        return fresh(d, input._dtype)
    d = less_column(x, level[:, None])
    bare.exp(d, out=d)
    d *= share
    at, flat = t + starts(len(t), d.shape[1]), d.reshape(-1)
    flat[at] = flat.take(at) - share  # in this order, as above: the same bits
    return fresh(d, input._dtype)


_SMALL = recording(Rule("NllLossBackward0", input=_small_back), ("input", "target", "lse"))


@hidden(
    kind="row-wise",
    meta=shapes.cross_entropy,
    nondiff=(1,),
    rule=Rule("NllLossBackward0", input=_rule),
    batch=batching.layers.class_losses,
)
def _cross_entropy(
    input: Any, target: Any, weight: Any, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:
    """(loss, each row's logsumexp): what backward needs besides the input."""
    shape = tuple(input.shape)
    acc = _acc(input)
    rows = Rows(shape, target, weight, ignore_index, acc)
    losses = np.empty(rows.at.shape, acc)
    lse = row_numbers(shape, rows.dim, acc)
    if label_smoothing:
        spread = bare.empty_like(losses)

        def block(x: Array, at: Array, loss: Array, lse: Array, spread: Array) -> None:
            _forward(x, at, loss, lse, spread, rows.per_class(x.ndim))

        over_rows(input, rows.dim, block, rows.at, losses, lse, spread)
    else:
        spread = None

        def plain(x: Array, at: Array, loss: Array, lse: Array) -> None:
            _forward(x, at, loss, lse, None, None)

        shares = _shares(input, label_smoothing)
        over_rows(input, rows.dim, plain, rows.at, losses, lse, shares=shares)
    losses = _weighted(losses, spread, rows, label_smoothing)
    loss = _reduced(losses, rows, reduction, tuple(target.shape))
    return fresh(loss.astype(input._dtype.np, copy=False), input._dtype), fresh(
        lse, dtypes.accumulator(input._dtype)
    )


def _weighted(losses: Array, spread: Array | None, rows: Rows, smoothing: float) -> Array:
    if rows.weight is not None or spread is not None:
        losses = losses * ((1.0 - smoothing) * rows.share)
    if spread is not None:
        losses = losses - spread * (smoothing / rows.classes)
    return rows.used(losses)


def _reduced(losses: Array, rows: Rows, reduction: str, shape: tuple[int, ...]) -> Any:
    if reduction == "none":
        return losses.reshape(shape)
    whole = total(losses)
    return np.asarray(whole if reduction == "sum" else whole / rows.total(), losses.dtype)


# -- the public functions -------------------------------------------------------------------------


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Minus the log-probability of each row's target: a class index, or a probability for every
    class.

    >>> scores = torch.tensor([[2.0, 0.0]])  # of any size: softmax is part of the loss
    >>> torch.nn.functional.cross_entropy(scores, torch.tensor([0]))
    tensor(0.1269)

    Shape: input (classes,), (n, classes) or (n, classes, ...); target () or (n, ...) of indices, or
    the input's of probabilities; one number, or the target's with reduction="none".
    Dtypes: a floating point input; int64 or uint8 indices.
    Raises: ValueError and RuntimeError for shapes that don't fit, IndexError for a class out of
    range.
    Memory: log-probabilities are never written; two numbers per row are saved.
    """
    if isinstance(label_smoothing, Tensor):
        label_smoothing = label_smoothing.item()
    if isinstance(ignore_index, Tensor):
        ignore_index = int(ignore_index.__index__())
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    check_tensor("cross_entropy_loss", target)
    if input.ndim == 0:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
    if tuple(target.shape) == tuple(input.shape):
        return _of_probabilities(input, target, weight, reduction, ignore_index, label_smoothing)
    refuse_weights(weight)
    target = checked_classes(input, target, weight)
    floating("log_softmax_lastdim_kernel_impl", input)
    return _cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)[0]


def check_tensor(name: str, target: Any) -> None:
    """Refuse a target that is no tensor."""
    if not isinstance(target, Tensor):
        kind = type(target).__name__
        raise TypeError(f"{name}(): argument 'target' (position 2) must be Tensor, not {kind}")


def refuse_weights(weight: Any) -> None:
    """Refuse weights of classes that a gradient is asked for."""
    if weight is not None and weight.requires_grad and modes.state.grad:
        raise errors.not_differentiable("nll_loss_forward", "weight")


def checked_classes(input: Any, target: Any, weight: Any) -> Any:
    """Class indices, checked in PyTorch's order; that of one row has no dims."""
    dim = 1 if input.ndim > 1 else 0
    shape, have = tuple(input.shape), tuple(target.shape)
    expected = shape[:dim] + shape[dim + 1 :]
    if input.ndim > 1 and (not have or have[0] != shape[0]):
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({have[0] if have else 0})."
        )
    if input.ndim <= 2 and len(have) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input.ndim == 4 and len(have) != 3:
        raise RuntimeError(
            "only batches of spatial targets supported (3D tensors) but got targets of dimension: "
            f"{len(have)}"
        )
    if input.ndim not in (1, 4) and have != expected:
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(have)}")
    if target._dtype not in (dtypes.int64, dtypes.uint8):
        name = promotion.scalar_type_name(target._dtype)
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {name}")
    if input.ndim == 1 and have not in ((), (1,)):
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {have[0]}"
        )
    if input.ndim == 4 and have != expected:
        raise RuntimeError(f"size mismatch (got input: {list(shape)} , target: {list(have)}")
    if weight is not None:
        _check_weight("", shape[dim], weight)
        same_scalar_type(input, weight)
    return target.reshape(()) if input.ndim == 1 else target


def _check_weight(prefix: str, classes: int, weight: Any) -> None:
    if tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"{prefix}weight tensor should be defined either for all {classes} classes or no "
            f"classes but got weight tensor of shape: {list(weight.shape)}"
        )


def _of_probabilities(
    input: Any, target: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    if not target._dtype.is_floating_point:
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got "
            f"{promotion.scalar_type_name(target._dtype)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = 1 if input.ndim > 1 else 0
    n = input.shape[dim] if input.ndim else 1
    if weight is not None:
        _check_weight("cross_entropy: ", n, weight)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / max(n, 1)
    logs = _log_softmax(input, dim)
    if weight is not None:
        logs = logs * weight.reshape((n,) + (1,) * (input.ndim - dim - 1))
    product = logs * target
    if reduction == "none":
        return -product.sum(dim)
    total = -product.sum()
    if reduction == "sum":
        return total
    mean = total / (input.numel() // max(n, 1))
    if mean._skimp_node is not None:  # PyTorch divides by a number with an op of its own
        present(mean, "DivBackward1", [total], [])
    return mean


export(
    "cross_entropy",
    cross_entropy,
    ("nn.functional",),
    fast=_small,
    method=False,
    autocast="float32",
)
