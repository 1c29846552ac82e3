"""softmax, normalisation and cross_entropy, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from tests.support.functional import both, randn
from tests.support.samples import agree, same, twin

F = skimp.nn.functional
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 7), 1), ((5, 7), 0), ((2, 3, 4), 1), ((), 0), ((0, 3), 1), ((3, 0), 1)]
)
def test_softmax(name: str, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    both(name, randn(*shape, dtype=dtype, grad=True), dim)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), [((300, 700), -1), ((300, 700), 0), ((7, 90, 300), 1)])
@pytest.mark.parametrize("shift", [0.0, 100.0, -100.0])
def test_softmax_of_many_blocks(name: str, shape: tuple[int, ...], dim: int, shift: float) -> None:
    both(name, (randn(*shape) + shift).requires_grad_(), dim)


def test_softmax_of_a_deferred_storage_writes_only_its_result() -> None:
    x = skimp.randn(512, 1024)
    y = F.softmax(x * 2 + 1, dim=-1)
    want = torch.softmax(torch.from_numpy(x.numpy().copy()) * 2 + 1, -1)
    same(y, want, None, strides=False)


def test_softmax_special_values() -> None:
    rows = torch.tensor(
        [[float("-inf")] * 3, [float("inf"), 0, 1], [float("nan"), 0, 1], [1e30, 0, -1e30]]
    )
    both("softmax", rows, -1)
    both("log_softmax", rows, -1)


@pytest.mark.parametrize("of", ["softmax", "log_softmax", "cross_entropy"])
@pytest.mark.parametrize("far", [200.0, -200.0])
def test_the_bits_of_a_row_do_not_depend_on_other_rows(of: str, far: float) -> None:
    """One row asks for its largest element to be subtracted; how many rows are a block is up to the
    number of threads."""
    x = randn(1500, 512).numpy()
    x[5] += far
    function = getattr(F, of)

    def rows(x: Any) -> Any:
        t = skimp.from_numpy(x.copy())
        if of != "cross_entropy":
            return function(t, -1).numpy()
        return function(t, skimp.zeros(len(x), dtype=skimp.int64), reduction="none").numpy()

    alone = np.concatenate([rows(x[n : n + 1]) for n in range(12)])
    for threads in (1, 2, 3):
        with skimp.config.using(threads=threads):
            found = rows(x)
        np.testing.assert_array_equal(found[:12], alone)
        np.testing.assert_array_equal(found[12:], rows(x[12:]))


def test_softmax_in_another_type_and_without_a_dim() -> None:
    both("softmax", torch.arange(6).reshape(2, 3), -1, dtype=torch.float64)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        F.softmax(skimp.ones(2, 3))
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        F.softmax(skimp.ones(2, 3, dtype=skimp.int64), 0)
    with pytest.raises(IndexError):
        F.softmax(skimp.ones(2), 1)


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["mean", "sum", "none"]),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_cross_entropy(
    n: int, c: int, inner: int, reduction: str, weighted: bool, smoothing: float, flat: bool
) -> None:
    shape = (n, c) if flat else (n, c, inner)
    target = torch.randint(0, c, (n,) if flat else (n, inner))
    weight = torch.rand(c) + 0.1 if weighted else None
    words: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    both("cross_entropy", randn(*shape, grad=True), target, **words)
    target.view(-1)[0] = -100
    target.view(-1)[-1] = 0
    both("cross_entropy", randn(*shape, grad=True), target, **words)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy_of_many_blocks(dtype: torch.dtype) -> None:
    both("cross_entropy", randn(300, 1000, dtype=dtype, grad=True), torch.randint(0, 1000, (300,)))


def test_cross_entropy_of_one_row_and_of_probabilities() -> None:
    both("cross_entropy", randn(5, grad=True), torch.tensor(3))
    for smoothing in (0.0, 0.2):
        both(
            "cross_entropy",
            randn(4, 5, grad=True),
            torch.rand(4, 5),
            weight=torch.rand(5),
            label_smoothing=smoothing,
        )


def test_cross_entropy_never_writes_the_probabilities() -> None:
    x, t = skimp.randn(512, 2048), skimp.randint(0, 2048, (512,))
    x.untyped_storage().data_ptr()
    before = (
        skimp.memory_allocated()
        if hasattr(skimp, "memory_allocated")
        else skimp.cuda.memory_allocated()
    )
    skimp.cuda.reset_peak_memory_stats()
    F.cross_entropy(x, t)
    assert skimp.cuda.max_memory_allocated() - before < x.nbytes // 4


def test_cross_entropy_refuses() -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(skimp.randn(2, 3), skimp.tensor([0, 3]))
    with pytest.raises(ValueError, match="Expected input batch_size"):
        F.cross_entropy(skimp.randn(2, 3), skimp.tensor([0, 1, 2]))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss(reduction: str) -> None:
    both(
        "nll_loss",
        randn(4, 5, grad=True),
        torch.tensor([0, 4, -100, 2]),
        weight=torch.rand(5),
        reduction=reduction,
    )
    both(
        "nll_loss",
        randn(2, 5, 3, grad=True),
        torch.randint(0, 5, (2, 3)),
        reduction=reduction,
        ignore_index=1,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "rows"), [((4, 6), (6,)), ((2, 3, 4), (3, 4)), ((200, 300), (300,)), ((0, 3), (3,))]
)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(
    shape: tuple[int, ...], rows: tuple[int, ...], affine: bool, dtype: torch.dtype
) -> None:
    w = b = None
    if affine:
        w, b = randn(*rows, dtype=dtype, grad=True), randn(*rows, dtype=dtype, grad=True)
    tolerance = 0.3 if dtype is torch.bfloat16 else 0.05 if dtype is torch.float16 else 1e-4
    both("layer_norm", randn(*shape, dtype=dtype, grad=True), rows, w, b, tolerance=tolerance)
    both("rms_norm", randn(*shape, dtype=dtype, grad=True), rows, w, tolerance=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_images_far_from_zero(dtype: torch.dtype, affine: bool) -> None:
    """Rows of places are summed one by one: neither a large mean nor images that differ cost
    digits."""
    centre = torch.arange(4.0).reshape(4, 1, 1, 1) * 30
    x = (randn(4, 3, 5, 6) + centre).to(dtype).requires_grad_()
    w, b = [randn(3, dtype=dtype, grad=True) if affine else None for _ in range(2)]
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-4
    both("batch_norm", x, None, None, w, b, True, tolerance=tolerance)


def test_batch_norm_of_a_small_tensor_has_no_temporary_of_its_size() -> None:
    x = skimp.randn(16, 8, 16, 16).requires_grad_()
    y = F.batch_norm(x, None, None, training=True)
    seed = skimp.randn(16, 8, 16, 16)
    skimp.cuda.reset_peak_memory_stats()
    before = skimp.cuda.memory_allocated()
    (dx,) = skimp.autograd.grad(y, x, seed)
    small = 64 * 1024  # of the channels' numbers
    assert skimp.cuda.max_memory_allocated() - before - dx.numel() * 4 < small


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_its_running_statistics(training: bool) -> None:
    mean, var = torch.rand(3), torch.rand(3) + 0.5
    my_mean, my_var = twin(mean), twin(var)
    x = randn(4, 3, 5, 6)
    w, b = randn(3), randn(3)
    want = torch.nn.functional.batch_norm(x, mean, var, w, b, training)
    got = F.batch_norm(twin(x), my_mean, my_var, twin(w), twin(b), training)
    same(got, want, None, strides=False)
    same(my_mean, mean, None, strides=False)
    same(my_var, var, None, strides=False)
    both(
        "batch_norm",
        x.requires_grad_(),
        mean.clone(),
        var.clone(),
        w.requires_grad_(),
        b.requires_grad_(),
        training,
    )
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(skimp.randn(1, 3), None, None, training=True)


@pytest.mark.parametrize("shape", [(2, 6, 4), (3, 4, 5, 5), (1, 2, 7)])
def test_group_and_instance_norm(shape: tuple[int, ...]) -> None:
    w, b = randn(shape[1], grad=True), randn(shape[1], grad=True)
    both("group_norm", randn(*shape, grad=True), 2, w, b)
    both("instance_norm", randn(*shape, grad=True), None, None, w, b)
    both("local_response_norm", randn(*shape, grad=True), 3)
    both("normalize", randn(*shape, grad=True))


@pytest.mark.parametrize("affine", ["none", "weight", "both"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm_of_large_images(affine: str, dtype: torch.dtype) -> None:
    """Those whose channels' places are rows of their own, which are joined for a group. Gradients
    are sums of thousands: in float64."""
    grad = dtype is torch.float64
    x = (randn(3, 6, 90, 90, dtype=dtype) * 2 + 1).requires_grad_(grad)
    w, b = [
        randn(6, dtype=dtype, grad=grad) if affine in (name, "both") else None
        for name in ("weight", "bias")
    ]
    both("group_norm", x, 2, w, b)


@pytest.mark.parametrize(
    ("shape", "groups", "native", "functional"),
    [
        *[((1, 4, 1, 1), 4, None, ValueError), ((1, 4), 4, None, ValueError)],
        *[((1, 3, 1), 2, RuntimeError, ValueError), ((2, 4), 0, RuntimeError, ZeroDivisionError)],
        ((2, 4), -1, RuntimeError, RuntimeError),
        *[((2, 4, 1, 1), 4, None, None), ((1, 4), 2, None, None), ((1, 4, 2), 4, None, None)],
        *[((1, 4, 0), 4, None, None), ((0, 4), 4, None, None)],
    ],
)
def test_group_norm_of_one_value_is_refused(
    shape: Any, groups: int, native: Any, functional: Any
) -> None:
    agree(lambda lib: lib.group_norm(lib.ones(shape), groups), refused=native)
    agree(lambda lib: lib.nn.functional.group_norm(lib.ones(shape), groups), refused=functional)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, 0),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.rms_norm(x, (4,)),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.group_norm(x, 2),
        lambda x: F.cross_entropy(x, skimp.tensor([1, 2, 0])),
        lambda x: F.cross_entropy(
            x, skimp.tensor([1, 2, 0]), label_smoothing=0.2, reduction="none"
        ),
    ],
)
def test_second_derivatives(call: Any) -> None:
    x = skimp.randn(3, 4, dtype=skimp.float64).requires_grad_()
    assert skimp.autograd.gradcheck(call, (x,))
    assert skimp.autograd.gradgradcheck(call, (x,))


def test_dropout_draws_the_same_zeros() -> None:
    x = randn(300, 40, grad=True)
    for name in ("dropout", "alpha_dropout"):
        torch.manual_seed(3)
        skimp.manual_seed(3)
        both(name, x, 0.3, True)
    image = randn(3, 4, 5, 5, grad=True)
    for name in ("dropout2d", "feature_alpha_dropout"):
        torch.manual_seed(4)
        skimp.manual_seed(4)
        both(name, image, 0.4, True)
    y = skimp.ones(3)
    assert F.dropout(y, 0.5, False) is y
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(y, 1.5)


def test_dropout_keeps_one_byte_for_an_element() -> None:
    x = skimp.ones(1 << 20).requires_grad_()
    before = skimp.cuda.memory_allocated()
    y = F.dropout(x, 0.5)
    y.data_ptr()
    assert skimp.cuda.memory_allocated() - before <= x.nbytes + (1 << 20) + (1 << 16)


def test_embedding() -> None:
    index = torch.randint(0, 10, (4, 6))
    for words in ({}, {"padding_idx": 3}, {"scale_grad_by_freq": True}):
        both("embedding", index, randn(10, 5, grad=True), **words)
    both("embedding", torch.randint(0, 2000, (50,)), randn(2000, 3, grad=True))
    with pytest.raises(IndexError, match="index out of range in self"):
        F.embedding(skimp.tensor([10]), skimp.ones(10, 2))
    table = randn(10, 5)
    mine = twin(table)
    same(
        F.embedding(twin(index), mine, max_norm=1.0),
        torch.nn.functional.embedding(index, table, max_norm=1.0),
        None,
        strides=False,
    )
    same(mine, table, None, strides=False)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "padding"), [("sum", None), ("mean", 0), ("sum", 2)])
def test_embedding_bag_refuses_places_outside(dtype: str, mode: str, padding: int | None) -> None:
    def bag(t: Any, rows: Any, at: Any, *weights: Any) -> Any:
        f = t.nn.functional.embedding_bag
        return f(
            at,
            rows,
            t.tensor([0]),
            None,
            2,
            False,
            mode,
            False,
            *weights or (None,),
            False,
            padding,
        )

    rows, at = torch.ones(4, 3, dtype=getattr(torch, dtype)), torch.tensor([1, -1, 2])
    agree(bag, rows, at, refused=RuntimeError, message=70)
    other = torch.ones(3, dtype=torch.float16)
    if mode == "sum":
        agree(bag, rows, at.abs(), other, refused=RuntimeError, message=180)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    index, offsets = torch.randint(0, 10, (12,)), torch.tensor([0, 3, 3, 8])
    both("embedding_bag", index, randn(10, 5, grad=True), offsets, mode=mode)
    both("embedding_bag", index.reshape(3, 4), randn(10, 5, grad=True), mode=mode)
    both(
        "embedding_bag",
        index,
        randn(10, 5, grad=True),
        offsets,
        mode=mode,
        padding_idx=int(index[4]),
    )
    none = torch.zeros(3, 2, dtype=torch.int64)  # nothing but padding
    both("embedding_bag", none, randn(10, 5, grad=True), mode=mode, padding_idx=0)
    if mode == "sum":
        weights = torch.rand(12).requires_grad_()
        both(
            "embedding_bag",
            index,
            randn(10, 5, grad=True),
            offsets,
            mode=mode,
            per_sample_weights=weights,
        )


def test_bags_do_not_begin_before_the_bag_before_them() -> None:
    index = [1, 2, 3, 0]

    def made(library: Any, offsets: list[int], mode: str) -> Any:
        weight = library.arange(8.0).reshape(4, 2)
        given = library.tensor(index), weight, library.tensor(offsets)
        return library.nn.functional.embedding_bag(*given, mode=mode).tolist()

    for offsets in ([0, 2, 1], [0, 4, 1], [0, 1, 0], [0, 0, 2]):
        assert made(skimp, offsets, "max") == made(torch, offsets, "max")
    for offsets in ([0, 2, 1], [0, 4, 1], [0, 1, 0], [0, -1, 2]):
        for mode in ("sum", "mean"):  # where PyTorch adds up what lies beside the table
            with pytest.raises(RuntimeError, match="at least the one before it"):
                made(skimp, offsets, mode)
    with pytest.raises(IndexError):
        made(skimp, [0, -1, 2], "max")


def test_rows_do_not_depend_on_deferral() -> None:
    x = np.random.default_rng(0).standard_normal((700, 300)).astype(np.float32)
    found = []
    for mode in ("never", "always"):
        with skimp.config.using(defer=mode):
            t = skimp.from_numpy(x) * 2
            found.append(
                [F.softmax(t, -1).numpy(), F.layer_norm(t, (300,)).numpy(), F.softmax(t, 0).numpy()]
            )
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_attention_in_several_heads_as_a_function() -> None:
    q, k, v = randn(3, 2, 8, grad=True), randn(5, 2, 8, grad=True), randn(5, 2, 8, grad=True)
    w, b, o, ob = randn(24, 8, grad=True), randn(24), randn(8, 8, grad=True), randn(8)
    for words in (
        {},
        {"need_weights": False},
        {"average_attn_weights": False, "key_padding_mask": torch.arange(5).expand(2, 5) > 3},
    ):
        both("multi_head_attention_forward", q, k, v, 8, 2, w, b, None, None, False, 0.0, o, ob,
             tolerance=1e-4, **words)  # fmt: skip


def test_pools_that_always_give_indices() -> None:
    both("adaptive_max_pool1d_with_indices", randn(2, 3, 10), 4)
    both("adaptive_max_pool2d_with_indices", randn(2, 3, 10, 8), (4, 3), return_indices=False)
    both("adaptive_max_pool3d_with_indices", randn(1, 2, 6, 6, 6), output_size=2)
    samples = torch.rand(2, 3, 2)
    both("fractional_max_pool2d_with_indices", randn(2, 3, 10, 8), 2, 4, _random_samples=samples)


@pytest.mark.parametrize("penalty", [False, True])
def test_a_net_with_batch_norm_is_called_several_times_before_backward(penalty: bool) -> None:
    """As discriminators and nets of pairs are; with a gradient penalty too."""

    def run(t: Any) -> Any:
        t.manual_seed(0)
        net = t.nn.Sequential(t.nn.BatchNorm2d(3), t.nn.LeakyReLU(0.2))
        x = t.linspace(-2, 3, 54, dtype=t.float64).reshape(2, 3, 3, 3).sin().requires_grad_()
        net = net.double()
        first, second = net(x), net(x.detach() * 2)
        loss = (first * second.exp()).sum()
        if penalty:
            (g,) = t.autograd.grad(loss, x, create_graph=True)
            loss = loss + (g.norm() - 1) ** 2 + net(x**2).pow(2).sum()
        loss.backward()
        running = net[0].running_mean, net[0].running_var
        versions = [t_._version for t_ in running]
        return [v.tolist() for v in (loss, x.grad, net[0].weight.grad, *running)], versions

    ours, theirs = run(skimp), run(torch)
    assert ours[1] == theirs[1]
    for mine, want in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_running_statistics_that_were_written_to_are_noticed(training: bool) -> None:
    for t in (skimp, torch):
        net = t.nn.BatchNorm1d(2).train(training)
        y = net(t.rand(3, 2, requires_grad=True))
        net.running_mean.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_batch_norm_of_one_image_whose_gradient_arrives_transposed() -> None:
    """PyTorch's are wrong here (docs/differences.md): compared with those of a contiguous one."""
    x = skimp.randn(1, 3, 4, 5, dtype=skimp.float64, requires_grad=True)
    g = skimp.randn(1, 20, 3, dtype=skimp.float64)
    found = []
    for seed in (g, None):
        norm = skimp.nn.BatchNorm2d(3).double()
        y = norm(x)
        if seed is None:
            y.backward(g.transpose(1, 2).reshape(1, 3, 4, 5).contiguous())
        else:
            y.flatten(2).transpose(1, 2).backward(seed)
        found.append([t.numpy().copy() for t in (x.grad, norm.weight.grad, norm.bias.grad)])
        x.grad = None
    for mine, want in zip(*found, strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-12)


@pytest.mark.parametrize("size", [4, 200])
def test_group_norm_and_a_relu_in_place(size: int) -> None:
    def run(t: Any) -> Any:
        net = t.nn.Sequential(t.nn.GroupNorm(2, 4), t.nn.ReLU(inplace=True)).double()
        x = t.arange(4.0 * size * size, dtype=t.float64).sin().reshape(1, 4, size, size)
        x.requires_grad_()
        y = net(x)
        y.pow(3).sum().backward()
        return [v.detach().numpy() for v in (y, x.grad, net[0].weight.grad, net[0].bias.grad)]

    for mine, want in zip(run(skimp), run(torch), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrong", [None, 3, 1.5, [1.0, 2.0], "x"])
def test_linear_refuses_what_is_no_tensor_as_pytorch_does(wrong: Any) -> None:
    def says(t: Any) -> list[str]:
        linear, ones = t.nn.functional.linear, t.ones(2, 2)
        calls = (
            lambda: t.nn.Linear(2, 2)(wrong),
            lambda: t.nn.Linear(2, 2, bias=False)(wrong),
            lambda: linear(ones, wrong),
            lambda: linear(ones, ones, wrong) if wrong is not None else linear(wrong, ones),
        )
        found = []
        for call in calls:
            with pytest.raises(TypeError) as refused:
                call()
            found.append(str(refused.value))
        return found

    assert says(skimp) == says(torch)


@pytest.mark.parametrize("seed", range(60))
def test_a_last_offset_before_the_end(seed: int) -> None:
    """The last bag ends with the input, but where rows are added as they are read."""
    rng = np.random.RandomState(seed)
    mode, n = ["sum", "mean", "max"][seed % 3], rng.randint(1, 8)
    added = seed % 2 and mode != "max"
    places, table = rng.randint(0, 3, n), rng.randint(-9, 9, (3, 2)).astype("float32")
    offsets = [0, *sorted(rng.randint(0, n + 1, rng.randint(1, 4)))]
    kind = ["float64", "float32"][seed % 2]

    def run(t: Any) -> Any:
        w = t.tensor(table).to(getattr(t, kind)).requires_grad_()
        y = t.nn.functional.embedding_bag(
            t.tensor(places), w, t.tensor(offsets), mode=mode, include_last_offset=True
        )
        y.backward(t.ones_like(y))
        return y.tolist(), None if added else w.grad.tolist()  # PyTorch's own reads no memory of it

    assert str(run(skimp)) == str(run(torch))
