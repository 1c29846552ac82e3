"""Activation functions as modules.

Each is a function of `nn.functional` with its options kept. Unless a class says otherwise,
`SAYS` holds.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.memory.call_site import warn
from skimp._engine.tensor.checks import require_ndim
from skimp._engine.tensor.options import InitVar, options, own_init
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, init
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Shape: any; the result has the input's.
Dtypes: floating point; the result's is the input's.
Raises: NotImplementedError or RuntimeError in forward for other dtypes.
Memory: a new tensor; with `inplace=True`, where there is that, the input itself, overwritten:
RuntimeError for a leaf that requires grad."""


@options
class _Plain(Module):
    """An activation whose only choice is whether it overwrites its input."""

    _skimp_shows = "inplace?"
    inplace: bool = False


@own_init
class ReLU(_Plain):
    """max(0, x); integers too.

    Dtypes: integers and floating point.
    Memory: with `inplace=True` the input's own; backward keeps the result, so the overwritten input
    is not missed:

    >>> x = torch.tensor([-1.0, 2.0])
    >>> torch.nn.ReLU(inplace=True)(x) is x
    True
    >>> x
    tensor([0., 2.])

    Source: Nair and Hinton 2010, Rectified linear units improve restricted Boltzmann machines.
    """

    forward = calling("relu", "input", "inplace=")


@own_init
class SELU(_Plain):
    """scale * ELU(x) whose constants keep mean 0 and variance 1 from layer to layer.

    Source: Klambauer et al. 2017, Self-normalizing neural networks.
    """

    forward = calling("selu", "input", "inplace")


@own_init
class SiLU(_Plain):
    """x * sigmoid(x), also called swish.

    Dtypes: floating point and complex numbers.
    Source: Elfwing et al. 2017; Ramachandran et al. 2017.
    """

    forward = calling("silu", "input", "inplace=")


@own_init
class Mish(_Plain):
    """x * tanh(softplus(x)).

    Source: Misra 2019, Mish: a self regularized non-monotonic activation function.
    """

    forward = calling("mish", "input", "inplace=")


@own_init
class Hardswish(_Plain):
    """x * relu6(x + 3) / 6.

    Source: Howard et al. 2019, Searching for MobileNetV3.
    """

    _skimp_shows = ""

    forward = calling("hardswish", "input", "inplace")


@own_init
class Hardsigmoid(_Plain):
    """relu6(x + 3) / 6.

    Source: Courbariaux et al. 2015, BinaryConnect (there with another slope).
    """

    _skimp_shows = ""

    forward = calling("hardsigmoid", "input", "inplace")


@options
class Threshold(Module):
    """x where it is above the threshold, else `value`; integers too.

    Dtypes: integers and floating point.
    """

    _skimp_shows = "threshold=, value=, inplace?"
    threshold: float
    value: float
    inplace: bool = False

    forward = calling("threshold", "input", "threshold, value, inplace")


@options
class RReLU(Module):
    """x above 0, else x times a slope: drawn from [lower, upper) for each element in training,
    their mean in evaluation.

    Source: Xu et al. 2015, Empirical evaluation of rectified activations.
    """

    _skimp_shows = "lower=, upper=, inplace?"
    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False

    forward = calling("rrelu", "input", "lower, upper, training, inplace")


@options
class Hardtanh(Module):
    """x, clamped to [min_val, max_val]; `min_value` and `max_value` are the older names.

    Dtypes: integers and floating point.
    Raises: AssertionError unless max_val is above min_val.
    """

    _skimp_shows = "min_val=, max_val=, inplace?"
    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False
    min_value: InitVar[float | None] = None
    max_value: InitVar[float | None] = None

    def _skimp_set_up(self, min_value: float | None, max_value: float | None) -> None:
        for name, older in (("min_val", min_value), ("max_val", max_value)):
            if older is not None:
                setattr(self, name, older)
                warn(
                    f"keyword argument `{name}ue` is deprecated and renamed to `{name}`",
                    FutureWarning,
                )
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    forward = calling("hardtanh", "input", "min_val, max_val, inplace")


class ReLU6(Hardtanh):
    """min(max(0, x), 6).

    Dtypes: integers and floating point.
    Source: Krizhevsky 2010, Convolutional deep belief networks on CIFAR-10.
    """

    _skimp_shows = "inplace?"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


@options
class _Alpha(Module):
    """An activation with one number, alpha."""

    _skimp_shows = "alpha=, inplace?"
    alpha: float = 1.0
    inplace: bool = False


@own_init
class ELU(_Alpha):
    """x above 0, else alpha * (exp(x) - 1).

    Source: Clevert et al. 2015, Fast and accurate deep network learning by ELUs.
    """

    forward = calling("elu", "input", "alpha, inplace")


@own_init
class CELU(_Alpha):
    """x above 0, else alpha * (exp(x / alpha) - 1): smooth at 0 for every alpha.

    Raises: RuntimeError in forward if alpha is 0.
    Source: Barron 2017, Continuously differentiable exponential linear units.
    """

    forward = calling("celu", "input", "alpha, inplace")


@options
class LeakyReLU(Module):
    """x above 0, else negative_slope * x.

    Source: Maas et al. 2013, Rectifier nonlinearities improve neural network acoustic models.
    """

    _skimp_shows = "negative_slope=, inplace?"
    negative_slope: float = 1e-2
    inplace: bool = False

    forward = calling("leaky_relu", "input", "negative_slope, inplace")


class Sigmoid(Module):
    """1 / (1 + exp(-x)); integers become the default dtype.

    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing in forward.
    """

    forward = calling("ops.sigmoid")


class Tanh(Module):
    """tanh(x); integers become the default dtype.

    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing in forward.
    """

    forward = calling("ops.tanh")


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow."""

    forward = calling("logsigmoid")


class Softsign(Module):
    """x / (1 + |x|).

    Dtypes: integers, floating point and complex numbers.
    """

    forward = calling("softsign")


class Tanhshrink(Module):
    """x - tanh(x).

    Dtypes: integers, floating point and complex numbers.
    """

    forward = calling("tanhshrink")


@options
class GLU(Module):
    """The first half times the sigmoid of the second, along `dim`.

    Shape: (..., 2 n, ...) gives (..., n, ...).
    Raises: RuntimeError in forward where the dimension's length is odd.
    Source: Dauphin et al. 2016, Language modeling with gated convolutional networks.
    """

    _skimp_shows = "dim="
    dim: int = -1

    forward = calling("glu", "input", "dim")


@options
class GELU(Module):
    """x times the normal distribution's CDF at x; "tanh" approximates it, as GPT-2 did.

    Raises: RuntimeError in forward if `approximate` is neither "none" nor "tanh".
    Source: Hendrycks and Gimpel 2016, Gaussian error linear units.
    """

    _skimp_shows = "approximate!r="
    approximate: str = "none"

    forward = calling("gelu", "input", "approximate=")


@options
class _Lambd(Module):
    """An activation with one number, lambd."""

    _skimp_shows = "lambd"
    lambd: float = 0.5


@own_init
class Hardshrink(_Lambd):
    """x where |x| is above lambd, else 0."""

    forward = calling("hardshrink", "input", "lambd")


@own_init
class Softshrink(_Lambd):
    """x moved towards 0 by lambd.

    Raises: RuntimeError in forward if lambd is negative.
    """

    forward = calling("softshrink", "input", "lambd")


@options
class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""

    _skimp_shows = "beta=, threshold="
    beta: float = 1.0
    threshold: float = 20.0

    forward = calling("softplus", "input", "beta, threshold")


@options
class PReLU(Module):
    """A leaky ReLU whose slopes are learnt: one for all, or one for each channel.

    Shape: (N, C, ...) with weight (C,), or any shape with weight (1,).
    Raises: RuntimeError in forward where the channels are not `num_parameters`.
    Source: He et al. 2015, Delving deep into rectifiers.
    """

    _skimp_shows = "num_parameters="
    num_parameters: int = 1
    init: float = 0.25
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, device: Any, dtype: Any) -> None:
        self._skimp_new_parameters(device, dtype, weight=self.num_parameters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to `init`."""
        init.constant_(self.weight, self.init)

    forward = calling("prelu", "input", "weight")


@options
class _AlongDim(Module):
    """An activation along one dimension.

    `dim=None` takes what older programs meant (0 for 0, 1 and 3 dimensions, else 1), and warns.
    """

    _skimp_shows = "dim="
    dim: int | None = None


@own_init
class Softmax(_AlongDim):
    """exp(x) / sum(exp(x)) along `dim`, without overflow.

    Raises: IndexError in forward for a dim that is not there.
    """

    forward = calling("softmax", "input", "dim")


@own_init
class Softmin(_AlongDim):
    """softmax(-x) along `dim`."""

    forward = calling("softmin", "input", "dim")


@own_init
class LogSoftmax(_AlongDim):
    """log(softmax(x)) along `dim`, from the logsumexp: no log of 0."""

    forward = calling("log_softmax", "input", "dim")


class Softmax2d(Module):
    """Softmax over the channels of images.

    Shape: (N, C, H, W) or (C, H, W), and the same for the result.
    Raises: ValueError for other ranks.
    """

    def forward(self, input: Tensor) -> Tensor:
        require_ndim(
            input, 3, 4, says="Softmax2d: expected input to be {wanted}, got {got}D instead"
        )
        return F.softmax(input, -3)  # type: ignore[no-any-return]
