"""Adaptive softmax: rare classes in clusters with smaller projections (Grave et al. 2016)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, ops
from skimp.nn.modules.container import ModuleList, Sequential
from skimp.nn.modules.linear import Linear
from skimp.nn.modules.module import Module

SAYS = """\
Dtypes: floating point; targets are int64.
Memory: new tensors."""

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of the targets, and the mean loss.

    Shape: input (N, in_features) or (in_features,), target (N,) or (); output as the target, loss
    a number.
    Raises: ValueError for cutoffs that are not unique, positive and increasing; in forward,
    RuntimeError for shapes or targets that don't fit.
    Source: Grave et al. 2016, Efficient softmax approximation for GPUs.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if len(cutoffs) == 0:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or not all(
            0 < c <= n_classes - 1 and int(c) == c for c in cutoffs
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        place = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // (div_value ** (i + 1)))
            narrow = Linear(in_features, width, bias=False, **place)
            self.tail.append(Sequential(narrow, Linear(width, high - low, bias=False, **place)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for narrow, wide in self.tail:
            narrow.reset_parameters()
            wide.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        self._skimp_check(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{low}, {high}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        places = target.clone()
        output = input.new_zeros(target.size(0))
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            places.index_fill_(0, rows, self.shortlist_size + i)
            inside = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            own = (target.index_select(0, rows) - low).unsqueeze(1)
            output = output.index_copy(0, rows, inside.gather(1, own).squeeze(1))
        output = output + head.gather(1, places.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _skimp_check(self, input: Tensor, target: Tensor) -> None:
        dims = target.dim()
        if dims > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if dims == 1 and input.size(0) != target.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.dim() != dims + 1:
            raise RuntimeError(
                f"{dims}D target tensor expects {dims + 1}D input tensors, but found inputs with "
                f"size {input.size()}"
            )

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            cluster = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(self.tail[i](input), dim=1) + cluster)
        return ops.cat(parts, dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each example."""
        head = self.head(input)
        best = ops.argmax(head, dim=1)
        rare = best >= self.shortlist_size
        if not bool(rare.any()):
            return best
        return ops.where(rare, ops.argmax(self.log_prob(input), dim=1), best)  # type: ignore[no-any-return]
