"""What a fast path gives has the bits, the type and the strides of the general way."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import skimp
from skimp._engine.dispatch.forms import export
from skimp._engine.memory.ledger import host
from tests.support.frames import frames_of

ARRAY = np.arange(6.0).reshape(2, 3)


def some() -> list[Any]:
    return [
        *(
            skimp.tensor([[1.5, -2.0, 7.25]]),
            skimp.tensor([[3, -2, 5]]),
            skimp.tensor([[True] * 3]),
        ),
        *(skimp.tensor([[5, 2, 9]], dtype=skimp.uint8), skimp.tensor([[2.5, 3.0, -4.0]]).double()),
        *(skimp.tensor(3), skimp.tensor(2.5), skimp.tensor([[1.5, 2.0, 3.0]]).half()),
        skimp.tensor([[1.0], [2.0], [4.0]]).t(),
    ]


MAKERS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: [skimp.zeros(2, 3), skimp.zeros((4,)), skimp.zeros([1, 2]), skimp.zeros(5)],
    "ones": lambda: [skimp.ones(2, 3), skimp.ones((4,)), skimp.ones(skimp.Size([2, 2]))],
    "arange": lambda: [
        skimp.arange(*given)
        for given in ((5,), (2, 9), (2, 9, 3), (-3, 3, 2), (0,), (7, 2, -2), (2.5,))
    ],
    "arange of a type": lambda: [
        skimp.arange(*given, dtype=dtype)
        for given in ((5,), (0, 9, 4), (3, 0, -1), (0.3, 4, 0.7), (-0.0, 3), (2, 2**54, 2**52))
        for dtype in (skimp.float32, skimp.float64, skimp.float16)
    ],
    "places, mirror images, numbers": lambda: [
        *(skimp.arange(1, 3).nonzero(), *skimp.tensor(ARRAY > 2).nonzero(as_tuple=True)),
        *[skimp.argwhere(skimp.tensor(least < ARRAY)) for least in (-1, 2, 4, 9)],
        *[skimp.flip(skimp.tensor(ARRAY), dims) for dims in ([0], [1], [-1, 0], (1,), [])],
        *[
            skimp.where(skimp.tensor(ARRAY > 2), *two)
            for two in ((1.0, -0.0), (1, 2**60), (1, 0.5))
        ],
    ],
    "eye": lambda: [
        skimp.eye(*sizes, **words)
        for sizes in ((3,), (1,), (2, 5), (5, 2), (4, 1), (0,), (3, 0))
        for words in ({}, {"dtype": skimp.float64}, {"dtype": skimp.int64}, {"device": "cpu"})
    ],
    "nothing": lambda: [skimp.arange(0, dtype=d) for d in (None, skimp.float32, skimp.int64)],
    "with a type and a place": lambda: [
        made
        for words in (
            {"device": "cpu"},
            {"device": skimp.device("cpu")},
            {"device": None},
            {"requires_grad": False, "pin_memory": False},
            {"dtype": skimp.int64, "device": "cpu"},
            {"dtype": float},
            {"dtype": skimp.bfloat16},
            {"requires_grad": True},
        )
        for made in (
            skimp.zeros(2, 3, **words),
            skimp.ones((1, 2), **words),
            skimp.rand(2, 3).new_ones(2, **words),
            skimp.zeros_like(skimp.rand(2, 3), **words),
            skimp.full((2,), 3, **{"dtype": skimp.float32, **words}),
            skimp.arange(2, 5, **{"dtype": skimp.float32, **words}),
        )
    ],
    "like": lambda: [
        make(like)
        for make in (skimp.zeros_like, skimp.ones_like)
        for base in (skimp.rand(3, 4), skimp.rand(2, 3).double(), skimp.rand(0), skimp.rand(()))
        for like in (
            base,
            base > 0,
            base.t() if base.ndim == 2 else base,
            base.expand(2, *base.shape),
        )
    ],
    "lists": lambda: [
        skimp.tensor(given, dtype=dtype)
        for given in (
            [1.5, 1e300, -0.0],
            [1, -2, 3],
            [True, 2],
            [1, 2.5],
            [],
            [[1, 2], [3, 4]],
            [[], []],
            [[1.5, -0.0], [100.0, 2.0]],
            [[1.0, 2], [3.0, 4.0]],
            [[1, True]],
            [[[1, 2]], [[3, 4]]],
        )
        for dtype in (None, skimp.float32, skimp.float64, skimp.float16, skimp.int64, skimp.int8)
        if 1e300 not in given or dtype in (None, skimp.float32, skimp.float64)
    ],
    "indices": lambda: [
        x[index]
        for x in (skimp.arange(12.0).reshape(4, 3), skimp.arange(4))
        for index in ([0, 3, -1], [-4], [], [True, False, True, False])
    ],
    "bits": lambda: [
        f(a, b)
        for f in (operator.and_, operator.or_, operator.xor, skimp.add, skimp.mul, skimp.maximum)
        for x in (skimp.arange(6).reshape(2, 3), skimp.arange(6).reshape(2, 3) > 2)
        for a, b in ((x, x.flip(0)), (x, x[:1]), (x[:, :1], x), (x.t(), x.t()), (x[0, 0], x))
    ],
    "tops": lambda: [
        f(x, 1)
        for x in (skimp.randn(80, 11), skimp.randn(80, 1), skimp.randn(3, 80, 5))
        for f in (skimp.softmax, skimp.log_softmax, skimp.logsumexp)
    ],
    "shared": lambda: [skimp.from_numpy(a) for a in (ARRAY, ARRAY.T, ARRAY[1:], ARRAY[:0])],
    "full": lambda: [
        make
        for value in (2, 2.5, True, -0.0, float("inf"), float("nan"), 1e30)
        for dtype in (None, skimp.float32, skimp.float64, skimp.int64)
        if dtype is not skimp.int64 or value == 2
        for make in (
            skimp.full((2, 3), value, dtype=dtype),
            skimp.full_like(skimp.ones(3, 2, dtype=dtype).t(), value),
            skimp.full_like(skimp.ones(2, 3, dtype=dtype), value),
        )
    ],
    "new": lambda: [
        make
        for base in (skimp.ones(3), skimp.ones(3).half(), skimp.arange(4), skimp.ones(3) > 0)
        for make in (base.new_zeros(2, 3), base.new_ones((4,)), base.new_zeros(()))
    ],
    "casts": lambda: [
        x.to(dtype)
        for x in (
            skimp.tensor([1e300, -2.75, 3.0, float("nan")], dtype=skimp.float64),
            skimp.tensor([1e10, -2.75, 70000.0, float("inf")]),
            skimp.tensor([300, -1, 7]),
            skimp.tensor([True, False]),
            skimp.tensor([[1.5, -2.5], [3.5, 0.1]]).bfloat16().t(),
            skimp.tensor([1.5 + 2j]),
        )
        for dtype in (
            *(skimp.float16, skimp.bfloat16, skimp.float32, skimp.float64, skimp.complex64),
            *(skimp.int64, skimp.int32, skimp.int8, skimp.uint8, skimp.bool),
        )
        if not x.is_complex() or dtype is skimp.complex64
    ],
    "mixed": lambda: [
        f(a, b)
        for f in (
            *(skimp.add, skimp.sub, skimp.mul, skimp.div, skimp.remainder, skimp.fmod),
            *(skimp.maximum, skimp.lt, skimp.eq, skimp.atan2, skimp.floor_divide),
        )
        for a, b in product(some(), some())
        if skimp.bool not in (a.dtype, b.dtype) or f in (skimp.add, skimp.mul, skimp.div, skimp.lt)
    ],
    "beside numbers": lambda: [
        f(a, number)
        for f in (skimp.add, skimp.mul, skimp.div, skimp.remainder, skimp.pow, skimp.gt)
        for a in some()
        for number in (2, 2.5, True)
        if not (a.dtype is skimp.bool and number is True) or f in (skimp.add, skimp.gt)
    ],
    "three": lambda: [
        made
        for a, b in product(some(), some())
        if skimp.bool not in (a.dtype, b.dtype) and a.shape == b.shape
        for made in (
            skimp.addcmul(a, a, b, value=2),
            a.clone().float().addcdiv_(a.float(), b.float() + 1, value=-0.5),
            a.clone().float().lerp_(b.float(), 0.3),
            a.clone().float().clamp_(0.5, 2),
            skimp.where(a > 1, a, b),
        )
    ],
    "in place": lambda: [
        f(a.clone().double(), b)
        for f in (skimp.Tensor.remainder_, skimp.Tensor.atan2_, skimp.Tensor.fmod_)
        for a, b in product(some(), some())
        if a.shape == b.shape
    ],
    "reversed": lambda: [skimp.arange(6.0).reshape(2, 3).flip(*d) for d in ((0,), (1,), (0, 1))],
    "no sizes": lambda: [skimp.zeros(()), skimp.ones(0), skimp.zeros(2, 0)],
}


def shown(t: Any) -> Any:
    """A stride of a dimension of size 1 leads nowhere, and is not compared."""
    strides = [step for step, n in zip(t.stride(), t.shape, strict=True) if n != 1]
    dense = t.clone(memory_format=skimp.contiguous_format)
    return t.dtype, tuple(t.shape), strides, dense.flatten().view(skimp.uint8).tolist()


def both_ways(f: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """What `f` gives with small arrays at hand, and without."""
    if not skimp.config.small_below:
        pytest.skip("there is no fast path in this mode")
    skimp.manual_seed(0)
    fast = [shown(t) for t in f()]
    skimp.manual_seed(0)
    with skimp.config.using(small_below=0):
        return fast, [shown(t) for t in f()]


def test_a_fast_path_that_no_call_would_reach_is_refused() -> None:
    def anything(*args: Any, **kwargs: Any) -> None:
        """Takes what comes."""

    with pytest.raises(TypeError, match="would never be asked"):
        export("made_up_for_a_test", anything, (), False, fast=lambda input: None)


def test_calls_that_draw_reach_their_fast_paths() -> None:
    chances = skimp.full((4, 4), 0.5)
    with skimp.config.using(defer="never"):
        for draw in (
            lambda: skimp.nn.functional.dropout(chances),
            lambda: skimp.bernoulli(chances),
            lambda: skimp.randperm(9),
            lambda: skimp.randint(0, 9, (4,)),
            lambda: skimp.randn(16),
            lambda: skimp.randn(16, device="cpu", dtype=skimp.float32),
            lambda: skimp.randint(0, 9, (4,), device=chances.device, dtype=skimp.int64),
            lambda: skimp.zeros(4, dtype=skimp.int64, device="cpu"),
            lambda: skimp.arange(4, device=chances.device),
        ):
            draw()
            assert len(frames_of(draw, warm=1)) < 15  # 20 to 40 the general way


@pytest.mark.parametrize("name", MAKERS)
def test_makers(name: str) -> None:
    fast, general = both_ways(MAKERS[name])
    assert fast == general


@pytest.mark.parametrize("dtype", [skimp.float32, skimp.float64, skimp.int64, skimp.bool])
def test_triangles_and_parts(dtype: Any) -> None:
    def run() -> Iterator[Any]:
        for rows, columns in product((1, 3, 5), repeat=2):
            x = (skimp.arange(rows * columns) % 3).to(dtype).reshape(rows, columns)
            for diagonal in (-2, 0, 1, 7):
                yield from (x.tril(diagonal), x.triu(diagonal), x.t().tril(diagonal))
            for dim in (0, 1, -1):
                yield x.narrow(dim, 0, 1)
                yield x.narrow(dim, x.shape[dim] - 1, 1)

    fast, general = both_ways(run)
    assert fast == general


@pytest.mark.parametrize("turned", list(product((False, True), repeat=2)))
def test_gradients_of_sums_of_products(turned: tuple[bool, bool]) -> None:
    """A sum's gradient is one element, expanded: products and biases take it as it lies."""
    generator = skimp.Generator().manual_seed(0)

    def matrix(rows: int, columns: int, lies: bool) -> Any:
        made = skimp.randn(columns, rows, generator=generator).t()
        return (made if lies else made.contiguous()).detach().requires_grad_()

    def run() -> Iterator[Any]:
        generator.manual_seed(0)
        for m, k, n in product((1, 2, 7, 33, 63), (1, 5, 16), (1, 2, 31, 64)):
            a, b = matrix(m, k, turned[0]), matrix(k, n, turned[1])
            bias = skimp.zeros(n, requires_grad=True)
            ((a @ b + bias).sum() * 0.3).backward()
            yield from (a.grad, b.grad, bias.grad)

    fast, general = both_ways(run)
    assert fast == general


def test_products_of_batches_however_they_lie() -> None:
    generator = skimp.Generator().manual_seed(0)

    def lying(*shape: int) -> Iterator[Any]:
        made = skimp.randn(*shape, generator=generator)
        yield made
        yield made.mT.contiguous().mT
        yield made.transpose(0, 1).contiguous().transpose(0, 1)
        yield skimp.stack([made, made], -1)[..., 0]
        yield made[:1, :1, :1].expand(shape)

    def run() -> Iterator[Any]:
        generator.manual_seed(0)
        for m, k, n in product((1, 9), (1, 5), (1, 7)):
            for x, y in product(lying(2, 3, m, k), lying(2, 3, k, n)):
                a, b = x.detach().requires_grad_(), y.detach().requires_grad_()
                made = a @ b
                made.sum().backward()
                (a @ b).square().sum().backward()
                flat, other = a.detach().flatten(0, 1), b.detach().flatten(0, 1)
                yield from (made, a.grad, b.grad, skimp.bmm(flat, other), a @ b.double().float())

    fast, general = both_ways(run)
    assert fast == general


def test_writes_are_counted_and_refused() -> None:
    """A short write counts as a write: what was saved is refused, who reads it materializes."""
    for write in (
        lambda t: t.add_(1.0),
        lambda t: t.mul_(t),
        lambda t: t.clamp_(0, 1),
        lambda t: t.lerp_(t, 0.5),
        lambda t: t.sub_(t, alpha=0.5),
    ):
        x = skimp.ones(3)
        write(x)
        assert x._version == 1
        w = skimp.ones(3, requires_grad=True)
        y = (w * x).sum()
        write(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_questions_are_answered_alike() -> None:
    def run() -> Iterator[Any]:
        for x in (skimp.ones(2, 3), skimp.ones(2, 3).t(), skimp.ones(1, 1), skimp.zeros(())):
            asked = (x.size(), x.dim(), x.numel(), x.stride(), x.is_contiguous(), x.element_size())
            yield [*asked, [x.size(d) for d in range(-x.dim(), x.dim())]]
            if x.numel() == 1:
                yield x.item()

    fast = list(run())
    with skimp.config.using(small_below=0):
        assert fast == list(run())
    with pytest.raises(IndexError):
        skimp.ones(2).size(1)
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        skimp.ones(2).item()


def test_an_array_of_a_tensor_keeps_its_storage() -> None:
    before = host.allocated
    x = skimp.ones(3)
    a = x.numpy()
    x.add_(1)
    assert a.tolist() == [2, 2, 2]
    a[0] = 7
    assert x.tolist() == [7, 2, 2]
    del x
    assert a.tolist() == [7, 2, 2]
    assert host.allocated - before == 12


def lying(make: Callable[[int, int], Any]) -> Iterator[Any]:
    """Small tensors of some shapes that lie in every way: turned, with gaps, expanded."""
    for m, n in ((1, 1), (1, 6), (5, 1), (4, 6)):
        made = make(m, n)
        yield made
        yield made.t().contiguous().t()
        yield make(2 * m, n + 1)[::2, 1:]
        yield made[:, :1].expand(m, n)
        yield made[:1, :1].expand(m, n)


def floats_that_lie() -> Iterator[Any]:
    generator = skimp.Generator().manual_seed(0)
    return lying(lambda m, n: skimp.randn(m, n, generator=generator))


def integers_that_lie() -> Iterator[Any]:
    generator = skimp.Generator().manual_seed(0)
    return lying(lambda m, n: skimp.randint(-3, 3, (m, n), generator=generator))


OF_ANY_LAYOUT: dict[str, Callable[[Any], list[Any]]] = {
    "rows": lambda x: [
        *(x.softmax(d) for d in (0, 1)),
        *(x.log_softmax(d) for d in (0, 1)),
        *(x.logsumexp(1), x.norm(), *x.sort(1), *x.kthvalue(1, 1)),
        *(x.logsumexp(d, keep) for d in (0, (0, 1)) for keep in BOTH),
        *(x[:, 0], x[0], x[-1, :1], x[None, :, :1]),
    ],
    "reductions": lambda x: [
        *(f(d, keep) for f in (x.sum, x.mean, x.amax) for d in (0, 1, (0, 1)) for keep in BOTH),
        *(f(d, keep) for f in (x.argmax, x.argmin) for d in (0, -1) for keep in BOTH),
        *(part for d in (0, 1) for keep in BOTH for part in x.max(d, keep)),
        *(x.sum(), x.mean(), x.var(1, correction=0), x.max(), skimp.min(x, -x)),
    ],
    "norms": lambda x: [
        *(skimp.nn.functional.layer_norm(x, x.shape[1:], w, w) for w in (None, x[0].clone())),
        skimp.nn.functional.layer_norm(x[:1], x.shape[1:], x[0].clone()),
        skimp.nn.functional.linear(x[0].contiguous(), x, x[:, 0].contiguous()),
        *(
            skimp.nn.functional.scaled_dot_product_attention(q, x[None], x[None], is_causal=c)
            for q in (x[None], 40 * x[None]) for c in BOTH
        ),
        skimp.nn.functional.scaled_dot_product_attention(*(x[None, :, None] for _ in range(3))),
    ],
    "joints": lambda x: [
        *(skimp.cat([x, x + 1], d) for d in (0, 1)),
        *(skimp.stack([x, x.clone(), x], d) for d in (0, 1, 2)),
        *skimp.cat([x[None, None], x[None, None]], 1).split(1, 1),
    ],
    "shapes": lambda x: [
        *(x.reshape(-1), x.reshape(1, *x.shape), x.reshape(x.shape[::-1]), x.double()),
    ],
    "products": lambda x: [
        x @ x.t(), x.t() @ x, skimp.addmm(x[0], x @ x.t(), x), skimp.mm(x, x.t().contiguous()),
        skimp.nn.functional.linear(x, x, x[:, 0].contiguous()),
        skimp.nn.functional.linear(x[None], x, x[:, 0].contiguous()),
        skimp.nn.functional.linear(x[None], x),
        x[0] @ x.t(), x[:, 0] @ x, x[0].clone() @ x.t(), x[0] @ x.t()[:, :0], x[0] @ x[-1],
        x[:, 0].dot(x.t()[-1]), x @ x[0], x[:0, 0] @ x[:0],
    ],
}  # fmt: skip
BOTH = (False, True)


@pytest.mark.parametrize("name", OF_ANY_LAYOUT)
def test_small_tensors_however_they_lie(name: str) -> None:
    """Values, strides and gradients, whose own may lie in any way too."""

    def run() -> Iterator[Any]:
        for x in floats_that_lie():
            yield from OF_ANY_LAYOUT[name](x)
            given = x.detach().requires_grad_()
            parts = [t for t in OF_ANY_LAYOUT[name](given) if t.requires_grad]
            for i, part in enumerate(parts):
                yield from skimp.autograd.grad(part.sum(), given, retain_graph=True)
                weights = skimp.arange(1.0, part.numel() + 1).reshape(part.shape)
                last = i == len(parts) - 1
                loss = (part * weights.to(part.dtype)).sum()
                yield from skimp.autograd.grad(loss, given, retain_graph=not last)

    fast, general = both_ways(run)
    assert fast == general


def test_logsumexp_of_no_dim_is_refused() -> None:
    with pytest.raises(TypeError, match="dim"):
        skimp.ones(2, 3).logsumexp(None)


def test_small_integers_and_bools_however_they_lie() -> None:
    def run() -> Iterator[Any]:
        for x in integers_that_lie():
            for t in (x, x > 0, x.int(), x.byte()):
                yield from (t.sum(), t.sum(0), t.sum(-1, True), t.sum((0, 1)), t.sum((1, 0), True))
                yield from (skimp.cat([t, t], 1), t.reshape(-1), t.float())
            yield from ((x > 0).all(0), (x > 0).any(1, True), (x > 0).all(), (x > 0).any(dim=-1))
            yield from (x[[0]], x[:, [-1]], x[[0], [0]], x[[0, -1]])

    fast, general = both_ways(run)
    assert fast == general


def test_gradients_of_few_pieces_are_zeros_for_the_others() -> None:
    def run() -> Iterator[Any]:
        x = skimp.arange(24.0).reshape(2, 3, 4).requires_grad_()
        for pieces in (x.split(2, 2), x.chunk(3, 1), x.unbind(0), x[:, :1].split([1, 3], -1)):
            yield from pieces
            yield from skimp.autograd.grad((pieces[-1] ** 2).sum(), x)

    fast, general = both_ways(run)
    assert fast == general


@pytest.mark.parametrize("dtype", [skimp.float16, skimp.bfloat16])
@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.truediv, operator.gt])
def test_half_precision_is_computed_in_float32_and_rounded_once(op: Any, dtype: Any) -> None:
    x = skimp.linspace(-3, 3, 24).view(4, 6).to(dtype)
    for y in (x.flip(0) + 1, x[0] * 2, 1.7, skimp.tensor(0.3, dtype=dtype)):
        wide = y.float() if isinstance(y, skimp.Tensor) else y
        expected = op(x.float(), wide)
        made = op(x, y)
        assert made.dtype is (skimp.bool if op is operator.gt else dtype)
        assert made.tolist() == expected.to(made.dtype).tolist()
    if skimp.config.small_below:  # where nothing is deferred, or large things only
        assert len(frames_of(lambda: op(x, x))) < 20  # 31 the general way
    into = x.clone()
    assert into.add_(x, alpha=1).tolist() == (x.float() + x.float()).to(dtype).tolist()


@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.lt, operator.eq, skimp.add, skimp.maximum],
)
@pytest.mark.parametrize("grad", [False, True])
def test_shapes_that_do_not_fit_are_told_in_pytorchs_words_alone(op: Any, grad: bool) -> None:
    """Not after NumPy's: a traceback shows what an exception came from, too."""
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match") as refused:
        op(skimp.ones(3, requires_grad=grad), skimp.ones(4))
    assert refused.value.__context__ is None
