"""`x[...]` of ints and slices where the tensor is large: PyTorch's views, and as few functions as
of a small one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.frames import frames_of
from tests.support.samples import agree

N = 1 << 18
INDICES: list[Any] = [
    0,
    -1,
    slice(1, 3),
    slice(None, None, 2),
    (slice(None), 5),
    (slice(None), slice(2, -1), 3),
    (1, -2, 0),
    (slice(None), slice(None)),
    (slice(0, 99), 1),
    slice(5, 2),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("recorded", [False, True])
def test_views_of_a_large_tensor_are_the_oracles(index: Any, recorded: bool) -> None:
    found = []
    for t in (torch, skimp):
        x = t.arange(N, dtype=t.float32).reshape(4, 64, N // 256).requires_grad_(recorded)
        v = x[index]
        out = [tuple(v.shape), v.stride(), v.storage_offset(), v._base is x]
        out += [type(v.grad_fn).__name__, float(v.detach().sum()), v._version]
        if recorded:
            v.sum().backward()
            out += [float(x.grad.sum()), tuple(x.grad.shape)]
        found.append(out)
    assert found[0] == found[1]


@pytest.mark.parametrize("index", [4, (0, 64), (0, 0, 0, 0), slice(None, None, -1)], ids=str)
def test_refusals_are_the_oracles(index: Any) -> None:
    said = []
    for t in (torch, skimp):
        with pytest.raises((IndexError, ValueError)) as e:
            t.zeros(4, 64, N // 256)[index]
        said.append((e.type, str(e.value)))
    assert said[0] == said[1]


def test_a_view_of_a_large_tensor_makes_few_functions() -> None:
    x = skimp.zeros(4, 64, N // 256, requires_grad=True)
    y = x * 1
    assert len(frames_of(lambda: y[:, 3])) <= 9  # it was 32
    with skimp.no_grad():
        z = x * 1
    assert len(frames_of(lambda: z[:, 3])) <= 9


FEW: dict[str, Any] = {
    "rows": lambda lib, x, i, v: x[i],
    "listed": lambda lib, x, i, v: x[[3, -2]],
    "elements": lambda lib, x, i, v: x[i, i],
    "one": lambda lib, x, i, v: x[lib.tensor(7)],
    "select": lambda lib, x, i, v: (x.index_select(0, i), x.index_select(1, i)),
    "gather": lambda lib, x, i, v: x.gather(0, i[:, None].expand(5, 400).contiguous()),
    "take": lambda lib, x, i, v: x.take(i * 9),
    "set rows": lambda lib, x, i, v: x.__setitem__(i, v),
    "set a number": lambda lib, x, i, v: x.__setitem__((slice(None), 3), 2.0),
    "set numbers": lambda lib, x, i, v: x.__setitem__(i, 1.5),
    "set columns": lambda lib, x, i, v: x.__setitem__((slice(None), i), 0.5),
    "set a part": lambda lib, x, i, v: x.__setitem__(slice(5, 10), v),
    "mask": lambda lib, x, i, v: x.__setitem__(x[:, 0] > 0.9, 3.0),
    "put": lambda lib, x, i, v: x.index_put_((i,), v, accumulate=True),
    "put one": lambda lib, x, i, v: x.index_put_((i,), v[0, 0]),
    "add": lambda lib, x, i, v: x.index_add_(0, i, v),
    "copy": lambda lib, x, i, v: x.index_copy_(0, i, v),
    "fill": lambda lib, x, i, v: x.index_fill_(1, i, -1.0),
    "scatter": lambda lib, x, i, v: x.scatter_(1, i[None].expand(400, 5).contiguous(), 4.0),
    "scatter_add": lambda lib, x, i, v: x.scatter_add_(0, i[:, None].repeat(1, 400), v),
    "outside": lambda lib, x, i, v: x[i + 400],
    "set outside": lambda lib, x, i, v: x.__setitem__(i + 4000, v),
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("part", ["whole", "rows", "turned", "deferred"])
def test_few_elements_of_large_tensors(name: str, part: str) -> None:
    """What is read or written, versions, and what waited for the elements of before."""
    table, values = torch.rand(410, 400), torch.rand(5, 400)
    places = torch.tensor([3, 0, 399, 17, 5])

    def run(lib: Any, table: Any, i: Any, v: Any) -> Any:
        own = table.clone()
        x = {"whole": own, "rows": own[10:], "turned": own[10:].mT}.get(part, own * 2)
        waiting = x + 1
        try:
            made = FEW[name](lib, x, i, v)
        except IndexError:
            made = None
        return waiting, x, x._version, made if made is not None else 0

    agree(run, table, places, values, tolerance=1e-6)
