"""Sample inputs of every op, for both libraries: PyTorch's own database, and what it lacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, reduce
from itertools import islice
from typing import Any, NamedTuple

import torch as oracle
from torch.testing._internal.common_methods_invocations import op_db

import skimp
from skimp._engine.dispatch.forms import METHODS, NAMESPACES, OPS
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS
from tests.support.samples import twin


class Sample(NamedTuple):
    """One call: `call(library)` gives the results on arguments made for that library."""

    op: str
    number: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, library: Any) -> Any:
        """The op on its own copies of the arguments; generators begin at the same place."""
        made: dict[int, Any] = {}
        args = [_entered(library, a, made) for a in self.args]
        kwargs = {k: _entered(library, a, made) for k, a in self.kwargs.items()}
        library.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function_of(library, self.op)(*args, **kwargs)


def _entered(library: Any, value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        values = [_entered(library, v, made) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    if not isinstance(value, oracle.Tensor):
        return twin(value) if library is skimp else value
    if id(value) not in made:
        own = value.detach().clone().requires_grad_(value.requires_grad)
        made[id(value)] = twin(own) if library is skimp else own
    return made[id(value)]


def function_of(library: Any, name: str) -> Callable[..., Any]:
    """The public function of that name, or the method."""
    try:
        return reduce(getattr, name.split("."), library)
    except AttributeError:
        return getattr(library.Tensor, name)


def samples(count: int, dtype: oracle.dtype = oracle.float64) -> Iterator[Sample]:
    """The first samples of every op with gradients that both libraries have."""
    for info in op_db:
        if not (info.supports_autograd and info.supports_dtype(dtype, "cpu")):
            continue
        try:
            function_of(skimp, info.name)
            function_of(oracle, info.name)
        except AttributeError:
            continue
        for i, s in enumerate(_of(info, count, dtype)):
            yield Sample(info.name, i, (s.input, *s.args), s.kwargs)


# What the database calls otherwise, or lacks: the calls themselves.
X = oracle.arange(6.0, dtype=oracle.float64).reshape(2, 3) / 3 - 0.5
PLACES = oracle.tensor([2, 0, 2])
OWN: dict[str, list[tuple[Any, ...]]] = {
    "copy_": [(X.clone(), X[0]), (X.float(), PLACES)],
    "svd_lowrank": [(X, 2), (X.t(), 1)],
    "pca_lowrank": [(X, 2), (X.t(), 1)],
    "fill_": [(X.clone(), 2.5), (X.long(), X[0, 0])],
    "einsum": [("ij,kj->ik", X, X[:1]), ("ij->j", X), ("ij", [X])],
    "_unsafe_index": [(X, [PLACES // 2]), (X, [PLACES // 2, PLACES])],
    "native_dropout": [(X, 0.5, True), (X, 0.5, False), (X, 0.0, True)],
    "_safe_softmax": [(X, 1), (X.masked_fill(X < 0, -oracle.inf), 1)],
    "embedding": [(X.t(), PLACES), (X.t(), PLACES[None], 0)],
    "_standard_gamma": [(X.abs() + 0.1,)],
    "_standard_gamma_grad": [(X.abs() + 0.1, X.abs() + 0.2)],
    "_sample_dirichlet": [(X.abs() + 0.1,)],
    "_dirichlet_grad": [(X.abs() / 4 + 0.1, X.abs() + 0.5, X.abs() + 2)],
    "binomial": [(X.abs().ceil() * 4, oracle.full((2, 3), 0.25, dtype=oracle.float64))],
}


# Rows that wait for samples of their own: the database has none, or calls them in another way.
# An op that is new is never added here.
WITHOUT = frozenset(
    """
    ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor _input_mask _output_mask
    abs_ adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
    adaptive_max_pool3d_with_indices add_ addbmm_ addcdiv_ addcmul_ adjoint affine_grid
    alpha_dropout_ apply_ as_masked_tensor as_strided_ as_subclass as_tensor asarray
    bartlett_window batch_norm bernoulli_ blackman_window byte cauchy_ ccol_indices celu_
    chain_matmul char clamp_ clamp_max_ clamp_min_ coalesce col_indices conj_physical_
    const_data_ptr conv_tbc crow_indices data_ptr dense_dim dequantize detach detach_
    detach_copy dim dim_order div_ dropout1d dropout_ element_size elu_ embedding_renorm_
    exponential exponential_ feature_alpha_dropout_ feature_dropout feature_dropout_ fftfreq
    fill_diagonal_ float_power_ fold fractional_max_pool2d_with_indices
    fractional_max_pool3d_with_indices from_dlpack from_file from_numpy frombuffer geometric_
    get_device grid_sampler gumbel_softmax hamming_window hann_window hardtanh_
    index indices int_repr ipu is_coalesced is_complex is_conj is_contiguous
    is_distributed is_floating_point is_masked_tensor is_neg is_nonzero is_pinned is_same_size
    is_set_to is_shared is_signed kaiser_window leaky_relu_ lerp_ log_normal_ logit_ lp_pool1d
    lp_pool2d lp_pool3d map2_ map_ masked_fill_ masked_tensor
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices module_load
    mvlgamma_ nan_to_num_ new new_tensor normal normal_ numel numpy pin_memory poisson polygamma
    polygamma_ pow_ q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
    q_zero_point qscheme rand random_ randperm range record_stream reinforce relu_ renorm_
    resize resize_as resize_as_sparse_ result_type rfftfreq round_ row_indices rrelu_
    segment_reduce select_copy selu_ set_ share_memory_ size slice_copy
    slice_inverse smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor
    sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sparse_dim sparse_mask sparse_resize_
    sparse_resize_and_clear_ spdiags split_copy sspaddmm storage_offset storage_type stride sub_
    symeig tensor threshold_ to to_dense to_mkldnn to_padded_tensor to_sparse to_sparse_bsc
    to_sparse_bsr to_sparse_csc to_sparse_csr tolist tril_ triplet_margin_with_distance_loss
    triu_ type type_as uniform_ untyped_storage upsample values view_as_complex_copy
    view_as_real_copy where
    """.split()  # noqa: SIM905
)


def registry() -> dict[str, tuple[str, ...]]:
    """The rows of all ops that a program can reach, each with its names in PyTorch."""
    places: dict[int, list[str]] = {}
    for space, functions in NAMESPACES.items():
        for name, f in functions.items():
            places.setdefault(_behind(f), []).append(f"{space}.{name}" if space else name)
    for name, f in METHODS.items():
        places.setdefault(_behind(f), []).append(name)
    found = {
        title: [name for f in row.forms.values() for name in places.get(_behind(f), ())]
        for title, row in OPS.items()
    }
    found = {title: names for title, names in found.items() if any(map(_reached, names))}
    spaces = ("", *(f"{space}." for space in NAMESPACES if space))
    return {
        title: tuple(dict.fromkeys([f"{space}{title}" for space in spaces] + found.get(title, [])))
        for title in sorted([*found, *ROWS])
        if not title.startswith("_foreach_")  # tests/ops/math/test_foreach.py has them all
    }


def _behind(f: Any) -> int:
    """What runs for a public function: functions that bind nothing are twins of those that do."""
    return id(FORMS[f].run if f in FORMS else getattr(f, "__wrapped__", f))


def _reached(name: str) -> bool:
    """Whether a program can call it: names that PyTorch keeps to itself are none of these."""
    try:
        return all([callable(function_of(library, name)) for library in (oracle, skimp)])
    except AttributeError:
        return False


@cache
def _infos() -> dict[str, list[Any]]:
    """Rows of the database by name and by other names."""
    found: dict[str, list[Any]] = {}
    for info in op_db:
        for name in {info.name, *(alias.name for alias in info.aliases)}:
            found.setdefault(name, []).append(info)
    return found


def _values(numbers: Any) -> Any:
    """What the samples in a row are made of."""
    return oracle.tensor(numbers, dtype=oracle.float64)


def samples_of(title: str, names: tuple[str, ...], count: int) -> list[Sample]:
    """The first samples of an op by any of its names, of the widest type that it takes."""
    if title in WITHOUT:
        return []
    if title in OWN:
        return [Sample(title, i, args, {}) for i, args in enumerate(OWN[title])][:count]
    declared = OPS[title].samples if title in OPS else None
    if declared is not None:
        return [Sample(title, i, args, {}) for i, args in enumerate(declared(_values))][:count]
    infos = [info for name in names for info in _infos().get(name, ())]
    found = []
    for info in {id(i): i for i in infos if not i.name.startswith("sparse.")}.values():
        dtype = next(d for d in (*WIDEST, *info.dtypes) if info.supports_dtype(d, "cpu"))
        for i, s in enumerate(_of(info, count, dtype, grad=False)):
            found.append(Sample(info.name, i, (s.input, *s.args), s.kwargs))
    return found


WIDEST = (oracle.float64, oracle.int64, oracle.complex128, oracle.float32, oracle.bool)


def _of(info: Any, count: int, dtype: oracle.dtype, grad: bool = True) -> list[Any]:
    """From the function behind `info.sample_inputs`, which looks at the stack at each sample."""
    oracle.default_generator.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(islice(info.sample_inputs_func(info, "cpu", dtype, grad), count))


def tensors_of(value: Any) -> list[Any]:
    """The dense tensors of either library in a result."""
    if isinstance(value, (oracle.Tensor, skimp.Tensor)):
        return [value] if str(value.layout).endswith(".strided") else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []
