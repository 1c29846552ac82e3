"""Functions that PyTorch's package has beside those of torch.nn.functional, in the order of
arguments of its native kernels: recurrent layers and their cells, normalisation, embedding_bag,
losses whose reduction is a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skimp._engine.dispatch.describing import said_of_same
from skimp._engine.dispatch.docstrings import completed
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.memory.layout import normalize_dim
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.nn.group_norm import in_groups
from skimp._ops.nn.losses_reduced import reduced
from skimp._ops.nn.normalization_channels import by_batch
from skimp._ops.nn.reduction import numbered
from skimp.nn import functional
from skimp.nn.modules import recurrence

F: Any = functional
__all__ = [
    "affine_grid_generator", "batch_norm", "binary_cross_entropy_with_logits", "convolution",
    "cosine_embedding_loss", "embedding_bag", "frobenius_norm", "group_norm", "gru", "gru_cell",
    "hinge_embedding_loss", "instance_norm", "kl_div", "lstm", "lstm_cell", "margin_ranking_loss",
    "norm_except_dim", "nuclear_norm", "poisson_nll_loss", "rnn_relu", "rnn_relu_cell", "rnn_tanh",
    "rnn_tanh_cell", "triplet_margin_loss",
]  # fmt: skip

# -- recurrent layers -----------------------------------------------------------------------------


def _layers(
    params: Sequence[Tensor], biases: bool, layers: int, directions: int, projected: bool
) -> list[recurrence.Weights]:
    """The flat list of weights that a layer keeps, by layer and direction."""
    each = 2 + 2 * biases + projected
    if len(params) != each * layers * directions:
        raise RuntimeError(
            f"a recurrent layer of {layers} layers in {directions} directions has "
            f"{each * layers * directions} weights, got {len(params)}"
        )
    found: list[recurrence.Weights] = []
    for start in range(0, len(params), each):
        part = params[start : start + each]
        found.append([*part[:2], *(part[2:4] if biases else (None, None)),
                      part[-1] if projected else None])  # fmt: skip
    return found


def _recurrent(mode: str, name: str, doc: str) -> Callable[..., Any]:
    both = mode == "LSTM"

    def layer(*given: Any) -> Any:
        # packed rows come with a list of weights in the fourth place, others in the third
        if isinstance(given[2], (list, tuple)) and isinstance(given[3], bool):
            data, hx, params, biases, layers, dropout, train, bidirectional, batch_first = given
            sizes = None
        else:
            data, sizes, hx, params, biases, layers, dropout, train, bidirectional = given
            batch_first = False
        state = tuple(hx) if both else (hx,)
        directions = 2 if bidirectional else 1
        projected = both and state[0].shape[-1] != state[1].shape[-1]
        weights = _layers(params, biases, layers, directions, projected)
        rows = data.transpose(0, 1) if batch_first else data
        counts = None if sizes is None else sizes.tolist()
        rate = dropout if train else 0.0
        out, end = recurrence.run(mode, rows, state, weights, counts, directions, rate)
        return (out.transpose(0, 1) if batch_first else out, *end)

    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = doc
    return layer


def _need_tensor(name: str, word: str, place: int, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name}(): argument '{word}' (position {place}) must be Tensor, not "
            f"{type(value).__name__}"
        )


def _cell(mode: str, name: str, doc: str) -> Callable[..., Any]:
    both = mode == "LSTM"

    def step(
        input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
    ) -> Any:
        for word, t in (("w_ih", w_ih), ("w_hh", w_hh)):
            _need_tensor(name, word, 3 + (word == "w_hh"), t)
        new = recurrence.once(mode, input, tuple(hx) if both else (hx,), (w_ih, w_hh, b_ih, b_hh))
        return new if both else new[0]

    step.__name__ = step.__qualname__ = name
    step.__doc__ = doc
    return step


_CALL = (
    "(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or "
    "of packed rows (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, "
    "bidirectional).\n\n"
    "Shape: as nn.LSTM's, nn.GRU's and nn.RNN's; weights in the order of a layer's parameters.\n"
    "Dtypes: floating point, input, state and weights alike.\n"
    "Raises: RuntimeError for another number of weights and for shapes and dtypes that don't fit.\n"
    "Memory: new tensors; backward keeps what each step computed."
)
_STEP = """

Shape: input (N, width) or (width,), h (N, hidden) or (hidden,), w_ih (gates hidden, width).
Dtypes: floating point, input, state and weights alike.
Raises: TypeError for what is no tensor, RuntimeError for shapes and dtypes that don't fit.
Memory: new tensors."""
lstm = _recurrent("LSTM", "lstm", f"LSTM layers: {_CALL}")
gru = _recurrent("GRU", "gru", f"GRU layers: {_CALL}")
rnn_tanh = _recurrent("RNN_TANH", "rnn_tanh", f"Elman layers with tanh: {_CALL}")
rnn_relu = _recurrent("RNN_RELU", "rnn_relu", f"Elman layers with relu: {_CALL}")
lstm_cell = _cell("LSTM", "lstm_cell", f"One step of an LSTM: the new h and c.{_STEP}")
gru_cell = _cell("GRU", "gru_cell", f"One step of a GRU: the new h.{_STEP}")
rnn_tanh_cell = _cell("RNN_TANH", "rnn_tanh_cell", f"One step of an Elman RNN with tanh.{_STEP}")
rnn_relu_cell = _cell("RNN_RELU", "rnn_relu_cell", f"One step of an Elman RNN with relu.{_STEP}")

# -- normalisation, convolution -------------------------------------------------------------------


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """nn.functional.batch_norm with the weights first, which refuses no batch and no eps."""
    made: Tensor = by_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return made


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """nn.functional.group_norm, which has no word for cuDNN and refuses groups of one value."""
    made: Tensor = in_groups(input, num_groups, weight, bias, eps)
    return made


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """nn.functional.instance_norm with the weights first."""
    made: Tensor = F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )
    return made


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """The convolution, or the transposed one, that a kernel's number of dimensions asks for.

    Shape: input (N, C, spatial...), weight (out, in / groups, kernel...), or (in, out / groups,
    kernel...) where `transposed`.
    Dtypes: floating point and complex numbers, alike.
    Raises: RuntimeError for channels, sizes and dtypes that don't fit.
    Memory: a new tensor.
    """
    nd = weight.ndim - 2
    if nd not in (1, 2, 3):
        raise RuntimeError(f"convolution: expected a weight of 3 to 5 dimensions, got {nd + 2}")
    if transposed:
        run = getattr(F, f"conv_transpose{nd}d")
        given: tuple[Any, ...] = (stride, padding, output_padding, groups, dilation)
    else:
        run, given = getattr(F, f"conv{nd}d"), (stride, padding, dilation, groups)
    made: Tensor = run(input, weight, bias, *given)
    return made


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """nn.functional.affine_grid."""
    made: Tensor = F.affine_grid(theta, size, align_corners)
    return made


# -- embedding_bag --------------------------------------------------------------------------------

_MODES = ("sum", "mean", "max")


def _bags_of_one_type(indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and offsets of the wider of their integer types, checked."""
    if offsets.ndim != 1:
        raise RuntimeError(
            f"offsets has to be a 1D Tensor, but got Tensor of dimension {offsets.ndim}"
        )
    common = promotion.promote_types(indices._dtype, offsets._dtype)
    if common not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {indices.to(common).type()} instead (while checking arguments for "
            "embedding_bag)"
        )
    return indices.to(common), offsets.to(common)


def _check_sample_weights(given: Tensor, weight: Tensor, count: int, mode: int) -> None:
    """A number for each index, of the table's type, and for sums alone."""
    if mode != 0:
        raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
    if given._dtype is not weight._dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for "
            f"argument #1 'per_sample_weights'; but type {weight.type()} does not equal "
            f"{given.type()} (while checking arguments for embedding_bag)"
        )
    if given.shape != (count,):
        raise RuntimeError(
            f"embedding_bag: per_sample_weights must have shape ({count},), a number "
            f"for each index; got {tuple(given.shape)}"
        )


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bags of nn.functional.embedding_bag, and for each index its bag, each bag's size, and of
    maxima the index that each came from (empty or zeros where the mode needs none).

    Shape: weight (rows, width), indices (n,), offsets (bags,); (bags, width), and three of n, bags
    and (bags, width).
    Dtypes: floating point weight; int32 or int64 positions.
    Raises: RuntimeError for an index that is not there and for positions of another dtype.
    Memory: new tensors.
    """
    require_tensor("embedding_bag", "indices", indices, 2)
    require_tensor("embedding_bag", "offsets", offsets, 3)
    if mode not in range(3):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    indices, offsets = _bags_of_one_type(indices, offsets)
    if per_sample_weights is not None:
        _check_sample_weights(per_sample_weights, weight, indices.numel(), mode)
    out = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _MODES[mode], sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )  # fmt: skip
    numbers, starts = indices._skimp_array(), offsets._skimp_array()
    bags = out.shape[0]
    bag = np.searchsorted(starts, np.arange(len(numbers)), side="right") - 1
    kept = np.ones(len(numbers), bool)
    if padding_idx is not None:
        kept = numbers != padding_idx % weight.shape[0]
    sizes = np.bincount(bag[kept], minlength=bags)[:bags].astype(np.int64)
    plain = (
        mode == 0
        and padding_idx is None
        and weight.stride(-1) == 1
        and weight.dtype is not dtypes.float64
    )
    where = np.empty(0, numbers.dtype) if plain else bag.astype(numbers.dtype)
    # PyTorch's sums without a gradient have one for each offset, whether it starts a bag or not
    count = len(starts) if not (weight.requires_grad and include_last_offset) else bags
    zeros = np.zeros(count, numbers.dtype)
    size = sizes.astype(numbers.dtype) if mode else zeros
    most = _origins(weight, out, numbers, bag, kept) if mode == 2 else size.copy()
    found = [fresh(a, dtypes.FROM_NUMPY[a.dtype]) for a in (where, size, most)]
    return out, found[0], found[1], found[2]


def _origins(weight: Tensor, out: Tensor, numbers: Any, bag: Any, kept: Any) -> Any:
    """For each maximum the index of the first row that has it; 0 in empty bags."""
    numbers, bag = numbers[kept], bag[kept]
    rows = weight.detach()._skimp_array()[numbers]
    places = np.where(
        rows == out.detach()._skimp_array()[bag], np.arange(len(bag))[:, None], len(bag)
    )
    first = np.full(tuple(out.shape), len(bag))
    np.minimum.at(first, bag, places)
    return np.append(numbers, 0)[first].astype(numbers.dtype)


# -- losses, norms, branches ----------------------------------------------------------------------


def _reduced(losses: Any, reduction: int) -> Any:
    """By a number: 0 is none, and the default, though PyTorch's schemas say mean."""
    if type(reduction) is not int:
        raise TypeError(f"argument 'reduction' must be int, not {type(reduction).__name__}")
    return reduced(losses, numbered(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Any:
    """nn.functional.kl_div; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    return _reduced(F.kl_div(input, target, reduction="none", log_target=log_target), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 0
) -> Any:
    """nn.functional.binary_cross_entropy_with_logits; the reduction is 0 (none), 1 (mean) or 2."""
    losses = F.binary_cross_entropy_with_logits(
        input, target, weight, reduction="none", pos_weight=pos_weight
    )
    return _reduced(losses, reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Any:
    """nn.functional.cosine_embedding_loss; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    losses = F.cosine_embedding_loss(input1, input2, target, margin, reduction="none")
    return _reduced(losses, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Any:
    """nn.functional.hinge_embedding_loss; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    return _reduced(F.hinge_embedding_loss(input, target, margin, reduction="none"), reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Any:
    """nn.functional.margin_ranking_loss; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    losses = F.margin_ranking_loss(input1, input2, target, margin, reduction="none")
    return _reduced(losses, reduction)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Any:
    """nn.functional.poisson_nll_loss; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    losses = F.poisson_nll_loss(input, target, log_input, full, None, eps, reduction="none")
    return _reduced(losses, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Any:
    """nn.functional.triplet_margin_loss; the reduction is 0 (none), 1 (mean) or 2 (sum)."""
    losses = F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction="none"
    )
    return _reduced(losses, reduction)


def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The square root of the sum of squares over some dims.

    Shape: the input's less `dim`, which `keepdim` leaves with size 1.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for integers, IndexError for a dim that is not there.
    Memory: a new tensor.
    """
    made: Tensor = NAMESPACES["linalg"]["vector_norm"](input, 2, dim, keepdim)
    return made


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of singular values; a bool in place of the dims is `keepdim`.

    Shape: the input's less two dims, which `keepdim` leaves with size 1.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for integers and for less than two dims.
    Memory: a new tensor.
    """
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    made: Tensor = NAMESPACES["linalg"]["matrix_norm"](input, "nuc", dim, keepdim)
    return made


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dims but one, which stays as the only one that is not 1; -1 leaves none.

    Shape: 1 but for `dim`.
    Dtypes: floating point and complex numbers.
    Raises: IndexError for a dim that is not there, RuntimeError for integers and no elements.
    Memory: a new tensor.
    """
    _need_tensor("norm_except_dim", "v", 1, v)
    if dim == -1:
        return v.norm(pow)
    at = normalize_dim(dim, v.ndim)
    if not v.numel():
        raise RuntimeError(
            "cannot reshape tensor of 0 elements into shape [0, -1] because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    return v.norm(pow, [d for d in range(v.ndim) if d != at], True)


for _name in __all__:
    _f = globals()[_name]
    if _f.__doc__:
        _f.__doc__ = completed(_f.__doc__, said_of_same(_f.__doc__))
