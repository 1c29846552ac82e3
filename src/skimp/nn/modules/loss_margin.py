"""Losses of margins as modules; what `loss` says of all of them holds here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.tensor.checks import require_ndim, require_one_of, require_positive
from skimp._engine.tensor.options import KW_ONLY, InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.calling import calling
from skimp.nn.modules.distance import PairwiseDistance
from skimp.nn.modules.loss import _Loss, _WeightedLoss

SAYS = """\
Shape: any, target alike; the result is a number, or theirs with "none".
Dtypes: floating point; the result's is the input's.
Raises: in forward, ValueError for a reduction of another name, RuntimeError for shapes that don't
broadcast and for other dtypes.
Memory: a new tensor."""


@options
class HingeEmbeddingLoss(_Loss):
    """input where the target is 1, max(0, margin - input) where it is -1."""

    margin: float = 1.0
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    forward = calling("hinge_embedding_loss", "input, target", "margin=, reduction=")


class MultiLabelMarginLoss(_Loss):
    """Hinge loss between each label and each class that is none, over the number of classes.

    The target lists labels up to the first -1:

    >>> x, y = torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor([3, 0, -1, 1])
    >>> torch.nn.MultiLabelMarginLoss()(x, y)  # labels 3 and 0; the 1 is not looked at
    tensor(0.8500)

    Shape: input (N, C) or (C,), target alike; the result is a number, or (N,) with "none".
    Dtypes: target int64.
    Raises: RuntimeError in forward for a target of another shape or outside [-1, C).
    """

    forward = calling("multilabel_margin_loss", "input, target", "reduction=")


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), targets 1 and -1."""

    forward = calling("soft_margin_loss", "input, target", "reduction=")


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of logits, averaged over classes.

    Shape: input (N, C) or (C,), target alike, weight (C,); the result is a number, or (N,) with
    "none".
    """

    forward = calling("multilabel_soft_margin_loss", "input, target", "weight=, reduction=")


@options
class CosineEmbeddingLoss(_Loss):
    """1 - cos for pairs with target 1, max(0, cos - margin) for those with -1.

    Shape: input1 and input2 (N, D), target (N,); or (D,) and ().
    Raises: RuntimeError in forward for other ranks.
    """

    margin: float = 0.0
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    forward = calling("cosine_embedding_loss", "input1, input2, target", "margin=, reduction=")


@options
class MarginRankingLoss(_Loss):
    """max(0, margin - target * (input1 - input2)): target 1 wants input1 to be larger.

    Shape: all three alike; the result is a number, or theirs with "none".
    Raises: RuntimeError in forward for ranks that differ.
    """

    margin: float = 0.0
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    forward = calling("margin_ranking_loss", "input1, input2, target", "margin=, reduction=")


@options
class MultiMarginLoss(_WeightedLoss):
    """Hinge loss of one class against all others, to the power p, over the number of classes.

    Shape: input (N, C) or (C,), target (N,) or (), weight (C,); the result is a number, or (N,)
    with "none".
    Raises: ValueError for p other than 1 and 2 and for a weight of another rank; RuntimeError in
    forward for a target outside [0, C).
    """

    p: int = 1
    margin: float = 1.0
    weight: InitVar[Any] = None
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    def _skimp_set_up(self, *form: Any) -> None:
        super()._skimp_set_up(*form)
        require_one_of(self.p, (1, 2), "only p == 1 and p == 2 supported")
        if self.weight is not None:
            require_ndim(self.weight, 1, says="weight must be 1-dimensional, got {got}")

    forward = calling("multi_margin_loss", "input, target", "p=, margin=, weight=, reduction=")


@options
class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm of the difference.

    With `swap` the negative's distance is the smaller of those from anchor and positive.

    Shape: all three (N, D) or (D,); the result is a number, or (N,) with "none".
    Raises: ValueError unless margin is positive; RuntimeError in forward for ranks that differ.
    Source: Balntas et al. 2016, Learning local feature descriptors with triplets.
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    def _skimp_set_up(self, *form: Any) -> None:
        super()._skimp_set_up(*form)
        says = "TripletMarginLoss: expected margin to be greater than 0, got {got} instead"
        require_positive(self.margin, says)

    forward = calling(
        "triplet_margin_loss", "anchor, positive, negative", "margin=, p=, eps=, swap=, reduction="
    )


@options
class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of one's own; PairwiseDistance() by default.

    Shape: what the function takes; it gives (N,), and the result is a number, or that with "none".
    Raises: ValueError unless margin is positive; RuntimeError in forward for ranks that differ.
    Source: Balntas et al. 2016, Learning local feature descriptors with triplets.
    """

    _: KW_ONLY
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: InitVar[str] = "mean"

    def _skimp_set_up(self, *form: Any) -> None:
        super()._skimp_set_up(*form)
        says = (
            "TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {got} instead"
        )
        require_positive(self.margin, says)
        if self.distance_function is None:
            self.distance_function = PairwiseDistance()

    forward = calling(
        "triplet_margin_with_distance_loss",
        "anchor, positive, negative",
        "distance_function=, margin=, swap=, reduction=",
    )
