"""The losses, against PyTorch: each reduction, values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import skimp
from tests.support.functional import both, randn
from tests.support.samples import outcome

F = skimp.nn.functional
REDUCTIONS = ["mean", "sum", "none"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def signs(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape).float() * 2 - 1


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_distances(reduction: str, dtype: torch.dtype) -> None:
    x, y = randn(4, 5, dtype=dtype, grad=True), randn(4, 5, dtype=dtype, grad=True)
    tolerance = 0.2 if dtype is torch.bfloat16 else None
    for name, words in (
        ("mse_loss", {}),
        ("l1_loss", {}),
        ("smooth_l1_loss", {"beta": 0.5}),
        ("huber_loss", {"delta": 0.7}),
    ):
        both(name, x, y, reduction=reduction, tolerance=tolerance, **words)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_distances_of_many(reduction: str, spread: float) -> None:
    """All of which are near, and what is blended from a size on."""
    x, y = (torch.randn(2, 80, 70) * spread).unbind()
    x.requires_grad_()
    for name in ("smooth_l1_loss", "huber_loss"):
        both(name, x, y, reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_likelihoods(reduction: str) -> None:
    p = torch.rand(4, 5).clamp(0.01, 0.99).requires_grad_()
    both("binary_cross_entropy", p, torch.rand(4, 5), weight=torch.rand(5), reduction=reduction)
    both(
        "binary_cross_entropy",
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([1.0, 0.0, 1.0]),
        reduction=reduction,
    )
    x = randn(4, 5, grad=True)
    both("binary_cross_entropy_with_logits", x, torch.rand(4, 5), reduction=reduction)
    both(
        "binary_cross_entropy_with_logits",
        x,
        torch.rand(4, 5),
        torch.rand(5),
        pos_weight=torch.rand(5),
        reduction=reduction,
    )
    both("poisson_nll_loss", x, torch.rand(4, 5) * 3, full=True, reduction=reduction)
    both(
        "gaussian_nll_loss",
        x,
        randn(4, 5),
        torch.rand(4, 1).requires_grad_(),
        full=True,
        reduction=reduction,
    )


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction: str) -> None:
    target = torch.rand(4, 5)
    target[0, 0] = 0
    both("kl_div", randn(4, 5, grad=True), target, reduction=reduction)
    both("kl_div", randn(4, 5, grad=True), randn(4, 5), reduction=reduction, log_target=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins(reduction: str) -> None:
    x, y, z = (randn(4, 5, grad=True) for _ in range(3))
    both("soft_margin_loss", x, signs(4, 5), reduction=reduction)
    both("hinge_embedding_loss", x, signs(4, 5), reduction=reduction)
    both("margin_ranking_loss", x, y, signs(4, 5), margin=0.3, reduction=reduction)
    both("cosine_embedding_loss", x, y, signs(4), margin=0.1, reduction=reduction)
    both("triplet_margin_loss", x, y, z, swap=True, reduction=reduction)
    both("triplet_margin_with_distance_loss", x, y, z, reduction=reduction)
    both("multilabel_soft_margin_loss", x, torch.rand(4, 5).round(), reduction=reduction)
    both(
        "multi_margin_loss",
        x,
        torch.randint(0, 5, (4,)),
        p=2,
        weight=torch.rand(5),
        reduction=reduction,
    )
    target = torch.tensor(
        [[0, 3, -1, 2, 2], [-1, 0, 0, 0, 0], [4, 1, 0, 2, 3], [2, -1, -1, -1, -1]]
    )
    both("multilabel_margin_loss", x, target, reduction=reduction)


def test_similarities() -> None:
    x, y = randn(4, 5, grad=True), randn(4, 5, grad=True)
    both("cosine_similarity", x, y)
    both("cosine_similarity", x, y, dim=0)
    both("pairwise_distance", x, y, p=1.5, keepdim=True)


def test_linear_cross_entropy() -> None:
    x, w, b = randn(6, 4, grad=True), randn(5, 4, grad=True), randn(5, grad=True)
    both("linear_cross_entropy", x, w, torch.randint(0, 5, (6,)), linear_bias=b)


def test_cross_entropy_is_the_same_to_the_bit_however_it_runs() -> None:
    """The short way of small matrices, and the general one that all others take."""
    for seed in range(40):
        skimp.manual_seed(seed)
        rows, classes = skimp.randint(1, 90, (2,)).tolist()
        x, y = skimp.randn(rows, classes) * 10.0 ** (seed % 3), skimp.randint(0, classes, (rows,))
        found = []
        for mode in ("never", "always"):
            with skimp.config.using(defer=mode):
                a = x.clone().requires_grad_()
                loss = skimp.nn.functional.cross_entropy(a, y)
                (loss * 0.3).backward()
                found.append((loss.item(), a.grad.numpy().tobytes()))  # type: ignore[union-attr]
        assert found[0] == found[1]


def test_large_losses_are_reduced_without_being_written() -> None:
    x, y = skimp.randn(1 << 20), skimp.randn(1 << 20)
    before = skimp.cuda.memory_allocated()
    skimp.cuda.reset_peak_memory_stats()
    loss = F.mse_loss(x, y)
    loss.item()
    if skimp.config.defer != "never":
        assert skimp.cuda.max_memory_allocated() - before < x.nbytes // 2


def test_warnings_and_refusals() -> None:
    with pytest.warns(UserWarning, match="Using a target size"):
        F.mse_loss(skimp.ones(3, 1), skimp.ones(1, 3))
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.mse_loss(skimp.ones(3), skimp.ones(3), reduction="total")
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(skimp.ones(3) * 2, skimp.ones(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: F.mse_loss(x, y),
        lambda x, y: F.huber_loss(x, y),
        lambda x, y: F.smooth_l1_loss(x, y),
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        lambda x, y: F.soft_margin_loss(x + y, x.detach().sign()),
        lambda x, y: F.binary_cross_entropy_with_logits(x, y),
        lambda x, y: F.cosine_similarity(x, y),
    ],
)
def test_second_derivatives(call: Any) -> None:
    x, y = (skimp.randn(3, 4, dtype=skimp.float64).requires_grad_() for _ in range(2))
    assert skimp.autograd.gradcheck(call, (x, y))
    assert skimp.autograd.gradgradcheck(call, (x, y))


TYPES = ["int64", "float32", "float64", "bool", "bfloat16"]
LOSSES = ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss",
          "soft_margin_loss", "hinge_embedding_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits"]  # fmt: skip
# How many of the 25 pairs of types PyTorch takes, with "mean" and with "none".
TAKEN = dict(
    zip(
        LOSSES,
        [
            (21, 21),
            (15, 16),
            (21, 21),
            (15, 15),
            (9, 9),
            (24, 24),
            (15, 15),
            (15, 20),
            (3, 3),
            (9, 9),
        ],
        strict=True,
    )
)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", LOSSES)
def test_types_of_results_and_of_errors(name: str) -> None:
    def call(t: Any, a: str, b: str, reduction: str) -> str:
        input = t.tensor([0.0, 1, 1, 0]).to(getattr(t, a))
        target = t.tensor([1.0, 1, 0, 0]).to(getattr(t, b))
        return str(getattr(t.nn.functional, name)(input, target, reduction=reduction).dtype)

    for reduction, taken in zip(("mean", "none"), TAKEN[name], strict=True):
        refused = 0
        for a in TYPES:
            for b in TYPES:
                ours, theirs = [outcome(call, t, a, b, reduction) for t in (skimp, torch)]
                if isinstance(theirs, Exception):
                    refused += 1
                    assert type(ours) is type(theirs), (a, b, reduction)
                else:
                    assert ours == theirs, (a, b, reduction)
        assert refused == len(TYPES) ** 2 - taken


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_targets_that_do_not_fit(name: str) -> None:
    def call(t: Any, shape: Any, have: Any, kind: str) -> Any:
        target = t.zeros(have, dtype=getattr(t, kind))
        loss = getattr(t.nn.functional, name)(t.ones(shape), target, reduction="none")
        return tuple(loss.shape)

    taken = 0
    for shape in [(3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)]:
        for have in [(), (1,), (2,), (3,), (2, 3), (2, 4), (3, 4), (2, 4, 5), (2, 5, 4), (0,)]:
            for kind in ("int64", "float32", "int32"):
                ours, theirs = [outcome(call, t, shape, have, kind) for t in (skimp, torch)]
                assert repr(ours) == repr(theirs), (shape, have, kind)
                taken += isinstance(theirs, tuple)
    assert taken == {"cross_entropy": 7, "nll_loss": 5}[name]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("small", [True, False])
def test_a_gradient_of_nll_loss_depends_on_its_input(reduction: str, small: bool) -> None:
    """Its derivative is zeros, not nothing."""
    with skimp.config.using(**({} if small else {"small_below": 0})):
        x = skimp.rand(2, 3, requires_grad=True)
        loss = F.nll_loss(x, skimp.tensor([0, 1]), reduction=reduction).sum()
        (first,) = skimp.autograd.grad(loss, x, create_graph=True)
        assert first.requires_grad
        (second,) = skimp.autograd.grad(first.sum(), x)
    assert second.tolist() == [[0.0] * 3] * 2


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_what_is_no_target() -> None:
    for name in ("cross_entropy", "nll_loss", "kl_div", "hinge_embedding_loss"):
        with pytest.raises(TypeError, match="argument 'target'"):
            getattr(F, name)(skimp.ones(2, 3), None)
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(skimp.rand(3), skimp.rand(3) + 3)
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'target'"):
        F.soft_margin_loss(skimp.ones(3), skimp.ones(3).requires_grad_())
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        F.cross_entropy(
            skimp.ones(2, 3), skimp.tensor([0, 1]), weight=skimp.ones(3, dtype=skimp.float64)
        )


@pytest.mark.parametrize("rows", [700, 1024, 16384])
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_a_mean_over_many_rows_has_the_same_bits_whatever_waits(name: str, rows: int) -> None:
    x, target = skimp.randn(rows, 5, requires_grad=True), skimp.randint(0, 5, (rows,))
    found = []
    for mode in ("never", "auto", "always"):
        with skimp.config.using(defer=mode):
            loss = getattr(F, name)(x * 1, target)
            found.append((loss.item(), *skimp.autograd.grad(loss, x)[0].flatten().tolist()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("far", [-200.0, 200.0, float("nan")])
def test_the_loss_of_a_row_does_not_depend_on_rows_that_are_far_from_0(far: float) -> None:
    """Of those the largest is taken off before the exponentials, of others nothing."""
    skimp.manual_seed(0)
    x, target = skimp.randn(5, 7), skimp.arange(5)
    beside = skimp.cat([x, skimp.full((1, 7), far)])
    losses = skimp.nn.functional.cross_entropy(beside, skimp.arange(6), reduction="none")
    alone = skimp.nn.functional.cross_entropy(x, target, reduction="none")
    assert losses[:5].tolist() == alone.tolist()
    if not math.isnan(far):
        assert losses[5].item() == pytest.approx(math.log(7), abs=1e-6)


def test_the_gradient_of_a_mean_over_many_halves_is_rounded_as_pytorchs() -> None:
    a, b = torch.randn(100_000), torch.rand(100_000)

    def gradient(library: Any, dtype: Any) -> torch.Tensor:
        x = library.tensor(a.tolist()).half().to(dtype).requires_grad_()
        y = library.tensor(b.tolist()).half().to(dtype)
        library.nn.functional.mse_loss(x, y).backward()
        return torch.tensor(x.grad.double().tolist(), dtype=torch.float64)

    exact = gradient(torch, torch.float64)
    theirs = (gradient(torch, torch.half) - exact).norm()
    assert (gradient(skimp, skimp.half) - exact).norm() <= 1.1 * theirs + 1e-12


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_images_of_no_pixels_have_a_loss(name: str, reduction: str) -> None:
    for size in ((0,), (0, 2), (2, 0)):
        got = []
        for lib in (torch, skimp):
            x = lib.zeros(2, 3, *size, requires_grad=True)
            target = lib.zeros(2, *size, dtype=lib.int64)
            loss = getattr(lib.nn.functional, name)(x, target, reduction=reduction)
            loss.sum().backward()
            got.append((str(loss.tolist()), tuple(loss.shape), tuple(x.grad.shape)))
        assert got[0] == got[1]


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("word", ["weight", "pos_weight"])
def test_weights_change_neither_type_nor_shape(name: str, word: str) -> None:
    if word == "pos_weight" and name == "binary_cross_entropy":
        return

    def run(lib: Any, kind: str, size: tuple[int, ...], own: tuple[int, ...]) -> Any:
        x = lib.full(size, 0.25, dtype=lib.float16)
        weight = lib.full(own, 2.0, dtype=getattr(lib, kind))
        return getattr(lib.nn.functional, name)(x, x, reduction="none", **{word: weight})

    for kind in ("float16", "float32", "float64"):
        for own in ((1,), (4,), (3, 4)):
            theirs, ours = (run(lib, kind, (3, 4), own) for lib in (torch, skimp))
            assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
            close = torch.tensor(ours.tolist()).sub(theirs.float()).abs().max().item()
            assert close < 2e-3
        for size, own in (((), (1,)), ((3, 4), (2, 3, 4))):
            for lib in (torch, skimp):
                with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
                    run(lib, kind, size, own)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 4), (300, 500), (2, 4, 5)])
def test_rows_that_are_ignored_have_no_gradient_where_the_mean_is_of_none(
    name: str, reduction: str, shape: tuple[int, ...]
) -> None:
    found = []
    for m in (torch, skimp):
        x = m.ones(shape, requires_grad=True)
        target = m.full((shape[0], *shape[2:]), -100)
        loss = getattr(m.nn.functional, name)(x, target, reduction=reduction)
        (first,) = m.autograd.grad(loss.sum(), x, retain_graph=True)
        (again,) = m.autograd.grad(loss.sum(), x, create_graph=True)
        found.append((loss.tolist(), first.tolist(), again.tolist()))
    assert str(found[0]) == str(found[1])  # nan of the mean, +0.0 of the gradients


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_is_in_a_row_that_is_ignored_is_not_in_the_loss(reduction: str) -> None:
    rows = [[-math.inf, -1.0], [-2.0, -3.0], [math.nan, math.inf]]
    found = []
    for m in (torch, skimp):
        x = m.tensor(rows, requires_grad=True)
        loss = m.nn.functional.nll_loss(x, m.tensor([-100, 1, -100]), reduction=reduction)
        found.append((loss.tolist(), m.autograd.grad(loss.sum(), x)[0].tolist()))
    assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("n", [1, 30_000])
def test_a_small_loss_of_logits_keeps_its_digits(n: int) -> None:
    def loss(lib: Any) -> Any:
        x = lib.tensor([20.0, 15.5, 3.0, -2.0, float("inf"), 30.0]).repeat(n)
        y = lib.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.25]).repeat(n)
        return lib.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")

    assert loss(skimp).tolist() == pytest.approx(loss(torch).tolist(), rel=1e-5, abs=0)


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2, 3, 0), (0, 0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_probabilities_of_no_elements(shape: tuple[int, ...], smoothing: float) -> None:
    for lib in (skimp, torch):
        x, y = lib.ones(shape), lib.ones(shape)
        assert lib.nn.functional.cross_entropy(x, y, label_smoothing=smoothing).isnan()


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_the_mean_of_weighted_losses_is_over_what_pytorch_divides_by(name: str) -> None:
    for shape in ((3,), (2, 3)):  # the weights are as many as the inputs, however many losses
        both(name, randn(3), randn(*shape), weight=randn(3).abs() + 0.5)


def test_nan_is_no_limit_of_a_loss() -> None:
    x, nan = skimp.ones(2), math.nan
    with pytest.raises(RuntimeError, match="negative values for beta"):
        skimp.nn.functional.smooth_l1_loss(x, x, beta=nan)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        skimp.nn.functional.huber_loss(x, x, delta=nan)
