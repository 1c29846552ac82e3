"""Convolution by oneDNN: its values beside PyTorch's, whatever the layout, and how it is cut."""

from __future__ import annotations

import os
import random
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import conv_lanes, conv_onednn, conv_works, onednn
from skimp._kernels.im2col import Window, out_size
from skimp.config import config
from tests.kernels.windows import by_pytorch, numbers, windows

Array = np.ndarray[Any, Any]

there = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed, or not asked")


def laid_out(a: Array, how: str) -> Array:
    """The same numbers, elsewhere in memory."""
    if how == "channels last":
        order = (0, *range(2, a.ndim), 1)
        return np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))
    if how == "backwards":
        return np.ascontiguousarray(a[..., ::-1])[..., ::-1]
    if how == "every other":
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]
    return a


def split(a: Array, dim: int, groups: int) -> Array:
    """The channels' groups apart."""
    return a.reshape(*a.shape[:dim], groups, a.shape[dim] // groups, *a.shape[dim + 1 :])


def fused(factor: Array) -> bool:
    return factor.shape[0] > 1 and factor.shape[1:3] == (1, 1)


def ours(x: Array, weight: Array, bias: Array, g: Array, w: Window, groups: int) -> list[Array]:
    made = [np.empty_like(each) for each in (g, x, weight, bias)]
    y, to_x, to_weight, to_bias = made
    add, to_add = bias.reshape(groups, -1), to_bias.reshape(groups, -1)
    factor, to_factor = split(weight, 0, groups), split(to_weight, 0, groups)
    places, images = split(g, 1, groups), split(x, 1, groups)
    assert conv_onednn.forward(images, factor, add, split(y, 1, groups), w)
    shift = np.sin(np.arange(x.shape[1], dtype=x.dtype)).reshape(groups, -1)
    shifted = np.empty_like(to_x)
    assert conv_onednn.adjoint(places, factor, shift, split(shifted, 1, groups), w)
    assert conv_onednn.adjoint(places, factor, None, split(to_x, 1, groups), w)
    beside = shift.reshape(-1, *(1,) * (x.ndim - 2))
    # where channels are apart, the bias may be added before the product is rounded
    largest = float(np.abs(to_x).max()) + 1
    np.testing.assert_allclose(shifted, to_x + beside, rtol=0, atol=1e-6 * largest * fused(factor))
    assert conv_onednn.weights(places, images, to_factor, w, to_add)
    apart = [a.copy() for a in (to_x, to_weight, to_bias)]
    together = split(to_x, 1, groups), to_factor
    for a in (to_x, to_weight, to_bias):
        a[...] = np.nan
    assert conv_onednn.adjoint_and_weights(places, images, factor, *together, w, to_add)
    for a, b in zip(apart, (to_x, to_weight, to_bias), strict=True):
        np.testing.assert_array_equal(a, b)
    return made


def forget() -> None:
    """How convolutions are made is asked anew."""
    conv_onednn._way.cache_clear()
    conv_works.works_of.cache_clear()


def in_groups(arrays: tuple[Any, Any, Any], bias: Any, w: Window) -> conv_lanes.Lanes | None:
    x, weight, g = arrays
    strides, most = (x.strides, weight.strides, g.strides), (conv_works.TEAM, conv_works.MOST)
    many = conv_lanes.groups(len(x), weight.shape, strides, w, *most)
    return conv_lanes.lanes(arrays, bias, many) if many else None


@there
@given(
    windows(1, 3),
    st.sampled_from([1, 2, 3, 17]),
    st.tuples(st.sampled_from([1, 2, 5]), st.sampled_from([1, 3, 16]), st.sampled_from([1, 2, 17])),
    st.sampled_from(["dense", "channels last", "backwards", "every other"]),
    st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_a_convolution_and_its_gradients_are_pytorchs(
    w: Window, n: int, channels: tuple[int, int, int], how: str, seed: int
) -> None:
    groups, ci, co = channels
    x = laid_out(numbers(seed, n, groups * ci, *w.size).astype("f4"), how)
    weight = numbers(1, groups * co, ci, *w.kernel).astype("f4")
    bias = numbers(2, groups * co).astype("f4")
    g = laid_out(numbers(3, n, groups * co, *w.out).astype("f4"), how)
    wanted = by_pytorch(*[np.array(a, "f8", order="C") for a in (x, weight, bias, g)], w, groups)
    for a, b in zip(ours(x, weight, bias, g, w, groups), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1, float(np.abs(b).max())))


# images, channels and their groups, and sizes for which the cuts differ: some images, some
# channels, some groups, sums of one and of several pieces, more weights than images
CUTS = [
    (16, 1, 32, 48, (24, 24)),
    (3, 1, 64, 80, (16, 16)),
    (2, 96, 1, 1, (40, 40)),
    (24, 1, 96, 96, (4, 4)),
    (16, 1, 240, 272, (4, 4)),
    (1, 4, 16, 40, (48, 48)),
    (70, 1, 16, 16, (20, 20)),
]


def cut_at(
    n: int, groups: int, ci: int, co: int, size: tuple[int, ...]
) -> tuple[Array, Array, Array, Array, Window, int]:
    """A convolution of 3 x 3, as `ours` and `by_pytorch` take it."""
    ones = (1, 1)
    x, g = [numbers(3, n, groups * c, *size).astype("f4") for c in (ci, co)]
    weight = numbers(1, groups * co, ci, 3, 3).astype("f4")
    bias = numbers(2, groups * co).astype("f4")
    return x, weight, bias, g, Window(size, (3, 3), ones, ones, ones, size), groups


@there
@pytest.mark.parametrize(("n", "groups", "ci", "co", "size"), CUTS)
def test_bits_are_those_of_any_number_of_threads(
    n: int, groups: int, ci: int, co: int, size: tuple[int, ...]
) -> None:
    call = cut_at(n, groups, ci, co, size)
    found = []
    for threads in (1, 2, 7):
        with config.using(threads=threads, threads_from=1):
            found.append(ours(*call))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    wanted = by_pytorch(*call)
    for a, b in zip(found[0], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * float(np.abs(b).max()))


@there
@pytest.mark.parametrize(
    ("n", "groups", "ci", "co", "size"), [*CUTS, (5, 4, 16, 24, (14, 20)), (33, 2, 16, 24, (7, 20))]
)
def test_bits_are_those_of_pieces_for_which_there_is_little_room(
    monkeypatch: pytest.MonkeyPatch, n: int, groups: int, ci: int, co: int, size: tuple[int, ...]
) -> None:
    call = cut_at(n, groups, ci, co, size)
    usual = ours(*call)
    monkeypatch.setattr(conv_onednn, "spare_room", lambda elements: None)
    for a, b in zip(ours(*call), usual, strict=True):
        np.testing.assert_array_equal(a, b)


@there
def test_bits_are_those_of_a_team_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random convolutions by teams of 2 to 7, and by threads that share pieces. Code that needs
    memory for each thread adds up in its own order, and is not run by a team."""
    monkeypatch.setattr(conv_works, "TEAM", 1)
    forget()
    draw = random.Random(0)
    shared = 0
    for _ in range(60):
        n, ci, co = draw.choice([1, 3, 16]), draw.choice([1, 16, 48]), draw.choice([3, 32, 100])
        kernel, stride = draw.choice([(1, 1), (3, 3), (4, 4)]), draw.choice([(1, 1), (2, 2)])
        groups, side = draw.choice([1, 1, 4]), draw.choice([4, 9, 20])
        size, ones = (side, side), (1, 1)
        w = Window(size, kernel, stride, ones, ones, out_size(size, kernel, stride, ones, ones))
        x = numbers(3, n, groups * ci, *size).astype("f4")
        g = numbers(4, n, groups * co, *w.out).astype("f4")
        weight, bias = numbers(1, groups * co, ci, *kernel), numbers(2, groups * co)
        found = []
        for threads in (1, 2, 3, 7):
            with config.using(threads=threads):
                arrays = x, weight.astype("f4"), bias.astype("f4"), g
                found.append(ours(*arrays, w, groups))
                places = split(arrays[0], 1, groups), split(arrays[1], 0, groups)
                way = conv_onednn._way_for("forward", (*places, split(g, 1, groups)), w, True)
                assert way is not None
                works = way.works
                shared += len(works) - 1
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
    assert shared > 60  # of 180
    forget()


@there
@pytest.mark.parametrize(("n", "ci", "co"), [(2, 16, 16), (16, 32, 32), (6, 16, 48), (3, 64, 16)])
@pytest.mark.parametrize("how", ["dense", "every other image"])
def test_the_gradient_of_few_channels_is_a_sum_of_groups(
    monkeypatch: pytest.MonkeyPatch, n: int, ci: int, co: int, how: str
) -> None:
    """Of images that follow each other, of which a team then has several: with the same bits on any
    number of threads, and smaller errors."""
    size, ones = (28, 28), (1, 1)
    w = Window(size, (3, 3), ones, ones, ones, size)
    x, g = [numbers(i, 2 * n, c, *size).astype("f4") for i, c in ((1, ci), (2, co))]
    x, g = (x[::2], g[::2]) if how != "dense" else (x[:n], g[:n])
    weight, bias = np.empty((co, ci, 3, 3), "f4"), np.empty(co, "f4")
    arrays = split(x, 1, 1), split(weight, 0, 1), split(g, 1, 1)
    grouped = in_groups(arrays, bias[None], w)
    assert (grouped is not None) is (how == "dense")
    found, teams = [], []
    for threads in (1, 2, 3, 4):
        with config.using(threads=threads, threads_from=1):
            assert conv_onednn.weights(arrays[2], arrays[0], arrays[1], w, bias[None])
            found.append((weight.copy(), bias.copy()))
            if grouped is not None:
                way = conv_onednn._way_for("weights", grouped.arrays, w, True)
                teams.append(way is not None and len(way.works) > 1)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    exact = by_pytorch(*[a.astype("f8") for a in (x, weight, bias, g)], w, 1)[2:]
    monkeypatch.setattr(conv_lanes, "groups", lambda *_: 0)
    forget()
    assert conv_onednn.weights(arrays[2], arrays[0], arrays[1], w, bias[None])
    forget()
    for a, b, whole in zip(found[0], exact, (weight, bias), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6 * float(np.abs(b).max()))
        if how != "dense":
            np.testing.assert_array_equal(a, whole)
    assert not teams or any(teams[1:])


@there
def test_groups_of_images_are_cut_for_a_team_and_not_made_of_large_ones() -> None:
    """Two threads hold two at once, as where each has its own; large ones would be none of
    oneDNN's."""
    for side, some in ((64, True), (256, False)):
        w = Window((side,) * 2, (3, 3), (1, 1), (1, 1), (1, 1), (side,) * 2)
        weight = np.empty((1, 16, 32, 3, 3), "f4")
        x, g = [np.empty((4, 1, c, side, side), "f4") for c in (32, 16)]
        found = in_groups((x, weight, g), None, w)
        assert (found is not None) is some
        if found is not None:
            with config.using(threads=2):
                way = conv_onednn._way_for("weights", found.arrays, w, False)
            assert way is not None
            works = way.works
            assert works[-1].room <= 2 * works[0].room


@there
@pytest.mark.parametrize("face", ["forward", "adjoint", "weights"])
@pytest.mark.parametrize(("channels", "side", "fewer"), [(128, 8, 2), (64, 16, 2)])
def test_a_team_takes_more_at_once(face: str, channels: int, side: int, fewer: int) -> None:
    """Twice as many channels, or more small images; sums over images are cut alike for all."""
    w = Window((side,) * 2, (3, 3), (1, 1), (1, 1), (1, 1), (side,) * 2)
    x, g = [numbers(i, 16, 1, channels, side, side).astype("f4") for i in (1, 2)]
    weight = numbers(3, 1, channels, channels, 3, 3).astype("f4")
    arrays, made = (x, weight, g), {"forward": g, "adjoint": x, "weights": weight}[face]
    with config.using(threads=2):
        way = conv_onednn._way_for(face, arrays, w, False)
        assert way is not None
        works = way.works
        found = []
        for work in (*works, works[0].narrow):
            conv_onednn._make_here([work], [(face, arrays, None)])
            found.append(made.copy())
            conv_onednn._share([work], [(face, arrays, None)])
            found.append(made.copy())
        counts = [sum(map(len, work._pieces)) for work in works]
    if len(works) > 1:  # else this processor's code is another for a team
        assert counts[0] == counts[1] * (1 if face == "weights" else fewer)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    forget()


@there
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_multiplied_as_float32(dtype: str) -> None:
    results = []
    for lib in (skimp, torch):
        lib.manual_seed(0)
        x, weight = [lib.randn(*s).to(getattr(lib, dtype)) for s in ((3, 8, 9, 9), (16, 8, 3, 3))]
        x.requires_grad_()
        weight.requires_grad_()
        lib.nn.functional.conv2d(x, weight, stride=2).sum().backward()
        results.append([t.grad.float().numpy() for t in (x, weight)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)


@there
def test_an_image_too_large_for_scratch_memory_is_left_to_rows() -> None:
    size = (1100, 1000)
    w = Window(size, (3, 3), (1, 1), (1, 1), (1, 1), size)
    x, weight = np.ones((1, 1, 1, *size), "f4"), np.ones((1, 1, 1, 3, 3), "f4")
    out = np.zeros_like(x)
    assert not conv_onednn.forward(x, weight, None, out, w)
    assert not out.any()
    found = skimp.nn.functional.conv2d(skimp.ones(1, 1, *size), skimp.ones(1, 1, 3, 3), padding=1)
    assert found[0, 0, :2, :2].tolist() == [[4, 6], [6, 9]]


@there
def test_doubles_and_complex_numbers_are_left_to_products() -> None:
    w = Window((5,), (3,), (1,), (1,), (1,), out_size((5,), (3,), (1,), (1,), (1,)))
    for kind in "dFD":
        x, weight = np.ones((1, 1, 2, 5), kind), np.ones((1, 3, 2, 3), kind)
        assert not conv_onednn.forward(x, weight, None, np.empty((1, 1, 3, 5), kind), w)


@there
def test_threads_of_openmp_are_as_they_were() -> None:
    library = onednn.library()
    assert library is not None
    before = library.omp_get_max_threads()
    with onednn.team(1):
        assert library.omp_get_max_threads() == 1
    assert library.omp_get_max_threads() == before


@there
def test_primitives_go_with_their_plans() -> None:
    """What is made for sizes that are not met again goes: code of a thousand sizes would be 50
    MiB."""
    forget()
    weight = skimp.ones(4, 4, 3)
    alive = []
    for length in range(5, 5 + 600):
        skimp.nn.functional.conv1d(skimp.ones(1, 4, length), weight)
        alive.append(conv_works.works_of.cache_info().currsize)
    assert max(alive) == conv_works.works_of.cache_info().maxsize
    forget()


# -- as a user has it -----------------------------------------------------------------------------

PROGRAM = """
import torch
torch.manual_seed(0)
x, layer = torch.randn(4, 3, 16, 16), torch.nn.Conv2d(3, 8, 3)
loss = layer(x).square().mean()
loss.backward()
print(torch.backends.mkldnn.is_available(), "no oneDNN" in torch.__config__.show())
print(f"{loss.item():.5f} {layer.weight.grad.norm():.5f}")
"""


def run(path: Path, mode: str) -> subprocess.CompletedProcess[str]:
    program = path / "program.py"
    program.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-m", "skimp", "run", "--quiet", str(program)],
        env={**os.environ, "SKIMP_ONEDNN": mode},
        capture_output=True,
        text=True,
        check=False,
    )


@there
def test_a_program_runs_with_and_without_it(tmp_path: Path) -> None:
    with_it, without = [run(tmp_path, mode).stdout.splitlines() for mode in ("auto", "never")]
    assert with_it[0] == "True False"
    assert without[0] == "False True"
    assert with_it[1] == without[1]


def test_a_wrong_setting_says_what_would_be_right(tmp_path: Path) -> None:
    done = run(tmp_path, "perhaps")
    assert done.returncode != 0
    assert "SKIMP_ONEDNN must be one of auto, never; got 'perhaps'" in done.stderr


def test_what_is_no_library_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").write_bytes(b"not a library")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = onednn.library.__wrapped__()
    assert found is None or "oneDNN 3" in onednn.state()


def test_what_pip_put_beside_the_users_packages_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "lib" / "libdnnl.so.3"
    own.parent.mkdir()
    own.write_bytes(b"")
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path))
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nothing"))
    assert onednn._places() == [str(own), "libdnnl.so.3"]
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    assert onednn._places() == ["libdnnl.so.3"]


@pytest.mark.parametrize("face", ["forward", "adjoint", "weights"])
def test_no_piece_of_channels_is_less_than_the_least(face: str) -> None:
    """Each brings all that it reads into its layout."""
    for n, ci, co, size in ((2, 64, 32, 32), (2, 128, 64, 16), (1, 256, 256, 8), (16, 128, 128, 8)):
        w = Window((size, size), (3, 3), (1, 1), (1, 1), (1, 1), (size, size))
        whole = conv_works.Sizes(n, 1, co, ci)
        images, channels = conv_works.cut(face, w, whole, 1)
        if len(channels) > 1:
            effort = n * whole.effort(w) / (len(images) * len(channels))
            assert effort >= conv_works._LEAST
        assert sum([s.stop - s.start for s in images]) == n


def test_a_transposed_call_is_judged_each_time_it_is_wrong() -> None:
    x, weight = skimp.ones(1, 4, 5, 5), skimp.ones(4, 3, 3, 3)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="output padding must be smaller"):
            skimp.nn.functional.conv_transpose2d(x, weight, output_padding=3)
        with pytest.raises(RuntimeError, match="Given transposed=1, weight of size"):
            skimp.nn.functional.conv_transpose2d(x, weight, skimp.ones(2))
        y = skimp.nn.functional.conv_transpose2d(x, weight, stride=2, output_padding=(1, 0))
        assert tuple(y.shape) == (1, 3, 12, 11)


@there
def test_windows_are_compared_by_value() -> None:
    """Of two dims, each channel by itself: what is remembered of an equal window serves."""
    found = []
    for _ in range(2):
        w = Window((1, 3), (1, 1), (1, 1), (1, 2), (1, 1), (3, 7))
        x, weight = numbers(1, 2, 2, 1, 1, 3).astype("f4"), numbers(2, 2, 1, 1, 1, 1).astype("f4")
        y = np.empty((2, 2, 1, 3, 7), "f4")
        assert conv_onednn.forward(x, weight, None, y, w)
        found.append(y)
    np.testing.assert_array_equal(*found)
