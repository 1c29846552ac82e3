"""The ops, a room per family: importing this package declares every row."""

from skimp._engine.dispatch import describing, unbound
from skimp._ops import assertions, for_autograd, foreach, older, ties
from skimp._ops.batching import transform as _under_vmap
from skimp._ops.create import (
    access,
    creation,
    empties,
    interop,
    pickling,
    placement,
    queries,
    ranges,
    storages,
    tensor_types,
    windows,
)
from skimp._ops.fft import spectral, stft
from skimp._ops.index import advanced, flat, indexing, masks, positions, scatter, selection, writers
from skimp._ops.linalg import (
    checks,
    contractions,
    decompositions,
    eigen,
    einsum,
    ldl,
    lowrank,
    lu,
    matmul,
    matmul_add,
    matmul_vector,
    norms,
    orthogonal,
    solve,
)
from skimp._ops.math import (
    arithmetic,
    binary,
    calculus,
    clamps,
    closeness,
    kinds,
    logic,
    powers,
    special,
    unary,
)
from skimp._ops.nn import (
    activations,
    attention,
    channel_sums,
    convolution,
    convolution_time,
    cross_entropy,
    ctc,
    distances,
    dropout,
    embedding,
    folding,
    gates,
    grid_sampling,
    hard,
    linear,
    linear_cross_entropy,
    losses,
    losses_likelihood,
    losses_margin,
    losses_pairs,
    multihead,
    nll,
    normalization,
    normalization_channels,
    normalize,
    padding,
    pooling,
    pooling_adaptive,
    recurrent,
    resampling,
    smooth,
)
from skimp._ops.random import makers, random, shapes
from skimp._ops.reduce import (
    cumulative,
    extremes,
    histograms,
    masked,
    ordering,
    quantiles,
    reductions,
    searching,
    softmax,
    uniques,
    vector_norms,
)
from skimp._ops.shape import (
    complex_views,
    conversions,
    copies,
    grids,
    joining,
    pieces,
    rearranging,
    triangles,
    view_copies,
    views,
)
from skimp._ops.sparse import compressed, products, sparse, tensor, text

foreach.declare_all()
for_autograd.settle()
describing.settle()
unbound.settle()
