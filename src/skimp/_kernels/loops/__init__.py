"""Loops over single elements, which `skimp compile` makes C of (`compiled`): one module of all
files here, whose types are in the `.pxd` beside each. As they stand they run on NumPy's arrays,
slowly, which is how tests compare them with what they stand for. Each operation is rounded by
itself, so that bits are NumPy's, but where a docstring says that sums are in lanes.
"""

from skimp._kernels.loops.attention import attended, attended_back
from skimp._kernels.loops.draws import shuffled, stays, words
from skimp._kernels.loops.halves import brain_halved, halved, widened
from skimp._kernels.loops.layer_norm import normalized, normalized_back
from skimp._kernels.loops.losses import class_gradients, class_losses
from skimp._kernels.loops.masks import filled, held, kept, passed
from skimp._kernels.loops.nodes import bind, recording
from skimp._kernels.loops.normalization import lined, normed, normed_back, summed
from skimp._kernels.loops.normals import normals
from skimp._kernels.loops.objects import address, addresses, caller, dense, floats
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
from skimp._kernels.loops.products import products
from skimp._kernels.loops.recurrence import gru_back, gru_shown, lstm_back, lstm_carried
from skimp._kernels.loops.softmax import (
    log_softmaxes,
    log_softmaxes_back,
    softmaxes,
    softmaxes_back,
)
from skimp._kernels.loops.sums import columns, shared_totals, squares, totals
from skimp._kernels.loops.ufuncs import concatenate, ran, reduction, stack, ufunc

__all__ = [
    "accumulated", "adagrad", "adam", "added", "address", "addresses", "amsgrad", "attended",
    "attended_back", "bind", "brain_halved", "caller", "class_gradients", "class_losses",
    "columns", "concatenate", "dense", "filled", "floats", "gru_back", "gru_shown", "halved",
    "held", "kept", "lined", "log_softmaxes", "log_softmaxes_back", "lstm_back", "lstm_carried",
    "momentum", "normalized", "normalized_back", "normals", "normed", "normed_back", "passed",
    "pooled", "pooled_back", "products", "ran", "recording", "reduction", "rmsprop",
    "rmsprop_momentum", "sgd", "shared_totals", "shuffled", "softmaxes", "softmaxes_back",
    "sparse_adam", "squares", "stack", "stays", "summed", "topped", "totals", "ufunc", "weighed",
    "widened", "words",
]  # fmt: skip
