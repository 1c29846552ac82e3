"""Convolution, pooling, resampling and attention, against PyTorch."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import conv, im2col
from skimp.config import config, using
from tests.support.functional import both, randn
from tests.support.samples import agree, same, twin

F = skimp.nn.functional


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@given(st.data(), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_convolution(data: Any, nd: int) -> None:
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(nd))  # noqa: E731
    groups = data.draw(st.sampled_from([1, 1, 2]))
    kernel, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 2)
    size = tuple(n + 4 for n in draw(1, 4))
    n, ci, co = data.draw(st.integers(1, 3)), 2 * groups, 3 * groups
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    x = randn(n, ci, *size, dtype=dtype, grad=True)
    w, b = (
        randn(co, ci // groups, *kernel, dtype=dtype, grad=True),
        randn(co, dtype=dtype, grad=True),
    )
    both(f"conv{nd}d", x, w, b, stride, padding, dilation, groups, tolerance=1e-4)
    wt = randn(ci, co // groups, *kernel, dtype=dtype, grad=True)
    extra = tuple(min(1, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    padding = tuple(min(p, d * (k - 1)) for p, d, k in zip(padding, dilation, kernel, strict=True))
    both(f"conv_transpose{nd}d", x, wt, b, stride, padding, extra, groups, dilation, tolerance=1e-4)


@given(st.data(), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_convolution_of_narrow_groups_and_wide_steps(data: Any, nd: int) -> None:
    """Groups of few channels share their products; the adjoint of larger steps is made of
    convolutions, some of which see no tap, or less than all of g."""
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(nd))  # noqa: E731
    groups, each, made = data.draw(st.sampled_from([(1, 3, 2), (5, 1, 1), (4, 1, 3), (3, 2, 1)]))
    kernel, stride, size = draw(1, 5), draw(1, 4), draw(2, 6)
    padding = tuple(data.draw(st.integers(0, k)) for k in kernel)
    x = randn(2, groups * each, *size, dtype=torch.float64, grad=True)
    b = randn(groups * made, dtype=torch.float64, grad=True)
    if all(n + 2 * p >= k for n, p, k in zip(size, padding, kernel, strict=True)):
        w = randn(groups * made, each, *kernel, dtype=torch.float64, grad=True)
        both(f"conv{nd}d", x, w, b, stride, padding, 1, groups)
    if all(
        (n - 1) * s + k > 2 * p for n, s, k, p in zip(size, stride, kernel, padding, strict=True)
    ):
        w = randn(groups * each, made, *kernel, dtype=torch.float64, grad=True)
        both(f"conv_transpose{nd}d", x, w, b, stride, padding, 0, groups)


@pytest.mark.parametrize("limit", [64, 1000, 1 << 20])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_in_blocks(limit: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the scratch is, and whether a block is many images or a row of one."""
    for module in (conv, im2col):
        monkeypatch.setattr(module, "SCRATCH", limit)
    x, w = randn(5, 3, 12, 9, grad=True), randn(4, 3, 3, 3, grad=True)
    both("conv2d", x, w, randn(4, grad=True), stride, 1, tolerance=1e-4)
    both("conv_transpose2d", randn(5, 4, 6, 5, grad=True), w, None, stride, tolerance=1e-4)
    one = randn(3, 1, 3, 3, grad=True)
    both("conv2d", x, one, None, stride, 1, groups=3, tolerance=1e-4)
    both(
        "conv2d",
        randn(5, 40, 6, 6, grad=True),
        randn(4, 40, 3, 3, grad=True),
        None,
        stride,
        tolerance=1e-4,
    )


def test_convolution_never_writes_all_columns() -> None:
    x, w = skimp.randn(32, 16, 64, 64), skimp.randn(8, 16, 3, 3)
    whole = x.nbytes * 9
    for step in (lambda: F.conv2d(x, w, padding=1), lambda: F.conv2d(x, w, padding=1, stride=2)):
        tracemalloc.start()
        step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < whole / 3
    assert whole / 3 > 4 * im2col.SCRATCH


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_convolution_of_half_precision(dtype: torch.dtype) -> None:
    x, w = randn(2, 3, 6, 6, dtype=dtype, grad=True), randn(4, 3, 3, 3, dtype=dtype, grad=True)
    both("conv2d", x, w, tolerance=0.05)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel lengths")
def test_convolution_of_other_layouts_and_of_one_image() -> None:
    x = randn(2, 3, 6, 7).to(memory_format=torch.channels_last).requires_grad_()
    got = both("conv2d", x, randn(4, 3, 3, 3, grad=True), padding="same", tolerance=1e-4)
    assert got.is_contiguous(memory_format=skimp.channels_last)
    # so it is where only the weight lies so, as of a net that was converted and not its images
    last = randn(4, 3, 2, 3).to(memory_format=torch.channels_last)
    for name, image, weight in (
        ("conv2d", randn(2, 3, 6, 7, grad=True), last.requires_grad_()),
        ("conv_transpose2d", randn(2, 4, 6, 7, grad=True), last),
    ):
        assert both(name, image, weight, tolerance=1e-4).stride()[1] == 1
    both(
        "conv2d",
        randn(3, 6, 7, grad=True),
        randn(4, 3, 2, 2, grad=True),
        padding="same",
        tolerance=1e-4,
    )
    both("conv1d", randn(2, 3, 9)[:, :, ::2], randn(4, 3, 2), tolerance=1e-4)
    both("conv2d", randn(0, 3, 6, 6, grad=True), randn(4, 3, 3, 3, grad=True), padding="valid")


def test_a_transposed_kernel_of_one_tap_reaches_no_padding() -> None:
    """The result is larger than what the kernel covers, and so no product of matrices."""
    x = randn(2, 6, 9, grad=True)
    both("conv_transpose1d", x, randn(6, 4, 1, grad=True), None, 1, 0, 1, 1, 2, tolerance=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.conv2d(skimp.ones(2, 3), skimp.ones(1, 3, 2, 2)), "Expected 3D"),
        (
            lambda: F.conv2d(skimp.ones(1, 3, 4, 4), skimp.ones(1, 2, 2, 2)),
            "to have 2 channels, but got 3",
        ),
        (
            lambda: F.conv2d(skimp.ones(1, 3, 2, 2), skimp.ones(1, 3, 3, 3)),
            "Kernel size can't be greater",
        ),
        (
            lambda: F.conv2d(skimp.ones(1, 3, 4, 4), skimp.ones(1, 3, 2, 2), stride=0),
            "non-positive stride",
        ),
        (
            lambda: F.conv2d(
                skimp.ones(1, 3, 4, 4), skimp.ones(1, 3, 2, 2), padding="same", stride=2
            ),
            "strided",
        ),
        (lambda: F.max_pool2d(skimp.ones(1, 1, 4, 4), 2, padding=2), "at most half"),
        (lambda: F.max_pool2d(skimp.ones(1, 1, 1, 1), 2), "Output size is too small"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        *(
            (f"{kind}_pool{nd}d", (2, *[3] * nd), (*[1] * (nd - 1), 5), padding)
            for kind in ("avg", "max")
            for nd in (1, 2, 3)
            for padding in (0, (*[0] * (nd - 1), 2))
        ),
        *(("conv2d", (1, 4, 3, 3), (n, 1, 1, 1), 4) for n in (0, 2, 6)),
    ],
)
def test_windows_and_groups_that_do_not_fit(call: Any) -> None:
    name, size, other, last = call
    padded = name != "conv2d" and last != 0
    refused = None if padded and name != "avg_pool3d" else RuntimeError

    def tried(module: Any) -> Any:
        f = getattr(module.nn.functional, name)
        if name == "conv2d":
            return f(module.zeros(size), module.zeros(other), groups=last)
        return f(module.zeros(size), other, 1, last)

    agree(tried, refused=refused, message=100)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
def test_layers_without_inputs_draw_their_bias() -> None:
    drawn = []
    for module in (torch, skimp):
        module.manual_seed(0)
        layer = module.nn.Conv2d(0, 3, 1)
        drawn.append((layer.bias.tolist(), module.rand(2).tolist()))
    assert drawn[0] == drawn[1]


@given(st.data(), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_pooling(data: Any, nd: int) -> None:
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(nd))  # noqa: E731
    kernel, stride, dilation, ceil = draw(1, 3), draw(1, 3), draw(1, 2), data.draw(st.booleans())
    padding = tuple(k // 2 for k in kernel)
    x = torch.randint(-3, 4, (2, 3, *(n + 4 for n in draw(0, 4)))).float().requires_grad_()  # ties
    both(
        f"max_pool{nd}d", x, kernel, stride, padding, dilation, ceil_mode=ceil, return_indices=True
    )
    both(f"avg_pool{nd}d", x, kernel, stride, padding, ceil, data.draw(st.booleans()))


@pytest.mark.parametrize("nd", [1, 2, 3])
@pytest.mark.parametrize("out", [1, 2, 3, 5])
def test_adaptive_pooling(nd: int, out: int) -> None:
    x = randn(2, 3, *(6, 7, 4)[:nd], grad=True)
    both(f"adaptive_avg_pool{nd}d", x, out)
    both(f"adaptive_max_pool{nd}d", x, out, return_indices=True)


def test_what_is_not_finite_is_in_the_adaptive_means_of_its_windows_alone() -> None:
    x = randn(1, 2, 7, 5)
    with torch.no_grad():
        x[0, 0, 3, 1], x[0, 1, 6, 4] = torch.inf, torch.nan
    x.requires_grad_()
    both("adaptive_avg_pool2d", x, (3, 4))
    both("interpolate", x, (3, 4), mode="area")


@pytest.mark.parametrize("nd", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "complex64"])
@pytest.mark.parametrize("what", ["avg", "max"])
def test_adaptive_pooling_names_what_it_has_no_kernel_for(nd: int, dtype: str, what: str) -> None:
    def pool(lib: Any) -> Any:
        x = lib.ones((1, 1, *(4, 4, 4)[:nd]), dtype=getattr(lib, dtype))
        return getattr(lib.nn.functional, f"adaptive_{what}_pool{nd}d")(x, 2)

    agree(pool, refused=NotImplementedError, message=200)


def test_max_pool_of_nan_and_infinity() -> None:
    x = torch.tensor([[[1.0, float("nan"), 0, 2, float("-inf"), float("-inf")]]])
    both("max_pool1d", x, 2, return_indices=True)
    both("max_pool1d", x, 3, 2, 1, return_indices=True)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_max_pool_of_windows_that_do_not_meet(data: Any) -> None:
    """Few different values: most windows have several largest, of which the first counts."""
    kernel = data.draw(st.sampled_from([(2, 2), (2, 2), (3, 1), (2, 3)]))
    stride = tuple(k + data.draw(st.integers(0, 1)) for k in kernel)
    size = tuple(data.draw(st.integers(k, 9)) for k in kernel)
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.float16]))
    x = torch.randint(0, 3, (2, 3, *size)).to(dtype)
    if data.draw(st.booleans()):
        x[torch.rand(x.shape) < 0.1] = float("nan")
    both("max_pool2d", x.requires_grad_(), kernel, stride, return_indices=True)


def test_unpooling_and_norm_pooling() -> None:
    x = randn(2, 3, 6, 6)
    values, places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    both("max_unpool2d", values.requires_grad_(), places, 2)
    both("lp_pool2d", x.abs().requires_grad_(), 3.0, 2)


def test_fractional_pooling() -> None:
    x, samples = randn(2, 3, 9, 8, grad=True), torch.rand(2, 3, 2)
    both("fractional_max_pool2d", x, 2, (4, 5), return_indices=True, _random_samples=samples)
    x, samples = randn(2, 3, 7, 9, 8, grad=True), torch.rand(2, 3, 3)
    both("fractional_max_pool3d", x, 2, (4, 5, 3), return_indices=True, _random_samples=samples)


@pytest.mark.parametrize("nd", [2, 3])
def test_fractional_pooling_takes_and_refuses_what_pytorch_does(nd: int) -> None:
    def pool(t: Any, x: Any, kernel: Any, size: Any, *samples: Any) -> Any:
        f = getattr(t.nn.functional, f"fractional_max_pool{nd}d")
        return tuple(f(x, kernel, size, _random_samples=samples[0] if samples else None).shape)

    x = randn(2, 3, *[7] * nd)
    agree(pool, x, 2, 0)
    agree(pool, x[:0], 2, 2)
    agree(pool, x[0, :0], 2, 2)
    agree(pool, x[0], [2] * nd, (2,) * nd, torch.rand(4, 3, nd))
    agree(pool, x, 3, 5 if nd == 2 else 4)
    for kernel, size in [
        (9, 2),
        (2, 9),
        *([(3, 5)] if nd == 3 else []),
        ((2,), 2),
        (2, (2,) * (nd + 1)),
        (2, -1),
    ]:
        agree(pool, x, kernel, size, refused=RuntimeError, message=70)
    for refused in (x[:, :0], x[..., :0], x[None]):
        agree(pool, refused, 2, 2, refused=RuntimeError, message=70)
    agree(pool, x[0, 0], 2, 2, refused=IndexError)
    for shape in [(1, 3, nd), (2, 2, nd), (2, 3, nd + 1), (2, 3), (2, 3, nd, 1)]:
        agree(pool, x, 2, 2, torch.rand(shape), refused=RuntimeError, message=70)
    agree(pool, x, 2, 2, torch.rand(2, 3, nd).double(), refused=RuntimeError, message=70)


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_pools_of_nothing_and_of_wrong_places(nd: int) -> None:
    def adaptive(t: Any, x: Any, what: str, size: int) -> Any:
        return tuple(getattr(t.nn.functional, f"adaptive_{what}_pool{nd}d")(x, size).shape)

    x = torch.ones(2, 2, *[4] * nd)
    for what in ("avg", "max"):
        for size in (1, 2, 3):
            agree(adaptive, x[0, :0], what, size)
            agree(adaptive, x[:0], what, size)
    agree(adaptive, x[:, :0], "max", 2, refused=RuntimeError, message=120)
    values, places = getattr(torch.nn.functional, f"max_pool{nd}d")(x, 2, return_indices=True)
    for bad in (-1, 4**nd):
        places[1, 1] = bad
        name = f"max_unpool{nd}d"
        agree(
            lambda t, x, at, name: getattr(t.nn.functional, name)(x, at, 2),
            *(values, places, name),
            refused=RuntimeError,
            message=30,
        )
    for what in ("max", "avg"):
        agree(
            lambda t, x, name: getattr(t.nn.functional, name)(x, 2, 0),
            *(x, f"{what}_pool{nd}d"),
            refused=RuntimeError,
        )
    if nd == 1:
        agree(lambda t, x: t.nn.functional.max_pool1d(x, 0), x, refused=RuntimeError)


MODES = [
    ("nearest", 1),
    ("nearest-exact", 2),
    ("linear", 1),
    ("bilinear", 2),
    ("bicubic", 2),
    ("trilinear", 3),
    ("area", 2),
]


@pytest.mark.parametrize(("mode", "nd"), MODES)
@pytest.mark.parametrize(
    "words", [{"size": 7}, {"size": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6}]
)
def test_interpolate(mode: str, nd: int, words: dict[str, Any]) -> None:
    x = randn(2, 3, *(5, 6, 4)[:nd], grad=True)
    both("interpolate", x, mode=mode, tolerance=1e-4, **words)
    if "linear" in mode or mode == "bicubic":
        both("interpolate", x, mode=mode, align_corners=True, tolerance=1e-4, **words)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_interpolate_antialiased(mode: str) -> None:
    for size in ((3, 4), (9, 11)):
        both(
            "interpolate",
            randn(1, 2, 8, 7, grad=True),
            size=size,
            mode=mode,
            antialias=True,
            tolerance=1e-4,
        )


REFUSED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 4, 4), {"mode": None}),
    ((1, 4), {"mode": None}),
    ((1, 1, 4), {"mode": 3}),
    ((1, 1, 4, 4, 4), {"mode": "sinc"}),
    ((1, 1, 4), {"mode": "lanczos"}),
    ((1, 1, 4, 4), {"mode": "lanczos"}),
    ((1, 1, 4, 4), {"mode": "lanczos", "antialias": True, "align_corners": True}),
    ((1, 1, 4), {"mode": "linear", "antialias": True}),
    ((1, 1, 4, 4), {"mode": "nearest", "antialias": True}),
]


@pytest.mark.parametrize(("shape", "words"), REFUSED)
def test_interpolate_refuses(shape: tuple[int, ...], words: dict[str, Any]) -> None:
    with pytest.raises((ValueError, NotImplementedError)) as theirs:
        torch.nn.functional.interpolate(torch.ones(shape), scale_factor=2, **words)
    with pytest.raises(theirs.type, match=f"^{re.escape(str(theirs.value))}$"):
        skimp.nn.functional.interpolate(skimp.ones(shape), scale_factor=2, **words)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample(mode: str, padding: str, align: bool) -> None:
    x = randn(2, 3, 5, 6, dtype=torch.float64, grad=True)
    grid = (randn(2, 4, 3, 2, dtype=torch.float64) * 0.8).requires_grad_()
    both("grid_sample", x, grid, mode, padding, align, tolerance=1e-6)


def pytorch_fuses(dtype: torch.dtype) -> bool:
    """Whether products of this type are added unrounded by the BLAS of PyTorch, to which it leaves
    what is larger than some hundred multiplications; on some processors they are.
    """
    x = 1 + 3 * torch.finfo(dtype).eps  # whose square is no number of the type
    row = torch.tensor([[x * x, x]], dtype=dtype).expand(3, 400, 2)
    column = torch.tensor([[-1.0], [x]], dtype=dtype).expand(3, 2, 2)
    return bool(torch.bmm(row, column).any())


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_affine_grid_has_pytorchs_bits(dtype: str, data: Any) -> None:
    """Products of a map and places are added from the left, each rounded."""
    smallest = 2 if "16" in dtype else 1  # PyTorch has no half for one pixel
    sizes = st.lists(st.integers(smallest, 40), min_size=2, max_size=3)
    n, size, align = data.draw(st.integers(1, 3)), data.draw(sizes), data.draw(st.booleans())
    nd = len(size)
    torch.manual_seed(data.draw(st.integers(0, 999)))
    theta = torch.randn(n, nd, nd + 1).to(getattr(torch, dtype))
    wanted = torch.nn.functional.affine_grid(theta, (n, 1, *size), align)
    mine = skimp.tensor(theta.double().tolist(), dtype=getattr(skimp, dtype))
    found = F.affine_grid(mine, (n, 1, *size), align)
    assert found.dtype is mine.dtype
    far = float(theta.abs().sum(-1).max()) * torch.finfo(theta.dtype).eps
    np.testing.assert_allclose(
        found.double().numpy(),
        wanted.double().numpy(),
        rtol=0,
        atol=2 * far if pytorch_fuses(theta.dtype) else 0,
    )


def test_affine_grid() -> None:
    for align in (True, False):
        both("affine_grid", randn(2, 2, 3, grad=True), (2, 3, 4, 5), align)
        both("affine_grid", randn(2, 3, 4, grad=True), (2, 3, 2, 4, 5), align)


@pytest.mark.parametrize(
    ("mode", "amounts"),
    [
        ("constant", (1, 2)),
        ("constant", (1, -1, 0, 2)),
        ("reflect", (1, 2)),
        ("replicate", (3, 1)),
        ("replicate", (-1, 2)),
        ("circular", (2, 1)),
        ("circular", (-1, 2)),
    ],
)
def test_pad(mode: str, amounts: tuple[int, ...]) -> None:
    both("pad", randn(2, 3, 4, grad=True), amounts, mode=mode)
    if mode == "constant":
        both("pad", torch.arange(6).reshape(2, 3), amounts, value=7)


def test_gradients_of_images_whose_channels_are_last_lie_as_pytorchs() -> None:
    """Of padding as the image does, of what is doubled as the gradient that comes."""
    for pad in ("reflect", "replicate", None):
        found = []
        for t in (skimp, torch):
            x = t.ones(2, 3, 5, 4).to(memory_format=t.channels_last).requires_grad_()
            f = t.nn.functional
            y = f.pad(x, (1, 2, 1, 0), pad) if pad else f.interpolate(x, scale_factor=2)
            (g,) = t.autograd.grad(y, x, t.ones(y.shape))
            found.append((y.stride(), g.stride(), g.tolist()))
        assert found[0] == found[1]


def test_fold_and_shuffles() -> None:
    x = randn(2, 4, 6, 6, grad=True)
    both("unfold", x, (3, 2), 1, 1, 2)
    both("fold", randn(2, 12, 16, grad=True), (5, 6), (2, 3))
    both("pixel_shuffle", x, 2)
    both("pixel_unshuffle", x, 3)
    both("channel_shuffle", x, 2)


@pytest.mark.parametrize("below", [0, config.small_below])
def test_a_shuffle_of_one_pixel_shares_no_bytes(below: int) -> None:
    x = skimp.arange(4.0).reshape(1, 1, 2, 2)
    with using(small_below=below):
        made = F.pixel_unshuffle(x, 2)
    made.zero_()
    assert made.stride() == (4, 1, 1, 1)
    assert x.tolist() == [[[[0.0, 1.0], [2.0, 3.0]]]]


LINEAR_AND_OTHER = [
    lambda x: F.conv2d(x, skimp.ones(2, 2, 2, 2, dtype=skimp.float64) * x[0, 0, 0, 0], padding=1),
    lambda x: F.conv_transpose2d(x * x, skimp.ones(2, 1, 2, 2, dtype=skimp.float64), stride=2),
    lambda x: F.max_pool2d(x * x, 2, 1),
    lambda x: F.avg_pool2d(x * x, 2, 1),
    lambda x: F.unfold(x * x, 2),
    lambda x: F.interpolate(x * x, 5, mode="bicubic"),
    lambda x: F.adaptive_avg_pool2d(x * x, 2),
]


@pytest.mark.parametrize("call", LINEAR_AND_OTHER)
def test_second_derivatives(call: Any) -> None:
    x = skimp.randn(1, 2, 3, 3, dtype=skimp.float64).requires_grad_()
    assert skimp.autograd.gradcheck(call, (x,))
    assert skimp.autograd.gradgradcheck(call, (x,))


def test_images_do_not_depend_on_deferral() -> None:
    x = np.random.default_rng(0).standard_normal((8, 3, 40, 40)).astype(np.float32)
    found = []
    for mode in ("never", "always"):
        with skimp.config.using(defer=mode):
            t = skimp.from_numpy(x) * 2
            w = skimp.from_numpy(x[:4, :, :3, :3].copy())
            y = F.max_pool2d(F.conv2d(t, w, padding=1), 2)
            found.append([y.numpy(), F.batch_norm(y, None, None, training=True).numpy()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_images_do_not_depend_on_threads() -> None:
    """To the bit: how work is cut, and the order of partial sums, depend on shapes alone."""
    x = np.random.default_rng(0).standard_normal((16, 8, 24, 25)).astype(np.float32)
    found = []
    before = skimp.get_num_threads()
    for threads in (1, 2, 3):
        skimp.set_num_threads(threads)
        try:
            with skimp.config.using(threads_from=1):
                found.append([t.numpy() for t in images_of(skimp.from_numpy(x))])
        finally:
            skimp.set_num_threads(before)
    for several in found[1:]:
        for one, other in zip(found[0], several, strict=True):
            np.testing.assert_array_equal(one, other)


def images_of(x: skimp.Tensor) -> list[skimp.Tensor]:
    """Results and gradients of convolution, pooling, batch_norm and attention."""
    x = x.clone().requires_grad_()
    w = (x.detach()[:12, :, :3, :3] * 2).requires_grad_()
    y = F.conv2d(x, w, w.detach()[:, 0, 0, 0], padding=1)
    z = F.batch_norm(F.max_pool2d(y, 2) + F.avg_pool2d(y, 2), None, None, training=True)
    q = z.flatten(2).transpose(1, 2).unsqueeze(1).expand(-1, 3, -1, -1)
    a = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    (a * a).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return [t.detach() for t in (y, z, a, x.grad, w.grad)]


@pytest.mark.parametrize(("images", "size"), [(1, 8), (3, 40), (64, 16), (50, 64)])
def test_blocks_of_a_convolution_are_about_as_long_as_each_other(images: int, size: int) -> None:
    """So that threads share them evenly; none holds half more columns than SCRATCH says."""
    depth = 9 * 32
    w = im2col.Window((size, size), (3, 3), (1, 1), (1, 1), (1, 1), (size, size))
    found = list(im2col.blocks(w, images, depth, 32))
    elements = [depth * size * (b.last - b.first) * (b.stop - b.start) for b in found]
    assert sum(elements) == images * depth * size * size
    assert max(elements) <= 1.5 * im2col.SCRATCH
    if depth * size * size <= im2col.SCRATCH:
        assert len({b.last - b.first for b in found[:-1]}) <= 1
        assert [b.first for b in found[1:]] == [b.last for b in found[:-1]]


def test_few_patches_of_many_channels_are_one_block() -> None:
    w = im2col.Window((4, 4), (3, 3), (1, 1), (1, 1), (1, 1), (4, 4))
    (block,) = im2col.blocks(w, 16, 9 * 256, 256)
    assert (block.last, block.stop) == (16, 4)
    assert len(list(im2col.blocks(w, 16, 9 * 256, 255))) == im2col.LANES


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("lies", ["whole", "part", "turned", "expanded", "double"])
def test_kernels_of_one_tap_read_the_input_where_it_lies(lies: str, groups: int) -> None:
    """Results and gradients are torch's for inputs that are runs of memory, and for those that
    are not."""
    x, w = randn(5, 8, 9, 9), randn(12, 6 // groups, 1, 1)
    if lies == "double":
        x, w = x.double(), w.double()
    lay: Any = {
        "part": lambda t: t[:, 1:7, 1:8],
        "turned": lambda t: t[:, :6].transpose(2, 3),
        "expanded": lambda t: t[:1, :6].expand(5, -1, -1, -1),
    }.get(lies, lambda t: t[:, :6].contiguous())
    results = []
    for T, convert in ((torch, torch.Tensor.clone), (skimp, twin)):
        a, k = convert(x).requires_grad_(), convert(w).requires_grad_()
        y = T.nn.functional.conv2d(lay(a), k, None, groups=groups)
        (y * y).sum().backward()
        results.append((y.detach(), a.grad, k.grad))
    for mine, expected in zip(results[1], results[0], strict=True):
        same(mine, expected, 1e-4, strides=False)


def test_results_are_torchs_where_planes_are_split_among_blocks() -> None:
    x = randn(16, 8, 40, 40)
    same(
        F.max_pool2d(twin(x), 3, 2, 1),
        torch.nn.functional.max_pool2d(x, 3, 2, 1),
        None,
        strides=False,
    )
    same(
        F.avg_pool2d(twin(x), 3, 2, 1),
        torch.nn.functional.avg_pool2d(x, 3, 2, 1),
        None,
        strides=False,
    )
