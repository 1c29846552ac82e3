"""The gradient of an image by larger steps: its errors, bits and memory whatever code makes it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import conv_onednn, conv_works, onednn
from skimp._kernels.im2col import Window, out_size
from skimp.config import config
from tests.kernels.windows import numbers

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not there")

# images, groups, channels before and after, kernel, step, padding, dilation, side
CASES = [
    *[(2, 1, 3, 64, *each, 1, 64) for each in ((4, 2, 1), (3, 2, 1), (1, 2, 0), (3, 3, 0))],
    *[(2, 1, 16, 32, *each, 1, 32) for each in ((4, 2, 1), (3, 2, 1), (1, 2, 0), (3, 3, 0))],
    *[(2, 1, 64, 128, *each, 1, 16) for each in ((4, 2, 1), (3, 2, 1), (1, 2, 0), (3, 3, 0))],
    *[(2, 1, 256, 128, *each, 1, 8) for each in ((4, 2, 1), (3, 2, 1), (1, 2, 0), (5, 2, 2))],
    *[(2, 1, 512, 512, *each, 1, 8) for each in ((4, 2, 1), (3, 2, 1), (1, 2, 0))],
    *[(16, 1, ci, 64, 4, 2, 1, 1, 28) for ci in (1, 48)],
    (2, 4, 16, 16, 3, 2, 1, 1, 32),
    (2, 8, 4, 8, 4, 2, 1, 1, 32),
    (2, 32, 1, 1, 3, 2, 1, 1, 32),
    (2, 1, 64, 64, 3, 2, 2, 2, 32),
    (2, 1, 32, 64, 3, 3, 2, 2, 30),
    (3, 1, 48, 80, 3, 2, 1, 1, 17),
    (70, 1, 1, 4, 4, 2, 1, 1, 32),
    (64, 1, 3, 8, 4, 2, 1, 1, 64),
]
Case = tuple[int, int, int, int, int, int, int, int, int]


def arrays(case: Case) -> tuple[Window, Array, Array, Array]:
    """The window, g, the weights, and room for x."""
    n, groups, ci, co, kernel, step, padding, dilation, side = case
    spans = [(each, each) for each in (side, kernel, step, padding, dilation)]
    w = Window(*spans, out_size(*spans))
    g = numbers(1, n, groups, co, *w.out).astype("f4")
    weight = numbers(2, groups, co, ci, kernel, kernel).astype("f4")
    return w, g, weight, np.full((n, groups, ci, side, side), np.nan, "f4")


def wanted(case: Case, g: Array, weight: Array) -> Array:
    """x by PyTorch in double precision."""
    n, groups, ci, _co, _, step, padding, dilation, side = case
    flat = [torch.tensor(a, dtype=torch.double) for a in (weight, g)]
    factor, given = flat[0].flatten(0, 1), flat[1].flatten(1, 2)
    shape = (n, groups * ci, side, side)
    made = torch.nn.grad.conv2d_input(shape, factor, given, step, padding, dilation, groups)
    return made.numpy().reshape(n, groups, ci, side, side)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_errors_and_bits(case: Case) -> None:
    """A sum of co * taps products is off by at most three units, as its squares' mean has it; the
    code for other steps that adds up tap by tap is off by five. One, two and three threads give the
    same bits."""
    w, g, weight, x = arrays(case)
    found = []
    for threads in (1, 2, 3):
        with config.using(threads=threads, threads_from=1):
            assert conv_onednn.adjoint(g, weight, None, x, w)
        found.append(x.copy())
    exact = wanted(case, g, weight)
    error = math.sqrt(np.square(found[0] - exact).mean() / np.square(exact).mean())
    assert error < (2 if case[4] > 1 else 3.5) * 1e-7
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_memory_is_that_of_a_piece(case: Case) -> None:
    """Images of a piece in whole bundles of channels are two MiB, unless it is one; beside them lie
    weights, and what the code needs."""
    w, g, weight, x = arrays(case)
    bundle = conv_works._BUNDLE
    _, groups, ci, co, *_ = case
    channels = [-(-c // bundle) * bundle for c in (groups * ci, groups * co)]
    least = channels[0] * math.prod(w.size) + channels[1] * math.prod(w.out)
    factor = channels[0] * channels[1] * math.prod(w.kernel)
    with config.using(threads=2):
        way = conv_onednn._way_for("adjoint", (x, weight, g), w, False)
    assert way is not None
    works = way.works
    most = max(conv_works._ROOM, least) + factor
    if groups == 1 and ci <= conv_works._FEW:  # one product for each image
        most = min(most, least + factor)
    for work in works:
        assert work.room <= most + (1 << 14)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("size", [(40,), (24, 24), (6, 12, 12)])
def test_few_channels_are_made_by_products(size: tuple[int, ...], step: int) -> None:
    """An image of three channels in bundles of sixteen would take five times as long."""
    kernel = 4 if len(size) < 3 else 2
    each = [(span,) * len(size) for span in (kernel, step, 1, 1)]
    w = Window(size, *each, out_size(size, *each))
    g = numbers(1, 5, 1, 64, *w.out).astype("f4")
    weight = numbers(2, 1, 64, 3, *w.kernel).astype("f4")
    x = np.empty((5, 1, 3, *size), "f4")
    found = []
    for threads in (1, 2, 3):
        with config.using(threads=threads, threads_from=1):
            way = conv_onednn._way_for("adjoint", (x, weight, g), w, False)
            assert conv_onednn.adjoint(g, weight, None, x, w)
        found.append(x.copy())
        assert way is not None
        works = way.works
        names = [plan.primitive.name for work in works for plan in work._plans()]
        assert len(works) == 1
        assert all(name.startswith(onednn.FEW) for name in names)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    made = getattr(torch.nn.grad, f"conv{len(size)}d_input")
    flat = [torch.tensor(a, dtype=torch.double) for a in (weight[0], g[:, 0])]
    exact = made((5, 3, *size), *flat, step, 1).numpy()[:, None]
    assert math.sqrt(np.square(found[0] - exact).mean() / np.square(exact).mean()) < 2e-7


def test_what_runs_on_a_team_is_no_code_with_memory_for_each_thread() -> None:
    """Of several channels, dense, not dilated: the code that oneDNN has first, where it has it,
    would be alone."""
    w, g, weight, x = arrays((4, 1, 64, 128, 4, 2, 1, 1, 16))
    with config.using(threads=2):
        way = conv_onednn._way_for("adjoint", (x, weight, g), w, False)
    assert way is not None
    works = way.works
    names = {plan.primitive.name for work in works for plan in work._plans()}
    assert not any(name.startswith(onednn._SLOWER) for name in names)
    if names == {b"jit:avx512_core"}:
        assert len(works) == 2


def test_a_transposed_convolution_has_the_same_errors() -> None:
    skimp.manual_seed(0)
    layer = skimp.nn.ConvTranspose2d(128, 64, 4, 2, 1)
    x = skimp.randn(4, 128, 8, 8, requires_grad=True)
    twin = torch.nn.ConvTranspose2d(128, 64, 4, 2, 1, dtype=torch.double)
    with torch.no_grad():
        for own, other in zip(twin.parameters(), layer.parameters(), strict=True):
            own.copy_(torch.tensor(other.detach().numpy()))
    exact = torch.tensor(x.detach().numpy(), dtype=torch.double, requires_grad=True)
    y, right = layer(x), twin(exact)
    y.sin().sum().backward()
    right.sin().sum().backward()
    assert x.grad is not None
    assert exact.grad is not None
    for made, want in ((y, right), (x.grad, exact.grad)):
        a, b = made.detach().numpy(), want.detach().numpy()
        assert math.sqrt(np.square(a - b).mean() / np.square(b).mean()) < 4e-7
