"""Tensors without bytes: ops give on them the shapes, dtypes and strides that PyTorch's give."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import skimp
from skimp import nn
from skimp._engine.memory.ledger import host
from tests.support.op_samples import Sample, function_of, registry, samples, samples_of
from tests.support.samples import marked, outcome, twin

ROWS = registry()
# What PyTorch computes without bytes otherwise than with them, or what waits here.
KNOWN = {
    "native_batch_norm": "in evaluation PyTorch gives two statistics that its CPU gives empty",
    "pinv": "PyTorch's shape is that of a batch that is not there",
    "rfftn": "PyTorch's strides without bytes are not those of its results with bytes",
    **dict.fromkeys(("ldl_factor", "ldl_factor_ex", "ldl_solve"), "no rule yet"),
    **dict.fromkeys(("linspace", "logspace"), "an end in a tensor without bytes is no number"),
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), "random matrices of their own, with bytes"),
    "nonzero_static": "strides of an empty tensor",
    "ctc_loss": "no rule yet",
    **dict.fromkeys(
        ("apply_", "map_", "map2_", "numpy", "from_dlpack", "share_memory_"),
        "asks for elements or memory in another way",
    ),
    **dict.fromkeys(
        ("new", "result_type", "storage_type", "untyped_storage"), "answers no tensor to compare"
    ),
    **dict.fromkeys(
        (
            *("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor"),
            *("sparse_compressed_tensor", "sparse_mask"),
            *("sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_", "smm"),
        ),
        "sparse without bytes: none",
    ),
    **dict.fromkeys(("affine_grid", "as_subclass", "segment_reduce"), "no rule yet"),
    "conv_tbc": "PyTorch's strides without bytes are not those of its results with bytes",
    "tensor_split": "another error: PyTorch wants the indices on the CPU",
}


def without_bytes(library: Any, value: Any, made: dict[int, Any]) -> Any:
    """The value with its tensors on the device "meta"."""
    if isinstance(value, (list, tuple)):
        values = [without_bytes(library, v, made) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    if not isinstance(value, torch.Tensor):
        return twin(value) if library is skimp else value
    if id(value) not in made:
        dtype = getattr(library, str(value.dtype).removeprefix("torch."))
        t = library.empty_strided(tuple(value.shape), value.stride(), dtype=dtype, device="meta")
        made[id(value)] = t.requires_grad_(value.requires_grad)
    return made[id(value)]


def call(library: Any, sample: Sample, made: dict[int, Any]) -> Any:
    args = [without_bytes(library, a, made) for a in sample.args]
    words = {k: without_bytes(library, a, made) for k, a in sample.kwargs.items()}
    return function_of(library, sample.op)(*args, **words)


def described(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return [described(one) for one in found]
    if isinstance(found, (torch.Tensor, skimp.Tensor)):
        return tuple(found.shape), str(found.dtype), found.stride(), str(found.device)
    if type(found).__name__ == "TypedStorage":
        return repr(found), repr(found.untyped()), str(found.device)
    return found


@pytest.mark.parametrize("op", [op for op in ROWS if op not in KNOWN])
def test_op(op: str) -> None:
    for sample in samples_of(op, ROWS[op], count=2):
        theirs = outcome(lambda library, s=sample: call(library, s, {}), torch)
        before = host.total
        ours = outcome(lambda library, s=sample: call(library, s, {}), skimp)
        if isinstance(theirs, Exception):
            if isinstance(ours, Exception):
                assert type(ours) is type(theirs), (sample, ours, theirs)
            continue
        assert not isinstance(ours, Exception), (sample, ours)
        assert described(ours) == described(theirs), sample
        assert host.total - before < 1 << 12, "an op's own few numbers at most"


def test_what_is_known_is_an_op() -> None:
    assert KNOWN.keys() <= ROWS.keys()


# Derivatives that look at values: they refuse, as PyTorch's do, or are made of ops that do.
LOOKS = frozenset(
    """
    cumprod masked_scatter median nanmedian index_fill index_put prod linalg.det linalg.vander
    masked.cumprod masked.prod
    """.split()  # noqa: SIM905
)


def test_backward_gives_gradients_without_bytes() -> None:
    count = 0
    for sample in samples(1):
        made: dict[int, Any] = {}
        found = outcome(lambda library, s=sample, m=made: call(library, s, m), skimp)
        parts = found if isinstance(found, (list, tuple)) else [found]
        outs = [t for t in parts if isinstance(t, skimp.Tensor) and t.requires_grad]
        if not outs or sample.op in LOOKS:
            continue
        sum([(t.real if t.is_complex() else t).sum() for t in outs]).backward()
        leaves = [t for t in made.values() if t.requires_grad and t.grad is not None]
        assert all([t.grad.is_meta and t.grad.shape == t.shape for t in leaves]), sample
        count += 1
    assert count > 350


# -- what a program sees --------------------------------------------------------------------------


def test_a_model_of_a_hundred_billion_parameters_takes_no_byte() -> None:
    skimp.memory.reset_peak_memory_stats()
    before = skimp.memory.memory_allocated()
    with skimp.device("meta"):
        block = nn.TransformerEncoderLayer(16384, 128, 65536, batch_first=True)
        model = nn.TransformerEncoder(block, 30)
    x = skimp.empty(8, 1024, 16384, device="meta")
    y = model(x)
    y.mean().backward()
    assert sum([p.numel() for p in model.parameters()]) > 90e9
    assert y.shape == x.shape
    assert all([p.grad.is_meta for p in model.parameters()])
    assert skimp.memory.memory_allocated() - before < 1 << 12
    assert skimp.memory.max_memory_allocated() - before < 1 << 12


def net(library: Any, **words: Any) -> Any:
    n = library.nn
    return n.Sequential(
        n.Conv2d(3, 4, 3, **words), n.BatchNorm2d(4, **words), n.Flatten(), n.Linear(16, 2, **words)
    )


def test_to_empty_and_assign_bring_a_module_to_life() -> None:
    source = net(skimp)
    model = net(skimp, device="meta")
    weight = model[0].weight
    assert type(weight).__name__ == "Parameter"
    assert isinstance(weight, nn.Parameter)
    with pytest.raises(NotImplementedError, match=r"Please use torch.nn.Module.to_empty\(\)"):
        model.to("cpu")
    model.load_state_dict(source.state_dict(), assign=True)
    x = skimp.randn(2, 3, 4, 4)
    assert skimp.equal(model.eval()(x), source.eval()(x))
    other = net(skimp, device="meta")
    other.to_empty(device="cpu")
    assert other[0].weight is not weight
    other.load_state_dict(source.state_dict())
    assert skimp.equal(other.eval()(x), source(x))
    assert source.to("meta")[0].weight.is_meta
    assert not source[3].bias.is_cpu


def test_the_default_device_is_where_tensors_are_made() -> None:
    with skimp.device("meta"):
        made = [skimp.rand(2), skimp.ones(2), skimp.arange(3), skimp.tensor([1.0]), skimp.eye(2)]
        assert all([t.is_meta for t in made])
        assert not skimp.ones(2, device="cpu").is_meta
        assert not skimp.ones(2, device="cpu").new_zeros(3).is_meta
    assert not skimp.rand(2).is_meta
    skimp.set_default_device("meta")
    try:
        assert skimp.zeros(1).is_meta
        assert str(skimp.get_default_device()) == "meta"
    finally:
        skimp.set_default_device(None)
    assert not skimp.zeros(1).is_meta


EXPRESSIONS = """
t
t[0, 0]
t + 1
t.double()
t + n
n + t
t.is_meta, t.is_cpu, t.device, t.get_device()
t.data_ptr()
t.untyped_storage().nbytes(), t.nbytes
t.type(), t.double().type()
torch.nn.Parameter(t)
(t.requires_grad_() * 2)
list(t)
! t.item()
! t[0, 0].item()
! float(t[0, 0])
! bool(t[0, 0])
! bool(t)
! t.tolist()
! t.numpy()
! t.cpu()
! t.to("cpu")
! t.to("cpu", torch.float64)
t.to("meta") is t
d.to("meta")
d.to(t)
! t.to(d)
! d.copy_(t)
t.copy_(d)
! t + d
! d + t
t.fill_(n)
! t.allclose(t)
! torch.equal(t, t)
! t.nonzero()
! t[t > 0]
! t.unique()
! torch.masked_select(t, t > 0)
! t.repeat_interleave(t[0].long())
torch.empty(2, device="meta:0").device
! t.__dlpack__()
f"{t[0, 0]}"
t.view(torch.int32)
! t.view(7)
t.expand(3, 2, 3).reshape(-1).stride()
t.t().contiguous().stride()
t.sum(0, keepdim=True)
! torch.nn.functional.one_hot(t.long())
torch.nn.functional.one_hot(t.long(), 5).shape
t.detach().clone().is_leaf
t.t()._base is t
"""


@pytest.mark.parametrize(("text", "refused"), marked(EXPRESSIONS))
def test_expressions(text: str, refused: bool) -> None:
    theirs, ours = [
        outcome(
            eval,
            text,
            {
                "torch": library,
                "t": library.empty(2, 3, device="meta"),
                "d": library.ones(2, 3),
                "n": library.tensor(2.0),
            },
        )
        for library in (torch, skimp)
    ]
    assert isinstance(theirs, Exception) is refused, theirs
    if isinstance(theirs, NotImplementedError):
        assert isinstance(ours, NotImplementedError)
    elif refused:
        assert (type(ours), str(ours)) == (type(theirs), str(theirs))
    else:
        assert repr(ours) == repr(theirs)


def test_no_random_number_is_drawn() -> None:
    skimp.manual_seed(0)
    skimp.randn(5, device="meta").normal_().uniform_()
    nn.Linear(3, 4, device="meta").reset_parameters()
    drawn = skimp.randn(2)
    skimp.manual_seed(0)
    assert skimp.equal(skimp.randn(2), drawn)


def test_views_writes_and_versions_are_those_of_tensors() -> None:
    t = skimp.empty(4, 6, device="meta")
    view = t[1:3].t()
    view.mul_(2)
    view[0] = 1
    t.index_add_(0, skimp.zeros(2, dtype=skimp.int64, device="meta"), view.t().clone())
    assert view._version == t._version == 3
    assert view._is_view()
    assert view.stride() == (1, 6)
    assert view.untyped_storage().nbytes() == 96


def test_copies_and_files(tmp_path: Any) -> None:
    model = net(skimp, device="meta")
    t = skimp.empty(2, 3, device="meta").t()
    for again in (copy.deepcopy(t), pickle.loads(pickle.dumps(t)), copy.copy(t)):
        assert again.is_meta
        assert again.stride() == (1, 3)
    assert all([p.is_meta and p.requires_grad for p in copy.deepcopy(model).parameters()])
    skimp.save([t, model.state_dict()], tmp_path / "ours")
    theirs, state = torch.load(tmp_path / "ours")
    assert theirs.is_meta
    assert theirs.stride() == (1, 3)
    torch.save([theirs, state], tmp_path / "theirs")
    ours, state = skimp.load(tmp_path / "theirs")
    assert ours.is_meta
    assert state["0.weight"].shape == (4, 3, 3, 3)
    skimp.save(skimp.ones(5), tmp_path / "dense")
    assert skimp.load(tmp_path / "dense", map_location="meta").is_meta


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_states_that_nobody_gave_are_made_where_the_input_is(kind: str) -> None:
    x = skimp.ones(2, 3, device="meta")
    cell, layer = getattr(nn, f"{kind}Cell"), getattr(nn, kind)
    made = cell(3, 4, device="meta")(x)
    assert (made[0] if kind == "LSTM" else made).is_meta
    assert layer(3, 4, device="meta")(x)[0].is_meta
