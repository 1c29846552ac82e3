"""Errors that ops find out for themselves (shapes, empty tensors, indices, kinds of numbers) have
PyTorch's classes.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import skimp

CALLS = """
T.ones(0).argmax()|T.ones(0, 3).argmin()|T.ones(2, 0).argmax(1)|T.ones(0).amax()|T.ones(2, 0).max()
C.max()|C.min(0)|C.amax()|C.amin(0)|C.argmax()|C.argmin(5)
(T.ones(2) > 0).argmax()|(T.ones(2) > 0).argmin(5)|(T.ones(0) > 0).argmin()
T.ones(3).index_add_(0, I(3), T.ones(1))|T.ones(3).index_add(0, I(-1), T.ones(1))
T.ones(3, 3).index_add(1, I(3), T.ones(3, 1))|T.ones(3).index_reduce(0, I(7), T.ones(1), "prod")
F.embedding_bag(I(7), T.ones(3, 2), I(0), mode="mean")|F.embedding_bag(I(-1), T.ones(3, 2), I(0))
F.embedding_bag(I(7), T.ones(3, 2), I(0), mode="max")|F.embedding(I(7), T.ones(3, 2))
T.aminmax(T.ones(2, 3), dim=(1,))|T.aminmax(T.ones(2, 3), dim=[0, 1])|T.ones(2, 3).aminmax(dim=1.0)
T.tril(T.ones(2, 3), True)|T.ones(2, 3).triu(diagonal=True)|T.ones(2, 3).cov(correction=True)
F.interpolate(T.ones(1, 1, 3, dtype=T.uint8), 4, mode="linear")
F.interpolate(T.ones(1, 1, 2, 2, 2, dtype=T.uint8), 4, mode="trilinear")
F.hardtanh(T.ones(2), 1.0, -1.0)|F.hardtanh(T.ones(2), 1.0, -1.0, True)|T.nn.Hardtanh(1, -1)
T.ones(2, 2).addr(T.ones(2), T.ones(2), beta=True)
T.addr(T.ones(2, 2), T.ones(2), T.ones(2), alpha=True)
T.ones(()).topk(2)|T.ones(()).topk(-1)|T.ones(()).kthvalue(2)
T.baddbmm(T.ones(2), T.ones(2, 2), T.ones(2, 2))
T.baddbmm(T.ones(2, 2, 2), T.ones(2, 2), T.ones(2, 2, 2))
T.linalg.lu(L)|T.linalg.lu_factor(L)|T.linalg.cholesky(L)
T.linalg.solve_triangular(L, L, upper=True)
T.cdist(T.ones(2, 2), T.ones(2, 2), p=float("nan"))|T.cdist(T.ones(2, 2), T.ones(2, 2), p=-1)
T.sparse_coo_tensor(I(0).expand(2, 1), T.ones(1), (2**40, 2**40))
F.scaled_dot_product_attention(Q, Q, Q, T.tensor(True))|F.scaled_dot_product_attention(Q, Q, Q, M)
F.scaled_dot_product_attention(Q, Q, Q, T.tensor(0.))
T.nn.MultiheadAttention(4, 2)(Q[0], Q[0], Q[0], key_padding_mask=T.zeros(1, 2))
T.nn.MultiheadAttention(4, 2)(Q[0], Q[0], Q[0], key_padding_mask=T.zeros(3, 1))
T.ones(2, requires_grad=True).sum(0, dtype=T.int64)
T.ones(2, requires_grad=True).sum(dtype=T.int64)
T.ones(2).fill_("a")|T.ones(2).fill_(T.ones(2))|T.mvlgamma(T.ones(2), 2**62)
F.scaled_dot_product_attention(T.ones(1, 2, 3), T.ones(1, 2, 4), T.ones(1, 2, 3))
T.ones(2).sum("a")|T.ones(2).sum(True)|T.ones(2, 3).transpose(0, None)|T.ones(2).cumsum(2**70)
T.ones(2, 3).hsplit(None)|T.ones(2).to(T.float64, "cpu")|T.ones(2, 3).sort(True, 0)
T.ones(3).tensor_split(2**62)|T.ones(3).tensor_split(2**70)|T.ones(3).tensor_split(T.ones(1))
T.ones(2, 3).swapdims(0, 2**62)|T.device(0)|T.ones(2, device=1)|T.ones(2, layout=[1])
T.fft.fftn(T.ones(2), norm=1)|T.ones(2).mean(dtype=7)|T.numel(b"a")|T.ones(2, 2).bmm(b"a")
int(T.ones(3))|float(T.ones(0))|complex(T.ones(2))|"%d" % T.ones(3)|T.ones(3).item()
T.Tensor(-1)|T.Tensor(2, -1)|T.ones(2, 3)[2**70]|T.ones(2, 3)[:, -(2**70)]|T.zeros(0, 2**62, 2**62)
T.UntypedStorage(3).__setitem__(5, 1)|T.UntypedStorage(3).__setitem__(0, 1.5)|T.UntypedStorage(3)[3]
T.UntypedStorage(3).__setitem__(0, "a")|T.UntypedStorage(3).__setitem__("a", 1)
T.multinomial(T.ones(3), 2, out=I(0).expand(2))|F.local_response_norm(T.ones(1, 2, 3), 0)
F.mse_loss(T.ones(2, 3), T.ones(2, 3), weight=T.ones(3))|T.binomial(T.ones(2, 3), T.ones(2, 2))
F.l1_loss(T.ones(2, 3), T.ones(2, 3), weight=T.ones(1))|T.renorm(T.ones(2, 3), 2, 0, 1j)
F.huber_loss(T.ones(2, 3), T.ones(2, 3), weight=T.ones(3))|T.unravel_index(T.ones(1) > 0, (2,))
F.embedding_bag(I(0), T.ones(2, 3) > 0, I(0))|T.rnn_relu_cell(T.ones(3, 3), L, {}, T.ones(3, 3))
T.rand_like(7, generator=T.Generator())|C.bernoulli_()|C.random_()|F.dropout(C)
T.hann_window(3, T.float64)|T.ones(2).var(0, 1)|T.normal(T.ones(2), T.ones(2), (2,))
T.inner(T.ones(()), 3)|T.ones(()).inner(3.0)|T.ones(4).as_strided((1,), (1,), 2**62)
T.ones(4).as_strided((2**70,), (0,))|T.ones(4).as_strided((1,), (1,), 2**63)
T.fft.irfft(C, out=T.ones(2) + 0j)|T.fft.irfft2(T.ones(3, 3), out=T.ones(3, 4) + 0j)
T.fft.hfft(C, out=T.ones(2) + 0j)|T.fft.hfftn(T.ones(3, 3), out=T.ones(3, 4) + 0j)
T.fft.fftshift(C, out=C.clone())|T.fft.ifftshift(C, out=C.clone())|C.squeeze(out=C.clone())
T.lu_unpack(T.eye(1), I(1))|T.linalg.lu_solve(T.eye(1), I(1), T.eye(1))|T.lu_unpack(T.eye(1), C)
F.interpolate(T.ones(1, 1, 4), None, float("nan"))|T.ones(2).__setitem__(T.ones(2).byte(), 1)
T.squeeze(C, out=C.clone())|T.count_nonzero(C, out=I(0))|T.trapezoid(T.ones(3), out=T.ones(()))
T.utils.checkpoint.checkpoint_sequential([F.relu], 2**31, T.ones(2), use_reentrant=False)
T.jit.trace(lambda x: None, Q)|T.jit.trace(lambda x: 3, Q)|T.jit.trace(lambda x: {1: x}, Q)
T.ones(2).random_(**{"from": 5})|T.ones(2).random_(None)|T.ones(2).random_(to=None)
T.ones(2).random_(1, **{"from": 0})|T.ones(2).random_(1, 2, to=3)|T.ones(2).random_(2**63)
I(0).to(T.uint16).random_(-2, 5)|I(0).to(T.uint64).random_(-2, 5)
T.ones(2).log_normal_(std=float("nan"))|I(0).log_normal_(std=float("nan"))
T.ones(2).addcmul(T.ones(2), T.ones(2), value=1e39)
T.ones(2).addcdiv_(T.ones(2), T.ones(2), value=-1e39)
I(0).addcmul_(I(0), I(0), value=2**63)|I(0).char().addcmul(I(0).char(), I(0).char(), value=300)
T.ones(2).add(T.ones(2), alpha=1e39)|T.ones(2).sub_(T.ones(2), alpha=1e39)
I(0).int().add_(I(0).int(), alpha=2**31)|I(0).int().sub(I(0).int(), alpha=2**31 + 1)
I(0).char().add_(I(0).char(), alpha=128)|T.ones(2).half().add(T.ones(2).half(), alpha=1e5)
T.ones(2).half().add_(T.ones(2).half(), alpha=65520.0)|I(0).add(I(0), alpha=N.float32(2))
F.nll_loss(T.ones(1, 3), I(0), T.ones(3, requires_grad=True))
F.cross_entropy(T.ones(1, 3), I(0), T.ones(3, requires_grad=True))
""".replace("\n", "|").strip("|").split("|")  # fmt: skip


def _refused(text: str, library: Any) -> str:
    space = {
        "T": library, "F": library.nn.functional, "I": lambda i: library.tensor([i]),
        "C": library.ones(2, dtype=library.complex64), "L": library.ones(2, 2, dtype=library.int64),
        "N": np, "Q": library.ones(1, 2, 3, 4), "M": library.ones(3, dtype=library.bool),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(text, space)
        except NameError:  # a mistyped case
            raise
        except Exception as e:
            return next(c.__name__ for c in type(e).__mro__ if hasattr(builtins, c.__name__))
    return "nothing"


@pytest.mark.parametrize("text", CALLS)
def test_refused_as_by_pytorch(text: str) -> None:
    theirs = _refused(text, torch)
    assert theirs != "nothing"
    assert _refused(text, skimp) == theirs


# taken otherwise, or for another reason, where nobody looked at the types first
TYPES = (
    """
T.numel(b"a")|T.rand_like(7, generator=T.Generator())|T.polygamma(T.ones(2), 1)
T.ones(2).double(memory_format=3)|T.ones(2).float(memory_format=3)|T.ones(2, layout=[1])
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize(
    "region",
    [
        lambda: skimp.memory.budget("1GiB", spill=False),
        lambda: skimp.autocast("cpu"),
        lambda: skimp.profiler.profile(),
    ],
    ids=["budget", "autocast", "profile"],
)
def test_refused_as_by_pytorch_in_a_region(text: str, region: Any) -> None:
    with region():
        found = _refused(text, skimp)
    assert found == _refused(text, torch)


LEAVES = """
logical_not_()|logical_and_(T.ones(2))|logical_or_(T.ones(2))|logical_xor_(T.zeros(2))
eq_(1)|ne_(1)|lt_(1)|ge_(T.ones(2))|sign_()|floor_()|bitwise_not_()|neg_()
"""


@pytest.mark.parametrize(
    "call", [c for line in LEAVES.strip().splitlines() for c in line.split("|")]
)
@pytest.mark.parametrize("start", ["", ".view(2)", ".clone()"])
def test_writes_to_what_requires_grad(call: str, start: str) -> None:
    def answer(lib: Any) -> Any:
        try:
            made = eval(f"T.ones(2, requires_grad=True){start}.{call}", {"T": lib})
        except RuntimeError as error:
            return type(error)
        return made.tolist(), made.requires_grad

    assert answer(skimp) == answer(torch)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
@pytest.mark.parametrize("shapes", [((0,), ()), ((0,), (1,)), ((2, 0), (2, 1)), ((0, 2), (2,))])
def test_nothing_is_divided_by_zero(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    def answer(lib: Any) -> Any:
        a, b = (lib.zeros(s, dtype=lib.int64) for s in shapes)
        return getattr(lib, name)(a, b).tolist(), getattr(lib, name)(a, 0).tolist()

    assert answer(skimp) == answer(torch)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        getattr(skimp, name)(skimp.ones(1, dtype=skimp.int64), 0)


@pytest.mark.parametrize("dim", [None, 0])
@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_distinct_values_have_no_derivative(name: str, dim: int | None) -> None:
    made = {}
    for lib in (torch, skimp):
        y = getattr(lib, name)(lib.ones(3, requires_grad=True), dim=dim)
        with pytest.raises(NotImplementedError) as refused:
            y.sum().backward()
        made[lib] = (y.requires_grad, y.grad_fn.name(), str(refused.value))
    assert made[skimp] == made[torch]


@pytest.mark.parametrize(
    "cut",
    [
        lambda: skimp.ones(4).tensor_split(2**31),
        lambda: skimp.ones(4).tensor_split(skimp.tensor(2**31)),
        lambda: skimp.ones(0).chunk(2**31),
        lambda: skimp.ones(1).expand(2**31).split(1),
        lambda: skimp.ones(1).expand(2**31).unbind(),
        lambda: iter(skimp.ones(1).expand(2**31)),
    ],
)
def test_more_views_than_memory_holds_are_refused_at_once(cut: Any) -> None:
    with pytest.raises(RuntimeError, match=r"2147483648 views are more than memory can hold"):
        cut()


def test_sums_of_too_many_terms_are_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="too many terms"):
        skimp.mvlgamma(skimp.ones(1), 2**31)


@pytest.mark.parametrize("size", [(2**40, 2**40), (2**62, 2)])
def test_images_of_too_many_pixels_are_refused_at_once(size: Any) -> None:
    for lib in (torch, skimp):
        f: Any = lib.nn.functional
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            f.interpolate(lib.ones(1, 1, 2, 2), size=size)
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            f.affine_grid(lib.ones(1, 2, 3), (1, 1, *size), align_corners=False)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_images_without_pixels_are_refused_by_the_names_of_their_dims(dims: int) -> None:
    told = []
    for lib in (torch, skimp):
        f: Any = lib.nn.functional
        with pytest.raises(RuntimeError) as refused:
            f.interpolate(lib.ones(1, 1, *dims * [2]), size=(*(dims - 1) * [3], 0))
        told.append(str(refused.value))
    assert told[0] == told[1]
