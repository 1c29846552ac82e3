"""Loops over single elements, which `skimp compile` makes C of (`compiled`): one module of all
files here, whose types are in the `.pxd` beside each. As they stand they run on NumPy's arrays,
slowly, which is how tests compare them with what they stand for. Each operation is rounded by
itself, so that bits are NumPy's, but where a docstring says that sums are in lanes.
"""

from skimp._kernels.loops.along import added_along, gathered, put_along
from skimp._kernels.loops.attention import attended, attended_back
from skimp._kernels.loops.copies import moved
from skimp._kernels.loops.draws import between, shuffled, stays, words
from skimp._kernels.loops.halves import brain_halved, halved, widened
from skimp._kernels.loops.instances import instances
from skimp._kernels.loops.layer_norm import (
    made_normalized,
    normalized,
    normalized_again,
    normalized_back,
)
from skimp._kernels.loops.losses import class_gradients, class_losses, made_class_losses
from skimp._kernels.loops.masks import cleared, filled, held, kept, passed
from skimp._kernels.loops.matrices import multiplied
from skimp._kernels.loops.nodes import bind, recording
from skimp._kernels.loops.normalization import lined, normed, normed_back, summed
from skimp._kernels.loops.normals import made_normals, normals
from skimp._kernels.loops.objects import (
    address,
    addresses,
    caller,
    dense,
    expanded,
    floats,
    kept_by,
)
from skimp._kernels.loops.optimizers import (
    adagrad,
    adam,
    amsgrad,
    momentum,
    rmsprop,
    rmsprop_momentum,
    sgd,
    sparse_adam,
)
from skimp._kernels.loops.order import accumulated, topped
from skimp._kernels.loops.places import added, weighed
from skimp._kernels.loops.pooling import pooled, pooled_back
from skimp._kernels.loops.primitives import executed
from skimp._kernels.loops.products import products
from skimp._kernels.loops.recurrence import gru_back, gru_shown, lstm_back, lstm_carried
from skimp._kernels.loops.shares import calling, priced, written
from skimp._kernels.loops.slots import fill, prepare
from skimp._kernels.loops.softmax import (
    log_softmaxes,
    log_softmaxes_back,
    made_log_softmaxes,
    made_log_softmaxes_back,
    made_softmaxes,
    made_softmaxes_back,
    softmaxes,
    softmaxes_back,
)
from skimp._kernels.loops.sums import columns, passed_totals, shared_totals, squares, totals
from skimp._kernels.loops.ufuncs import (
    concatenate,
    empty,
    exponential,
    multiply,
    ran,
    reduction,
    stack,
    times,
    ufunc,
)

__all__ = [
    "accumulated", "adagrad", "adam", "added", "added_along", "address", "addresses", "amsgrad",
    "attended", "attended_back", "between", "bind", "brain_halved", "caller", "calling",
    "class_gradients", "class_losses", "cleared", "columns", "concatenate", "dense", "empty",
    "executed", "expanded", "exponential", "fill", "filled", "floats", "gathered", "gru_back",
    "gru_shown", "halved", "held", "instances", "kept", "kept_by", "lined", "log_softmaxes",
    "log_softmaxes_back", "lstm_back", "lstm_carried", "made_class_losses",
    "made_log_softmaxes", "made_log_softmaxes_back", "made_normalized", "made_normals",
    "made_softmaxes", "made_softmaxes_back", "momentum", "moved", "multiplied", "multiply",
    "normalized", "normalized_again", "normalized_back", "normals", "normed", "normed_back",
    "passed", "passed_totals", "pooled", "pooled_back", "prepare", "priced", "products",
    "put_along", "ran", "recording", "reduction", "rmsprop", "rmsprop_momentum", "sgd",
    "shared_totals", "shuffled", "softmaxes", "softmaxes_back", "sparse_adam", "squares",
    "stack", "stays",
    "summed", "times", "topped", "totals", "ufunc", "weighed", "widened", "words", "written",
]  # fmt: skip
