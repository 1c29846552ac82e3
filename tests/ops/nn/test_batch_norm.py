"""batch_norm's statistics: joined rows, rows far from zero, nan, running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import sharing
from skimp._kernels.channels_compiled import adds
from skimp.config import config
from tests.support.frames import frames_of

Array = np.ndarray[Any, Any]


def _far(means: list[float], shape: tuple[int, ...] = (6, 5, 4, 8)) -> np.ndarray:
    """Images whose channels are about so far from zero, in deviations."""
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return x + np.array(means, np.float32).reshape(1, -1, 1, 1)


def _both(x: np.ndarray, g: np.ndarray, dtype: str = "float32") -> list[list[np.ndarray]]:
    """Everything that a training step of batch_norm gives, by torch in float64 and by skimp."""
    found = []
    for lib, kind in ((torch, "float64"), (skimp, dtype)):
        made = [
            lib.tensor(a, dtype=getattr(lib, kind)).requires_grad_()
            for a in (x, np.linspace(0.5, 2, x.shape[1]), np.linspace(-1, 1, x.shape[1]))
        ]
        running = [lib.zeros(x.shape[1], dtype=getattr(lib, kind)) for _ in range(2)]
        y = lib.nn.functional.batch_norm(made[0], *running, *made[1:], True, 0.3, 1e-5)
        y.backward(lib.tensor(g, dtype=getattr(lib, kind)))
        found.append([t.detach().numpy() for t in (y, *running, *[m.grad for m in made])])
    return found


def _deviates(x: np.ndarray) -> list[float]:
    """How far skimp is from float64, each result by its own largest element."""
    g = np.random.default_rng(1).standard_normal(x.shape, dtype=np.float32)
    want, have = _both(x, g)
    return [float(np.abs(h - w).max() / np.abs(w).max()) for w, h in zip(want, have, strict=True)]


def test_channels_near_zero() -> None:
    assert max(_deviates(_far([0.0, 0.5, -1.0, 2.0, -2.7]))) < 2e-6


def test_channels_far_from_zero() -> None:
    """Sums around zero would lose all digits of the variance."""
    assert max(_deviates(_far([0.0, 3.0, 300.0, -3000.0, 1.0]))) < 3e-4
    only = _far([4000.0])
    y = skimp.nn.functional.batch_norm(skimp.tensor(only), None, None, training=True)
    assert abs(float(y.var(correction=0)) - 1) < 1e-4


@pytest.mark.parametrize("shape", [(6, 5, 4, 8), (40, 5, 16, 16), (16, 8, 96, 96), (64, 6)])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_ten_thousand_deviations_from_zero(kind: str, shape: tuple[int, ...]) -> None:
    """Of few rows, of many, of several blocks of rows, and of no rows: sums around zero would lose
    eight digits of the variance, where these lose four (of which a row's own mean is rounded)."""
    draw = np.random.default_rng(0).standard_normal
    x, g = (draw(shape) + 1e4).astype(kind), draw(shape).astype(kind)
    unit = 6e-8 if kind == "float32" else 1e-16
    want, have = _both(x, g, kind)
    y, mean, var, *gradients = [
        float(np.abs(h - w).max() / np.abs(w).max()) for w, h in zip(want, have, strict=True)
    ]
    assert mean < (4 * unit if kind == "float32" else 1e-13)  # PyTorch's own is 2e-14
    assert var < 2e3 * unit
    assert max(y, *gradients) < (2e4 * unit if kind == "float32" else 1e-9)  # and 2e-10


def test_one_image_far_from_the_others() -> None:
    x = _far([0.0, 1.0, 0.0, 0.0, 0.0])
    x[3, 1] += 500
    assert max(_deviates(x)) < 1e-4


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_channel(value: float) -> None:
    x = _far([0.0, 1.0, 0.0, 0.0, 0.0])
    x[2, 3, 1, 1] = value
    ours = skimp.nn.functional.batch_norm(skimp.tensor(x), None, None, training=True).numpy()
    theirs = torch.nn.functional.batch_norm(torch.tensor(x), None, None, training=True).numpy()
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("wide", [False, True])
def test_running_statistics(kind: str, wide: bool) -> None:
    x = _far([0.0, 1.0, -2.0, 0.5, 3.0])
    other = "float32" if wide and kind != "float64" else kind  # half precision may keep them wider
    found = []
    for lib in (torch, skimp):
        running = [lib.full((5,), v, dtype=getattr(lib, other)) for v in (0.3, 2.0)]
        lib.nn.functional.batch_norm(
            lib.tensor(x, dtype=getattr(lib, kind)), *running, training=True
        )
        found.append([r.double().numpy() for r in running])
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2}.get(kind, 1e-6)
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_bits_do_not_depend_on_threads() -> None:
    x = _far([0.0, 5.0, 1.0, -2.8, 100.0], (40, 5, 16, 16))
    g = np.random.default_rng(1).standard_normal(x.shape, dtype=np.float32)
    found = []
    for threads in (1, 2, 3):
        with config.using(threads=threads, threads_from=0):
            found.append(_both(x, g)[1])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


# images as runs, one image, long rows, rows longer than a block, waiting gradients, no dims but one
SHAPES = [
    (6, 5, 4, 8),
    (1, 3, 20, 20),
    (2, 3, 40, 30),
    (2, 2, 300, 300),
    (20, 8, 32, 32),
    (4, 3, 17),
]


def _rectified(lib: Any, x: Array, kind: str, how: str) -> list[Array]:
    """Gradients of input, weight and bias for the sum of a rectified result, or of its squares, or
    of one that lies channels last."""
    factors = [np.linspace(0.5, 2, x.shape[1]), np.linspace(-1, 1, x.shape[1])]
    made = [lib.tensor(a, dtype=getattr(lib, kind)).requires_grad_() for a in (x, *factors)]
    y = lib.nn.functional.batch_norm(made[0], None, None, *made[1:], True)
    y = y if how == "channels last" else lib.nn.functional.relu(y)
    if how == "squares":
        y = y * y
    g = lib.ones(y.shape, dtype=y.dtype)
    if how == "channels last":
        last = (lib.arange(y.numel()) % 7).to(y.dtype).reshape(len(y), -1, y.shape[1])
        g = last.transpose(1, 2).reshape_as(y)
        g = g.contiguous() if lib is torch else g  # PyTorch misreads that of a single image
    (y.sum() if how == "sum" else y).backward(None if how == "sum" else g)
    return [m.grad.double().numpy() for m in made]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["squares", "sum", "channels last"])
def test_gradients_are_those_of_float64_and_of_every_way_to_make_them(
    shape: tuple[int, ...], how: str
) -> None:
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    wanted = _rectified(torch, x, "float64", how)
    found = []
    for defer in ("auto", "always", "never"):
        for threads in (1, 2):
            with config.using(defer=defer, threads=threads, threads_from=0):
                found.append(_rectified(skimp, x, "float32", how))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()
    for a, b in zip(found[0], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6 * max(1, float(np.abs(b).max())))


@pytest.mark.parametrize(("kind", "error"), [("float16", 4e-3), ("bfloat16", 4e-2), ("float64", 0)])
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_gradients_of_other_types(shape: tuple[int, ...], kind: str, error: float) -> None:
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    x = torch.tensor(x, dtype=getattr(torch, kind)).double().numpy()
    wanted, ours = [
        _rectified(lib, x, each, "channels last")
        for lib, each in ((torch, "float64"), (skimp, kind))
    ]
    for a, b in zip(ours, wanted, strict=True):
        bound = max(error, 1e-12)
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * float(np.abs(b).max()))


@pytest.mark.parametrize("order", ["contiguous_format", "channels_last"])
def test_a_gradient_that_waits_is_kept_once(order: str) -> None:
    """Beside the input and the gradient it is written into the result's bytes, and nowhere else."""
    made = skimp.randn(16, 32, 32, 32), skimp.ones(16, 32, 32, 32)
    x, g = [t.contiguous(memory_format=getattr(skimp, order)) for t in made]
    del made
    x.requires_grad_()
    with config.using(defer="auto"):
        y = skimp.relu(skimp.nn.functional.batch_norm(x, None, None, training=True))
        before = skimp.cuda.memory_allocated()
        skimp.cuda.reset_peak_memory_stats()
        y.backward(g)
        assert skimp.cuda.max_memory_allocated() - before < 1.1 * g.nbytes


def _step(x: Array, weight: Array | None, g: Array | None, training: bool = True) -> list[bytes]:
    """What a step gives, byte by byte; no `g`: the gradient is one number expanded."""
    made = [None if a is None else skimp.tensor(a).requires_grad_() for a in (x, weight)]
    running = [skimp.full((x.shape[1],), value) for value in (0.3, 1.7)]
    y = skimp.nn.functional.batch_norm(made[0], *running, made[1], None, training)
    y.sum().backward() if g is None else y.backward(skimp.tensor(g))
    return [
        t.detach().numpy().tobytes()
        for t in (y, *running, *[m.grad for m in made if m is not None])
    ]


@pytest.mark.parametrize("shape", [(2, 3), (70, 5), (1, 3, 8, 8)])
def test_gradients_of_few_in_evaluation_have_the_bits_of_the_ops(shape: tuple[int, ...]) -> None:
    """They are reckoned on arrays where little is there; without weights only what is asked for."""
    draw = np.random.default_rng(4).standard_normal
    x = draw(shape, np.float32)
    for weight in (None, draw(shape[1], np.float32)):
        for g in (None, draw(shape, np.float32)):
            found = []
            for mode in ("auto", "always"):
                with config.using(defer=mode):
                    found.append(_step(x, weight, g, training=False))
            assert found[0] == found[1]


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 4, 40, 40), (8, 4, 64, 72)])
def test_gradients_of_rows_in_evaluation(shape: tuple[int, ...]) -> None:
    """Behind a rectifier, whose gradient may wait: the same bits however they are made, PyTorch's
    values, and the input's gradient is the same where the norm is frozen."""
    rng = np.random.default_rng(4)
    x, g = [rng.standard_normal(shape, np.float32) for _ in range(2)]
    weight, bias, mean = rng.standard_normal((3, shape[1]), np.float32)

    def step(lib: Any, affine: bool, dtype: str = "f4") -> list[Array]:
        leaves = [lib.from_numpy(a.astype(dtype)) for a in (x, weight, bias)]
        for leaf in leaves[: 3 if affine else 1]:
            leaf.requires_grad_()
        given = [lib.from_numpy(a.astype(dtype)) for a in (mean, mean**2 + 0.5)]
        lib.relu(lib.nn.functional.batch_norm(leaves[0], *given, *leaves[1:])).backward(
            lib.from_numpy(g.astype(dtype))
        )
        return [leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]

    found = step(skimp, True)
    for ours, theirs in zip(found, step(torch, True, "f8"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())
    np.testing.assert_array_equal(found[0], *step(skimp, False))
    for mode in ("always", "never"):
        with config.using(defer=mode):
            for a, b in zip(found, step(skimp, True), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(2, 3), (32, 64), (70, 5), (600, 1), (4, 3, 5), (1, 3, 2, 2)])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e25])
def test_few_rows_give_the_bits_of_the_ops(shape: tuple[int, ...], scale: float) -> None:
    """What is small is reckoned on arrays, all else by `mean`, `var`, `sum` and the like."""
    draw = np.random.default_rng(3).standard_normal
    x = draw(shape, np.float32) * np.float32(scale)
    for weight in (None, draw(shape[1], np.float32)):
        for g in (None, draw(shape, np.float32)):
            found = []
            for mode in ("auto", "always"):
                with config.using(defer=mode):
                    found.append(_step(x, weight, g))
            assert found[0] == found[1]


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize(
    ("shape", "groups"), [((3, 12, 40), 4), ((2, 8, 4, 8), 1), ((2, 6, 5, 7), 6)]
)
def test_group_norms_gradients_by_rows_are_pytorchs(
    shape: tuple[int, ...], groups: int, offset: float
) -> None:
    """Beside those in float64, behind a rectifier, whose gradient may wait."""
    rng = np.random.default_rng(0)
    x, g = [rng.standard_normal(shape).astype("f4") for _ in range(2)]
    weight, bias = [rng.standard_normal(shape[1]).astype("f4") for _ in range(2)]
    found = []
    for lib, dtype in ((skimp, "f4"), (torch, "f8")):
        leaves = [lib.from_numpy(a.astype(dtype)) for a in (x + np.float32(offset), weight, bias)]
        for leaf in leaves:
            leaf.requires_grad_()
        y = lib.nn.functional.group_norm(leaves[0], groups, leaves[1], leaves[2])
        lib.relu(y).backward(lib.from_numpy(g.astype(dtype)))
        found.append([leaf.grad.numpy() for leaf in leaves])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=3e-5 * np.abs(theirs).max())


def _lying(lib: Any, x: Array, how: str) -> Any:
    """The elements as a tensor that lies in another order than its dims."""
    t = lib.from_numpy(x)
    if how == "last":
        made = t.contiguous(
            memory_format=lib.channels_last if x.ndim == 4 else lib.channels_last_3d
        )
    elif how == "turned":
        made = t.transpose(-1, -2).contiguous().transpose(-1, -2)
    else:
        made = lib.stack([t, t], 2)[:, :, 0]
    return made.detach().requires_grad_()


# runs of several places and some left over, several images at once, parts of one, long runs, and
# volumes
LAST = [(3, 12, 29, 31), (9, 64, 7, 7), (2, 4, 200, 190), (1, 2100, 3, 5), (2, 8, 6, 15, 16)]


@pytest.mark.parametrize("shape", LAST)
@pytest.mark.parametrize("how", ["last", "turned", "apart"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_norms_of_images_that_lie_otherwise(shape: tuple[int, ...], how: str, norm: str) -> None:
    """Values beside PyTorch's in float64, far from zero in some channels; strides as PyTorch's."""
    rng = np.random.default_rng(0)
    x, g = [rng.standard_normal(shape).astype("f4") for _ in range(2)]
    x[:, ::2] += 50
    factors = [
        rng.uniform(0.5, 2, shape[1]).astype("f4"),
        rng.standard_normal(shape[1]).astype("f4"),
    ]
    found: list[Any] = []
    strides: list[Any] = []
    for lib, kind in ((skimp, "f4"), (torch, "f8")):
        leaf = _lying(lib, x.astype(kind), how)
        vectors = [lib.from_numpy(a.astype(kind)).requires_grad_() for a in factors]
        for waits in (False, True):
            if norm == "batch":
                y = lib.nn.functional.batch_norm(leaf, None, None, *vectors, True)
            else:
                y = lib.nn.functional.group_norm(leaf, shape[1] // 2, *vectors)
            strides.append(y.stride())
            out = lib.relu(y) if waits else y
            out.backward(_lying(lib, g.astype(kind), how).detach())
            found += [y.detach(), leaf.grad, *[v.grad for v in vectors]]
            strides.append(leaf.grad.stride())
            for each in (leaf, *vectors):
                each.grad = None
    assert strides[:4] == strides[4:]
    for ours, theirs in zip(found[:8], found[8:], strict=True):
        want = theirs.numpy()
        bound = 1e-5 * float(np.abs(want).max())
        np.testing.assert_allclose(ours.numpy(), want, rtol=1e-4, atol=bound)


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm"])
def test_norms_channels_last_do_not_depend_on_threads_or_deferral(norm: str) -> None:
    rng = np.random.default_rng(0)
    x, g = [rng.standard_normal((5, 24, 40, 33)).astype("f4") for _ in range(2)]
    found = []
    for defer in ("auto", "always", "never"):
        for threads in (1, 3):
            with config.using(defer=defer, threads=threads, threads_from=0):
                leaf = _lying(skimp, x, "last")
                more = (None, None, None, None, True) if norm == "batch_norm" else (4,)
                y = skimp.relu(getattr(skimp.nn.functional, norm)(leaf, *more))
                y.backward(_lying(skimp, g, "last").detach())
                found.append((y.detach().numpy().tobytes(), leaf.grad.numpy().tobytes()))
    assert len(set(found)) == 1


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm"])
@pytest.mark.parametrize("how", ["last", "turned", "apart"])
def test_norms_of_images_that_lie_otherwise_are_not_ops(norm: str, how: str) -> None:
    """Those take ten times as long there."""
    x = _lying(skimp, np.ones((8, 16, 32, 32), "f4"), how)
    g = _lying(skimp, np.ones((8, 16, 32, 32), "f4"), how).detach()
    more = (None, None, None, None, True) if norm == "batch_norm" else (4,)
    names = frames_of(lambda: getattr(skimp.nn.functional, norm)(x, *more).backward(g), warm=2)
    assert not {"standard_back", "mean", "var"} & set(names)


def test_large_numbers_are_normalized() -> None:
    """Their squares are beyond float32, in which rows are added up without loops."""
    x = skimp.from_numpy(_far([0.0, 2.0, 5.0], (4, 3, 40, 40))) * 1e22
    last = x.contiguous(memory_format=skimp.channels_last)
    made = [
        skimp.nn.functional.batch_norm(last, None, None, training=True),
        skimp.nn.functional.group_norm(last, 3),
    ]
    if adds(np.dtype(np.float32)):
        made.append(skimp.nn.functional.batch_norm(x, None, None, training=True))
    for y in made:
        assert abs(float(y.var(correction=0)) - 1) < 1e-3


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("eps", [0.0, -1.0])
def test_an_eps_that_does_not_suffice_is_refused(eps: float, training: bool) -> None:
    def run(t: Any) -> Any:
        x = t.arange(6.0).reshape(3, 2)
        try:
            given = t.zeros(2), t.full((2,), 4.0)
            return t.nn.functional.batch_norm(x, *given, training=training, eps=eps).tolist()
        except ValueError as error:
            return str(error)

    ours, theirs = run(skimp), run(torch)
    assert ours == theirs


def test_the_form_with_weights_first_takes_one_value_and_any_eps() -> None:
    for t in (torch, skimp):
        for rows, eps in ((1, 1e-5), (1, 0.1), (2, 0.0)):
            x = t.arange(3.0).repeat(rows, 1) * t.arange(1.0, rows + 1)[:, None]
            made = t.batch_norm(x, None, None, None, None, True, 0.1, eps, False)
            assert made[:, 1:].abs().sum().item() == pytest.approx(0 if rows == 1 else 4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_running_statistics_have_no_gradient(number: int, training: bool) -> None:
    for t in (torch, skimp):
        running = [t.zeros(2), t.ones(2)]
        running[number].requires_grad_()
        with pytest.raises(RuntimeError, match="not differentiable with respect to argument"):
            t.nn.functional.batch_norm(t.ones(3, 2), *running, training=training)
        with t.no_grad():
            t.nn.functional.batch_norm(t.ones(3, 2), *running, training=training)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0), (0, 3, 0, 2), (2, 3, 4)])
def test_running_statistics_of_images_that_are_not_there(shape: tuple[int, ...]) -> None:
    found = []
    for t in (torch, skimp):
        running = [t.tensor([1.0, 2.0, 3.0]), t.ones(3)]
        made = t.nn.functional.instance_norm(t.ones(shape), *running, use_input_stats=True)
        found.append([a.numpy() for a in (made, *running)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)


def test_running_statistics_are_moved_when_all_channels_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal between a few channels and others leaves all as they were."""
    if not adds(np.dtype(np.float32)):
        pytest.skip("no compiled loops")

    def interrupted(loop: Any, elements: int, cost: float, *args: Any) -> None:
        loop(*args, 1)
        raise KeyboardInterrupt

    x = np.random.default_rng(0).standard_normal((4, 16, 96, 96), dtype=np.float32)
    norm = [lib.nn.BatchNorm2d(16) for lib in (torch, skimp)]
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            norm[1](skimp.tensor(x))
    assert not norm[1].running_mean.any()
    norm[0](torch.tensor(x))
    norm[1](skimp.tensor(x))
    for name in ("running_mean", "running_var"):
        want, got = [getattr(one, name).numpy() for one in norm]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
