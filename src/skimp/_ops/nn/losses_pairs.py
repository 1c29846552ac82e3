"""The losses of pairs and triplets: margins, cosines, distances."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import errors, modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.batched import Batched
from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import refuse_cast
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare
from skimp._ops.nn.cross_entropy import check_tensor
from skimp._ops.nn.losses import as_input
from skimp._ops.nn.losses_reduced import loss_of, reduced
from skimp._ops.nn.reduction import check_reduction, loss

# -- margins between pairs ------------------------------------------------------------------------


@loss()
def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """input where the target is 1, max(0, margin - input) where it is -1.

    Dtypes: integers and floating point.
    """
    check_tensor("hinge_embedding_loss", target)
    zero = input.new_zeros(())
    far = _where(target != 1, (margin - input).clamp_min(0), zero)
    near = _where(target != -1, input, zero)
    loss = far + near
    return reduced(loss if input._dtype.is_floating_point else loss.to(input._dtype), reduction)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return a.where(condition, b)


@loss()
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, reduction: str = "mean"
) -> Any:
    """max(0, -target (input1 - input2) + margin).

    Shape: three alike; one number, or theirs with reduction="none".
    Dtypes: integers and floating point.
    Raises: RuntimeError for numbers of dims that differ.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced((-target * (input1 - input2) + float(margin)).clamp_min(0), reduction)


def _soft_margin(x: Array, y: Array, *, out: Array) -> None:
    bare.multiply(x, y, out=out)
    bare.negative(out, out=out)
    bare.exp(out, out=out)
    bare.log1p(out, out=out)


SOFT_MARGIN = Pointwise(
    "soft_margin_loss",
    _soft_margin,
    same,
    Rule(
        "SoftMarginLossBackward0",
        input=lambda g, input, target: -g * target * (-input * target).sigmoid(),
    ),
    ("input", "target"),
)


@loss()
def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """log(1 + exp(-target input)).

    Dtypes: floating point and complex numbers.
    """
    if modes.state.grad and target.requires_grad:
        raise errors.not_differentiable("soft_margin_loss", "target")
    refuse_cast(
        promotion.to_float(promotion.promote_types(input._dtype, target._dtype)), input._dtype
    )
    shape = layouts.broadcast_shapes(tuple(input.shape), tuple(target.shape))
    if shape != tuple(input.shape):
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(shape)}"
        )
    if input._dtype is target._dtype:
        return loss_of(SOFT_MARGIN, input, target, (), reduction)
    return reduced(as_input(input, call(SOFT_MARGIN, (input, target))), reduction)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between vectors along `dim`; norms are at least eps.

    Shape: two that broadcast; the result lacks `dim`.
    Dtypes: floating point.
    Raises: RuntimeError for integers, IndexError for a dim that is not there.
    """
    dtype = promotion.promote_types(x1._dtype, x2._dtype)
    if dtype.category != dtypes.FLOAT:
        raise RuntimeError(
            "expected common dtype to be floating point, yet common dtype is "
            f"{promotion.scalar_type_name(dtype)}"
        )
    if eps < 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps}")
    x1, x2 = [x if x._dtype is dtype else x.to(dtype) for x in (x1, x2)]
    shape = layouts.broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    x1, x2 = [x if tuple(x.shape) == shape else x.expand(shape) for x in (x1, x2)]
    norm = NAMESPACES["linalg"]["vector_norm"]
    parts = []
    for x in (x1, x2):
        size = norm(x, 2, dim, True)
        parts.append(x / _at_least(size, eps))
    return (parts[0] * parts[1]).sum(dim)


def _at_least(size: Any, eps: float) -> Any:
    """size, or eps where it is less: there the gradient is as if it were not."""
    low = held = size.detach() < eps
    while isinstance(held, Batched):
        held = held._held
    if held._np is not None and not bare.count_nonzero(held._np):  # so it is where vectors are few
        return size
    return _where(low, (size - size.detach()) + eps, size)


@shown("NormBackward1")
def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The p-norm of x1 - x2 + eps along the last dim.

    Shape: (n, d) or (d,), which broadcast; (n,) or (), with a last 1 by `keepdim`.
    Dtypes: floating point and complex.
    Raises: RuntimeError for shapes that don't broadcast.
    """
    last = max(x1.ndim, x2.ndim) - 1
    return (x1 - x2 + eps).norm(p, last, keepdim)


@loss()
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, reduction: str = "mean"
) -> Any:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    Shape: inputs (n, features) and target (n,), or (features,) and ().
    Dtypes: bool, integers and floating point.
    Raises: RuntimeError for other shapes, ValueError for an unknown reduction.
    """
    _check_cosine(input1, input2, target)
    dim = target.ndim
    product = (input1 * input2).sum(dim)
    squares = [(x * x).sum(dim) + 1e-12 for x in (input1, input2)]
    cosine = product / (squares[0] * squares[1]).sqrt()
    zero = cosine.new_zeros(())
    near = _where(target == 1, 1 - cosine, zero)
    far = _where(target == -1, (cosine - margin).clamp_min(0), zero)
    return reduced(near + far, reduction)


def _check_cosine(a: Any, b: Any, target: Any) -> None:
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    rank = target.ndim + 1
    if a.ndim != rank or b.ndim != rank:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {rank}D input tensors, but found inputs with "
            f"sizes {list(a.shape)} and {list(b.shape)}."
        )


@loss()
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, |anchor - positive| - |anchor - negative| + margin).

    Shape: three that broadcast, (n, d) or (d,); one number, or (n,) with reduction="none".
    Dtypes: integers, floating point and complex numbers.
    Raises: RuntimeError for numbers of dims that differ, ValueError for a margin that is not
    positive.
    """
    return _triplet(
        anchor,
        positive,
        negative,
        lambda a, b: pairwise_distance(a, b, p, eps),
        margin,
        swap,
        reduction,
    )


def _triplet(
    anchor: Any,
    positive: Any,
    negative: Any,
    distance: Any,
    margin: float,
    swap: bool,
    reduction: str,
) -> Any:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp_min(0), reduction)


@sampled(lambda tensor: [(tensor([[1, -2]]), tensor([[0, 1]]), tensor([[3, 3]]))])
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """`triplet_margin_loss` with a distance of one's own.

    Shape: three alike; what `distance_function` gives, reduced.
    Dtypes: integers, floating point and complex numbers.
    Raises: ValueError for an unknown reduction or a margin that is not positive.
    """
    check_reduction(reduction)
    return _triplet(
        anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction
    )


export(
    "triplet_margin_with_distance_loss",
    triplet_margin_with_distance_loss,
    ("nn.functional",),
    method=False,
)
for _g in (cosine_similarity, pairwise_distance):
    export(_g.__name__, _g, ("", "nn.functional"), method=False)
