"""Small tensors joined, cut, reshaped and copied: the fast path gives the bits, layouts, aliases,
gradients and errors of the general way, and PyTorch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory import call_site
from skimp._engine.memory.ledger import host
from skimp.config import config

RNG = np.random.default_rng(7)
X = RNG.standard_normal((4, 6, 3)).astype(np.float32)
M = RNG.standard_normal((4, 6)).astype(np.float32)
V = RNG.standard_normal(6).astype(np.float32)
ONE = RNG.standard_normal((1, 3, 1)).astype(np.float32)
ZERO = np.float32(2.5).reshape(())
WHOLE = np.arange(-3, 9).reshape(3, 4)

HEADS = RNG.standard_normal((2, 40, 16, 16)).astype(np.float32)


def _heads(t: Any) -> Any:
    """Heads before places, as attention has them."""
    return t(HEADS).transpose(1, 2)


Case = Callable[[Any, Callable[[Any], Any]], Any]

VIEWS: dict[str, Case] = {
    "split": lambda m, t: t(X).split(2, 1),
    "split short": lambda m, t: m.split(t(X), 4, 1),
    "split sizes": lambda m, t: t(X).split([1, 5], -2),
    "split_with_sizes": lambda m, t: t(X).split_with_sizes((2, 2)),
    "split none": lambda m, t: t(X).split([0, 6], 1),
    "split ones": lambda m, t: t(ONE).split(1, 1),
    "split one row": lambda m, t: t(X[:1]).split(2, -1),
    "split one row turned": lambda m, t: t(X[:1]).transpose(0, 1).split(4, 0),
    "chunk one": lambda m, t: t(X[:1]).chunk(3, 1),
    "chunk to ones": lambda m, t: t(X).chunk(6, 1),
    "chunk heads": lambda m, t: t(X[:1, :1]).chunk(3, -1)[1].view(1, 1, 1, 1).transpose(1, 2),
    "unbind one row": lambda m, t: t(X[:, :1]).unbind(2),
    "unbind ones turned": lambda m, t: t(X[:, :1]).transpose(0, 1).unbind(0),
    "split turned": lambda m, t: t(X).transpose(0, 1).split(4),
    "chunk": lambda m, t: t(M).chunk(4, -1),
    "chunk vector": lambda m, t: t(V).chunk(2),
    "unbind": lambda m, t: t(X).unbind(),
    "unbind last": lambda m, t: t(X).unbind(-1),
    "unbind vector": lambda m, t: t(V).unbind(),
    "unbind ones": lambda m, t: t(ONE).unbind(),
    "unbind turned": lambda m, t: t(M).t().unbind(),
    "iteration": lambda m, t: tuple(t(M)),
    "reshape": lambda m, t: t(M).reshape(3, 8),
    "reshape inferred": lambda m, t: t(M).reshape((2, -1, 2)),
    "reshape ones": lambda m, t: t(M).reshape(1, 24, 1),
    "reshape turned": lambda m, t: t(X).transpose(1, 2).reshape(4, 3, 2, 3),
    "reshape to copy": lambda m, t: t(X).transpose(0, 1).reshape(-1),
    "reshape 0-d": lambda m, t: t(ZERO).reshape(1, 1),
    "reshape of a row": lambda m, t: t(M)[1].reshape(2, 3),
    "reshape of a column": lambda m, t: t(M)[:, 1].reshape(2, 2),
    "reshape by a list": lambda m, t: t(M).reshape([3, 8]),
    "view by a list": lambda m, t: t(M).view([3, -1]),
    "new dims of turned": lambda m, t: t(M).t()[None, :, None],
    "new dim of turned, last": lambda m, t: t(X).permute(2, 1, 0)[..., None],
    "flatten": lambda m, t: t(X).flatten(1),
    "flatten all": lambda m, t: t(X).flatten(),
    "flatten part": lambda m, t: t(X).flatten(0, -2),
    "flatten one": lambda m, t: t(X).flatten(1, 1),
    "flatten ones": lambda m, t: t(ONE).flatten(0, 1),
    "flatten turned": lambda m, t: t(X).transpose(0, 2).flatten(),
    "complex and back": lambda m, t: m.view_as_real(m.view_as_complex(t(M).view(4, 3, 2))),
    "complex ones": lambda m, t: m.view_as_complex(t(X[:1]).reshape(1, 9, 1, 2)).real,
    "complex of a row": lambda m, t: m.view_as_real(m.view_as_complex(t(M.reshape(12, 2)))[3:5]),
    "complex pair": lambda m, t: m.view_as_real(m.view_as_complex(t(V)[2:4])),
    "complex turned": lambda m, t: m.view_as_real(
        m.view_as_complex(t(M).view(3, 4, 2).transpose(0, 1))
    ),
    "view of a piece": lambda m, t: t(X).flatten(1).split(6, 1)[1].view(4, 2, 3),
    "view of a piece, inferred": lambda m, t: t(X).flatten(1).chunk(3, -1)[2].view((4, -1, 2)),
    "view of a piece of one row": lambda m, t: t(X[:1]).flatten(1).chunk(3, 1)[1].view(1, 1, 6),
    "view of a column": lambda m, t: t(M)[:, 1].view(2, 1, 2),
    "heads of a piece": lambda m, t: (
        t(X).flatten(1).chunk(3, 1)[1].view(4, 2, 3).permute(1, 0, 2).transpose(0, -1)
    ),
    "pieces of a piece": lambda m, t: t(X).split(4, 1)[0].unsqueeze(0).split(2, 2),
    "transpose 0-d": lambda m, t: t(ZERO).transpose(0, -1),
    "permute a vector": lambda m, t: t(V).permute(0),
    "permute by a size": lambda m, t: t(X).permute(m.Size([2, 0, 1])),
    "unsqueeze": lambda m, t: t(X).unsqueeze(1),
    "unsqueeze last": lambda m, t: t(X).unsqueeze(-1),
    "unsqueeze turned": lambda m, t: t(M).t().unsqueeze(-3),
    "unsqueeze 0-d": lambda m, t: t(ZERO).unsqueeze(0),
    "unsqueeze of a row": lambda m, t: t(M)[1].unsqueeze(0).unsqueeze(2),
    "contiguous": lambda m, t: t(M).contiguous(),
    "contiguous turned": lambda m, t: t(M).t().contiguous(),
    "contiguous column": lambda m, t: t(M)[:, 1].contiguous(),
}
COPIES: dict[str, Case] = {
    "cat": lambda m, t: m.cat([t(M), t(M)], 1),
    "cat sizes": lambda m, t: m.cat((t(X), t(X[:1]))),
    "cat three": lambda m, t: m.concat([t(V), t(V[:2]), t(V)]),
    "cat turned": lambda m, t: m.cat([t(M).t(), t(M).t()], -1),
    "cat types": lambda m, t: m.cat([t(WHOLE), t(WHOLE.astype(np.float32))]),
    "stack": lambda m, t: m.stack([t(M), t(M)]),
    "stack inside": lambda m, t: m.stack([t(X), t(X)], 1),
    "stack last": lambda m, t: m.stack([t(M), t(M), t(M)], -1),
    "stack 0-d": lambda m, t: m.stack([t(ZERO), t(ZERO)]),
    "vstack": lambda m, t: m.vstack((t(M), t(V))),
    "vstack vectors": lambda m, t: m.vstack([t(V), t(V)]),
    "hstack": lambda m, t: m.hstack([t(X), t(X)]),
    "hstack vectors": lambda m, t: m.hstack((t(V), t(V[:2]))),
    "dstack": lambda m, t: m.dstack([t(V), t(V), t(V)]),
    "column_stack": lambda m, t: m.column_stack([t(V), t(M.T.copy())]),
    "triangles": lambda m, t: t(X).triu(1),
    "triangle of ints": lambda m, t: t(WHOLE).tril(-1),
    "diag": lambda m, t: t(M).diag(1),
    "diag of a vector": lambda m, t: t(V).diag(-2),
    "diag_embed": lambda m, t: t(M).diag_embed(1),
    "repeat by a list": lambda m, t: t(M).repeat([2, 1, 1]),
    "roll by lists": lambda m, t: t(M).roll([1, -2], [0, 1]),
    "clone": lambda m, t: t(M).clone(),
    "clone turned": lambda m, t: t(M).t().clone(),
    "double": lambda m, t: t(M).double(),
    "float of ints": lambda m, t: t(WHOLE).float(),
    "float of bools": lambda m, t: t(WHOLE > 0).float(),
    "float of floats": lambda m, t: t(M).float(),
    "half": lambda m, t: t(M).half(),
}
IMAGES: dict[str, Case] = {
    "cat halves of heads": lambda m, t: m.cat([-_heads(t)[..., 8:], _heads(t)[..., :8]], -1),
    "cat turned heads": lambda m, t: m.cat((_heads(t), _heads(t)[:, :, :20]), -2),
    "cat images": lambda m, t: m.cat([t(X)[None], t(X)[None]], 1),
    "cat heads": lambda m, t: m.cat([t(X[:1])[None].transpose(1, 2)] * 2, 2),
    "cat of steps": lambda m, t: m.cat([t(X[:, :1])[None], t(X)[None]], 2),
    "cat of numbers": lambda m, t: m.cat([t(X[:1, :1, :1])[None], t(X[:1, :1, :1])[None]], 3),
    "cat channels last": lambda m, t: m.cat([t(X)[None].permute(0, 3, 1, 2)] * 2, 1),
    "cat of pixels": lambda m, t: m.cat([t(M)[:, :, None, None], t(M)[:, :, None, None]], 1),
    "stack images": lambda m, t: m.stack([t(X)[None], t(X)[None]], 1),
}
WRITES: dict[str, Case] = {
    "copy_": lambda m, t: t(M).copy_(t(M[::-1].copy())),
    "copy_ broadcast": lambda m, t: t(M).copy_(t(V)),
    "copy_ types": lambda m, t: t(M).copy_(t(M.astype(np.float64))),
    "copy_ ints": lambda m, t: t(M).copy_(t(WHOLE[:, :1].repeat(2, 0)[:4])),
    "copy_ turned": lambda m, t: t(M).t().copy_(t(M.T.copy())),
    "copy_ a column": lambda m, t: _changed(x := t(M), x[:, 1].copy_(t(M[:, 0].copy()))),
    "copy_ a part": lambda m, t: _changed(x := t(M), x[1:, ::2].copy_(t(M[:-1, :3].copy()))),
    "copy_ from turned": lambda m, t: t(M).copy_(t(M.T.copy()).t()),
    "zero_": lambda m, t: t(M).zero_(),
    "zero_ ints": lambda m, t: t(WHOLE).zero_(),
    "zero_ column": lambda m, t: t(M)[:, 0].zero_(),
    "fill_": lambda m, t: t(M).fill_(0.1),
    "fill_ large": lambda m, t: t(M).fill_(3e38),
    "fill_ int": lambda m, t: t(M).fill_((1 << 24) + 1),
    "fill_ ints": lambda m, t: t(WHOLE).fill_(7),
    "fill_ from a tensor": lambda m, t: t(M).fill_(t(ZERO)),
    "fill_ ints from a tensor": lambda m, t: t(WHOLE).fill_(t(WHOLE)[0, 0]),
    "tril_": lambda m, t: t(X).tril_(-1),
    "triu_ far": lambda m, t: t(M).triu_(1 << 40),
}
ERRORS: dict[str, Case] = {
    "split size": lambda m, t: t(M).split(-1),
    "split sizes": lambda m, t: t(M).split([1, 1]),
    "split dim": lambda m, t: t(M).split(2, 2),
    "chunk": lambda m, t: t(M).chunk(0),
    "unbind dim": lambda m, t: t(M).unbind(2),
    "unbind 0-d": lambda m, t: t(ZERO).unbind(),
    "reshape": lambda m, t: t(M).reshape(5, 5),
    "view of a piece": lambda m, t: t(M).split(3, 1)[1].view(12),
    "view of a piece, sizes": lambda m, t: t(M).split(3, 1)[1].view(5, 5),
    "view of a piece, inferred": lambda m, t: t(M).split(3, 1)[1].view(4, -1, -1),
    "view of what is turned": lambda m, t: t(X).transpose(0, 1).view(-1),
    "reshape twice inferred": lambda m, t: t(M).reshape(-1, -1),
    "flatten order": lambda m, t: t(X).flatten(2, 1),
    "flatten dim": lambda m, t: t(X).flatten(3),
    "cat shapes": lambda m, t: m.cat([t(M), t(X)]),
    "cat sizes": lambda m, t: m.cat([t(M), t(M[:2])], 1),
    "cat dim": lambda m, t: m.cat([t(M), t(M)], 2),
    "cat 0-d": lambda m, t: m.cat([t(ZERO), t(ZERO)]),
    "stack shapes": lambda m, t: m.stack([t(M), t(M[:2])]),
    "stack dim": lambda m, t: m.stack([t(M), t(M)], 3),
    "copy_ shapes": lambda m, t: t(V).copy_(t(M)),
    "size of a number": lambda m, t: t(ZERO).size(0),
    "size of a number, from behind": lambda m, t: t(ZERO).size(-1),
    "stride of a number": lambda m, t: t(ZERO).stride(1),
}


def _changed(x: Any, _: Any) -> Any:
    return x


def _ours(a: Any) -> Any:
    return skimp.from_numpy(np.array(a)).clone()


def _theirs(a: Any) -> Any:
    return torch.from_numpy(np.array(a))


def _described(result: Any) -> list[Any]:
    results = result if isinstance(result, tuple) else (result,)
    return [
        (
            tuple(t.shape),
            tuple(t.stride()),
            t.storage_offset(),
            str(t.dtype).split(".")[-1],
            t.detach().contiguous().numpy().tobytes(),
        )
        for t in results
    ]


@pytest.mark.parametrize("name", [*VIEWS, *COPIES, *IMAGES, *(f"write {n}" for n in WRITES)])
def test_the_fast_path_gives_what_the_general_way_and_pytorch_give(name: str) -> None:
    case = (VIEWS | COPIES | IMAGES | {f"write {n}": c for n, c in WRITES.items()})[name]
    fast = _described(case(skimp, _ours))
    with config.using(small_below=0):
        general = _described(case(skimp, _ours))
    assert fast == general == _described(case(torch, _theirs))


def _gradients(case: Case, m: Any, tensor: Any) -> list[Any]:
    leaves: list[Any] = []

    def leaf(a: Any) -> Any:
        t = tensor(a)
        if t.dtype == m.float32:
            t.requires_grad_()
            leaves.append(t)
        return t

    result = case(m, leaf)
    results = result if isinstance(result, tuple) else (result,)
    if not results[0].requires_grad:
        return []
    weights = tensor(np.arange(40_000, dtype=np.float32) % 200).requires_grad_()
    total = sum((t * t * weights[: t.numel()].reshape(t.shape)).sum() for t in results)
    grads = m.autograd.grad(total, leaves, create_graph=True)
    (again,) = m.autograd.grad(sum(g.sum() for g in grads), weights)
    return [results[0].grad_fn and results[0].grad_fn.name(), *_described((*grads, again))]


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_gradients_and_second_derivatives_are_those_of_pytorch(name: str) -> None:
    case = (VIEWS | COPIES)[name]
    assert _gradients(case, skimp, _ours) == _gradients(case, torch, _theirs)


@pytest.mark.parametrize("name", ERRORS)
def test_what_the_fast_path_is_not_for_raises_as_pytorch_does(name: str) -> None:
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        ERRORS[name](torch, _theirs)
    with pytest.raises(theirs.type) as ours:
        ERRORS[name](skimp, _ours)
    assert str(ours.value)[:30] == str(theirs.value)[:30]


RIGHT = VIEWS | COPIES | IMAGES | {"view of bits": lambda m, t: t(M).view(m.int32)}


@pytest.mark.parametrize("name", RIGHT)
def test_no_error_leads_a_right_call_to_the_general_way(name: str) -> None:
    raised: list[Any] = []

    def watch(frame: Any, event: str, arg: Any) -> Any:
        ours = event == "exception" and call_site.is_ours(frame.f_code.co_filename)
        if ours and not issubclass(arg[0], (StopIteration, GeneratorExit)):
            raised.append(arg[:2])
        return watch

    RIGHT[name](skimp, _ours)  # which may look for code that is kept, and find none
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        RIGHT[name](skimp, _ours)
    finally:
        sys.settrace(before)
    assert raised == []


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_show_writes_and_refuse_them_where_pytorch_does(name: str, grad: bool) -> None:
    def written(m: Any, tensor: Any) -> list[Any]:
        bases: list[Any] = []

        def base(a: Any) -> Any:
            bases.append(tensor(a).requires_grad_(grad) * 1)
            return bases[-1]

        result = VIEWS[name](m, base)
        last = result[-1] if isinstance(result, tuple) else result
        if last.numel() == 0:
            return []
        try:
            last.mul_(2)
        except RuntimeError as e:
            return [str(e)[:40]]
        return [*_described((bases[0], last)), bases[0]._version, last._is_view()]

    assert written(skimp, _ours) == written(torch, _theirs)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_counts_one_version(name: str) -> None:
    made = WRITES[name](skimp, _ours)
    assert made._version == WRITES[name](torch, _theirs)._version


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_views_take_no_bytes_and_copies_their_own(name: str) -> None:
    case = (VIEWS | COPIES)[name]
    tensors: list[Any] = []

    def kept(a: Any) -> Any:
        tensors.append(_ours(a))
        return tensors[-1]

    before = host.total - host.freed
    result = case(skimp, kept)
    given = sum(t.untyped_storage().nbytes() for t in tensors)
    results = result if isinstance(result, tuple) else (result,)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results}
    for t in tensors:
        storages.pop(t.untyped_storage().data_ptr(), None)
    assert host.total - host.freed - before == given + sum(storages.values())


def test_sizes_to_expand_to_are_taken_and_refused_as_in_pytorch() -> None:
    rng = np.random.default_rng(3)
    refused = 0
    for case in range(600):
        shape = rng.choice([0, 1, 1, 2, 3], rng.integers(0, 4)).tolist()
        sizes = rng.choice([-1, 0, 1, 2, 3], rng.integers(0, 5)).tolist()
        if case % 2:  # mostly such as are taken
            lead = rng.choice([1, 2, 3], rng.integers(0, 2)).tolist()
            sizes = [*lead, *[rng.choice([-1, 1, 4]).item() if n == 1 else n for n in shape]]
        found = []
        for t in (skimp, torch):
            x = t.zeros(shape, requires_grad=case % 3 == 0)
            try:
                y = x.expand(sizes) if case % 5 else x.expand(*sizes)
            except (RuntimeError, TypeError) as error:
                found.append(type(error))
                continue
            found.append((tuple(y.shape), y.stride(), y._is_view(), type(y.grad_fn).__name__))
        refused += found[1] in (RuntimeError, TypeError)
        assert found[0] == found[1], (shape, sizes)
    assert 100 < refused < 400


@pytest.mark.parametrize("size", [(3,), (-1,), (2, 2)])
@pytest.mark.parametrize("offset", [None, 0, 1])
def test_as_strided_stays_within_its_storage(size: tuple[int, ...], offset: int | None) -> None:
    """An empty storage too, whose array NumPy would look past, and no size below zero."""
    refused = 0
    for length in (0, 1, 4):
        found = []
        for lib in (torch, skimp):
            try:
                view = lib.arange(float(length)).as_strided(size, (0,) * len(size), offset)
                found.append(view.tolist())
            except RuntimeError as error:
                found.append(str(error))
        assert found[0] == found[1]
        refused += isinstance(found[0], str)
    assert refused == (3 if min(size) < 0 else 2 if offset else 1)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_halves_are_no_parts_of_a_complex_number(device: str) -> None:
    """Nor are the bytes beside them, of which a larger storage has enough."""
    x = skimp.arange(12.0, dtype=skimp.float16, device=device).view(6, 2)
    for part in (x, x[:3]):
        with pytest.raises(NotImplementedError, match=r"view_as_complex.*'Half'"):
            skimp.view_as_complex(part)


def test_what_lies_turned_lies_so_in_another_shape_and_what_is_made_of_it_too() -> None:
    """Draws go where elements lie: a mask of dropout would be another."""

    def made(m: Any) -> Any:
        m.manual_seed(0)
        rows = m.arange(24.0).reshape(2, 4, 3).transpose(1, 2)
        seen = rows.view(2, 3, 4, 1)
        less = seen - m.ones(2, 3, 4, 1)
        return [less.stride(), rows.view(2, 3, 2, 2).exp().stride(), m.dropout(less, 0.5, True)]

    (*strides, ours), (*wanted, theirs) = made(skimp), made(torch)
    assert strides == wanted
    assert ours.tolist() == theirs.tolist()
