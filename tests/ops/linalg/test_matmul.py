"""Matrix products against torch: every type, layout and form, exact integers, no hidden copies,
gradients.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import products
from skimp.config import config
from tests.support.samples import DTYPES, agree, numbers, same, same_gradients, twin
from tests.support.told import told_anew

NUMBERS = [d for d in DTYPES if d != "bool"]
LOOSE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4}


def f(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    return numbers(shape, dtype, seed)


def call(library: Any, name: str, *args: Any, **words: Any) -> Any:
    g = library
    for part in name.split("."):
        g = getattr(g, part)
    return g(*args, **words)


def over(library: Any, name: str, x: Any, *args: Any, **words: Any) -> Any:
    """With the first argument as `out=` too."""
    return call(library, name, x, *args, **words, out=x)


# -- shapes ---------------------------------------------------------------------------------------


@given(
    st.sampled_from([(), (3,), (2, 3), (1, 3), (2, 1)]),
    st.sampled_from([(), (3,), (1,), (2, 3)]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 15),
)
@settings(max_examples=80, deadline=None)
def test_matmul_of_any_shapes(lead: Any, other_lead: Any, m: int, k: int, n: int, how: int) -> None:
    x, y = f(*lead, m, k), f(*other_lead, k, n, seed=1)
    if how & 1:
        x = f(*lead, k, m).mT
    if how & 2:
        y = f(*other_lead, n, k, seed=1).mT
    if how & 4 and x.ndim > 2:
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    if how & 8:
        y = y.sum(-1)
    wrong = "cannot be multiplied|size"
    agree(lambda t, x, y: t.matmul(x, y), x, y, message=0, refused=wrong)
    agree(lambda t, x, y: t.matmul(y, x), x, y, message=0, refused=wrong)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mm", (f(2, 3), f(2, 3))), ("mm", (f(2, 3), f(3))), ("mm", (f(3), f(3, 2))),
        ("mm", (f(2, 3), f(3, 2).double())),
        ("mm", (f(2, 2).bool(), f(2, 2).bool())), ("bmm", (f(2, 3), f(3, 2))),
        ("bmm", (f(2, 3, 4), f(3, 4, 5))),
        ("bmm", (f(2, 3, 4), f(2, 3, 5))), ("bmm", (f(2, 3, 4), f(2, 4, 5).double())),
        ("mv", (f(2, 3), f(2))),
        ("mv", (f(2, 3), f(3, 1))), ("mv", (f(2, 3), f(3).double())),
        ("mv", (f(2, 2).bool(), f(2).bool())),
        ("dot", (f(2), f(3))), ("dot", (f(2, 2), f(2))), ("dot", (f(2), f(2).double())),
        ("dot", (f(2).bool(), f(2).bool())),
        ("matmul", (f(2, 3), torch.tensor(1.0))), ("matmul", (f(3), f(2))),
        ("matmul", (f(3), f(2, 4))),
        ("addmm", (f(3), f(2, 3), f(3, 2))), ("addmm", (f(2).double(), f(2, 3), f(3, 2))),
        ("addmm", (f(2), f(2, 3), f(2, 3))),
        ("addmm", (f(1, 2, 2), f(2, 3), f(3, 2))), ("addmv", (f(3), f(2, 3), f(3))),
        ("addmv", (f(1, 2), f(2, 3), f(3))),
        ("addbmm", (f(2, 3), f(2, 2, 3), f(2, 3, 2))),
        ("addbmm", (f(2, 2), f(2, 2, 3), f(3, 3, 2))),
        ("baddbmm", (f(2, 3), f(2, 2, 3), f(2, 3, 2))),
        ("baddbmm", (f(2, 2).double(), f(2, 2, 3), f(2, 3, 2))),
        ("addr", (f(3, 3), f(2), f(3))), ("addr", (f(2, 3), f(2, 2), f(3))),
        ("outer", (f(2, 2), f(2))),
        ("inner", (f(2, 3), f(2))), ("trace", (f(3),)), ("tensordot", (f(2, 3), f(2, 3), 1)),
        ("tensordot", (f(2, 3), f(2, 3), 3)), ("tensordot", (f(2, 3), f(2, 3), -1)),
        ("tensordot", (f(2, 3), f(2, 3), ([0], [0, 1]))), ("linalg.multi_dot", ([f(2, 3)],)),
        ("linalg.multi_dot", ([f(2, 3), f(2, 3)],)),
        ("linalg.multi_dot", ([f(2, 3), f(3), f(3, 2)],)),
        ("linalg.cross", (f(2, 4), f(2, 4))), ("cross", (f(3, 4), f(4, 3), 0)),
        ("linalg.cross", (f(2, 3), f(2, 3).double())),
        ("cdist", (f(2, 3), f(2, 4))), ("cdist", (f(2, 3), f(3))),
        ("cdist", (f(2, 3), f(2, 3), -1)),
        ("cdist", (f(2, 3).long(), f(2, 3).long())), ("nn.functional.pdist", (f(3),)),
        ("nn.functional.linear", (f(2, 3), f(3, 2))),
        ("nn.functional.linear", (f(2, 3), f(3), torch.tensor(1.0))),
        ("nn.functional.bilinear", (f(2, 3), f(3, 3), f(4, 3, 3))),
    ],
)  # fmt: skip
def test_errors(name: str, args: Any) -> None:
    unknown = name in ("mm", "mv", "dot") and args[0].dtype is torch.bool
    error = NotImplementedError if unknown else RuntimeError
    agree(lambda t, *given: call(t, name, *given), *args, refused=error)


def test_operators() -> None:
    x, y = f(2, 3), f(3, 2)
    agree(lambda t, x, y: x @ y, x, y)
    agree(lambda t, x, y: x.__rmatmul__(y), x, y)
    for wrong in (3, None, [1.0]):
        with pytest.raises(TypeError):
            twin(x) @ wrong
        with pytest.raises(TypeError):
            wrong @ twin(x)


# -- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_type(dtype: str) -> None:
    x, y = f(2, 5, 7, dtype=dtype), f(2, 7, 5, dtype=dtype, seed=1)
    v, tolerance = f(7, dtype=dtype, seed=2), LOOSE.get(dtype, 1e-12)
    for name, args in [
        ("mm", (x[0], y[0])), ("mm", (x[0], x[1].t())), ("bmm", (x, y)), ("mv", (x[0], v)),
        ("dot", (v, y[0, :, 1])),
        ("vdot", (v, y[0, :, 2])), ("matmul", (x, y[1])), ("matmul", (x[0], y)), ("outer", (v, v)),
        ("inner", (x, x[0])),
        ("kron", (x[0], y[0])), ("tensordot", (x, y, ([0, 2], [0, 1]))),
        ("addmm", (f(5, dtype=dtype), x[0], y[0])),
        ("addmv", (f(5, dtype=dtype), x[0], v)), ("baddbmm", (f(1, 5, 1, dtype=dtype), x, y)),
        ("addr", (x[0], v[:5], v)),
        ("addbmm", (f(5, 5, dtype=dtype), x, y)), ("linalg.cross", (x[..., :3], x[:1, :, 3:6])),
        ("trace", (x[0],)),
        ("einsum", ("bij,bjk->ik", x, y)),
    ]:  # fmt: skip
        agree(lambda t, *a, name=name: call(t, name, *a), *args, tolerance=tolerance)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("high", [3, 2**30, 2**62])
def test_integers_are_exact_and_wrap(dtype: str, high: int) -> None:
    """Through float32, float64 or pieces of 16 bits, by size: always the numbers of NumPy's own
    loop.
    """
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    low, high = max(info.min, -high), min(info.max, high)
    x = rng.integers(low, high, (40, 33), dtype=dtype, endpoint=True)
    y = rng.integers(low, high, (33, 50), dtype=dtype, endpoint=True)
    x[0, 0], y[0, 0] = info.min, info.min
    expected = x @ y
    np.testing.assert_array_equal((skimp.tensor(x) @ skimp.tensor(y)).numpy(), expected)
    np.testing.assert_array_equal(
        (skimp.tensor(x.T.copy()).t() @ skimp.tensor(y)).numpy(), expected
    )
    batch = np.stack([x, x[::-1]])
    np.testing.assert_array_equal((skimp.tensor(batch) @ skimp.tensor(y)).numpy(), batch @ y)
    added = skimp.addmm(skimp.tensor(expected), skimp.tensor(x), skimp.tensor(y), alpha=2)
    np.testing.assert_array_equal(added.numpy(), expected * np.array(3, dtype))


@pytest.mark.parametrize("shape", [(3, 700, 5), (700, 3, 600), (1100, 1030, 70), (5, 1, 2000)])
def test_half_precision_in_blocks(shape: tuple[int, int, int]) -> None:
    """Rounded once, wherever the blocks end."""
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(m, k)).astype(np.float16), rng.normal(size=(k, n)).astype(np.float16)
    made = skimp.mm(skimp.tensor(x), skimp.tensor(y)).numpy()
    exact = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(made, exact, rtol=1e-3, atol=1e-3)
    out = np.empty((m, n), np.float16)
    products.product(x, np.asfortranarray(y), out)
    np.testing.assert_allclose(out, exact, rtol=1e-3, atol=1e-3)


def test_batches_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a batch, single matrices and bands of one give the same."""
    x, y = (
        np.arange(3 * 2 * 80 * 7).reshape(3, 2, 80, 7) % 13,
        np.arange(2 * 7 * 90).reshape(2, 7, 90) % 11,
    )
    expected = x @ y
    for scratch in (1, 700, 7200, 20000, 10**6):
        monkeypatch.setattr(products, "_SCRATCH", scratch)
        for dtype in (np.int16, np.float16):
            out = np.empty(expected.shape, dtype)
            products.product(x.astype(dtype), y.astype(dtype), out)
            np.testing.assert_array_equal(out, expected.astype(dtype))
            flipped = np.empty(expected.shape, np.float32)[..., ::-1]
            products.product(
                x.astype(np.float32)[..., ::-1], y.astype(np.float32)[:, ::-1], flipped
            )
            np.testing.assert_array_equal(flipped, expected)


# -- strides --------------------------------------------------------------------------------------


def test_copies_are_told_and_transposes_are_not() -> None:
    x, y = skimp.rand(64, 64), skimp.rand(64, 64)
    with skimp.memory.no_copies():
        for a in (x, x.t(), x[::2].t()[:, :30], x[:, 3:50].t()):
            skimp.mm(a, y[: a.shape[1]])
            skimp.addmm(y[0], a, y[: a.shape[1]].contiguous())
    refused = pytest.raises(RuntimeError, match="mm of a tensor with strides")
    with skimp.memory.no_copies(), refused:
        skimp.mm(x[:, ::2], y[:32])


@pytest.mark.parametrize(
    "slices",
    [
        (slice(None, None, 2), slice(None)),
        (slice(None), slice(None, None, 3)),
        (slice(1), slice(None)),
    ],
)
def test_strided_and_expanded_inputs(slices: Any) -> None:
    x, y = f(12, 12)[slices], f(12, 12, seed=1)
    agree(lambda t, x, y: t.mm(x, y[: x.shape[1]]), x, y)
    agree(lambda t, x, y: t.mm(y[:, : x.shape[0]], x), x, y)
    agree(lambda t, x: t.mm(x.expand(3, 12), x.expand(5, 12).t()), f(1, 12))
    agree(lambda t, x: t.mv(x.t(), x[:, 1]), f(9, 4)[::2])
    agree(lambda t, x: t.dot(x[0].expand(4), x[::2]), f(8))


def test_a_pair_that_repeats_is_added_to_a_batch() -> None:
    x = f(1, 4, 4).half()
    for c in (x, x.repeat(3, 1, 1), x[0, 0]):
        agree(lambda t, c, x: t.baddbmm(c, x.expand(3, 4, 4), x.expand(3, 4, 4), alpha=2), c, x)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 5, 7), (64, 40, 64)])
def test_products_of_batches_that_lie_turned_are_row_major(sizes: tuple[int, int, int]) -> None:
    """As attention's scores are, whose heads are `x.view(b, t, h, d).transpose(1, 2)`."""
    m, k, n = sizes
    for x in (f(3, 2, m, k).transpose(0, 1), f(m, 2, 3, k).permute(1, 2, 0, 3)):
        for y in (f(3, 2, k, n).transpose(0, 1), f(2, 3, n, k).mT):
            agree(lambda t, x, y: x @ y, x, y, tolerance=1e-5)
            agree(lambda t, x, y: (x @ y).view(6, -1), x, y, tolerance=1e-5)
            agree(lambda t, x, y: t.bmm(x[:, 0], y[:, 0]), x, y, tolerance=1e-5)


# -- forms ----------------------------------------------------------------------------------------

ADDED = [
    ("addmm", (f(4), f(4, 3), f(3, 4))),
    ("addmm", (f(4, 4, seed=2).t(), f(4, 3), f(4, 3, seed=1).t())),
    ("addmv", (f(4), f(4, 3), f(3))), ("addmv", (torch.tensor(2.0), f(4, 3), f(3))),
    ("addbmm", (f(4, 1), f(2, 4, 3), f(2, 3, 4))),
    ("baddbmm", (f(2, 4, 4), f(2, 4, 3), f(2, 3, 4))), ("addr", (f(4, 3), f(4), f(3))),
    ("addr", (f(3), f(4), f(3))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), ADDED)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 2), (0.5, 1), (-1, 0), (2, 3)])
def test_added(name: str, args: Any, beta: float, alpha: float) -> None:
    words = {"beta": beta, "alpha": alpha}
    agree(lambda t, *a: call(t, name, *a, **words), *args, tolerance=1e-5)
    whole = args[0].expand(call(torch, name, *args).shape).contiguous()
    agree(
        lambda t, x, *a: call(t, f"Tensor.{name}_", x.clone(), *a, **words),
        whole,
        *args[1:],
        tolerance=1e-5,
    )
    agree(lambda t, *a: call(t, name, *a, **words, out=t.ones(0)), *args, tolerance=1e-5)
    agree(lambda t, x, *a: over(t, name, x.clone(), *a, **words), whole, *args[1:], tolerance=1e-5)
    integers = [a.long() for a in args]
    if isinstance(beta, int):
        agree(lambda t, *a: call(t, name, *a, **words), *integers)


def test_beta_zero_ignores_what_is_there() -> None:
    for library in (torch, skimp):
        nan = library.full((2, 2), float("nan"))
        x = library.ones(2, 2)
        assert library.addmm(nan, x, x, beta=0).tolist() == [[2, 2], [2, 2]]
        assert nan.addmm_(x, x, beta=0).tolist() == [[2, 2], [2, 2]]
        half = library.full((2, 2), float("nan")).half()
        assert library.addmm(half, x.half(), x.half(), beta=0).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("name", "args"),
    [("mm", (f(4, 3), f(3, 4))), ("bmm", (f(2, 4, 3), f(2, 3, 4))), ("mv", (f(4, 3), f(3))),
     ("matmul", (f(2, 4, 3), f(3, 4))),
     ("matmul", (f(2, 4, 3), f(2, 3, 4))), ("matmul", (f(3), f(3, 4))),
     ("linalg.multi_dot", ([f(2, 3), f(3, 4), f(4)],)),
     ("tensordot", (f(2, 3), f(3, 2), 1)), ("inner", (f(2, 3), f(4, 3))), ("outer", (f(2), f(3))),
     ("dot", (f(3), f(3)))],
)  # fmt: skip
def test_out(name: str, args: Any) -> None:
    shape = tuple(call(torch, name, *args).shape)
    agree(lambda t, *a: call(t, name, *a, out=t.ones(shape)), *args)
    if len(shape) > 1 or name in ("dot", "mv"):
        if (shape and name not in ("dot", "matmul")) or args[1].ndim > 2:
            agree(
                lambda t, *a: call(
                    t, name, *a, out=t.ones(shape[::-1]).permute(*range(len(shape))[::-1])
                ),
                *args,
            )
        agree(lambda t, *a: call(t, name, *a, out=t.ones((*shape, 2))[..., 0]), *args)
    agree(lambda t, *a: call(t, name, *a, out=t.empty(0)), *args)
    agree(
        lambda t, *a: call(t, name, *a, out=t.ones(shape, dtype=t.int64)),
        *args,
        message=10,
        refused=RuntimeError,
    )


@pytest.mark.parametrize(
    "shapes", [((2, 4, 3), (3, 4)), ((2, 4, 3), (3,)), ((3,), (3, 4)), ((3,), ())]
)
def test_matmul_refuses_what_it_cannot_record_or_multiply(shapes: Any) -> None:
    args = [f(*shape).requires_grad_() for shape in shapes]
    out = torch.empty(0)
    agree(lambda t, x, y, o: t.matmul(x, y, out=o), *args, out, refused=RuntimeError)
    for first in ((2, 4, 3), (4, 3), (3,)):
        agree(lambda t, x, y: t.matmul(x, y), f(*first), torch.tensor(2.0), refused=RuntimeError)


@pytest.mark.parametrize("words", [{"beta": True}, {"alpha": True}])
def test_addr_refuses_bools_beside_numbers(words: Any) -> None:
    agree(lambda t, *a: t.addr(*a, **words), f(4, 3), f(4), f(3), refused=RuntimeError)


def test_out_may_be_an_input() -> None:
    x, y = twin(f(5, 5)), twin(f(5, 5, seed=1))
    expected = (x @ y).numpy().copy()
    skimp.mm(x, y, out=x)
    np.testing.assert_array_equal(x.numpy(), expected)


# -- memory ---------------------------------------------------------------------------------------


def test_only_the_result_is_allocated() -> None:
    x, b = skimp.rand(600, 600), skimp.rand(600)
    before = skimp.memory.memory_allocated()
    skimp.memory.reset_peak_memory_stats()
    with config.using(defer="auto"):
        y = skimp.relu(skimp.addmm(b, x, x))
    assert skimp.memory.max_memory_allocated() - before < 2 * y.numel() * 4, "one block for all"


def test_bits_do_not_depend_on_deferral() -> None:
    x, w, b = (
        numbers((300, 300), "float32", ties=False),
        numbers((300, 310), "float32", 1, ties=False),
        f(310),
    )
    found = []
    for defer in ("never", "always", "auto"):
        with config.using(defer=defer):
            p, q, r = twin(x), twin(w), twin(b)
            hidden = skimp.addmm(r, p.exp(), q)
            found.append((skimp.mm(hidden.t(), p) * 2).numpy().tobytes())
    assert len(set(found)) == 1


# -- derivatives ----------------------------------------------------------------------------------

X, Y, Z = [numbers(s, "float64", i, ties=False) for i, s in enumerate([(2, 3), (3, 4), (2, 4)])]
P, Q = [numbers(s, "float64", i, ties=False) for i, s in enumerate([(2, 2, 3), (2, 3, 2)])]


@pytest.mark.parametrize(
    ("args", "g"),
    [
        ((X, Y), lambda t, x, y: x @ y), ((X, Y), lambda t, x, y: y.t() @ x.t()),
        ((X, Y), lambda t, x, y: x[0] @ y),
        ((X, Y), lambda t, x, y: x @ y[:, 1]), ((X, Y), lambda t, x, y: t.dot(x[0], y[:, 0])),
        ((P, Q), lambda t, p, q: t.bmm(p, q)),
        ((P, Q), lambda t, p, q: p @ q[0]), ((P, Q), lambda t, p, q: p[0] @ q),
        ((P, Q), lambda t, p, q: p.transpose(0, 1) @ q[0]),
        ((P, Q), lambda t, p, q: p[:, None] @ q), ((P, Q), lambda t, p, q: p @ q[0, :, 0]),
        ((P, Q), lambda t, p, q: p[0, 0] @ q),
        ((P, Q), lambda t, p, q: p.transpose(0, 1) @ q[1, :, 0]),
        ((Z, X, Y), lambda t, z, x, y: t.addmm(z, x, y, beta=0.5, alpha=2)),
        ((Z, X, Y), lambda t, z, x, y: t.addmm(z[0], x, y)),
        ((Z, X, Y), lambda t, z, x, y: (z * 1).addmm_(x, y, beta=3)),
        ((Z, X, Y), lambda t, z, x, y: t.addmv(z[:, 0], x, y[:, 0], alpha=3)),
        ((X, P, Q), lambda t, x, p, q: t.baddbmm(x[:, :1], p, q, alpha=2)),
        ((X, P, Q), lambda t, x, p, q: t.addbmm(x[:, :1], p, q, beta=2)),
        ((Z, X), lambda t, z, x: t.addr(z[:, :3], z[:, 0], x[0], alpha=2)),
        ((X, Y), lambda t, x, y: t.outer(x[0], y[0])),
        ((X, Y), lambda t, x, y: t.kron(x, y)), ((X, Y), lambda t, x, y: t.inner(x, y.t())),
        ((X, Y), lambda t, x, y: t.tensordot(x, y, 1)),
        ((X, Q), lambda t, x, q: t.linalg.cross(x, q[:, :, 0])),
        ((X, Y, Z), lambda t, x, y, z: t.linalg.multi_dot([x, y, z.t()])),
        ((X, Y, Z), lambda t, x, y, z: t.einsum("ij,jk,ik->kj", x, y, z)),
        ((P, Q), lambda t, p, q: t.einsum("bij,bji->b", p, q)),
        ((X, Y), lambda t, x, y: t.nn.functional.linear(x, y.t(), y[0])),
        ((P, X), lambda t, p, x: t.nn.functional.linear(p, x, x[:, 0])),
        ((X, Z, P), lambda t, x, z, p: t.nn.functional.bilinear(z[:, :2], x, p)),
        ((X, Y), lambda t, x, y: t.cdist(x, y.t(), 2.0)),
        ((X, Y), lambda t, x, y: t.cdist(x, y.t(), compute_mode="use_mm_for_euclid_dist")),
    ],
)  # fmt: skip
def test_gradients(args: Any, g: Any) -> None:
    if "cdist" in g.__code__.co_names and "use_mm_for_euclid_dist" not in g.__code__.co_consts:
        found: list[Any] = []
        for library in (torch, skimp):  # torch has no second derivative here
            given_ = [
                a.clone().requires_grad_() if library is torch else twin(a).requires_grad_()
                for a in args
            ]
            found.append(library.autograd.grad(g(library, *given_).sum(), given_))
        same(found[1], found[0], 1e-9, strides=False)
        return
    same_gradients(g, *args)


def test_gradients_of_complex_products() -> None:
    x, y = numbers((2, 3), "complex128", ties=False), numbers((3, 2), "complex128", 1, ties=False)
    for g in (
        lambda t, x, y: x @ y, lambda t, x, y: t.addmm(x[:, :2], x, y, beta=2j, alpha=1 - 1j),
        lambda t, x, y: t.vdot(x[0], y[:, 0]),
        lambda t, x, y: t.dot(x[0], y[:, 0]), lambda t, x, y: x @ y[:, 0],
        lambda t, x, y: x[0] @ y, lambda t, x, y: y[:, 0] @ x.t(),
        lambda t, x, y: t.outer(x[0], y[0]),
        lambda t, x, y: t.stack([x, x]) @ y, lambda t, x, y: t.linalg.cross(x, y.t()),
        lambda t, x, y: x.mH @ y.t(), lambda t, x, y: t.stack([x, x]) @ t.stack([y, y]),
    ):  # fmt: skip
        found: Any = []
        for library in (torch, skimp):
            given_ = [
                a.clone().requires_grad_() if library is torch else twin(a).requires_grad_()
                for a in (x, y)
            ]
            made = g(library, *given_)  # the second's gradient is one element, expanded
            grads = [library.autograd.grad(made.abs().sum(), given_, retain_graph=True)]
            grads.append(library.autograd.grad(made.sum().abs(), given_))
            found.append([v.resolve_conj() for both in grads for v in both])
        same(found[1], found[0], 1e-9, strides=False)


def test_gradients_of_a_complex_row() -> None:
    found = []
    for library in (torch, skimp):
        x = library.tensor([1 + 2j, 3 - 1j, 2j], requires_grad=True)
        y = library.tensor([[1 + 1j, 2], [3j, 1], [1, -1j]], requires_grad=True)
        found.append(library.autograd.grad((x @ y).abs().sum(), (x, y)))
    same(found[1], found[0], 1e-5)


@pytest.mark.parametrize(
    ("one", "other"),
    [((0, 3), (2, 3, 4)), ((0,), (1, 2, 0, 8)), ((3,), (3, 2, 3, 0)), ((2, 0, 3), (3, 4))],
)
def test_gradients_of_empty_batches(one: Any, other: Any) -> None:
    found = []
    for library in (torch, skimp):
        given_ = [library.ones(*shape, requires_grad=True) for shape in (one, other)]
        found.append(library.autograd.grad((given_[0] @ given_[1]).sum(), given_))
    same(found[1], found[0], strides=False)


def test_gradients_have_the_layout_of_the_parameters() -> None:
    """So that accumulating them copies nothing."""
    for library in (torch, skimp):
        w = library.ones(4, 3, requires_grad=True)
        (library.ones(2, 3) @ w.t()).sum().backward()
        assert w.grad.stride() == (3, 1)
        x = library.ones(3, 2).t().requires_grad_()
        (x @ library.ones(3, 4)).sum().backward()
        assert x.grad.stride() == x.stride()


def _large_gradients(g: Any) -> list[Any]:
    """The gradients of large factors that lie in both ways, and of batches of them."""
    rows, turned = g(300, 500).requires_grad_(), g(700, 500).t().requires_grad_()
    heads, other = g(6, 4, 64, 96).requires_grad_(), g(6, 4, 200, 96).requires_grad_()
    ((rows @ turned) * g(300, 700)).sum().backward()
    ((heads @ other.mT) * g(6, 4, 64, 200)).sum().backward()
    return [t.grad for t in (rows, turned, heads, other)]


def test_gradients_of_large_products() -> None:
    """They are products of arrays, which nobody records and no transform is asked about; where one
    is, the same bits come by way of ops.
    """

    def g(*shape: int) -> Any:
        return skimp.from_numpy(f(*shape, seed=len(shape)).numpy()).clone()

    found, wanted = _large_gradients(g), _large_gradients(lambda *s: f(*s, seed=len(s)).clone())
    with skimp.profiler.profile():
        by_ops = _large_gradients(g)
    for one, two, theirs in zip(found, by_ops, wanted, strict=True):
        assert one.stride() == two.stride() == theirs.stride()
        assert not one._is_view()
        assert skimp.equal(one, two)
        np.testing.assert_allclose(one.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "g"),
    [
        ("MmBackward0", lambda t, x: x @ x), ("MvBackward0", lambda t, x: x @ x[0]),
        ("DotBackward0", lambda t, x: x[0] @ x[1]), ("SqueezeBackward4", lambda t, x: x[0] @ x),
        ("BmmBackward0", lambda t, x: t.bmm(x[None], x[None])),
        ("AddmmBackward0", lambda t, x: t.addmm(x, x, x)),
        ("UnsafeViewBackward0", lambda t, x: t.ones(3, 2, 2) @ x[None]),
        ("AddbmmBackward0", lambda t, x: t.addbmm(x, x[None], x[None])),
        ("AddrBackward0", lambda t, x: t.addr(x, x[0], x[0])),
        ("AddmmBackward0", lambda t, x: t.nn.functional.linear(x, x, x[0])),
    ],
)  # fmt: skip
def test_names_in_the_graph(name: str, g: Any) -> None:
    for library in (torch, skimp):
        assert g(library, library.ones(2, 2, requires_grad=True)).grad_fn.name() == name


def test_warnings_are_the_users() -> None:
    with told_anew(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        skimp.chain_matmul(skimp.ones(2, 2), skimp.ones(2, 2))
    assert [w.filename for w in seen] == [__file__]
