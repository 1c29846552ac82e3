"""grid_sample: PyTorch's values and gradients, derivatives of derivatives, many samples at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp

F = skimp.nn.functional
CASES = [
    (nd, mode, padding, align)
    for nd in (2, 3)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for align in (True, False)
    if (nd, mode) != (3, "bicubic")
]


def drawn(nd: int, n: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(nd)
    image = torch.randn(n, 2, *(4, 5, 3)[:nd], dtype=torch.float64)
    grid = torch.randn(n, *(3, 2, 2)[:nd], nd, dtype=torch.float64)
    return image, grid


def mine(t: torch.Tensor, grad: bool = True) -> Any:
    return skimp.tensor(t.detach().numpy(), requires_grad=grad)


@pytest.mark.parametrize(("nd", "mode", "padding", "align"), CASES)
def test_values_and_gradients_are_pytorchs(nd: int, mode: str, padding: str, align: bool) -> None:
    image, grid = [t.requires_grad_() for t in drawn(nd)]
    wanted = torch.nn.functional.grid_sample(image, grid, mode, padding, align)
    weights = torch.randn_like(wanted)
    (wanted * weights).sum().backward()
    own, at = mine(image), mine(grid)
    found = F.grid_sample(own, at, mode, padding, align)
    (found * mine(weights, False)).sum().backward()
    for a, b in ((found, wanted), (own.grad, image.grad), (at.grad, grid.grad)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("nd", "mode", "padding", "align"), CASES)
def test_second_derivatives(nd: int, mode: str, padding: str, align: bool) -> None:
    image, grid = drawn(nd, 1)
    image, grid = image[:, :1, :3, :3], grid[:, :2, :1, :1] if nd == 3 else grid[:, :2, :1]

    def read(image: Any, grid: Any) -> Any:
        return F.grid_sample(image, grid, mode, padding, align)

    assert skimp.autograd.gradgradcheck(read, (mine(image), mine(grid * 0.7)))


def test_blocks_make_no_difference() -> None:
    """More points than are worked on together, of one image and of several."""
    torch.manual_seed(0)
    image, grid = torch.randn(3, 5, 9, 9), torch.rand(3, 70, 70, 2) * 2 - 1
    whole = F.grid_sample(mine(image, False), mine(grid, False), align_corners=False)
    for i, j in ((0, 0), (2, 69), (1, 35)):
        at = mine(grid[i : i + 1, j : j + 1], False)
        alone = F.grid_sample(mine(image[i : i + 1], False), at, align_corners=False)
        assert skimp.equal(whole[i : i + 1, :, j : j + 1], alone)


def test_the_grid_of_one_point_is_only_read() -> None:
    image, grid = skimp.ones(1, 1, 2, 2), skimp.zeros(1, 1, 1, 2)
    assert F.grid_sample(image, grid, align_corners=False).item() == 1
    assert not grid.any()


@pytest.mark.parametrize("shape", [(2, 0, 3, 2), (2, 3, 0, 2), (0, 2, 2, 2)])
def test_of_no_points_there_are_gradients_of_zeros(shape: tuple[int, ...]) -> None:
    image = skimp.ones(shape[0], 3, 4, 5, requires_grad=True)
    grid = skimp.zeros(shape, requires_grad=True)
    F.grid_sample(image, grid, align_corners=False).sum().backward()
    assert image.grad.shape == image.shape
    assert not image.grad.any()
    assert grid.grad.shape == shape


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64"])
@pytest.mark.parametrize("nd", [2, 3])
def test_other_types_are_refused_in_pytorchs_words(dtype: str, nd: int) -> None:
    def answer(t: Any) -> Any:
        kind = getattr(t, dtype)
        image, grid = t.ones(1, 1, *[3] * nd, dtype=kind), t.ones(1, *[2] * nd, nd, dtype=kind)
        with pytest.raises(NotImplementedError) as found:
            t.nn.functional.grid_sample(image, grid, align_corners=False)
        return str(found.value)

    assert answer(skimp) == answer(torch)


def test_samples_are_images_of_one_batch() -> None:
    image, grid = [mine(t, False) for t in drawn(2, 3)]
    found = skimp.vmap(lambda a, b: F.grid_sample(a[None], b[None], align_corners=True)[0])(
        image, grid
    )
    assert skimp.equal(found, F.grid_sample(image, grid, align_corners=True))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_no_images_and_no_channels(shape: tuple[int, int], mode: str) -> None:
    found = []
    for lib in (skimp, torch):
        image = lib.ones(*shape, 3, 4, requires_grad=True)
        grid = lib.zeros(shape[0], 2, 2, 2, requires_grad=True)
        seen = lib.nn.functional.grid_sample(image, grid, mode=mode, align_corners=False)
        seen.sum().backward()
        found.append((seen.tolist(), image.grad.tolist(), grid.grad.tolist()))
    assert found[0] == found[1]
