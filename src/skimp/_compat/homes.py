"""Where PyTorch keeps what is elsewhere here: programs import names from those modules, files name
classes by them, and `type(x)` says them.

A row is a module of PyTorch's below `torch`, the module of skimp that has its names, and the names;
`theirs=ours` where they are called otherwise. What a row names is looked up when it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from skimp._compat.missing import missing

OURS, THEIRS = "skimp", "torch"
_WHOLE = (OURS, "typing")  # sources that are no modules below skimp

_ROWS: Final = """
nn.modules.activation | nn.modules.attention | MultiheadAttention
nn.modules.channelshuffle | nn | ChannelShuffle
nn.modules.container | nn.modules.parameter_containers | ParameterDict ParameterList
nn.modules.conv | nn | LazyConv1d LazyConv2d LazyConv3d
nn.modules.conv | nn | LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
nn.modules.flatten | nn | Flatten Unflatten
nn.modules.fold | nn | Fold Unfold
nn.modules.instancenorm | nn | InstanceNorm1d InstanceNorm2d InstanceNorm3d
nn.modules.instancenorm | nn | LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
nn.modules.instancenorm | nn.modules.batchnorm | _InstanceNorm
nn.modules.module | nn.modules.state | _IncompatibleKeys
nn.modules.pixelshuffle | nn | PixelShuffle PixelUnshuffle
nn.modules.rnn | nn.modules.rnn_cells | GRUCell LSTMCell RNNCell RNNCellBase
nn.modules.utils | nn.modules.utils | _ntuple=ntuple
nn.modules.utils | nn.modules.utils | _reverse_repeat_tuple=reversed_twice
nn.parallel.data_parallel | nn.parallel | DataParallel data_parallel
nn.parallel.distributed | nn.parallel | DistributedDataParallel
nn.parallel.parallel_apply | nn.parallel | parallel_apply
nn.parallel.replicate | nn.parallel | replicate
nn.parallel.scatter_gather | nn.parallel | gather scatter
optim.adadelta | optim | Adadelta
optim.adagrad | optim | Adagrad
optim.adamax | optim | Adamax
optim.adamw | optim | AdamW
optim.asgd | optim | ASGD
optim.nadam | optim | NAdam
optim.radam | optim | RAdam
optim.rmsprop | optim | RMSprop
optim.lr_scheduler | optim.schedules.base | LRScheduler
optim.lr_scheduler | optim.schedules.combined | ChainedScheduler SequentialLR
optim.lr_scheduler | optim.schedules.cycles | CosineAnnealingWarmRestarts CyclicLR OneCycleLR
optim.lr_scheduler | optim.schedules.factors | ConstantLR CosineAnnealingLR ExponentialLR
optim.lr_scheduler | optim.schedules.factors | LambdaLR LinearLR MultiStepLR MultiplicativeLR
optim.lr_scheduler | optim.schedules.factors | PolynomialLR StepLR
optim.lr_scheduler | optim.schedules.plateau | ReduceLROnPlateau
 | errors | OutOfMemoryError
 | _engine.tensor.finfo | finfo iinfo
 | _engine.tensor.formats | layout memory_format
 | skimp | Size device dtype
_C | jit | _get_tracing_state=_nothing _log_api_usage_once=_nothing
_C | jit | _jit_override_can_fuse_on_cpu=_nothing _jit_override_can_fuse_on_gpu=_nothing
_C | jit | _jit_set_profiling_executor=_nothing _jit_set_profiling_mode=_nothing
_C | jit | _jit_set_texpr_fuser_enabled=_nothing
_C | skimp | Size device dtype
_C | _ops.create.tensor_types | _TensorMeta
_C | _ops.random.random | Generator
_C | _ops.linalg.checks | _LinAlgError=LinAlgError
autograd.anomaly_mode | autograd | detect_anomaly set_detect_anomaly
autograd.grad_mode | autograd | enable_grad inference_mode no_grad set_grad_enabled
cuda.amp.autocast_mode | cuda.amp | autocast custom_bwd custom_fwd
cuda.amp.grad_scaler | cuda.amp | GradScaler
cuda.streams | cuda | Event ExternalStream Stream
distributions.transforms | distributions.transform | ComposeTransform IndependentTransform
distributions.transforms | distributions.transform | ReshapeTransform Transform
distributions.transforms | distributions.transforms_joined | CatTransform StackTransform
distributions.transforms | distributions.transforms_vectors | CorrCholeskyTransform
distributions.transforms | distributions.transforms_vectors | LowerCholeskyTransform
distributions.transforms | distributions.transforms_vectors | PositiveDefiniteTransform
distributions.transforms | distributions.transforms_vectors | SoftmaxTransform
distributions.transforms | distributions.transforms_vectors | StickBreakingTransform
distributions.utils | distributions.utils | _standard_normal=standard_normal
distributions.utils | distributions.utils | _sum_rightmost=sum_rightmost
functional | skimp | atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes
functional | skimp | broadcast_tensors cartesian_prod cdist chain_matmul einsum lu meshgrid norm
functional | skimp | split stft tensordot unique unique_consecutive unravel_index
jit.annotations | typing | Any Dict List Optional Tuple Union
jit.annotations | typing | BroadcastingList1=List BroadcastingList2=List BroadcastingList3=List
multiprocessing.spawn | multiprocessing | ProcessContext ProcessExitedException
multiprocessing.spawn | multiprocessing | ProcessRaisedException spawn start_processes
profiler.profiler | profiler | ProfilerAction profile schedule tensorboard_trace_handler
serialization | serialization.places | MAP_LOCATION
storage | _ops.create.storages | TypedStorage UntypedStorage
utils.data._utils.collate | utils.data._utils.collate | np_str_obj_array_pattern=_NO_NUMBERS
utils.checkpoint | autograd.checkpoint | CheckpointError CheckpointFunction
utils.data.dataloader | utils.data.dataloader | _BaseDataLoaderIter=_Iterator
utils.data.dataloader | utils.data.dataloader | _MultiProcessingDataLoaderIter=_Workers
utils.data.dataloader | utils.data.dataloader | _SingleProcessDataLoaderIter=_Here
utils.tensorboard.writer | utils.tensorboard | SummaryWriter
_utils | serialization.rebuild | _rebuild_tensor=tensor _rebuild_tensor_v2=tensor_v2
_utils | serialization.rebuild | _rebuild_parameter=parameter
_utils | serialization.rebuild | _rebuild_parameter_with_state=parameter_with_state
_jit_internal | typing | Any Dict Final List Optional Tuple Union
_jit_internal | jit | export ignore unused is_scripting
_tensor_str | _engine.tensor.printing | get_printoptions printoptions set_printoptions
_tensor_str | _engine.tensor.printing | _tensor_str=tensor_str
"""


HOMES: Final[dict[str, dict[str, tuple[str, str]]]] = {}  # home: {their name: (source, our name)}
for _line in _ROWS.strip("\n").splitlines():
    _home, _source, _names = (part.strip() for part in _line.split("|"))
    for _name in _names.split():
        _shown, _, _ours = _name.partition("=")
        HOMES.setdefault(_home, {})[_shown] = _source, _ours or _shown

_renamed: dict[type, tuple[str, str, str]] = {}
_added: list[tuple[ModuleType, str]] = []


class _Home(ModuleType):
    """A module of PyTorch's whose names are all elsewhere here."""

    def __init__(self, home: str) -> None:
        super().__init__(f"{OURS}.{home}", "Names that are elsewhere in skimp.")
        self.__spec__ = ModuleSpec(self.__name__, None)
        self.__all__ = list(HOMES[home])
        self._home = home

    def __getattr__(self, name: str) -> Any:
        if name not in HOMES[self._home]:
            raise missing(f"{THEIRS}.{self._home}", name, self.__all__)
        value = find(self._home, name)
        setattr(self, name, value)
        return value


def find(home: str, name: str) -> Any:
    """What the row calls `name`, imported now."""
    source, ours = HOMES[home][name]
    return getattr(importlib.import_module(_path(source)), ours)


def _path(source: str) -> str:
    return source if source in _WHOLE else f"{OURS}.{source}"


def settle() -> None:
    """Let the modules be there, and the classes say that they are from them."""
    if _added:
        return
    # The package last: dtypes are in _C too, but pickle must find them in `torch`.
    for home, names in sorted(HOMES.items(), key=lambda row: not row[0]):
        if home and f"{OURS}.{home}" not in sys.modules:
            _make(home)
        module = sys.modules[f"{OURS}.{home}".rstrip(".")]
        for shown, (source, ours) in names.items():
            value = vars(sys.modules.get(_path(source), module)).get(ours)
            if value is None:
                continue
            if home and shown not in vars(module):
                _add(module, shown, value)
            if isinstance(value, type) and value.__module__.partition(".")[0] in (OURS, THEIRS):
                _renamed.setdefault(value, (value.__module__, value.__name__, value.__qualname__))
                value.__module__ = f"{THEIRS}.{home}".rstrip(".")
                value.__name__ = value.__qualname__ = shown


def unsettle() -> None:
    """Undo `settle`."""
    for cls, names in _renamed.items():
        cls.__module__, cls.__name__, cls.__qualname__ = names
    for module, name in _added:
        delattr(module, name)
    for home in HOMES:
        if isinstance(sys.modules.get(f"{OURS}.{home}"), _Home):
            del sys.modules[f"{OURS}.{home}"], sys.modules[f"{THEIRS}.{home}"]
    _renamed.clear()
    _added.clear()


def _make(home: str) -> None:
    """Under both names, for a parent that is a file and no folder has no modules below it."""
    made = sys.modules[f"{OURS}.{home}"] = sys.modules[f"{THEIRS}.{home}"] = _Home(home)
    above, _, last = f"{OURS}.{home}".rpartition(".")
    parent = sys.modules.get(above)
    if parent is not None and last not in vars(parent):
        _add(parent, last, made)


def _add(module: ModuleType, name: str, value: Any) -> None:
    setattr(module, name, value)
    _added.append((module, name))
