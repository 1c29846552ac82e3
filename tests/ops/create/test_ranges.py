"""linspace has PyTorch's bits, at once or by the general way, and whether or not what a float32
result is made of is exact in float64.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._ops.create import ranges
from skimp.config import using
from tests.support.running import default_mode

ends = st.one_of(
    st.integers(-20, 20),
    st.floats(-4.0, 4.0, width=32),
    st.sampled_from([0.0, -0.0, 1e-30, 1e-40, -1e20, 3e29, 1e-8, 0.1, 1e30, 2e38]),
)


def _bits(tensor):
    return tensor.numpy().view(np.int32).tolist()


@settings(max_examples=150, deadline=None)
@given(ends, ends, st.integers(2, 300))
def test_linspace_has_the_bits_of_pytorch(start, end, steps):
    if (start, end) == (0, 0):
        return  # whose signs PyTorch's own loops give in two ways
    expected = _bits(torch.linspace(start, end, steps))
    assert _bits(skimp.linspace(start, end, steps)) == expected
    with using(small_below=0):
        assert _bits(skimp.linspace(start, end, steps)) == expected


@pytest.mark.parametrize(
    ("start", "end", "exact"),
    [(0, 1, True), (-1, 1, True), (0, -0.0, False), (1e-9, 1, False), (1e20, 1, False)],
)
def test_both_ways_of_halves_are_taken(monkeypatch, start, end, exact):
    called = []
    fma32 = ranges.fma32
    monkeypatch.setattr(ranges, "fma32", lambda *args: called.append(1) or fma32(*args))
    expected = torch.linspace(start, end, 33)
    assert skimp.linspace(start, end, 33).tolist() == expected.tolist()
    assert bool(called) is not exact


@default_mode
def test_a_range_of_numbers_goes_at_once(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("the general way")

    monkeypatch.setattr(ranges, "_write", never)
    assert skimp.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert skimp.linspace(0, 1, 5, device="cpu", dtype=skimp.float32).shape == (5,)
    for call in (
        lambda: skimp.linspace(skimp.tensor(0.0), 1, 5),
        lambda: skimp.linspace(0, 1, 5, dtype=skimp.float64),
        lambda: skimp.linspace(0, float("inf"), 5),
        lambda: skimp.linspace(0, 1, 1),
    ):
        with pytest.raises(AssertionError, match="the general way"):
            call()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize(
    "call",
    [
        lambda lib, out: lib.arange(4, out=out),
        lambda lib, out: lib.linspace(0, 3, 4, out=out),
        lambda lib, out: lib.logspace(0, 3, 4, 2, out=out),
    ],
)
def test_an_out_of_as_many_elements_keeps_its_shape(call, dtype):
    found = []
    for lib in (skimp, torch):
        x = lib.zeros(2, 3, dtype=getattr(lib, dtype))
        given = call(lib, x[:, 1:])
        found.append((x.tolist(), given.tolist(), given.stride()))
        one = lib.ones((), dtype=x.dtype)
        assert lib.linspace(2, 3, 1, out=one).tolist() == 2
    assert found[0] == found[1]


numbers = st.one_of(st.integers(-9, 9), st.floats(-9, 9), st.sampled_from([0.1, 2.5, 3.7, 300.0]))


@settings(max_examples=80, deadline=None)
@given(numbers, numbers, numbers, st.sampled_from(["int16", "int32", "int64", "uint8"]))
def test_ranges_of_whole_numbers_between_any(start, end, step, dtype):
    """As many as the numbers given have between them, not as their whole parts have."""
    if step == 0 or not 0 <= (end - start) / step < 200 or (dtype == "int64" and abs(step) < 1):
        return
    expected = torch.arange(start, end, step, dtype=getattr(torch, dtype)).tolist()
    assert skimp.arange(start, end, step, dtype=getattr(skimp, dtype)).tolist() == expected
