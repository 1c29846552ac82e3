"""Arithmetic of random numbers that is rounded once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from skimp._kernels.random.arithmetic import fma32, fma64

# ------------------------------------------------------------------------- the fused arithmetic

halves = st.floats(-100, 100, width=32)


@given(st.integers(0, 2**24 - 1), halves, halves)
@settings(max_examples=200, deadline=None)
def test_fma32_rounds_once(k: int, b: float, c: float) -> None:
    from fractions import Fraction

    a = np.array([k * 2.0**-24], np.float32)
    exact = Fraction(float(a[0])) * Fraction(b) + Fraction(c)
    rounded = fma32(a, np.float32(b), np.float32(c))[0]
    neighbours = (np.nextafter(rounded, np.float32(s * np.inf)) for s in (-1, 1))
    distance = abs(Fraction(float(rounded)) - exact)
    assert all(distance <= abs(Fraction(float(near)) - exact) for near in neighbours)


def test_fma32_near_a_midpoint() -> None:
    """1 + 2**-24 is a midpoint of float32; a little more must round up, which float64 hides."""
    a = np.array([2.0**-24 * (1 + 2.0**-23)], np.float32)
    assert fma32(a, np.float32(1 + 2.0**-23), np.float32(1))[0] == np.float32(1 + 2.0**-23)
    tiny = np.array([2.0**-70], np.float32)
    assert fma32(tiny, np.float32(1), np.float32(1))[0] == 1


@given(
    st.floats(-10, 10),
    st.floats(-1e300, 1e300, allow_subnormal=False),
    st.floats(-1e300, 1e300, allow_subnormal=False),
)
@settings(max_examples=200, deadline=None)
def test_fma64_rounds_once(a: float, b: float, c: float) -> None:
    from fractions import Fraction

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if abs(exact) < Fraction(10) ** 300:
        assert fma64(np.array([a]), b, c)[0] == float(exact)
