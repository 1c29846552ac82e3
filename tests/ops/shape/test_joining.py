"""Joined, rearranged and combined tensors against torch: values, strides, types, aliasing, errors,
gradients.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._engine.memory.ledger import host
from skimp.config import config
from tests.support.samples import DTYPES, agree, numbers, refusals, same, same_gradients, twin
from tests.support.told import told_anew


def grid(*shape: int, dtype: str = "float32", order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Numbers counted up, with the dims in `order` in memory."""
    order = order or tuple(range(len(shape)))
    dense = [shape[d] for d in order]
    n = int(np.prod(shape))
    return (
        torch.arange(n)
        .reshape(dense)
        .to(getattr(torch, dtype))
        .permute([order.index(d) for d in range(len(shape))])
    )


def channels_last(*shape: int) -> torch.Tensor:
    return grid(*shape).to(memory_format=torch.channels_last)


A, T = grid(2, 3, 4), grid(2, 3, 4, order=(2, 0, 1))
V, M = grid(4), grid(3, 4)
CL = channels_last(2, 3, 4, 5)
ANY = (torch.float16, torch.int64)

JOINS: list[tuple[str, Any]] = [
    ("cat", ([A, A],)),
    ("cat", ([A, T], 1)),
    ("cat", ([A, A[:, :1]], -2)),
    ("cat", ([T, T], 2)),
    ("cat", ([V],)),
    ("cat", ([CL, CL],)),
    ("cat", ([CL, CL], 1)),
    ("cat", ([CL, CL.contiguous()], 3)),
    ("cat", ([torch.empty(0), CL],)),
    ("cat", ([torch.empty(0, dtype=torch.float64), M],)),
    ("cat", ([torch.empty(0), torch.empty(0)],)),
    ("cat", ([M, M.to(torch.int64)],)),
    ("cat", ([V.half(), V.bfloat16()],)),
    ("cat", ([V.bool(), V.to(torch.uint8)],)),
    ("concat", ([A, A],)),
    ("concatenate", ((V, V),)),
    ("cat", ([M[:1].expand(3, 4), M],)),
    ("stack", ([A, A],)),
    ("stack", ([A, T], 1)),
    ("stack", ([V, V], -1)),
    ("stack", ([CL, CL],)),
    ("stack", ([CL, CL], 2)),
    ("stack", ([CL, CL], 4)),
    ("stack", ([torch.tensor(1), torch.tensor(2)],)),
    ("stack", ([V, V.to(torch.int8)],)),
    ("hstack", ([V, V],)),
    ("hstack", ([M, M],)),
    ("vstack", ([V, V],)),
    ("row_stack", ([V, V],)),
    ("dstack", ([V, V],)),
    ("dstack", ([M, M],)),
    ("column_stack", ([V, V],)),
    ("column_stack", ([grid(3), M],)),
    ("hstack", ([torch.tensor(1.0), torch.tensor(2.0)],)),
    ("block_diag", (V, M)),
    ("block_diag", (torch.tensor(2), M)),
    ("block_diag", (torch.tensor(2.0, dtype=torch.float64), M.to(torch.complex64))),
    ("block_diag", ()),
    ("block_diag", (torch.empty(0), M)),
    ("block_diag", (T[0], T[1].to(torch.int64))),
    ("atleast_1d", (torch.tensor(3),)),
    ("atleast_1d", (V, torch.tensor(3))),
    ("atleast_2d", (V,)),
    ("atleast_2d", ([V, M],)),
    ("atleast_3d", (V,)),
    ("atleast_3d", (M,)),
    ("atleast_3d", (torch.tensor(1),)),
]
REFUSED_JOINS: dict[type[Exception], list[Any]] = {
    IndexError: [("cat", ([A, A], 3)), ("cat", ([A, A], -4)), ("stack", ([A, A], 5))],
    RuntimeError: [
        ("cat", ([torch.empty(0, 3), torch.ones(2, 2)],)),
        ("cat", ([M, M[:, :2]],)),
        ("cat", ([M, V],)),
        ("cat", ([torch.ones(())],)),
        ("stack", ([],)),
        ("stack", ([V, M],)),
        ("hstack", ([],)),
        ("vstack", ([],)),
        ("dstack", ([],)),
        ("column_stack", ([],)),
        ("block_diag", (A,)),
    ],
    TypeError: [("cat", ([1, 2],)), ("cat", (A,))],
    ValueError: [("cat", ([],))],
}
REARRANGED: list[tuple[str, Any]] = [
    ("roll", (A, 1)),
    ("roll", (A, -5)),
    ("roll", (T, 3)),
    ("roll", (A, 1, 0)),
    ("roll", (T, (1, -2), (0, 2))),
    ("roll", (A, (1, 2), (1, 1))),
    ("roll", (V, 0)),
    ("roll", (torch.tensor(1), 3)),
    ("roll", (torch.empty(0, 3), 2, 0)),
    ("flip", (A, (0,))),
    ("flip", (T, (0, 2))),
    ("flip", (CL, (1,))),
    ("flip", (A, ())),
    ("flip", (A[:, ::2], (1,))),
    ("fliplr", (M,)),
    ("flipud", (V,)),
    ("rot90", (M,)),
    ("rot90", (M, 2)),
    ("rot90", (A, 3, (1, 2))),
    ("rot90", (T, -4)),
    ("rot90", (T, 1, (2, 0))),
    ("tile", (M, (2,))),
    ("tile", (M, (2, 1, 3))),
    ("tile", (T, (2,))),
    ("tile", (V, (0,))),
    ("Tensor.repeat", (M, 2, 2)),
    ("Tensor.repeat", (T, 1, 2, 1)),
    ("Tensor.repeat", (M, (3, 1, 1))),
    ("Tensor.repeat", (torch.tensor(2), 3)),
    ("Tensor.repeat", (M, 0, 2)),
    ("Tensor.repeat", (M[:, :1].expand(3, 4), 2, 1)),
    ("repeat_interleave", (M, 2)),
    ("repeat_interleave", (T, 2, 1)),
    ("repeat_interleave", (M, 0, 0)),
    ("repeat_interleave", (M, torch.tensor([1, 0, 3]), 0)),
    ("repeat_interleave", (M, torch.tensor([2]), 1)),
    ("repeat_interleave", (torch.tensor([1, 0, 2]),)),
    ("repeat_interleave", (torch.tensor([1, 2], dtype=torch.int32),)),
    ("tril", (M,)),
    ("tril", (M, 1)),
    ("tril", (M, -9)),
    ("triu", (T,)),
    ("triu", (T, -1)),
    ("tril", (CL, 2)),
    ("triu", (M, 9)),
    ("triu", (M.t(),)),
    ("diag", (V,)),
    ("diag", (V, -2)),
    ("diag", (M,)),
    ("diag", (M, 1)),
    ("diag", (M, 9)),
    ("diag_embed", (M,)),
    ("diag_embed", (M.t(), 1)),
    ("diag_embed", (M, -2, 0, 2)),
    ("diag_embed", (M, 0, 1, 0)),
    ("diagflat", (M,)),
    ("diagflat", (torch.tensor(3), 1)),
    ("trace", (M,)),
    ("trace", (M.to(torch.int8),)),
    ("channel_shuffle", (grid(2, 4, 3, 1), 2)),
    ("Tensor.sum_to_size", (M, 1, 4)),
    ("Tensor.sum_to_size", (A, 4)),
    ("Tensor.sum_to_size", (A, (3, 1))),
    ("Tensor.sum_to_size", (M, ())),
]
REFUSED_REARRANGED: dict[type[Exception], list[Any]] = {
    IndexError: [
        ("roll", (A, 1, 5)),
        ("roll", (torch.tensor(1), 0, 0)),
        ("flip", (A, (4,))),
        ("rot90", (A, 1, (0, 3))),
        ("repeat_interleave", (M, 2, 2)),
        ("diag_embed", (M, 0, 4)),
    ],
    NotImplementedError: [("trace", (M.bool(),))],
    RuntimeError: [
        ("roll", (A, (1, 2))),
        ("roll", (A, ())),
        ("flip", (A, (0, 0))),
        ("fliplr", (V,)),
        ("flipud", (torch.tensor(1),)),
        ("rot90", (V,)),
        ("rot90", (A, 1, (0, 0))),
        ("rot90", (A, 1, (0,))),
        ("Tensor.repeat", (M, 2)),
        ("Tensor.repeat", (M, 2, -1)),
        ("repeat_interleave", (M, -1)),
        ("repeat_interleave", (M, torch.tensor([1, 2]), 0)),
        ("repeat_interleave", (torch.tensor([1, -1]),)),
        ("repeat_interleave", (M, torch.tensor([[1]]), 0)),
        ("tril", (V,)),
        ("diag", (A,)),
        ("diag_embed", (M, 0, 1, 1)),
        ("trace", (A,)),
        ("channel_shuffle", (grid(2, 4, 3), 3)),
        ("channel_shuffle", (V, 2)),
        ("Tensor.sum_to_size", (M, 2)),
    ],
}
COMBINED: list[tuple[str, Any]] = [
    ("broadcast_tensors", (V, M)),
    ("broadcast_shapes", ((2, 1), (3,))),
    ("broadcast_shapes", (2, (3, 2))),
    ("cartesian_prod", (V, grid(2))),
    ("cartesian_prod", (V,)),
    ("combinations", (V,)),
    ("combinations", (V, 3)),
    ("combinations", (V, 3, True)),
    ("combinations", (V, 1)),
    ("combinations", (V, 0)),
    ("combinations", (V, 5)),
    ("vander", (V,)),
    ("vander", (V, 2, True)),
    ("vander", (V, 0)),
    ("vander", (V.to(torch.int8), 3)),
    ("linalg.vander", (M,)),
]
REFUSED_COMBINED: dict[type[Exception], list[Any]] = {
    RuntimeError: [
        ("broadcast_tensors", (V, grid(3))),
        ("broadcast_shapes", ((2,), (3,))),
        ("cartesian_prod", (M, V)),
        ("combinations", (V, -1)),
        ("combinations", (M,)),
        ("vander", (M,)),
        ("linalg.vander", (torch.tensor(2.0),)),
    ]
}


def call(library: Any, name: str, *args: Any) -> Any:
    f = library
    for part in name.split("."):
        f = getattr(f, part)
    return f(*args)


@pytest.mark.parametrize(("name", "args"), [*JOINS, *REARRANGED, *COMBINED])
def test_like_torch(name: str, args: Any) -> None:
    agree(lambda library, *given: call(library, name, *given), *args)


@pytest.mark.parametrize(
    ("error", "case"),
    [*refusals(REFUSED_JOINS), *refusals(REFUSED_REARRANGED), *refusals(REFUSED_COMBINED)],
)
def test_refusals(error: Any, case: tuple[str, Any]) -> None:
    name, args = case
    agree(lambda library, *given: call(library, name, *given), *args, refused=error)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(dtype: str) -> None:
    x, y = numbers((5, 6), dtype), numbers((6, 5), dtype, 1).t()
    for name, args in [
        ("cat", ([x, y],)), ("stack", ([x, y], 1)), ("roll", (y, 2, 0)), ("flip", (y, (0, 1))),
        ("rot90", (y,)), ("tile", (y, (2, 1))),
        ("tril", (y,)), ("triu", (x, 1)), ("diag_embed", (y,)), ("diag", (x,)),
        ("repeat_interleave", (y, 3, 0)),
    ]:  # fmt: skip
        agree(lambda library, *given, name=name: call(library, name, *given), *args)


@given(
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(-2, 1), st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_cat_of_anything(dtypes: list[str], sizes: list[int], dim: int, seed: int) -> None:
    given_ = []
    for i, (dtype, n) in enumerate(zip(dtypes, sizes, strict=False)):
        shape = (n, 2) if dim % 2 == 0 else (2, n)
        x = numbers(shape, dtype, seed + i)
        given_.append(x.t().contiguous().t() if (seed + i) % 2 else x)
    agree(lambda library, *ts: library.cat(list(ts), dim), *given_)


@pytest.mark.parametrize("rows", [1, 127, 128, 300])
@pytest.mark.parametrize("diagonal", [-130, -3, 0, 2, 131])
def test_triangles_over_several_bands(rows: int, diagonal: int) -> None:
    x = grid(2, rows, 140)
    for name in ("tril", "triu"):
        agree(lambda library, x, name=name: getattr(library, name)(x, diagonal), x)
        agree(
            lambda library, x, name=name: getattr(x.clone(), f"{name}_")(diagonal),
            x.transpose(1, 2),
        )


def test_large_inputs_are_written_once_into_their_place() -> None:
    x = skimp.rand(512, 1024)
    skimp.memory.memory_allocated()
    before = host.allocated
    y = skimp.cat([x.exp(), x.neg()], 1)
    assert host.allocated - before == y.numel() * 4, (
        "what was to be joined was never in memory of its own"
    )
    assert skimp.equal(y[:, :1024], x.exp())


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_heads_turned_round_are_written_once_into_their_place(dim: int) -> None:
    heads = [grid(8, 8, 128, 16) + at for at in (0, 1)]

    def joined(library: Any, *ts: Any) -> Any:
        return library.cat([t.transpose(1, 2).reshape(8, 128, 128) for t in ts], dim)

    agree(joined, *heads)
    agree(lambda library, *ts: joined(library, *[library.complex(t, t).conj() for t in ts]), *heads)
    agree(lambda library, *ts: joined(library, *ts).mT.reshape(-1), *heads)
    same_gradients(lambda library, *ts: joined(library, *ts) * 2, *[h.double() for h in heads])
    ours = [twin(t) for t in heads]
    skimp.memory.reset_peak_memory_stats()
    before = skimp.memory.memory_allocated()
    with config.using(defer="auto"):
        y = joined(skimp, *ours)
    assert skimp.memory.max_memory_allocated() - before == y.numel() * 4


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_small_tensors_that_are_joined_to_a_large_one(dim: int) -> None:
    heads = [grid(40, 8, 64, 3).transpose(1, 2), grid(40, 64, 8, 3) + 1, grid(40, 64, 8, 3)]
    agree(lambda library, *ts: library.cat(list(ts), dim), *heads)
    same_gradients(
        lambda library, *ts: library.cat(list(ts), dim) * 2, *[h.double() for h in heads]
    )
    ours = [twin(t) for t in heads]
    before = host.allocated
    y = skimp.cat(ours, dim)
    assert host.allocated - before == y.numel() * 4
    for library, ts in ((torch, heads), (skimp, ours)):
        with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 1"):
            library.cat([ts[0], ts[0][:, :, :7], ts[0]], 1)
        with pytest.raises(IndexError, match="Dimension out of range"):
            library.cat(ts, 4)


def test_out() -> None:
    for library in (torch, skimp):
        out = library.zeros(4, 2, dtype=library.float64)
        view = out.t()
        x = library.ones(2, 2)
        assert library.cat([x, x], 1, out=view) is view
        assert out.tolist() == [[1.0, 1.0]] * 4
        with pytest.raises(TypeError, match="can't be cast"):
            library.cat([x, x], out=library.ones(4, 2, dtype=library.int64))
        with pytest.raises(RuntimeError):
            library.cat([x, x], out=library.as_strided(x, (4, 2), (0, 1)))
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            library.stack([x, x], out=library.ones(3))
        with pytest.raises(
            RuntimeError, match="Expected out tensor to have dtype float, but got long int instead"
        ):
            library.tril(x, out=library.ones(2, 2, dtype=library.int64))


def test_meshgrid() -> None:
    x, y, z = grid(3), grid(2), torch.tensor(5.0)
    for indexing in ("ij", "xy"):
        agree(lambda library, *ts, i=indexing: library.meshgrid(*ts, indexing=i), x, y, z)
        agree(lambda library, *ts, i=indexing: library.meshgrid(list(ts), indexing=i), x)
    agree(lambda library, *ts: library.meshgrid(*ts, indexing="k"), x, y, refused=RuntimeError)
    agree(
        lambda library, *ts: library.meshgrid(*ts, indexing="ij"),
        grid(2, 2),
        message=30,
        refused=RuntimeError,
    )
    agree(
        lambda library, *ts: library.meshgrid(*ts, indexing="ij"),
        x,
        y.double(),
        refused=RuntimeError,
    )
    with (
        told_anew(),
        pytest.warns(UserWarning, match="it will be required to pass the indexing argument"),
    ):
        skimp.meshgrid(skimp.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grids = skimp.meshgrid(twin(x), twin(y), indexing="ij")
    assert grids[0].untyped_storage().data_ptr() != grids[1].untyped_storage().data_ptr()


def test_repeat_interleave_knows_its_size() -> None:
    counts = torch.tensor([1, 2, 3])
    agree(lambda library, x, n: library.repeat_interleave(x, n, 0, output_size=6), M, counts)
    agree(
        lambda library, x, n: library.repeat_interleave(x, n, 0, output_size=5),
        M,
        counts,
        refused=RuntimeError,
    )
    agree(lambda library, x: library.repeat_interleave(x, 2.5), M, message=20, refused=TypeError)


@pytest.mark.parametrize("correction", [0, 1, 5])
def test_cov(correction: int) -> None:
    x = numbers((3, 5), "float64", ties=False)
    whole, part = (
        torch.tensor([1, 2, 0, 3, 1]),
        torch.tensor([0.5, 1.0, 2.0, 0.1, 0.7], dtype=torch.float64),
    )
    for f, a in ((None, None), (whole, None), (None, part), (whole, part)):
        agree(
            lambda library, x, f, a: library.cov(x, correction=correction, fweights=f, aweights=a),
            x, f, a, tolerance=1e-12,
        )  # fmt: skip
    agree(lambda library, x: library.corrcoef(x), x, tolerance=1e-12)
    agree(lambda library, x: library.cov(x), x[0], tolerance=1e-12)
    agree(lambda library, x: library.cov(x), x[None], refused=RuntimeError)
    agree(lambda library, x, f: library.cov(x, fweights=f), x, whole[:3], refused=RuntimeError)


D = [numbers((2, 3), "float64", i, ties=False) for i in range(3)]


@pytest.mark.parametrize(
    "f",
    [
        lambda t, a, b, c: t.cat([a, b.t()[:2, :2], c], 1),
        lambda t, a, b, c: t.stack([a, b, c], 1),
        lambda t, a, b: t.hstack([a, b]), lambda t, a, b: t.column_stack([a, b[:, 0]]),
        lambda t, a, b, c: t.block_diag(a, b[0], c[0, 0]),
        lambda t, a, b: t.roll(a * b, (1, -1), (0, 1)),
        lambda t, a, b: t.roll(a, 2) * b, lambda t, a, b: t.flip(a, (0, 1)) * b,
        lambda t, a, b: t.rot90(a, 3) * b.t(),
        lambda t, a, b: a.repeat(2, 1, 2) * b.repeat(2, 1, 2), lambda t, a: t.tile(a, (2,)),
        lambda t, a: t.repeat_interleave(a, 2, 1), lambda t, a, b, c: t.tril(a) * t.triu(b, 1) + c,
        lambda t, a: t.repeat_interleave(a, t.tensor([2, 1]), 0),
        lambda t, a, b: t.diag_embed(a, 1) + t.diag(b[0], 1),
        lambda t, a, b: t.diag(a) * t.diagflat(b)[0, 1], lambda t, a, b: t.trace(a) * b,
        lambda t, a, b: t.cartesian_prod(a[0], b[0]), lambda t, a: t.combinations(a[0], 2, True),
        lambda t, a: t.linalg.vander(a), lambda t, a: t.cov(a),
        lambda t, a, b: math.prod(t.meshgrid(a[0], b[0], indexing="xy")),
        lambda t, a, b: (a * 2).tril_(1) * (b * 1).triu_(),
        lambda t, a, b: (a * b).sum_to_size(1, 3),
    ],
)  # fmt: skip
def test_gradients(f: Any) -> None:
    same_gradients(f, *D[: f.__code__.co_argcount - 1])


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("CatBackward0", lambda t, x: t.cat([x, x])),
        ("StackBackward0", lambda t, x: t.stack([x, x])),
        ("RollBackward0", lambda t, x: t.roll(x, 1)), ("FlipBackward0", lambda t, x: t.flipud(x)),
        ("Rot90Backward0", lambda t, x: t.rot90(x)),
        ("RepeatBackward0", lambda t, x: x.repeat(2, 2)),
        ("TrilBackward0", lambda t, x: t.tril(x)),
        ("DiagEmbedBackward0", lambda t, x: t.diagflat(x)),
        ("TraceBackward0", lambda t, x: t.trace(x)),
        ("BlockDiagBackward0", lambda t, x: t.block_diag(x, x)),
    ],
)  # fmt: skip
def test_names_in_the_graph(name: str, f: Any) -> None:
    for library in (torch, skimp):
        assert f(library, library.ones(2, 2, requires_grad=True)).grad_fn.name() == name


# -- ranges ---------------------------------------------------------------------------------------


@given(
    st.sampled_from(DTYPES[1:]), st.floats(-100, 100), st.floats(-100, 100), st.integers(0, 40),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_linspace_bit_for_bit(dtype: str, start: float, end: float, steps: int) -> None:
    if dtype == "uint8":
        start, end = abs(start), abs(end)
    exact = 0.0 if not dtype.startswith("complex") else 1e-5
    agree(lambda t: t.linspace(start, end, steps, dtype=getattr(t, dtype)), tolerance=exact)


def test_linspace_of_many_and_of_tensors() -> None:
    for n in (65537, 100001):
        for dtype in ("float32", "float64", "int32"):
            agree(lambda t, n=n, dtype=dtype: t.linspace(0.1, 7000.3, n, dtype=getattr(t, dtype)))
    agree(lambda t: t.linspace(t.tensor(1), 2, 3))
    agree(lambda t: t.linspace(t.ones(2), 2, 3), refused=RuntimeError)
    agree(lambda t: t.linspace(0, 1j, 3))
    agree(lambda t: t.linspace(0, 1j, 3, dtype=t.float32), refused=RuntimeError)
    agree(lambda t: t.linspace(0, 1, -1), refused=RuntimeError)
    agree(lambda t: t.linspace(0, 1, 3, dtype=t.bool), refused=NotImplementedError)
    agree(lambda t: t.linspace(0, 5, 3, out=t.empty(0, dtype=t.int16)))
    agree(
        lambda t: t.linspace(0, 5, 3, dtype=t.float32, out=t.empty(3, dtype=t.int16)),
        refused=RuntimeError,
    )


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize("base", [10.0, 2.0, 2.5])
def test_logspace(dtype: str, base: float) -> None:
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-12}.get(dtype, 1e-5)
    for start, end, steps in ((0, 3, 4), (0.5, 2.7, 5), (1, -1, 4), (2, 3, 1), (0, 1, 0)):
        agree(
            lambda t, s=start, e=end, n=steps: t.logspace(
                s, e, n, base=base, dtype=getattr(t, dtype)
            ),
            tolerance=tolerance * 100 if dtype == "float32" else tolerance,
        )


def test_eye() -> None:
    for args in ((3,), (2, 4), (4, 2), (0,), (0, 3)):
        agree(lambda t, a=args: t.eye(*a))
    for args in ((-1,), (2, -1)):
        agree(lambda t, a=args: t.eye(*a), refused=RuntimeError)
    for dtype in DTYPES:
        agree(lambda t, d=dtype: t.eye(2, 3, dtype=getattr(t, d)))
    agree(lambda t: t.eye(2, out=t.ones(3, 3, dtype=t.int8)[:2, :2]))
    same(skimp.eye(2, requires_grad=True).detach(), torch.eye(2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_few_and_many_small_ones_are_stacked_alike(dtype: str) -> None:
    for shape, count in [((), 1), ((), 40), ((3,), 2), ((3,), 40), ((2, 3), 16), ((2, 3), 17)]:
        whole = numbers((count, *shape), dtype)
        for turned in (False, True):
            parts = [x.mT if turned and len(shape) == 2 else x for x in whole.unbind(0)]
            agree(lambda lib, *xs: lib.stack(xs), *parts)
            agree(lambda lib, *xs: lib.stack(xs, -1), *parts)


@pytest.mark.parametrize("dim", [0, -1, 1, -2, 7])
def test_nothing_is_joined_along_any_dim(dim: int) -> None:
    def run(lib: Any) -> tuple[Any, ...]:
        x = lib.zeros(0, requires_grad=True)
        whole = lib.cat([x, lib.zeros(0, dtype=lib.float64)], dim)
        whole.sum().backward()
        return tuple(whole.shape), str(whole.dtype)[-7:], tuple(x.grad.shape)

    assert run(skimp) == run(torch)
