"""What a pointwise function has decided once is remembered; the next call decides the same."""

import math

import pytest
import torch

import skimp
from tests.support.frames import frames_of

ZEROS = [0.0, -0.0, 0, False, 1, 1.0, True, math.nan]


def both(f):
    """`f` of either library, on a few floats that have zeros of both signs."""
    values = [-0.0, 0.0, 1.5, -2.5, math.nan, math.inf]
    return [f(lib, lib.tensor(values)) for lib in (skimp, torch)]


def signs(t):
    return [math.copysign(1, v) for v in t.tolist() if v == v]


def same(got, expected):
    assert got.tolist() == pytest.approx(expected.tolist(), nan_ok=True)
    assert signs(got) == signs(expected)
    assert (str(got.dtype), got.stride()) == (
        str(expected.dtype).replace("torch", str(got.dtype).split(".")[0]),
        expected.stride(),
    )


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "nan_to_num", "clamp_min_"])
def test_numbers_that_are_equal_are_not_the_same(name):
    for number in ZEROS * 2:
        try:
            got, expected = both(lambda lib, x: getattr(lib.Tensor, name)(x, number))  # noqa: B023
        except NotImplementedError:
            assert isinstance(number, bool)
            continue
        same(got, expected)


def test_a_call_that_is_refused_is_refused_after_one_that_was_taken():
    a, w = skimp.ones(2, 3), skimp.tensor(0.5, dtype=skimp.float64)
    for _ in range(3):
        skimp.lerp(a, a, w)
    with pytest.raises(RuntimeError, match="expected dtype"):
        skimp.lerp(a, a, w.expand(2, 3))
    for _ in range(3):
        skimp.nn.functional.hardtanh(a, -1, 1)
    with pytest.raises(ValueError, match="min_val"):
        skimp.nn.functional.hardtanh(a, 1, -1)
    for _ in range(3):
        a.clamp(min=0)
    with pytest.raises(RuntimeError, match="At least one"):
        a.clamp()


def test_numbers_that_come_once_keep_no_others_from_being_remembered():
    x = skimp.ones(4, 5)
    with skimp.config.using(defer="auto"):
        x.clamp(0.2, 0.8)
        known = frames_of(lambda: x.clamp(0.2, 0.8))
        for i in range(300):
            x.clamp(0.1, 0.2 + i)
        x.clamp(0.3, 0.7)
        assert frames_of(lambda: x.clamp(0.3, 0.7)) == known


def test_in_place_and_new_are_remembered_apart():
    for _ in range(3):
        x = skimp.tensor([-1.0, 1.0])
        assert skimp.nn.functional.leaky_relu(x, 0.5).tolist() == [-0.5, 1.0]
        assert x.tolist() == [-1.0, 1.0]
        assert skimp.nn.functional.leaky_relu(x, 0.5, True) is x
        assert skimp.nn.functional.leaky_relu_(x, 0.5) is x
        assert (x.tolist(), x._version) == ([-0.25, 1.0], 2)
        leaf = x.clone().requires_grad_()
        assert type((leaf * 1).clamp_(0, 1).grad_fn).__name__ == "ClampBackward1"
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.clamp_(0, 1)
        with skimp.no_grad():
            assert leaf.clamp_(0, 1).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("which", range(3))
def test_out_may_be_an_operand(which):
    made = []
    for lib in (skimp, torch):
        ops = [lib.tensor(v) for v in ([1.0, 5.0], [2.0, 0.0], [3.0, 4.0])]
        for f in (lib.clamp, lib.addcmul, lib.lerp):
            given = [t.clone() for t in ops]
            made.append(f(*given, out=given[which]).tolist())
            assert given[which].tolist() == made[-1]
    assert made[:3] == made[3:]


def test_a_mask_is_written_over():
    mask = skimp.tensor([True, False])
    assert mask.logical_not_() is mask
    assert (mask.tolist(), mask._version) == ([False, True], 1)
    assert mask.logical_and_(skimp.tensor([False, True])).tolist() == [False, True]


def test_another_type_is_copied():
    x = skimp.zeros(2, 3)
    x.copy_(skimp.tensor([1, 2, 3]))
    assert x.tolist() == [[1.0, 2.0, 3.0]] * 2
    source = skimp.tensor([1.5, 2.5, 3.5], dtype=skimp.float64).requires_grad_()
    (skimp.zeros(2, 3).copy_(source) * x).sum().backward()
    assert source.grad.tolist() == [2.0, 4.0, 6.0]
    assert source.grad.dtype is skimp.float64


def test_a_limit_alone_is_found_where_it_stands():
    """The row's operands are remembered by their places among the function's arguments."""
    for t in (skimp, torch):
        x, limit = t.tensor([3.0, -1.0]), t.tensor(0.5)
        for _ in range(3):
            assert t.clamp(x, max=limit).tolist() == [0.5, -1.0]
            assert t.clamp(x, None, limit).tolist() == [0.5, -1.0]
            assert t.clamp(x, limit).tolist() == [3.0, 0.5]
            assert t.clamp(limit, max=x).tolist() == [0.5, -1.0]
