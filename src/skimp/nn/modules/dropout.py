"""The dropout family: what is zeroed with probability p in training, and the rest scaled.

In evaluation, and with p = 0, the input itself is returned, not a copy.

Dtypes: floating point; the result's is the input's.
Raises: ValueError for p outside [0, 1].
Memory: a new tensor in training; with `inplace=True` the input is overwritten.
"""

from __future__ import annotations

from skimp._engine.tensor.checks import require_between
from skimp._engine.tensor.options import options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F
from skimp.nn.modules.module import Module


@options
class _DropoutNd(Module):
    """What is dropped with probability p in training."""

    _shows = "p=, inplace="
    p: float = 0.5
    inplace: bool = False

    def _set_up(self) -> None:
        says = "dropout probability has to be between 0 and 1, but got {got}"
        require_between(self.p, 0, 1, says)


class Dropout(_DropoutNd):
    """Zeroes elements; the others grow by 1 / (1 - p), so that the mean stays.

    Evaluation costs nothing and gives the input back:

    >>> x = torch.ones(3)
    >>> torch.nn.Dropout(0.5).eval()(x) is x
    True

    Shape: any.
    Raises: ValueError for p outside [0, 1].
    Source: Srivastava et al. 2014; Hinton et al. 2012.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)  # type: ignore[no-any-return]


class Dropout1d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, L) or (C, L); other ranks warn.
    Raises: RuntimeError in forward for less than two dimensions.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)  # type: ignore[no-any-return]


class Dropout2d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, H, W); three dimensions are taken for (N, C, L), and warn.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)  # type: ignore[no-any-return]


class Dropout3d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, D, H, W) or (C, D, H, W); other ranks warn.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)  # type: ignore[no-any-return]


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of what SELU gives: dropped elements take SELU's value
    at minus infinity. `inplace` is kept and not used.

    Shape: any.
    Source: Klambauer et al. 2017, Self-normalizing neural networks.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)  # type: ignore[no-any-return]


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    Shape: (N, C, ...).
    Source: Klambauer et al. 2017; Tompson et al. 2015.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)  # type: ignore[no-any-return]
