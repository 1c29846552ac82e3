"""Steps over many parameters at once: what is shared among threads gives the bits of one after
another, in the order of the parameters where they meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from skimp._kernels import compiled
from skimp.optim import formulas, waiting
from skimp.optim.steps import PerParameter
from tests.support.frames import frames_of
from tests.support.optim_rows import OPTIMIZERS
from tests.support.peaks import peak_of
from tests.support.running import default_mode

SHAPES = [
    (300, 400), (7,), (1,), (70_000,), (3, 50_000), (0,), (256, 256), (), (90, 100), (5, 9_999),
    (400, 300),
]  # fmt: skip


def _values(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), np.float32) for shape in SHAPES]


def _steps(torch: Any, name: str, apart: bool = False) -> list[Any]:
    """Parameters of many sizes and layouts after three steps: two groups, one gradient missing
    once, one that is laid out in another way.
    """
    params = [torch.tensor(v) for v in _values(0)]
    params[-1] = params[-1].t()
    for p in params:
        p.requires_grad_(True)
    groups = [{"params": params[:5]}, {"params": params[5:], "lr": 0.01}]
    optimizers = [OPTIMIZERS[name](torch.optim, groups)]
    if apart:
        optimizers = [OPTIMIZERS[name](torch.optim, [{**g, "params": [p]}])
                      for g in groups for p in g["params"]]  # fmt: skip
    for step in range(3):
        for number, (p, v) in enumerate(zip(params, _values(step + 1), strict=True)):
            g = torch.tensor(v)
            if number == 0:
                g = g.t().contiguous().t()
            p.grad = None if step == number == 1 else g.t() if number == len(params) - 1 else g
        for optimizer in optimizers:
            optimizer.step()
    state = [v for o in optimizers for s in o.state.values() for v in s.values()]
    return [*params, *[v for v in state if isinstance(v, torch.Tensor)]]


@default_mode  # in others there is no size below which NumPy's calls do
def test_updates_of_several_sizes_are_one_plan(monkeypatch: Any) -> None:
    """Unless they are few elements in all; tiny ones are made as one, beside it."""
    made: list[list[int]] = []
    evaluate = waiting.jobs.evaluate_jobs

    def noted(roots: Any, outs: Any, jobs: Any) -> None:
        made.append([written[0].size for written, _ in jobs])
        evaluate(roots, outs, jobs)

    monkeypatch.setattr(waiting.jobs, "evaluate_jobs", noted)
    monkeypatch.setattr(compiled, "loops", lambda: None)
    for sizes, expected in (
        ([9_000, 70_000, 20_000, 128], [[9_000, 70_000, 20_000]]),
        ([9_000, 20_000], []),
    ):
        params = [skimp.zeros(n, requires_grad=True) for n in sizes]
        for p in params:
            p.grad = skimp.ones(p.shape)
        made.clear()
        skimp.optim.AdamW(params).step()
        assert made == expected
        assert all((p < 0).all() for p in params)


@default_mode  # others are asked beside it
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_and_versions_of_one_after_another(name: str) -> None:
    expected = _steps(skimp, name, apart=True)
    for setting in ({}, {"threads": 1}, {"threads": 3, "threads_from": 1}, {"block": 1000},
                    {"defer": "never"}, {"defer": "always"}):  # fmt: skip
        with skimp.config.using(**setting):
            found = _steps(skimp, name)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
            assert one._version == other._version
    for one, other in zip(found, _steps(oracle, name), strict=False):
        np.testing.assert_allclose(
            one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5
        )


def _meeting(torch: Any, kind: str, n: int) -> list[Any]:
    """Two steps of parameters that have memory in common with each other or with gradients."""
    whole = torch.arange(2.0 * n) / n
    a = whole[:n].detach().requires_grad_(True)
    b = whole[n // 2 : n // 2 + n].detach().requires_grad_(True)
    c = torch.ones(n, requires_grad=True)
    few = whole[n // 4 : n // 4 + 9].detach().requires_grad_(True)
    others = [torch.ones(n, requires_grad=True) for _ in range(2)]
    params = [a, few, others[0], b, c, others[1]]
    optimizer = torch.optim.SGD(params, lr=0.5, momentum=0.5, weight_decay=0.1)
    for _ in range(2):
        a.grad, b.grad, few.grad = torch.ones(n), torch.arange(1.0 * n), torch.ones(9)
        c.grad = {"parameter": a.detach(), "itself": c.detach(), "gradient": b.grad}[kind]
        if kind == "gradient":
            a.grad = b.grad
        others[0].grad, others[1].grad = others[1].detach(), a.grad
        optimizer.step()
    return [whole, c, *others]


@pytest.mark.parametrize("n", [64, 100_000])
@pytest.mark.parametrize("kind", ["parameter", "itself", "gradient"])
def test_parameters_that_meet(kind: str, n: int) -> None:
    for ours, theirs in zip(_meeting(skimp, kind, n), _meeting(oracle, kind, n), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


@default_mode
@pytest.mark.parametrize("name", ["sgd", "sgd_nesterov", "adam", "rmsprop"])
def test_one_more_parameter_is_one_more_look_at_its_gradient(name: str) -> None:
    found = []
    for many in (10, 30):
        params = [skimp.ones(8, requires_grad=True) for _ in range(many)]
        for p in params:
            p.grad = skimp.ones(8)
        found.append(len(frames_of(OPTIMIZERS[name](skimp.optim, params).step, warm=2)))
    assert found[1] - found[0] <= 20


@pytest.mark.parametrize("ours", ["written", "read"])
def test_where_one_of_many_is_not_small(ours: str) -> None:
    """It is changed by itself, and the others together; each counts one write."""
    found = []
    for torch in (skimp, oracle):
        shapes = [(4,), (3, 5), (600, 400), (2, 2), (8,), (6, 6)]
        params = [torch.full(shape, 2.0) for shape in shapes]
        if ours == "written":
            params[3] = torch.full((2, 4), 2.0)[:, ::2]
        grads = [torch.ones(shape) for shape in shapes]
        if ours == "read":
            grads[3] = torch.ones(2, 2).t()
        for p, g in zip(params, grads, strict=True):
            p.requires_grad_(True).grad = g
        torch.optim.SGD(params, lr=0.5, momentum=0.5).step()
        found.append([(p.detach().sum().item(), p._version) for p in params])
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_what_was_done_before_an_error_stays_done() -> None:
    n = 100_000
    found = []
    for torch in (skimp, oracle):
        params = [torch.ones(n, requires_grad=True) for _ in range(3)]
        optimizer = torch.optim.Adam(params, lr=0.5, foreach=False)
        for p in params:
            p.grad = torch.ones(n)
        rows = torch.tensor([[0, 5]])
        params[1].grad = torch.sparse_coo_tensor(rows, torch.ones(2), (n,))
        with pytest.raises(RuntimeError, match="sparse"):
            optimizer.step()
        found.append([p.detach()[0].item() for p in params])
    assert found[0][0] == pytest.approx(0.5)  # PyTorch looks at all gradients first
    assert found[0][1:] == found[1][1:] == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_a_waiting_update_is_run_before_a_sparse_one() -> None:
    """An embedding's rows and a dense parameter on the same memory, in the order of the group."""
    found = []
    for torch in (skimp, oracle):
        whole = torch.ones(100_000, 2)
        dense, rows = (whole.detach().requires_grad_(True) for _ in range(2))
        optimizer = torch.optim.SGD([dense, rows], lr=0.5, momentum=0.5)
        for step in range(2):
            dense.grad = torch.full((100_000, 2), 1.0 + step)
            rows.grad = torch.sparse_coo_tensor(
                torch.tensor([[3, 70_000]]), torch.ones(2, 2), (100_000, 2)
            )
            optimizer.step()
        found.append(whole.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_nothing_waits_where_a_step_looks_at_what_it_wrote() -> None:
    at_once = {c.__name__ for c in PerParameter.__subclasses__() if not c._skimp_may_wait}
    assert at_once == {"Adafactor", "Muon"}


@pytest.mark.parametrize("size", [20_000, 60_001, 1 << 16])
def test_a_small_step_makes_little_on_the_way(size: int, monkeypatch: Any) -> None:
    """In parts, or block by block; the bits are those of the formula on the whole."""
    found = []
    for part in (1 << 30, 1 << 13):
        monkeypatch.setattr(formulas, "_PART", part)
        skimp.manual_seed(0)
        p = skimp.randn(size, requires_grad=True)
        p.grad = skimp.randn(size)
        optimizer = skimp.optim.AdamW([p], weight_decay=0.1, amsgrad=True)
        optimizer.step()
        peak = peak_of(optimizer.step)
        found.append(p.detach().numpy().copy())
    assert peak < 3 * 4 * size  # of eight that the formula makes
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Rprop"])
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_a_parameter_that_is_there_twice_is_stepped_twice(name: str) -> None:
    """Each time by the number of its own step, as PyTorch's steps on a CPU are."""
    ended = []
    for torch in (skimp, oracle):
        p: Any = torch.ones(3, requires_grad=True)
        optimizer: Any = getattr(torch.optim, name)([p, p], lr=0.1)
        for i in range(3):
            p.grad = torch.full((3,), 0.5 + i)
            optimizer.step()
        ended.append(p.tolist())
    assert ended[0] == pytest.approx(ended[1], rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 20_000, 1 << 17])
def test_a_gradient_in_the_parameters_memory_is_read_before_that_is_written(
    dtype: str, size: int
) -> None:
    """A step that makes a weight smaller by itself: the first momentum is the old weight."""
    p = skimp.full((size,), 2.0, dtype=getattr(skimp, dtype), requires_grad=True)
    optimizer = skimp.optim.SGD([p], lr=0.25, momentum=0.5)
    p.grad = p.detach()
    optimizer.step()
    assert p[-1].item() == 1.5
    assert optimizer.state[p]["momentum_buffer"][-1].item() == 2.0


def test_a_step_that_is_refused_leaves_no_momentum_that_nobody_wrote() -> None:
    """Momentum comes into the state once it has a value, for all parameters of the group."""
    p = [skimp.ones(50_000, requires_grad=True) for _ in range(3)]
    optimizer = skimp.optim.SGD(p, lr=0.1, momentum=0.9)
    for one in p:
        one.grad = skimp.ones(50_000)
    skimp.memory.set_limit(skimp.memory.memory_allocated() + 300_000)  # room for one momentum
    try:
        with pytest.raises(skimp.OutOfMemoryError):
            optimizer.step()
    finally:
        skimp.memory.set_limit(None)
    assert not any("momentum_buffer" in optimizer.state[one] for one in p)
    optimizer.step()
    assert [one[0].item() for one in p] == [pytest.approx(0.9)] * 3
    assert all((optimizer.state[one]["momentum_buffer"] == 1).all() for one in p)
