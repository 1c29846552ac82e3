"""What `weights_only=False` adds to what a file may name. docs/notes/saving.md has the rule.

Each row was looked through for what making it, filling it and using it can call. A class is made
bare (`object.__new__`, never its `__init__`) and filled by a function of states.py; a value that
is written as a call is built by a function of plain.py or arrays.py; a function is handed over and
not called. `tests/surface/serialization/test_rules.py` holds what that review found.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import datetime
import decimal
import fractions
import functools
import importlib
import pathlib
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import RemovableHandle
from skimp._ops import return_types
from skimp._ops.random.generator import Generator
from skimp.nn.modules.hooks import WrappedHook
from skimp.nn.modules.module import Module
from skimp.nn.parameter import UninitializedBuffer, UninitializedParameter
from skimp.nn.utils.rnn import PackedSequence
from skimp.optim.optimizer import Optimizer
from skimp.serialization import arrays, functions, methods, plain, rebuild, states
from skimp.serialization.names import MEMORY_FORMATS, full_name

Fill = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """What a name stands for, and what a file may do with it: call it, or make a bare instance and
    fill that.
    """

    value: Any
    call: Callable[..., Any] | None = None
    fill: Fill | None = None
    bare: bool = False


# Classes that hold attributes and nothing else, by the module here that has them.
_CLASSES: Final = """
nn | AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss
nn | AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d
nn | AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss
nn | ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d
nn | ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
nn | CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d DataParallel Dropout
nn | Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold
nn | FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm
nn | Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d
nn | InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell
nn | LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
nn | LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d
nn | LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear LocalResponseNorm LogSigmoid
nn | LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d
nn | MaxUnpool3d Mish Module ModuleDict ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss
nn | MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU PairwiseDistance ParameterDict
nn | ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNCell RReLU ReLU ReLU6
nn | ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
nn | ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d
nn | Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold Transformer
nn | TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
nn | TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d
nn | UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
nn.modules.linear | NonDynamicallyQuantizableLinear
nn.utils.prune | CustomFromMask Identity L1Unstructured LnStructured PruningContainer
nn.utils.prune | RandomStructured RandomUnstructured
nn.utils.weight_norm | WeightNorm
nn.utils.spectral_norm | SpectralNorm SpectralNormLoadStateDictPreHook SpectralNormStateDictHook
optim | ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD
optim | SparseAdam
optim.lr_scheduler | ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts
optim.lr_scheduler | CyclicLR ExponentialLR LambdaLR LinearLR MultiStepLR MultiplicativeLR
optim.lr_scheduler | OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR
optim.swa_utils | AveragedModel SWALR
distributions | Bernoulli Beta Binomial Categorical Cauchy Chi2 ContinuousBernoulli Dirichlet
distributions | Exponential FisherSnedecor Gamma GeneralizedPareto Geometric Gumbel HalfCauchy
distributions | HalfNormal Independent InverseGamma Kumaraswamy LKJCholesky Laplace LogNormal
distributions | LogisticNormal LowRankMultivariateNormal MixtureSameFamily Multinomial
distributions | MultivariateNormal NegativeBinomial Normal OneHotCategorical
distributions | OneHotCategoricalStraightThrough Pareto Poisson RelaxedBernoulli
distributions | RelaxedOneHotCategorical StudentT TransformedDistribution Uniform VonMises Weibull
distributions | Wishart
distributions.constraints | _Boolean _Cat _CorrCholesky _GreaterThan _GreaterThanEq
distributions.constraints | _HalfOpenInterval
distributions.constraints | _IndependentConstraint _IntegerGreaterThan _IntegerInterval
distributions.constraints | _IntegerLessThan _Interval _LessThan _LowerCholesky _LowerTriangular
distributions.constraints | _Multinomial _OneHot _PositiveDefinite _PositiveSemidefinite _Real
distributions.constraints | _Simplex _Square _Stack _Symmetric
distributions.relaxed_bernoulli | LogitRelaxedBernoulli
distributions.relaxed_categorical | ExpRelaxedCategorical
distributions.transforms | AbsTransform AffineTransform CatTransform ComposeTransform
distributions.transforms | CorrCholeskyTransform CumulativeDistributionTransform ExpTransform
distributions.transforms | IndependentTransform LowerCholeskyTransform PositiveDefiniteTransform
distributions.transforms | PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform
distributions.transforms | SoftplusTransform StackTransform StickBreakingTransform TanhTransform
utils.data | ConcatDataset StackDataset Subset TensorDataset
utils.hooks | RemovableHandle
nn.modules.hooks | WrappedHook
"""

# Of Python's own: what programs put into hooks and schedules. None of them takes a function.
BUILTINS: Final = "abs all any bool divmod float id int len print repr round str sum tuple"

_TIMES: Final = {
    "date": plain.make_date, "time": plain.make_time, "datetime": plain.make_datetime,
    "timedelta": plain.make_timedelta, "timezone": plain.make_timezone,
}  # fmt: skip
_PATHS: Final = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")


@functools.cache
def table() -> dict[str, Listed]:
    """The list by name. Made when it is first asked for: it stands on most of the package."""
    return {
        **_plain(),
        **_of_numpy(),
        **{name: Listed(f) for name, f in functions.by_name().items()},
        **{name: Listed(cls, None, _filler(cls), True) for name, cls in _classes()},
        **_of_torch(),
    }


@functools.cache
def fillers() -> dict[type, Fill]:
    """How an instance of a listed class takes its state."""
    found = {one.value: one.fill for one in table().values() if one.fill is not None}
    return {cls: fill for cls, fill in found.items() if isinstance(cls, type)} | {
        functools.partial: methods.fill_partial,
        arrays.Seeds: states.ignored,
        np.random.MT19937: states.mt19937,
        np.random.PCG64: states.pcg64,
        np.random.RandomState: states.random_state,
    }


def find(module: str, name: str) -> Listed | None:
    """The row of a name, in whichever of its files PyTorch keeps a layer or an optimizer."""
    found = table().get(f"{module}.{name}")
    if found is None and module.startswith(("torch.nn.modules.", "torch.optim.")):
        return _elsewhere().get(name)
    return found


@functools.cache
def _elsewhere() -> dict[str, Listed]:
    trees = ("torch.nn.modules.", "torch.optim")
    return {full.rpartition(".")[2]: one for full, one in table().items() if full.startswith(trees)}


def _classes() -> list[tuple[str, Any]]:
    found = []
    for line in _CLASSES.strip().splitlines():
        home, _, names = line.partition(" | ")
        place = importlib.import_module(f"skimp.{home}")
        found += [(full_name(cls), cls) for cls in [vars(place)[n] for n in names.split()]]
    return found


def _filler(cls: type) -> Fill:
    if issubclass(cls, Module):
        return states.module
    if issubclass(cls, Optimizer):
        return states.optimizer
    if cls is WrappedHook:
        return states.wrapped_hook
    return states.handle if cls is RemovableHandle else states.attributes


def _plain() -> dict[str, Listed]:
    """Python's own types, and functions by reference."""
    found = {f"builtins.{name}": Listed(getattr(builtins, name)) for name in BUILTINS.split()}
    found |= {
        "builtins.bytes": Listed(bytes, plain.make_bytes),
        "builtins.dict": Listed(dict, plain.make_dict),
        "builtins.list": Listed(list, plain.make_list),
        "builtins.frozenset": Listed(frozenset, plain.make_frozenset),
        "builtins.range": Listed(range, plain.make_range),
        "builtins.slice": Listed(slice, plain.make_slice),
        "builtins.getattr": Listed(methods.find, methods.find),
        "functools.partial": Listed(methods.partial, methods.partial),
        "collections.defaultdict": Listed(collections.defaultdict, plain.make_defaultdict),
        "collections.deque": Listed(collections.deque, plain.make_deque),
        "decimal.Decimal": Listed(decimal.Decimal, plain.make_decimal),
        "fractions.Fraction": Listed(fractions.Fraction, plain.make_fraction),
        "uuid.UUID": Listed(uuid.UUID, None, plain.fill_uuid, True),
        "builtins.Ellipsis": Listed(...),
        "builtins.NotImplemented": Listed(NotImplemented),
    }
    found["argparse.Namespace"] = Listed(argparse.Namespace, None, states.attributes, True)
    found["types.SimpleNamespace"] = Listed(
        types.SimpleNamespace, plain.make_namespace, states.attributes
    )
    for name, make in _TIMES.items():
        found[f"datetime.{name}"] = Listed(getattr(datetime, name), make)
    for name in _PATHS:
        kind = getattr(pathlib, name)
        for home in ("pathlib", "pathlib._local"):  # as Python 3.13 says
            found[f"{home}.{name}"] = Listed(kind, plain.path_maker(kind))
    return found


def _of_numpy() -> dict[str, Listed]:
    found = {
        "numpy.dtype": Listed(np.dtype, arrays.dtype),
        "numpy.ndarray": Listed(np.ndarray),
        "numpy.random._mt19937.MT19937": Listed(np.random.MT19937),
        "numpy.random._pcg64.PCG64": Listed(np.random.PCG64),
        "numpy.random.bit_generator.SeedSequence": Listed(np.random.SeedSequence),
    }
    for name, make in (
        ("__randomstate_ctor", arrays.random_state),
        ("__bit_generator_ctor", arrays.bit_generator),
        ("__generator_ctor", arrays.generator),
    ):
        found[f"numpy.random._pickle.{name}"] = Listed(make, make)
    sequence = "numpy.random.bit_generator.__pyx_unpickle_SeedSequence"
    found[sequence] = Listed(arrays.seed_sequence, arrays.seed_sequence)
    for core in ("core", "_core"):
        found[f"numpy.{core}.multiarray.scalar"] = Listed(arrays.scalar, arrays.scalar)
        found[f"numpy.{core}.multiarray._reconstruct"] = Listed(arrays.blank, arrays.blank)
    return found


def _of_torch() -> dict[str, Listed]:
    found = {
        "torch.nn.parameter.UninitializedParameter": Listed(
            UninitializedParameter, rebuild.uninitialized_parameter
        ),
        "torch.nn.parameter.UninitializedBuffer": Listed(
            UninitializedBuffer, rebuild.uninitialized_buffer
        ),
        "torch.nn.utils.rnn.PackedSequence": Listed(PackedSequence, rebuild.packed_sequence),
        "torch._C._VariableFunctionsClass": Listed(methods.Functions),
        "torch._C.TensorBase": Listed(methods.Functions),
    }
    for name in ("torch._C.Generator", "torch.Generator", "torch._ops.random.random.Generator"):
        found[name] = Listed(Generator, rebuild.generator, states.generator)
    found |= {name: Listed(one) for name, one in MEMORY_FORMATS.items()}
    for cls in return_types.all_return_types():
        found[f"torch.return_types.{cls.__name__}"] = Listed(cls, rebuild.results_of(cls))
    return found
