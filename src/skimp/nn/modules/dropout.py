"""The dropout family: what is zeroed with probability p in training, and the rest scaled.

In evaluation, and with p = 0, the input itself is returned, not a copy.
"""

from __future__ import annotations

from skimp._engine.tensor.checks import require_between
from skimp._engine.tensor.options import options
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Dtypes: floating point; the result's is the input's.
Raises: ValueError for p outside [0, 1].
Memory: a new tensor in training (with `inplace=True` the input, overwritten), else the input
itself."""


@options
class _DropoutNd(Module):
    """What is dropped with probability p in training."""

    _skimp_shows = "p=, inplace="
    p: float = 0.5
    inplace: bool = False

    def _skimp_set_up(self) -> None:
        says = "dropout probability has to be between 0 and 1, but got {got}"
        require_between(self.p, 0, 1, says)


class Dropout(_DropoutNd):
    """Zeroes elements; the others grow by 1 / (1 - p), so that the mean stays.

    Evaluation costs nothing and gives the input back:

    >>> x = torch.ones(3)
    >>> torch.nn.Dropout(0.5).eval()(x) is x
    True

    Shape: any.
    Source: Srivastava et al. 2014; Hinton et al. 2012.
    """

    forward = calling("dropout", "input", "p, training, inplace")


class Dropout1d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, L) or (C, L); other ranks warn.
    Raises: RuntimeError in forward for less than two dimensions.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    forward = calling("dropout1d", "input", "p, training, inplace")


class Dropout2d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, H, W); three dimensions are taken for (N, C, L), and warn.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    forward = calling("dropout2d", "input", "p, training, inplace")


class Dropout3d(_DropoutNd):
    """Zeroes whole channels.

    Shape: (N, C, D, H, W) or (C, D, H, W); other ranks warn.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.
    """

    forward = calling("dropout3d", "input", "p, training, inplace")


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of what SELU gives: dropped elements take SELU's value
    at minus infinity. `inplace` is kept and not used.

    Shape: any.
    Source: Klambauer et al. 2017, Self-normalizing neural networks.
    """

    forward = calling("alpha_dropout", "input", "p, training")


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    Shape: (N, C, ...).
    Source: Klambauer et al. 2017; Tompson et al. 2015.
    """

    forward = calling("feature_alpha_dropout", "input", "p, training")
