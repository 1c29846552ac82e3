"""torch.utils.flop_counter: PyTorch's counts, forward and backward, by module and op."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from torch.utils import flop_counter as theirs

import skimp
from skimp.utils import flop_counter as ours


def counts(library: Any, counter: Any) -> dict[str, dict[str, int]]:
    nn = library.nn
    net = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.Flatten(), nn.Linear(54, 4))
    back = nn.ConvTranspose2d(3, 2, 2, stride=2)
    image = library.ones(2, 3, 5, 5, requires_grad=True)
    rows, cube = library.ones(4, 6), library.ones(2, 4, 6, requires_grad=True)
    with counter(display=False) as mode:
        net(image).sum().backward()
        back(image.detach()).sum().backward()
        (cube @ cube.detach().mT).sum().backward()
        library.addmm(library.ones(4), rows, rows.t())
        library.tensordot(cube, rows, dims=[[2], [1]])
        library.einsum("bi,ij,bj->b", rows, library.ones(6, 6), rows)
        library.einsum(rows, [0, 1], rows, [2, 1], [0, 2])
        library.linalg.matmul(rows, rows.t())
        rows.t().__rmatmul__(rows)
        rows @ rows[0]
        library.nn.functional.linear(rows, rows[0])
    assert mode.get_total_flops() == sum(mode.get_flop_counts()["Global"].values())
    return {
        name: {str(op).rpartition(".")[2]: n for op, n in found.items()}
        for name, found in mode.get_flop_counts().items()
    }


def test_counts_are_pytorchs() -> None:
    assert counts(skimp, ours.FlopCounterMode) == counts(torch, theirs.FlopCounterMode)


def test_the_table_is_printed() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), ours.FlopCounterMode():
        skimp.nn.Linear(8, 4)(skimp.ones(2, 8))
    assert "Linear" in said.getvalue()
    assert "128" in said.getvalue()
