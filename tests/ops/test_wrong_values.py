"""Calls that are wrong beyond the types of their arguments: refused as PyTorch refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp

WRONG = {
    "view of negative sizes": lambda t: t.ones(6).view(-2, 3),
    "reshape to negative sizes": lambda t: t.ones(6).reshape(3, -2),
    "large view of negative sizes": lambda t: t.ones(6, 1000, 100).view(-2, 3),
    "range of bools": lambda t: t.arange(5, dtype=t.bool),
    "pinned": lambda t: t.ones(3, pin_memory=True),
    "pinned like": lambda t: t.zeros_like(t.ones(3), pin_memory=True),
    "pinned draw": lambda t: t.randn(3, pin_memory=True),
    "a flag that is none": lambda t: t.ones(3, requires_grad="x"),
    "names": lambda t: t.ones(2, names=("a", "b")),
    "full without a tuple": lambda t: t.full(2, 1),
    "full of nothing": lambda t: t.full((2,), None),
    "no size": lambda t: t.empty(),
    "a size beyond 64 bits": lambda t: t.empty(2**63),
    "index of a device": lambda t: t.device("cuda:99999999999999999999"),
    "no device": lambda t: t.device(None),
    "set to nothing": lambda t: t.ones(2).set_(None),
    "buffer of a word": lambda t: t.frombuffer(b"abcd", dtype="float32"),
    "promotion of a number": lambda t: t.promote_types(t.float32, 5),
    "cast of numbers": lambda t: t.can_cast(1, 2),
    "block of a number": lambda t: t.block_diag(5),
    "negative storage": lambda t: t.UntypedStorage(-1),
    "storage of a word": lambda t: t.UntypedStorage("a"),
    "norm of a word": lambda t: t.nn.utils.clip_grad_norm_([t.ones(2)], "a"),
    "dict": lambda t: t.tensor({1: 2}),
    "nothing behind what is complex128": lambda t: t.tensor(
        [[1 + 2j, t.tensor(2.0, dtype=t.float64)], None]
    ),
    "padding without a mode": lambda t: t.nn.functional.pad(t.ones(3), (1, 1), mode=None),
    "padding by a value in no mode": lambda t: t.nn.functional.pad(t.ones(3), (1, 1), "x", 2.0),
    "a copy of itself by other strides": lambda t: (x := t.ones(1, 6)).copy_(
        x.as_strided((1, 6), (1, 1))
    ),
    "a copy of itself without a dim": lambda t: (x := t.ones(1, 6)).copy_(x[0]),
    "a limit of time without workers": lambda t: iter(
        t.utils.data.DataLoader([1, 2, 3], timeout=5)
    ),
    "a batch of sparse tensors": lambda t: t.utils.data.default_collate([t.ones(2).to_sparse()]),
    "bytes": lambda t: t.tensor(b"abc"),
    "dims that are others in 32 bits": lambda t: t.ones(2, 3).permute(2**32, 1),
    "dims before all, in 32 bits": lambda t: t.ones(2, 3).permute(-(2**62), 1),
    "masked fill of nothing": lambda t: t.ones(2).masked_fill_(t.ones(2) > 0, None),
    "masked fill of a list": lambda t: t.ones(2).masked_fill_(t.ones(2) > 0, [1.5]),
    "a norm in integers": lambda t: t.linalg.norm(t.ones(2), dtype=t.int64),
    "a mean of integers": lambda t: t.nanmean(t.ones(2).long(), dtype=t.float64),
    "a dim before a dtype": lambda t: t.ones(2).cumsum_(7, dtype=t.float64),
    "complex alpha": lambda t: t.ones(2, 2).addmm(t.ones(2, 2), t.ones(2, 2), alpha=1j),
    "complex beta": lambda t: t.ones(2).addmv(t.ones(2, 2), t.ones(2), beta=1j),
    "complex beta of batches": lambda t: t.baddbmm(*[t.ones(1, 2, 2)] * 3, beta=1j),
    "complex value": lambda t: t.addcmul(t.ones(2), t.ones(2), t.ones(2), value=1j),
    "negative deviation": lambda t: t.normal(t.ones(2), std=-1),
    "chances in a tensor": lambda t: t.ones(2).bernoulli(t.ones(2)),
    "renormed vector": lambda t: t.embedding_renorm_(t.ones(7), t.tensor([0]), 0.5, 0.5),
    "one size for a plane": lambda t: t.nn.functional.adaptive_avg_pool2d(t.ones(1, 4, 4), [2]),
    "no size of maxima": lambda t: t.nn.functional.adaptive_max_pool2d(t.ones(1, 4, 4), None),
    "one stride for a plane": lambda t: t.nn.functional.unfold(t.ones(2, 3, 3), 2, stride=[1]),
    "32-bit targets": lambda t: t.nn.functional.multilabel_margin_loss(
        t.ones(2, 3), t.zeros(2, 3, dtype=t.int32)
    ),
    "no groups": lambda t: t.nn.functional.group_norm(t.ones(2, 3), 0),
    "an infinite slope": lambda t: t.rrelu(t.ones(2), upper=float("nan")),
    "70 bits into an element": lambda t: t.ones(3).__setitem__(0, 2**70),
    "63 bits into an element": lambda t: t.ones(3).__setitem__(0, 2**63),
    "a plane of one dim": lambda t: t.nn.functional.avg_pool2d(t.ones(4), 2),
    "a storage below nothing": lambda t: t.UntypedStorage(4).resize_(-1),
    "2**50 bins": lambda t: t.bincount(t.tensor([2**50])),
    "a triangle of floats": lambda t: t.tril_indices(2, 3, dtype=t.float32),
    "a file that is not there": lambda t: t.from_file("no such file", size=3),
    "a norm but for a dim that is not there": lambda t: t.norm_except_dim(t.ones(2, 3), 2, 5),
    "an imaginary float": lambda t: float(t.tensor(1 + 1j)),
    "a cell of integers": lambda t: t.gru_cell(
        *[t.ones(2, n).long() for n in (3, 4)], *[t.ones(12, n).long() for n in (3, 4)]
    ),
    "segments of integers": lambda t: t.segment_reduce(
        t.ones(3).long(), "sum", lengths=t.tensor([2, 1])
    ),
    "sum that can't require grad": lambda t: t.ones(2, requires_grad=True).sum(0, dtype=t.int64),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_with_pytorchs_class_of_error(name: str) -> None:
    kinds: list[Any] = []
    for library in (skimp, torch):
        with pytest.raises(Exception) as caught:  # noqa: PT011  (its class is compared)
            WRONG[name](library)
        kinds.append(caught.type)
    assert issubclass(kinds[0], kinds[1])


TAKEN = {
    "flags behind the first of sizes": lambda t: t.ones([2, True]),
    "flags behind the first of dims": lambda t: t.ones(2, 3).permute(0, True),
    "dims with a flag": lambda t: t.ones(2, 3).sum([0, True]),
    "an imaginary number over real ones": lambda t: t.ones(2).copy_(2 + 1j),
    "no slices": lambda t: t.ones(*t.unbind_copy(t.ones(0)), 2),
    "few trials": lambda t: t.binomial(t.tensor([-1.0, 3.0]), t.tensor([0.5, 1.5])),
    "no file": lambda t: t.from_file("no such file", size=0),
    "a vector that is dropped whole": lambda t: t.feature_dropout(t.ones(3), 1.0, True),
    "a number without an imaginary part": lambda t: t.tensor(float(t.tensor(1 + 0j))),
    "margins of integers": lambda t: t.nn.functional.margin_ranking_loss(*[t.ones(2).long()] * 3),
    "halves between edges": lambda t: t.histogram(t.ones(3).half(), t.tensor([0.0, 2]).half())[0],
    "a lazy layer of doubles": lambda t: t.ones(
        1, dtype=t.nn.LazyLinear(2).half().double().weight.dtype
    ),
}


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", TAKEN)
def test_taken_as_by_pytorch(name: str) -> None:
    ours, theirs = TAKEN[name](skimp), TAKEN[name](torch)
    assert str(ours.dtype) == str(theirs.dtype)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.double().tolist() == theirs.double().tolist()
