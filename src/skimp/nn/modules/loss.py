"""Losses as modules.

`reduction` is "mean" (over the elements, or what a class says), "sum" or "none"; `size_average`
and `reduce` are its older form, which warns. Unless a class says otherwise, `SAYS` holds.
"""

from __future__ import annotations

import warnings
from typing import Any

from skimp._engine.tensor.options import KW_ONLY, InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module
from skimp.nn.modules.utils import reduction_of

SAYS = """\
Shape: any, target alike; the result is a number, or theirs with "none".
Dtypes: floating point; the result's is the input's.
Raises: in forward, ValueError for a reduction of another name, RuntimeError for shapes that don't
broadcast and for other dtypes.
Memory: a new tensor."""


class _Loss(Module):
    """A loss with a reduction."""

    reduction: str

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        _Loss._skimp_set_up(self, size_average, reduce, reduction)

    def _skimp_set_up(self, *form: Any) -> None:
        """`form`: size_average and reduce, where a class has them, then reduction."""
        size_average, reduce, reduction = (None, None, *form)[-3:]
        self.reduction = reduction_of(size_average, reduce, reduction)


class _WeightedLoss(_Loss):
    """A loss with weights, which are a buffer."""

    weight: Any

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _WeightedLoss._skimp_set_up(self, weight, size_average, reduce, reduction)

    def _skimp_set_up(self, *form: Any) -> None:
        """`form`: the weights, then as above."""
        weight, size_average, reduce, reduction = form
        self.reduction = reduction_of(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|."""

    forward = calling("l1_loss", "input, target", "reduction=")


class MSELoss(_Loss):
    """(input - target) squared.

    Shapes that differ broadcast, and only warn; (N,) against (N, 1) makes N N differences:

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     torch.nn.MSELoss(reduction="none")(torch.ones(3), torch.ones(3, 1)).shape
    torch.Size([3, 3])
    """

    forward = calling("mse_loss", "input, target", "reduction=")


@options
class NLLLoss(_WeightedLoss):
    """Minus the log probability of the target class.

    "mean" divides by the weights of the targets, not by N; targets of `ignore_index` count as 0.

    Shape: input (N, C, ...) or (C,), target (N, ...) or (), weight (C,); the result is a number, or
    has the target's shape with "none".
    Dtypes: input floating point, target int64 (or uint8).
    Raises: in forward, IndexError for a target outside [0, C), ValueError or RuntimeError for
    shapes that don't fit.
    """

    weight: InitVar[Any] = None
    size_average: InitVar[Any] = None
    ignore_index: int = -100
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    forward = calling("nll_loss", "input, target", "weight=, ignore_index=, reduction=")


class NLLLoss2d(NLLLoss):
    """The old name of NLLLoss for images; making one warns (FutureWarning).

    Shape: input (N, C, H, W), target (N, H, W).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self) is NLLLoss2d:
            warnings.warn(
                "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in "
                "replacement and see https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for "
                "more details.",
                FutureWarning,
                stacklevel=2,
            )
        super().__init__(*args, **kwargs)


@options
class PoissonNLLLoss(_Loss):
    """Negative log likelihood of Poisson counts: rate - target log(rate).

    `log_input`: input is log(rate), else the rate, to which eps is added before its log. `full`
    adds Stirling's approximation of log(target!) where the target is above 1.
    """

    log_input: bool = True
    full: bool = False
    size_average: InitVar[Any] = None
    eps: float = 1e-8
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"

    forward = calling(
        "poisson_nll_loss", "log_input, target", "log_input=, full=, eps=, reduction="
    )


@options
class GaussianNLLLoss(_Loss):
    """Negative log likelihood of normal values: (log(var) + (input - target)^2 / var) / 2, with
    var at least eps; `full` adds log(2 pi) / 2.

    The clamp of var has no gradient: var's own is as if it were not clamped.

    Shape: input (N, ...), target alike, var alike, or without or with 1 for the last dimension.
    Raises: ValueError in forward for var of another shape, or with a negative element.
    Source: Nix and Weigend 1994.
    """

    _: KW_ONLY
    full: bool = False
    eps: float = 1e-6
    reduction: InitVar[str] = "mean"

    forward = calling("gaussian_nll_loss", "input, target, var", "full=, eps=, reduction=")


@options
class KLDivLoss(_Loss):
    """target * (log(target) - input): input is a log probability, and so is the target with
    `log_target`.

    "mean" divides by all elements, not by the batch, as the divergence would ask for ("batchmean"),
    and warns.

    Source: Kullback and Leibler 1951.
    """

    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"
    log_target: bool = False

    forward = calling("kl_div", "input, target", "reduction=, log_target=")


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities; logs are cut off at -100.

    Shape: any, target alike, and weight as it broadcasts; the result is a number, or theirs with
    "none".
    Raises: in forward, RuntimeError for an input outside [0, 1], ValueError for a target of another
    shape.
    """

    forward = calling("binary_cross_entropy", "input, target", "weight=, reduction=")


@options
class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits, without overflow; `pos_weight` weighs the positives.

    Shape: any, target alike, weight and pos_weight as they broadcast; the result is a number, or
    theirs with "none".
    Raises: ValueError in forward for a target of another shape.
    """

    weight: InitVar[Any] = None
    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"
    pos_weight: InitVar[Any] = None

    def _skimp_set_up(self, *form: Any) -> None:
        weight, *older, pos_weight = form
        super()._skimp_set_up(*older)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    forward = calling(
        "binary_cross_entropy_with_logits", "input, target", "weight, pos_weight=, reduction="
    )


@options
class SmoothL1Loss(_Loss):
    """Squared over 2 beta below beta, absolute less beta / 2 above.

    Raises: RuntimeError in forward if beta is negative.
    Source: Girshick 2015, Fast R-CNN.
    """

    size_average: InitVar[Any] = None
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"
    beta: float = 1.0

    forward = calling("smooth_l1_loss", "input, target", "reduction=, beta=")


@options
class HuberLoss(_Loss):
    """Half the square below delta, delta (absolute - delta / 2) above: delta times SmoothL1Loss.

    Raises: RuntimeError in forward unless delta is positive.
    Source: Huber 1964, Robust estimation of a location parameter.
    """

    reduction: InitVar[str] = "mean"
    delta: float = 1.0

    forward = calling("huber_loss", "input, target", "reduction=, delta=")


@options
class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits with classes, or with probabilities.

    Softmax is part of it: what it takes are logits. With classes, "mean" divides by the weights of
    the targets, and targets of `ignore_index` count as 0; with probabilities it divides by N.

    Shape: input (N, C, ...) or (C,); target (N, ...) or () for classes, the input's for
    probabilities; weight (C,). The result is a number, or (N, ...) with "none".
    Dtypes: classes int64 (or uint8), probabilities the input's.
    Raises: in forward, IndexError for a class outside [0, C), RuntimeError for shapes that don't
    fit, for weights of another length, and for label_smoothing outside [0, 1].
    Source: label smoothing: Szegedy et al. 2015, Rethinking the Inception architecture.
    """

    weight: InitVar[Any] = None
    size_average: InitVar[Any] = None
    ignore_index: int = -100
    reduce: InitVar[Any] = None
    reduction: InitVar[str] = "mean"
    label_smoothing: float = 0.0

    forward = calling(
        "cross_entropy", "input, target", "weight=, ignore_index=, reduction=, label_smoothing="
    )


@options
class CTCLoss(_Loss):
    """Connectionist temporal classification: minus the log probability of all alignments.

    "mean" divides each by its target's length first. A target that is too long for its input gives
    infinity, or 0 with `zero_infinity`.

    Shape: log_probs (T, N, C) or (T, C), log probabilities; targets (N, S) padded, or all in one
    row; lengths (N,). The result is a number, or (N,) with "none".
    Dtypes: targets and lengths integers.
    Raises: RuntimeError in forward for lengths or labels that don't fit.
    Source: Graves et al. 2006, Connectionist temporal classification.
    """

    blank: int = 0
    reduction: InitVar[str] = "mean"
    zero_infinity: bool = False

    forward = calling(
        "ctc_loss",
        "log_probs, targets, input_lengths, target_lengths",
        "blank, reduction, zero_infinity",
    )
