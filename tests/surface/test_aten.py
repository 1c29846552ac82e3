"""torch.ops.aten: what PyTorch's dispatcher sees in the samples of all ops, called again."""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import skimp
from skimp.library.aten import function_of
from tests.support.op_samples import registry, samples_of
from tests.support.samples import outcome, same, twin

aten = skimp.ops.aten
Calls = dict[str, list[tuple[Any, Any]]]


class Recorded(TorchDispatchMode):
    """Inside, the arguments of the first calls of each overload are kept as they came."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, str(func)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        dense = all([t.layout is torch.strided for t in tensors])
        if dense and name.startswith("aten.") and len(self.calls[name]) < 2:
            self.calls[name].append(tree_map(_kept, (args, kwargs)))
        return func(*args, **kwargs)


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.preserve_format)
    return value


@cache
def recorded() -> Calls:
    calls: Calls = defaultdict(list)
    for op, names in registry().items():
        for sample in samples_of(op, names, 2):
            with warnings.catch_warnings(), Recorded(calls):
                warnings.simplefilter("ignore")
                outcome(sample.call, torch)
    return calls


def found(library: Any, name: str) -> Any:
    _, op, overload = name.split(".")
    return getattr(getattr(library.ops.aten, op), overload)


def _ours(value: Any) -> Any:
    """On skimp's side: layouts, formats and devices by their names, tensors as twins."""
    if isinstance(value, torch.device):
        return skimp.device(str(value))
    if isinstance(value, (torch.layout, torch.memory_format)):
        return getattr(skimp, str(value).removeprefix("torch."))
    return value if isinstance(value, (list, tuple, dict)) else twin(value)


# Parts of ops that PyTorch's dispatcher has, and that are no functions here.
ABSENT = frozenset(
    """
    _ctc_loss _embedding_bag_forward_only _fft_c2c _fft_c2r _fft_r2c _histogramdd_bin_edges
    _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _linalg_check_errors _linalg_det
    _linalg_eigh _linalg_slogdet _linalg_solve_ex _trilinear multilabel_margin_loss_forward
    rrelu_with_noise unfold_backward
    _sparse_coo_tensor_with_dims_and_tensors _spdiags _to_sparse _to_sparse_csc _to_sparse_csr
    affine_grid_generator rrelu_with_noise_
    """.split()  # noqa: SIM905
)
# Results whose numbers are anything, or whose unused parts differ; `set_` takes storages; skimp
# makes CSR and CSC by its own names.
ANYTHING = frozenset(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided
    log_sigmoid_forward linalg_qr _standard_gamma_grad set_ sparse_compressed_tensor
    """.split()  # noqa: SIM905
)


def test_calls_of_the_dispatcher_played_again() -> None:
    absent, count = set(), 0
    for name, calls in recorded().items():
        op = name.split(".")[1]
        if function_of(op) is None:
            absent.add(op)
            continue
        for args, kwargs in calls if op not in ANYTHING else ():

            def call(library: Any, given: Any = (args, kwargs), name: str = name) -> Any:
                args, kwargs = tree_map(_kept, given)
                if library is skimp:
                    args, kwargs = tree_map(_ours, (args, kwargs))
                library.manual_seed(0)
                return found(library, name)(*args, **kwargs)

            theirs, ours = outcome(call, torch), outcome(call, skimp)
            if isinstance(theirs, Exception):
                continue
            assert not isinstance(ours, Exception), (name, args, kwargs, ours)
            if isinstance(theirs, torch.Tensor) and theirs.layout is torch.sparse_csr:
                ours, theirs = ours.to_dense(), theirs.to_dense()
            same(ours, theirs, 1e-6, strides=False)
            count += 1
    assert count > 700
    assert sorted(absent) == sorted(ABSENT), " ".join(sorted(absent))


EXPRESSIONS = """
repr(torch.ops.aten.add), repr(torch.ops.aten.add.Tensor), str(torch.ops.aten.add.Tensor)
torch.ops.aten.add.Tensor is torch.ops.aten.add.Tensor
torch.ops.aten.mm.default.overloadpacket is torch.ops.aten.mm
torch.ops.aten.add.Tensor.name(), torch.ops.aten.mm.default.name(), torch.ops.aten.mm.__name__
torch.ops.aten.add.Tensor.__name__, torch.ops.aten.add.Tensor.namespace
sorted(torch.ops.aten.mm.overloads())
torch.ops.aten.add.Tensor(self=x, other=x, alpha=2)
torch.ops.aten.sum.dim_IntList(x, [0], True, dtype=torch.float64)
torch.ops.aten.add.out(x, x, out=torch.empty(2, 2))
torch.ops.aten.relu_.default(x.neg())
torch.ops.aten.mse_loss.default(x, x + 1, 2)
torch.ops.aten.slice.Tensor(x, 1, 0, 1)
torch.ops.aten.nope
torch.ops.aten.add.nope
torch.ops.aten.add.Tensor(x)
torch.ops.aten.add.out(x, x)
hasattr(torch.ops.aten, "nope"), hasattr(torch.ops.aten, "_softmax")
"""


@pytest.mark.parametrize("text", EXPRESSIONS.split("\n")[1:-1])
def test_what_programs_see(text: str) -> None:
    found = []
    for library in (torch, skimp):
        try:
            found.append(eval(text, {"torch": library, "x": library.arange(4.0).reshape(2, 2)}))
        except (AttributeError, RuntimeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    theirs, ours = found
    if isinstance(theirs, str) and theirs.startswith("RuntimeError"):
        assert ours.startswith("RuntimeError: aten::add")
    elif isinstance(theirs, torch.Tensor):
        same(ours, theirs)
    else:
        assert ours == theirs


def test_every_overload_has_its_name() -> None:
    """Libraries name at import what they never call; what skimp has not refuses when called."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            op = f"aten.{name}.{schema.overload_name or 'default'}"
            assert str(found(skimp, op)) == op
    with pytest.raises(NotImplementedError, match="aten::_sparse_mm_reduce_impl: skimp has no"):
        aten._sparse_mm_reduce_impl.default(skimp.ones(2))


def test_a_derivative_goes_through() -> None:
    x = skimp.randn(3, requires_grad=True)
    y = skimp.ops.aten.sin.default(x)
    assert type(y.grad_fn).__name__ == "SinBackward0"
