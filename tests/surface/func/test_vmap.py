"""vmap beside PyTorch's: ops by their batching rules, derivatives of batches, random modes, and the
programs that people write with it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from tests.surface.func.test_func import compare, data

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    # where PyTorch has no batching rule itself
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning"),
]
Case = Callable[..., Any]

# -- ops ------------------------------------------------------------------------------------------

ONE: dict[str, Case] = {  # of a sample (4, 3)
    "sum": lambda t, x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.sum((0, 1), keepdim=True)),
    "mean": lambda t, x: (x.mean(), x.mean(1), x.var(), x.std(0), *t.var_mean(x, -1)),
    "extremes": lambda t, x: (*x.max(1), x.max(), x.amin(0), x.argmax(), x.argmin(1, keepdim=True)),
    "prod": lambda t, x: (x.prod(), x.prod(-1, keepdim=True), (x > 0).all(), (x > 9).any(1)),
    "norm": lambda t, x: (x.norm(), t.linalg.norm(x, dim=0), x.logsumexp(1), x.median()),
    "softmax": lambda t, x: (x.softmax(0), x.log_softmax(-1), x.cumsum(1), x.cumprod(-2)),
    "order": lambda t, x: (*x.sort(0), *x.topk(2, -1), *x.cummax(1), x.argsort(1), *x.kthvalue(2)),
    "turns": lambda t, x: (x.t(), x.T, x.mT, x.transpose(0, 1), x.permute(1, 0), x.movedim(0, -1)),
    "shapes": lambda t, x: (x.view(-1), x.reshape(2, 6), x.flatten(), x.unflatten(0, (2, 2))),
    "ones": lambda t, x: (x[None].squeeze(0), x.unsqueeze(-1), x.unsqueeze(1).squeeze(), x.ravel()),
    "expand": lambda t, x: (x.expand(2, 4, 3), x.repeat(2, 1), x.repeat(2, 1, 1), x.tile(2)),
    "parts": lambda t, x: (*x.split(2), *x.chunk(2, -1), *x.unbind(1), x.narrow(0, 1, 2)),
    "index": lambda t, x: (x[1], x[..., 0], x[:, 1:], x[None, ::2], x[-1, 2], x[[0, 2]], x[:, [1]]),
    "diagonals": lambda t, x: (x.diagonal(), t.diag(x[0]), x.tril(), x.triu(1), t.diag_embed(x)),
    "diagonals of matrices": lambda t, x: (t.linalg.diagonal(x), t.linalg.diagonal(x, offset=-1)),
    "flips": lambda t, x: (x.flip(0), x.roll(1), x.roll(1, 0), t.rot90(x)),
    "repeats": lambda t, x: (x.repeat_interleave(2), x.repeat_interleave(2, 1)),
    "types": lambda t, x: (x.float(), x.to(t.int64), x > 0, x.isnan(), t.zeros_like(x), x.bool()),
    "new": lambda t, x: (x.new_zeros(2), x.new_ones(2, 2), x.new_full((1,), 3.0), t.ones_like(x)),
    "pointwise": lambda t, x: (x.sin() * 2 - 1 / (x.abs() + 1), x.clamp(-0.5, 0.5), x**2, -x),
    "join": lambda t, x: (t.cat([x, x], 1), t.stack([x, x * 2], -1), t.hstack([x, x])),
    "where": lambda t, x: (t.where(x > 0, x, 0.0), x.masked_fill(x > 0, 1.0), x.relu()),
    "unfold": lambda t, x: (x.unfold(0, 2, 1), x.T.contiguous(), x.clone(), x.detach()),
    "einsum": lambda t, x: (t.einsum("ij,ij->i", x, x), t.einsum("ij->ji", x), x @ x.T),
    "linalg": lambda t, x: (
        t.linalg.inv(x.T @ x + t.eye(3, dtype=x.dtype)), t.linalg.det(x.T @ x), t.linalg.svdvals(x),
        t.linalg.cholesky(x.T @ x + t.eye(3, dtype=x.dtype)), t.trace(x.T @ x),
        t.linalg.solve(x.T @ x + t.eye(3, dtype=x.dtype), x[0]),
    ),
    "pad": lambda t, x: (t.nn.functional.pad(x, (1, 2)), t.nn.functional.normalize(x, dim=-1)),
    "pool": lambda t, x: t.nn.functional.max_pool1d(x, 2),
    "layer norm": lambda t, x: t.nn.functional.layer_norm(x, (3,)),
    "glu": lambda t, x: t.nn.functional.glu(x, 0),
    "gelu": lambda t, x: (t.nn.functional.gelu(x), t.nn.functional.softplus(x), x.sigmoid()),
    "fft": lambda t, x: (t.fft.rfft(x).abs(), t.fft.fftshift(x), t.fft.ifftshift(x, dim=-1)),
    "copies": lambda t, x: (t.transpose_copy(x, 0, 1), t.narrow_copy(x, 0, 1, 2), t.alias_copy(x)),
    "in place": lambda t, x: x.clone().add_(1).mul_(x).cumsum_(1).clamp_(-1, 1).transpose_(0, 1),
    "writes": lambda t, x: _written(t, x.clone()),
    "lists": lambda t, x: [r * 2 for r in x][1],
    "no rule": lambda t, x: (t.block_diag(x, x), t.histc(x, 4, -2, 2), t.quantile(x, 0.5)),
}  # fmt: skip


def _written(t: Any, x: Any) -> Any:
    x[0] = 1.0
    x[1:, 0] += x[1:, 1]
    x[:, 2] = x[:, 1] * 2
    x[[1, 2], [0, 1]] = 7.0
    x.diagonal().zero_()
    return x.fill_(0.25).add_(1) + x


TWO: dict[str, Case] = {  # of samples (4, 3) and (3,) or (4, 3)
    "sums": lambda t, x, v, y: (x + v, v - x, x * y, y / (v.abs() + 1), x.atan2(v)),
    "product": lambda t, x, v, y: (x @ v, y @ v, x.T @ y, v @ x.T, t.dot(v, v), x.mv(v), v @ v),
    "batches": lambda t, x, v, y: (x[None] @ y.T, t.bmm(x[None], y.T[None]), x @ y.T[None, None]),
    "plus": lambda t, x, v, y: (
        t.addmm(v, x.T, y), t.addmm(y @ y.T, x, y.T, alpha=2, beta=0.5), t.addmv(x[:, 0], y, v),
        t.addr(x, y[:, 0], v), t.baddbmm(x[None, :, :1], x[None], y.T[None]),
    ),
    "products": lambda t, x, v, y: (
        t.outer(v, v), t.einsum("ij,j->i", x, v), t.cross(x, y, dim=1), t.kron(v, v), t.inner(x, v),
        t.tensordot(x, y, dims=([0, 1], [0, 1])), t.tensordot(x, y.T, dims=1), t.cdist(x, y),
        t.nn.functional.linear(x, y, x[:, 0]),
    ),
    "masks": lambda t, x, v, y: (t.where(x > 0, v, y), x.masked_fill(y > 0, 3.0), t.lerp(x, y, v)),
    "halves": lambda t, x, v, y: (t.addcmul(x, y, v), t.maximum(x, v), x.clamp(min=v), x.eq(y)),
    "joins": lambda t, x, v, y: (t.cat([x, y]), t.stack([x, y], 1), t.cat([v, x[0]])),
    "losses": lambda t, x, v, y: [
        f(x, y, reduction=r)
        for f in (t.nn.functional.mse_loss, t.nn.functional.l1_loss, t.nn.functional.huber_loss)
        for r in ("none", "mean", "sum")
    ] + [t.nn.functional.cosine_similarity(x, y), t.nn.functional.kl_div(x, y.softmax(1))],
    "bce": lambda t, x, v, y: [
        t.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=r)
        for r in ("none", "mean", "sum")
    ] + [t.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid())],
    "norms": lambda t, x, v, y: t.nn.functional.layer_norm(x, (3,), v, y[0]),
    "attention": lambda t, x, v, y: t.nn.functional.scaled_dot_product_attention(x, y, y + 1),
    "affine": lambda t, x, v, y: t.nn.functional.batch_norm(x, None, None, v, y[0], True, 0.1),
    "written": lambda t, x, v, y: x.clone().index_add_(0, t.tensor([0, 2]), y[:2]).addcmul_(y, v),
}  # fmt: skip

PLACES: dict[str, Case] = {  # of samples (4, 3) and indices (4, 3) below 3
    "gather": lambda t, x, i: (x.gather(0, i), x.gather(1, i[:2]), t.take_along_dim(x, i, 0)),
    "scatter": lambda t, x, i: (
        x.scatter(0, i, x * 2), x.scatter_add(1, i, x), x.scatter(1, i, 1.5),
        x.scatter_reduce(0, i, x, "amax"), x.clone().scatter_add_(0, i, x),
    ),
    "rows": lambda t, x, i: (x.index_select(0, i[0]), x.index_select(-1, i[:, 0]), x.take(i)),
    "writes": lambda t, x, i: (
        x.index_add(0, i[:, 0], x, alpha=2), x.index_fill(1, i[0], 3.0),
        x.index_copy(0, t.tensor([3, 0]), x[:2]),
        x[0].index_copy(0, t.tensor([1]), t.tensor(5.0, dtype=x.dtype)),
        x.index_put((i[:, 0], i[:, 1]), x[:, 2], True),
    ),
    "index": lambda t, x, i: (
        x[i[:, 0]], x[:, i[0]], x[i[:, 0], i[:, 1]], x[i[0, 0]], x[i],
        x[None, i[:, 0], None, i[:, 1]], x[..., i[1]],
    ),
    "put": lambda t, x, i: _put(x.clone(), i),
    "embedding": lambda t, x, i: (
        t.nn.functional.embedding(i, x), t.nn.functional.one_hot(i, 5),
        t.bucketize(x, t.arange(3.0)),
    ),
    "classes": lambda t, x, i: [
        t.nn.functional.cross_entropy(x, i[:, 0], reduction=r, ignore_index=n, label_smoothing=s)
        for r in ("none", "mean", "sum") for n in (-100, 1) for s in (0.0, 0.1)
    ] + [
        t.nn.functional.nll_loss(x.log_softmax(1), i[:, 0]),
        t.nn.functional.cross_entropy(x[0], i[0, 0]),
    ],
}  # fmt: skip


def _put(x: Any, i: Any) -> Any:
    x[i[:, 0]] = 0.5
    x[:, i[0, 0]] = x[:, 0] * 3
    x[i[0], i[1]] += 1
    return x


def spread(
    draw: Any, x: np.ndarray[Any, Any], label: str
) -> tuple[np.ndarray[Any, Any], int | None]:
    """A batch with its dimension somewhere, or one sample for all."""
    dim = draw(st.sampled_from([0, 1, -1, None]), label=label)
    return (x[0].copy(), None) if dim is None else (np.moveaxis(x, 0, dim).copy(), dim)


@pytest.mark.parametrize("case", ONE.values(), ids=ONE)
def test_ops_on_one_tensor(case: Case) -> None:
    for dim in (0, 1, -1):
        x = np.moveaxis(data(2, 4, 3), 0, dim).copy()
        compare(
            lambda t, x, dim=dim: t.vmap(lambda s: case(t, s), in_dims=dim)(x),
            x,
            refused="view size" if case is ONE["shapes"] else None,  # a view across strides
        )


@pytest.mark.filterwarnings("ignore:An output with one or more elements was")  # its huber_loss
@pytest.mark.parametrize("case", TWO.values(), ids=TWO)
@given(source=st.data())
@settings(max_examples=6)
def test_ops_on_tensors_of_which_some_are_shared(case: Case, source: Any) -> None:
    given_ = [data(2, 4, 3), data(2, 3), data(2, 4, 3, seed=3)]
    pairs = [spread(source.draw, x, f"dim {k}") for k, x in enumerate(given_)]
    dims = tuple([d for _, d in pairs])
    if dims == (None, None, None):
        return
    arrays = [a for a, _ in pairs]
    compare(
        lambda t, *xs: t.vmap(lambda *s: case(t, *s), in_dims=dims)(*xs),
        *arrays,
        refused="vmap: " if case is TWO["written"] else None,  # into what is shared
    )


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES)
@given(source=st.data())
@settings(max_examples=6)
def test_places(case: Case, source: Any) -> None:
    x, dim = spread(source.draw, data(2, 4, 3), "dim of the tensor")
    places = np.random.default_rng(1).integers(0, 3, (2, 4, 3))
    i, at = spread(source.draw, places, "dim of the places")
    if dim is at is None:
        return
    # PyTorch refuses to write into what is shared, and shared rows with smoothed labels
    if dim is not None or case not in (PLACES["put"], PLACES["classes"]):
        compare(
            lambda t, *xs: t.vmap(lambda *s: case(t, *s), in_dims=(dim, at))(*xs),
            *(x, i),
            refused="." if case is PLACES["scatter"] else None,
        )


# PyTorch's outer vmap gives garbage for what the inner one did not batch (2.13), or refuses
NESTED = [(k, v) for k, v in {**ONE, **TWO}.items() if k not in ("product", "products", "written")]


@pytest.mark.parametrize("case", [v for _, v in NESTED], ids=[k for k, _ in NESTED])
def test_samples_of_samples(case: Case) -> None:
    arrays = [data(2, 3, 4, 3), data(2, 3), data(3, 4, 3, seed=3)]
    n = 1 if case in ONE.values() else 3

    def run(t: Any, *xs: Any) -> Any:
        inner = t.vmap(lambda *s: case(t, *s[:n]), in_dims=(0, None, 0), out_dims=-1)
        return t.vmap(inner, in_dims=(0, 0, None))(*xs)

    compare(run, *arrays)


def _derivable(case: Case, t: Any, xs: Any) -> Any:
    found = case(t, *xs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return sum([(r * r.detach().cos()).sum() for r in found if r.dtype == t.float64])


NO_GRADIENT = {"types", "new", "no rule", "lists"}
SMOOTH = [(k, v) for k, v in {**ONE, **TWO}.items() if k not in NO_GRADIENT]


@pytest.mark.parametrize("case", [v for _, v in SMOOTH], ids=[k for k, _ in SMOOTH])
def test_gradients_of_samples(case: Case) -> None:
    arrays = [data(2, 4, 3), data(3), data(2, 4, 3, seed=3)]
    n = 1 if case in ONE.values() else 3

    def run(t: Any, *xs: Any) -> Any:
        f = t.func.grad(lambda *s: _derivable(case, t, s[:n]), argnums=tuple(range(n)))
        return t.vmap(f, in_dims=(0, None, 0))(*xs)

    compare(run, *arrays)


# PyTorch's jacrev of cdist is wrong where its own jacobian is right (2.13)
RIGHT = [(k, v) for k, v in SMOOTH if k != "products"]


@pytest.mark.parametrize("case", [v for _, v in RIGHT], ids=[k for k, _ in RIGHT])
def test_jacobians(case: Case) -> None:
    arrays = [data(4, 3), data(3), data(4, 3, seed=3)]
    n = 1 if case in ONE.values() else 3

    def run(t: Any, *xs: Any) -> Any:
        def f(*s: Any) -> Any:
            found = case(t, *s)
            found = found if isinstance(found, (tuple, list)) else (found,)
            return tuple([r for r in found if r.dtype == t.float64])

        return t.func.jacrev(f, tuple(range(n)))(*xs[:n])

    compare(run, *arrays)


# -- what is refused ------------------------------------------------------------------------------

REFUSALS: dict[str, Case] = {
    "item": lambda t, x: t.vmap(lambda v: v.sum().item())(x),
    "float": lambda t, x: t.vmap(lambda v: float(v.sum()))(x),
    "if": lambda t, x: t.vmap(lambda v: v if v.sum() > 0 else -v)(x),
    "in": lambda t, x: t.vmap(lambda v: 3 in v)(x),
    "tolist": lambda t, x: t.vmap(lambda v: v.tolist())(x),
    "numpy": lambda t, x: t.vmap(lambda v: v.numpy())(x),
    "data_ptr": lambda t, x: t.vmap(lambda v: v.data_ptr())(x),
    "mask": lambda t, x: t.vmap(lambda v: v[v > 0])(x),
    "nonzero": lambda t, x: t.vmap(lambda v: t.unique(v))(x),
    "equal": lambda t, x: t.vmap(lambda v: t.equal(v, v))(x),
    "allclose": lambda t, x: t.vmap(lambda v: t.allclose(v, v))(x),
    "backward": lambda t, x: t.vmap(lambda v: v.sum().backward())(x),
    "requires_grad_": lambda t, x: t.vmap(lambda v: v.requires_grad_())(x),
    "copy into shared": lambda t, x: t.vmap(lambda v: t.zeros(3, dtype=v.dtype).copy_(v))(x),
    "out": lambda t, x: t.vmap(lambda v: t.add(v, v, out=v.clone()))(x),
    "out_dims None": lambda t, x: t.vmap(lambda v: v * 2, out_dims=None)(x),
    "out_dims beyond": lambda t, x: t.vmap(lambda v: v, out_dims=2)(x),
    "dim": lambda t, x: t.vmap(lambda v: v.sum(1))(x),
    "dim of softmax": lambda t, x: t.vmap(lambda v: v.softmax(-2))(x),
    "random": lambda t, x: t.vmap(lambda v: v + t.rand(3))(x),
    "dropout": lambda t, x: t.vmap(lambda v: t.nn.functional.dropout(v))(x),
    "random in place": lambda t, x: t.vmap(lambda v: v.clone().normal_())(x),
    "random in shared": lambda t, x: t.vmap(
        lambda v: t.zeros(2).normal_(), randomness="different"
    )(x),
    "same of chances": lambda t, x: t.vmap(
        lambda v: t.bernoulli(v.sigmoid()), randomness="same"
    )(x),
    "shuffle of planes": lambda t, x: t.vmap(lambda v: t.pixel_shuffle(v, 2))(t.ones(4, 2, 2)),
    "unshuffle of planes": lambda t, x: t.vmap(lambda v: t.pixel_unshuffle(v, 2))(t.ones(4, 2, 2)),
    "adjoint of a row": lambda t, x: t.vmap(lambda v: v.adjoint())(x),
    "mT of a row": lambda t, x: t.vmap(lambda v: v.mT)(x),
    "determinant of a row": lambda t, x: t.vmap(lambda v: t.linalg.det(v))(x[:, :2]),
    "a number as complex": lambda t, x: t.vmap(lambda v: t.view_as_complex(v))(x[0, :2]),
    "a number shifted": lambda t, x: t.vmap(lambda v: t.fft.fftshift(v))(x[0]),
    "a number shifted along": lambda t, x: t.vmap(lambda v: t.fft.fftshift(v, 0))(x[0]),
    "targets of another size": lambda t, x: t.vmap(
        lambda v: t.nn.functional.binary_cross_entropy(v, v.sum())
    )(x.sigmoid()),
    "running statistics": lambda t, x: t.vmap(
        lambda v: t.nn.functional.batch_norm(v[:, None], t.zeros(1), t.ones(1), training=True)
    )(x.float()),
}  # fmt: skip


OF_PLACES = dict.fromkeys(
    ["out_dims beyond", "dim", "dim of softmax", "a number shifted along"], IndexError
)
OF_VALUES = dict.fromkeys(["out_dims None", "targets of another size"], ValueError)
CLASSES = {**OF_VALUES, **OF_PLACES}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    compare(REFUSALS[name], data(2, 3), refused=CLASSES.get(name, RuntimeError))


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda t, v: t.geqrf(v), RuntimeError),
        (lambda t, v: t.linalg.lu_factor_ex(v), RuntimeError),
        (lambda t, v: t.linalg.svdvals(v), RuntimeError),
        (lambda t, v: v[0].select(0, 0), IndexError),
        (lambda t, v: v[0].unbind(0), IndexError),
    ],
)
def test_samples_of_too_few_dimensions_are_refused(f: Case, error: type[Exception]) -> None:
    """In the words of the op; PyTorch's are often those of another."""
    for lib in (torch, skimp):
        with pytest.raises(error):
            lib.vmap(lambda v: f(lib, v))(lib.ones(2, 3))  # noqa: B023


def test_a_row_of_each_sample_is_a_matrix_to_triangles() -> None:
    """As PyTorch's rule has it, though the op refuses rows."""
    compare(lambda t, x: t.vmap(lambda v: (v.tril(), v.triu(1)))(x), data(2, 3))


def test_what_a_sample_says_of_itself() -> None:
    def case(t: Any, x: Any) -> Any:
        said: list[Any] = []

        def f(v: Any) -> Any:
            said.extend([tuple(v.shape), v.ndim, v.numel(), len(v), v.stride(), v.size(-1)])
            said.extend([v.is_contiguous(), str(v.dtype), v.is_floating_point(), v.dim()])
            return v.sum() * len(said)

        t.vmap(lambda v: said.append(repr(v)) or v)(x[0])
        return t.vmap(f, in_dims=1)(x), said

    compare(case, data(4, 2, 3))


# -- one call, and in pieces ----------------------------------------------------------------------


def test_the_function_runs_once_or_once_for_each_chunk() -> None:
    calls: list[int] = []

    def f(v: Any) -> Any:
        calls.append(len(v))
        return v.cumsum(0), v.sum()

    x = skimp.ones(7, 3)
    whole = skimp.vmap(f, out_dims=(1, 0))(x)
    assert calls == [3]
    pieces = skimp.vmap(f, out_dims=(1, 0), chunk_size=3)(x)
    assert calls == [3] * 4
    for a, b in zip(whole, pieces, strict=True):
        assert a.shape == b.shape
        assert a.equal(b)


def test_jacobians_run_backward_once() -> None:
    runs: list[int] = []

    class Tripled(skimp.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            runs.append(1)
            return g * 3

    x = skimp.arange(4.0)
    assert skimp.func.jacrev(Tripled.apply)(x).equal(skimp.eye(4) * 3)
    skimp.func.jacrev(Tripled.apply, chunk_size=2)(x)
    w = x.clone().requires_grad_()
    found = skimp.autograd.grad(Tripled.apply(w), w, skimp.eye(4), is_grads_batched=True)
    assert found[0].equal(skimp.eye(4) * 3)
    skimp.autograd.functional.jacobian(Tripled.apply, x, vectorize=True)
    assert len(runs) == 1 + 2 + 1 + 1


def functions_of_ones_own(t: Any, x: Any) -> Any:
    """With a rule of its own, with a generated one, and shared arguments."""

    class Scaled(t.autograd.Function):
        @staticmethod
        def forward(x: Any, w: Any, n: int) -> Any:
            return (x * w) ** n

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[:2])
            ctx.n = inputs[2]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            inner = g * ctx.n * (x * w) ** (ctx.n - 1)
            return inner * w, inner * x, None

    class ByRule(Scaled):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, w: Any, n: int) -> Any:
            x = x.movedim(in_dims[0], 0)
            w = w if in_dims[1] is None else w.movedim(in_dims[1], 0)
            return Scaled.apply(x, w, n).movedim(0, -1) * info.batch_size, -1

    class Generated(Scaled):
        generate_vmap_rule = True

    f = lambda c: lambda v, w: c.apply(v, w, 2)  # noqa: E731
    return [
        (t.vmap(f(c))(x, x + 1), t.vmap(f(c), (0, None))(x, x[0])) for c in (ByRule, Generated)
    ] + [
        t.vmap(t.func.grad(lambda v, w: f(Generated)(v, w).sum(), (0, 1)), (0, None))(x, x[0]),
        t.func.grad(lambda w: t.vmap(f(ByRule), (0, None))(x, w).sum())(x[0]),
    ]


def test_functions_of_ones_own() -> None:
    compare(functions_of_ones_own, data(4, 3))


def test_a_function_that_knows_no_batches_runs_on_samples() -> None:
    class Clipped(skimp.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return skimp.from_numpy(np.minimum(x.detach().numpy(), 1.0))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (x < 1)

    x = skimp.tensor([[0.5, 2.0], [-1.0, 3.0]])
    assert skimp.vmap(Clipped.apply)(x).tolist() == [[0.5, 1.0], [-1.0, 1.0]]
    found = skimp.vmap(skimp.func.grad(lambda v: Clipped.apply(v).sum()))(x)
    assert found.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def in_two_levels(t: Any, x: Any) -> Any:
    """Gradients of gradients of a write to a view: what has no rule goes sample by sample."""

    def f(v: Any) -> Any:
        y = v * v
        y[1:].mul_(v[:-1])
        return t.stack([y.prod(), y.sum()])

    _, back = t.func.vjp(f, x)
    rows = t.stack([t.eye(2, dtype=x.dtype), t.ones(2, 2, dtype=x.dtype)])
    return t.vmap(t.vmap(lambda g: back(g)[0]))(rows), t.func.jacrev(t.func.jacrev(f))(x)


def test_in_place_in_two_levels() -> None:
    compare(in_two_levels, data(4))


def _losses(nn: Any, x: Any, y: Any) -> list[Any]:
    names = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "multilabel_soft_margin_loss")
    made = [getattr(nn, name)(x, y, reduction=r) for name in names for r in ("mean", "none")]
    return [*made, nn.kl_div(x, y.sigmoid(), reduction="batchmean")]


def _images(nn: Any, x: Any, _: Any) -> list[Any]:
    modes = ("constant", "reflect", "replicate", "circular")
    top, places = nn.max_pool2d(x, 2, return_indices=True)
    return [
        *[nn.pad(x, (1, 2, 0, 1), mode) for mode in modes],
        *(nn.max_pool2d(x, 2), nn.lp_pool2d(x, 2.0, 2), nn.max_unpool2d(top, places, 2)),
        *(nn.adaptive_avg_pool2d(x, n) for n in (1, 3)),
        *nn.adaptive_max_pool2d(x, 3, return_indices=True)[:1],
        nn.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        nn.interpolate(x, size=(3, 5)),
    ]


@pytest.mark.parametrize("several", [_losses, _images])
def test_losses_and_images_of_samples_are_computed_at_once(several: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("skimp._ops.batching.call.drawn_alike", None)  # what goes one by one calls
    lead = (3, 2, 2) if several is _images else (3,)
    x, y = data(*lead, 4, 4), data(*lead, 4, 4, seed=1)

    def run(t: Any, a: Any, b: Any) -> Any:
        def loss(v: Any, w: Any) -> Any:
            return sum([(r * r.detach().cos()).sum() for r in several(t.nn.functional, v, w)])

        made = t.vmap(lambda v, w: several(t.nn.functional, v, w))(a, b)
        return *made, t.vmap(t.func.grad(loss))(a, b)

    compare(run, x, y)


def _solved(t: Any, x: Any, w: Any) -> Any:
    square = x.T @ x + t.eye(3, dtype=x.dtype)
    factors, pivots = t.linalg.lu_factor(square)
    table, places = t.linalg.ldl_factor(square)
    kinds = t.tensor([0, 2, 1, 1])
    return (
        t.linalg.lstsq(x, x[:, :2])[0], t.linalg.lu_solve(factors, pivots, w[:, None]),
        t.linalg.ldl_solve(table, places, w[:, None]),
        t.nn.functional.cross_entropy(x, kinds, weight=w.abs()),
        t.nn.functional.batch_norm(x, w * 1, w.abs(), training=True),
    )  # fmt: skip


def test_ops_that_look_at_numbers_or_write_to_their_arguments() -> None:
    compare(lambda t, x, w: t.vmap(lambda *s: _solved(t, *s))(x, w), data(2, 4, 3), data(2, 3))


@pytest.mark.parametrize("name", ["nn.functional.pad", "constant_pad_nd"])
def test_padding_of_more_dims_than_a_sample_has_is_refused(name: str) -> None:
    padded = attrgetter(name)(skimp)
    with pytest.raises(RuntimeError, match="should be no more than twice"):
        skimp.vmap(lambda v: padded(v, (1, 1, 1, 1)))(skimp.ones(3, 5))


def test_no_samples_of_ops_without_a_rule() -> None:
    def case(t: Any, x: Any) -> Any:
        return t.vmap(lambda v: (t.block_diag(v, v), t.histc(v, 3, 0, 1)))(x[:0])

    got = case(skimp, skimp.ones(2, 4, 3))
    assert [tuple(g.shape) for g in got] == [(0, 8, 6), (0, 3)]


def test_no_threads_vmap_is_anothers() -> None:
    import threading

    drawn: list[Any] = []

    def f(v: Any) -> Any:
        other = threading.Thread(target=lambda: drawn.append(skimp.rand(2)))
        other.start()
        other.join()
        return v * 2

    skimp.vmap(f)(skimp.ones(3))
    assert drawn[0].shape == (2,)
