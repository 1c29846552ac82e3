"""Histograms, against torch."""

from __future__ import annotations

import pytest
import torch

import skimp


def test_histogram_has_a_hundred_bins() -> None:
    x = torch.arange(30.0)
    wanted, given = torch.histogram(x), skimp.histogram(skimp.arange(30.0))
    assert given.hist.tolist() == wanted.hist.tolist()
    assert given.bin_edges.tolist() == pytest.approx(wanted.bin_edges.tolist(), rel=1e-6)
