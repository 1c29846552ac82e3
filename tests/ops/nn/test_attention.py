"""Attention: PyTorch's values, in pieces, and never the whole matrix."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import attention, attention_loops, scratch
from skimp._ops.nn import multihead
from tests.ops.nn.test_images import (
    F,
    seed,  # noqa: F401  (a fixture of every test)
)
from tests.support.functional import both, randn
from tests.support.samples import agree, twin


def qkv(*lead: int, rows: int = 5, keys: int = 7, width: int = 4) -> list[torch.Tensor]:
    return [randn(*lead, n, width, grad=True) for n in (rows, keys, keys)]


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(lead: tuple[int, ...], causal: bool) -> None:
    both("scaled_dot_product_attention", *qkv(*lead), is_causal=causal)
    both("scaled_dot_product_attention", *qkv(*lead, rows=9), is_causal=causal, scale=0.3)


def test_attention_with_masks() -> None:
    q, k, v = qkv(2, 3)
    seen = torch.rand(5, 7) > 0.4
    seen[2] = False  # a row that sees nothing gives zeros
    both("scaled_dot_product_attention", q, k, v, attn_mask=seen)
    both("scaled_dot_product_attention", q, k, v, attn_mask=randn(2, 1, 5, 7))
    added = randn(5, 7)
    added[2] = -torch.inf  # likewise, and gives no gradient
    both("scaled_dot_product_attention", q, k, v, attn_mask=added.requires_grad_())
    both("scaled_dot_product_attention", q, k, v[..., :0].detach(), attn_mask=seen)
    both("scaled_dot_product_attention", *[t[..., :0].detach() for t in (q, k)], v, attn_mask=seen)


def test_attention_with_a_mask_beside_is_causal() -> None:
    q, k, v = qkv(2, 3)
    seen = torch.rand(5, 7) > 0.4
    seen[0] = False
    both("scaled_dot_product_attention", q, k, v, attn_mask=seen, is_causal=True)
    both("scaled_dot_product_attention", q, k, v, attn_mask=randn(2, 1, 5, 7), is_causal=True)
    for t, library in ((torch, torch.nn.functional), (skimp, F)):
        x, mask = t.ones(2, 3, 5, 4), t.ones(5, 5)
        for args in ((x[0], x[0], x[0], mask), (x, x, x, mask[None]), (x, x, x, mask, 0.1)):
            with pytest.raises(RuntimeError, match="should not be set when is_causal"):
                library.scaled_dot_product_attention(*args, is_causal=True)


def _few_dims(t: Any, kind: str) -> Any:
    """Attention by a mask of less than two dims, which PyTorch takes where its kernel for a CPU
    takes nothing."""
    q, k, v, p = t.ones(2, 4, 3, 8), t.ones(2, 4, 5, 8), t.ones(2, 4, 5, 6), 0.0
    mask, more = t.arange(5.0), {}
    if kind == "number":
        mask = t.tensor(0.5)
    elif kind == "bools":
        mask = t.arange(5) > 2
    elif kind == "followed":
        mask.requires_grad_()
    elif kind == "dropout":
        v, p = t.zeros(2, 4, 5, 6), 0.5
    elif kind == "one image of keys":
        k, v = k[:1], v[:1]
    elif kind == "one head of keys":
        k, v = k[:, :1], v[:, :1]
    elif kind == "one head of groups":
        k, v, more = k[:, :1], v[:, :1], {"enable_gqa": True}
    elif kind == "keys of three dims":
        k, v = k[0], v[0]
    elif kind == "three dims":
        q, k, v = q[0], k[0], v[0]
    elif kind == "no images":
        q, k, v = q[:0], k[:0], v[:0]
    elif kind == "no rows":
        q = q[:, :, :0]
    elif kind == "no width":
        v = v[..., :0]
    elif kind == "meta":
        q, k, v, mask = [a.to("meta") for a in (q, k, v, mask)]
    elif kind == "causal":
        more = {"is_causal": True}
    elif kind == "causal dropout":
        p, more = 0.5, {"is_causal": True}
    try:
        found = t.nn.functional.scaled_dot_product_attention(q, k, v, mask, p, **more)
    except Exception as e:
        return type(e), str(e)
    shape = tuple(found.shape)
    return shape if kind == "meta" else (shape, found.requires_grad, found.detach().numpy())


FEW_DIMS = """
plain|number|bools|followed|dropout|one image of keys|one head of keys|one head of groups
keys of three dims|three dims|no images|no rows|no width|meta|causal|causal dropout
"""


@pytest.mark.parametrize("kind", FEW_DIMS.replace("\n", "|").strip("|").split("|"))
def test_a_mask_of_few_dims_is_refused_where_pytorch_refuses_it(kind: str) -> None:
    found, wanted = _few_dims(skimp, kind), _few_dims(torch, kind)
    assert found[:-1] == wanted[:-1]
    if isinstance(wanted[-1], np.ndarray):
        np.testing.assert_allclose(found[-1], wanted[-1], rtol=1e-5, atol=1e-6)
    else:
        assert found == wanted


@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
@pytest.mark.parametrize("padding", [(2, 4), (3, 5), (2, 6), (2, 5)])
@pytest.mark.parametrize("mask", [None, (3, 4), (3, 5)])
def test_paddings_that_do_not_fit_are_refused_in_pytorchs_words(
    more: Any, padding: tuple[int, int], mask: tuple[int, int] | None
) -> None:
    def answer(t: Any) -> Any:
        layer = t.nn.MultiheadAttention(4, 2, batch_first=True, **more)
        q, k = t.ones(2, 3, 4), t.ones(2, 5, 4)
        seen = None if mask is None else t.zeros(*mask)
        try:
            return tuple(layer(q, k, k, t.zeros(*padding), attn_mask=seen)[1].shape)
        except Exception as e:
            return type(e), str(e)

    assert answer(skimp) == answer(torch)


def test_attention_of_grouped_heads_and_half_precision() -> None:
    q, k, v = (
        randn(2, 6, 5, 4, grad=True),
        randn(2, 2, 7, 4, grad=True),
        randn(2, 2, 7, 4, grad=True),
    )
    both("scaled_dot_product_attention", q, k, v, enable_gqa=True)
    halves = [t.detach().bfloat16().requires_grad_() for t in qkv(2, 3)]
    both("scaled_dot_product_attention", *halves, tolerance=0.05)


def test_attention_with_dropout_draws_pytorchs_zeros() -> None:
    tensors = qkv(2, 3)
    torch.manual_seed(1)
    skimp.manual_seed(1)
    both("scaled_dot_product_attention", *tensors, dropout_p=0.4)
    before = skimp.get_rng_state()
    both("scaled_dot_product_attention", *tensors, dropout_p=1.0)
    assert skimp.get_rng_state().equal(before)  # for nothing was drawn, as by PyTorch


@pytest.mark.parametrize("causal", [True, False])
def test_attention_in_row_blocks(causal: bool) -> None:
    q, k, v = [randn(2, 700, 2, 8).transpose(1, 2).requires_grad_() for _ in range(3)]
    got = both("scaled_dot_product_attention", q, k, v, is_causal=causal, tolerance=1e-4)
    assert got.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("size", [1.0, 8.0])
@pytest.mark.parametrize("kind", ["causal", "seen", "added"])
@pytest.mark.parametrize("whole", [0, 1 << 16])
def test_attention_of_tame_and_of_large_scores(
    size: float, kind: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exponentials as they are where no score can be large, else of differences from the row's
    largest; in blocks of rows and in whole matrices."""
    monkeypatch.setattr(attention, "_WHOLE", whole)
    monkeypatch.setattr(attention, "_WHOLE_CAUSAL", whole)
    q, k, v = [(size * randn(2, 2, 130, 6)).requires_grad_() for _ in range(3)]
    mask = {"causal": None, "seen": torch.rand(130, 130) > 0.4, "added": randn(130, 130)}[kind]
    both("scaled_dot_product_attention", q, k, v, mask, is_causal=kind == "causal", tolerance=1e-4)


@pytest.mark.parametrize("kind", ["causal", "seen", "added", "dropout"])
def test_attention_in_pieces_of_the_batch(kind: str) -> None:
    q, k, v = [randn(50, 3, 24, 6, grad=True) for _ in range(3)]
    mask = {"seen": torch.rand(50, 1, 24, 24) > 0.4, "added": randn(24, 24)}.get(kind)
    torch.manual_seed(1)
    skimp.manual_seed(1)
    p = 0.3 if kind == "dropout" else 0.0
    both("scaled_dot_product_attention", q, k, v, mask, p, kind == "causal", tolerance=1e-4)


def test_attention_of_infinite_scores() -> None:
    q, k, v = [t.detach() for t in qkv(1, 2)]
    q[0, 0, 1, 2], k[0, 1, 3, 1] = float("inf"), float("nan")
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v).isnan()
    got = F.scaled_dot_product_attention(twin(q), twin(k), twin(v))
    assert np.array_equal(got.isnan().numpy(), want.numpy())


def test_attention_never_writes_the_matrix() -> None:
    q, k, v = [skimp.randn(1, 4, 1024, 16) for _ in range(3)]
    F.scaled_dot_product_attention(q[:, :1], k[:, :1], v[:, :1])
    tracemalloc.start()
    F.scaled_dot_product_attention(q, k, v).data_ptr()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024 * 4 / 2


def test_attention_second_derivatives() -> None:
    q, k, v = [skimp.randn(2, 3, 4, dtype=skimp.float64).requires_grad_() for _ in range(3)]
    call = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    assert skimp.autograd.gradcheck(call, (q, k, v))
    assert skimp.autograd.gradgradcheck(call, (q, k, v))


@pytest.mark.parametrize("kind", ["self", "cross", "apart"])
def test_attention_of_projections_is_that_of_heads_to_the_bit(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def results(batch_first: bool) -> list[bytes]:
        skimp.manual_seed(1)
        m = skimp.nn.MultiheadAttention(8, 2, 0.3, batch_first=batch_first)
        q, k, v = [skimp.randn(4, 4, 8).requires_grad_() for _ in range(3)]
        k, v = {"self": (q, q), "cross": (k, k), "apart": (k, v)}[kind]
        out, _ = m(q, k, v, attn_mask=skimp.rand(4, 4) > 0.7, need_weights=False)
        (out * skimp.arange(8.0)).sum().backward()
        grads = [t.grad for t in (q, k, v, *m.parameters()) if t.grad is not None]
        return [t.detach().numpy().tobytes() for t in (out, *grads)]

    got = [results(first) for first in (True, False)]
    monkeypatch.setattr(multihead, "in_heads", lambda *_: None)
    assert got == [results(first) for first in (True, False)]


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_projections_second_derivatives(
    batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def results() -> list[np.ndarray]:
        found = []
        for kind in range(3):
            skimp.manual_seed(1)
            m = skimp.nn.MultiheadAttention(8, 2, batch_first=batch_first).double()
            x, y, z = [skimp.randn(2, 3, 8, dtype=skimp.float64).requires_grad_() for _ in range(3)]
            out, _ = m(x, *((x, x), (y, y), (y, z))[kind], need_weights=False)
            (first,) = skimp.autograd.grad(out.sin().sum(), x, create_graph=True)
            first.square().sum().backward()
            found += [p.grad.numpy() for p in (x, *m.parameters()) if p.grad is not None]
        return found

    got = results()
    monkeypatch.setattr(multihead, "in_heads", lambda *_: None)
    for one, other in zip(got, results(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("bias", "key", "value"),
    [
        (True, (4, 5, 2), (4, 5, 2)),
        (True, None, (4, 5, 2)),
        (False, (3, 5, 2), (4, 5, 2)),
        (False, (4, 5, 2), (4, 5, 3)),
    ],
)
def test_keys_that_stand_for_those_given_are_rows_of_heads(
    bias: bool, key: Any, value: Any
) -> None:
    def attention(t: Any) -> Any:
        x, one = t.ones(3, 2, 4), t.ones(1, 1, 4) if bias else None
        static = {"static_k": key and t.ones(key), "static_v": value and t.ones(value)}
        return t.nn.functional.multi_head_attention_forward(
            *(x, x, x, 4, 2, t.ones(12, 4), t.ones(12), one, one, False, 0.0),
            *(t.ones(4, 4), t.ones(4)),
            **static,
        )

    agree(attention, refused=AssertionError)


@pytest.mark.parametrize("mask", [None, [True, False, True], True, [[True] * 3] * 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("names", ["", "MATH", "FLASH_ATTENTION MATH"])
def test_masks_that_the_chosen_kernels_take(names: str, causal: bool, mask: Any) -> None:
    found: list[Any] = []
    for lib in (torch, skimp):
        chosen = [getattr(lib.nn.attention.SDPBackend, name) for name in names.split()]
        q = lib.arange(12.0).reshape(1, 1, 3, 4) / 10
        seen = None if mask is None else lib.tensor(mask)
        region = lib.nn.attention.sdpa_kernel(chosen) if names else lib.enable_grad()
        with region:
            flags = lib.backends.cuda.flash_sdp_enabled(), lib.backends.cuda.cudnn_sdp_enabled()
            try:
                made = lib.nn.functional.scaled_dot_product_attention(q, q, q, seen, 0.0, causal)
                found.append((flags, pytest.approx(made.tolist()[0][0][2], 1e-5)))
            except (RuntimeError, IndexError) as error:
                found.append((flags, type(error)))
        assert lib.backends.cuda.flash_sdp_enabled()
    assert found[0][0] == found[1][0]
    theirs, ours = found[0][1], found[1][1]
    assert theirs is ours if isinstance(theirs, type) else theirs == ours.expected


@pytest.mark.parametrize(("rows", "causal"), [(40, False), (100, True)])
def test_attention_over_many_keys_takes_no_transposes(
    rows: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so few rows that takes longer than it saves, and memory like k's and v's."""
    taken = [0]

    def take(size: int, dtype: Any) -> Any:
        taken[0] += size
        return scratch.take(size, dtype)

    monkeypatch.setattr(attention_loops, "take", take)
    q, k, v = qkv(1, 1, rows=rows, keys=6000, width=64)
    both("scaled_dot_product_attention", q, k, v, is_causal=causal)
    assert taken[0] < k.numel()
