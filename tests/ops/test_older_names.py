"""What PyTorch tells of older names and calls: the same words, once in a process."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import skimp
from tests.support.told import told_anew

CALLS = """
t.cholesky(t.eye(2))
t.eye(2).cholesky()
t.qr(t.eye(2))
t.lu(t.eye(2))
t.lu_solve(t.eye(2), *t.linalg.lu_factor(t.eye(2)))
t.triangular_solve(t.eye(2), t.eye(2))
t.ones(2).add_(2, t.ones(2))
t.ones(2).sub(2, t.ones(2))
t.ones(2).addcmul_(2, t.ones(2), t.ones(2))
t.ones(2).addcdiv(2, t.ones(2), t.ones(2))
t.ones(2, 2).addmm(2, 3, t.ones(2, 2), t.ones(2, 2))
t.ones(2).addmv_(2, t.ones(2, 2), t.ones(2))
t.ones(2, 2).addbmm_(2, 3, t.ones(1, 2, 2), t.ones(1, 2, 2))
t.ones(1, 2, 2).baddbmm(2, t.ones(1, 2, 2), t.ones(1, 2, 2))
t.ones(2, 2).addr(2, 3, t.ones(2), t.ones(2))
t.meshgrid(t.ones(2), t.ones(2))
t.cross(t.ones(2, 3), t.ones(2, 3))
t.chain_matmul(t.ones(2, 2), t.ones(2, 2))
t.ones(3).T
t.ones(2, 3, 4).T
t.ones(()).T
t.ones(()).mT
t.ones(()).H
t.ones(()).mH
t.ones(()).adjoint()
t.where(t.ones(2).byte(), t.ones(2), t.zeros(2))
t.stft(t.ones(64), 16, return_complex=True)
t.set_default_tensor_type(t.FloatTensor)
t.nn.Hardtanh(min_value=0.0)
t.distributions.Normal(0.0, 1.0).sample_n(2)
""".strip().splitlines()
ALWAYS = ("Hardtanh", "sample_n")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    was = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with told_anew():
        yield
    torch.set_warn_always(was)


def told(lib: Any, call: str, times: int = 1) -> list[tuple[type[Warning], str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            eval(call, {"t": lib})
    assert lib is torch or {w.filename for w in caught} <= {"<string>"}
    return [(w.category, re.sub(r" \(Triggered.*", "", str(w.message))) for w in caught]


@pytest.mark.parametrize(
    ("call", "others"),
    [
        ("addmm({}x, {}m, m)", "(x + 0).addmm({}m, m)"),
        ("addmv({}v, {}m, v)", "(v + 0).addmv_({}m, v)"),
        ("addbmm({}x, {}b, b)", "(x + 0).addbmm_({}b, b)"),
        ("baddbmm({}b, {}b, b)", "(b + 0).baddbmm_({}b, b)"),
        ("addr({}x, {}v, v)", "(x + 0).addr_({}v, v)"),
    ],
)
def test_numbers_before_tensors(call: str, others: str) -> None:
    """What was a number by position is one by its name: gradients, `out=`, numbers in tensors."""

    def program(lib: Any) -> list[Any]:
        def given() -> dict[str, Any]:
            x = lib.arange(4.0).reshape(2, 2)
            return {"lib": lib, "x": x, "m": x + 1, "b": x[None] + 2, "v": x[0] + 3}

        calls = [f"lib.{call.format(*n)}" for n in [("2, ", "3, "), ("lib.tensor(2), ", "")]]
        calls += [others.format("2, 3, "), others.format("2, ")]
        found: list[Any] = [eval(c, given()).tolist() for c in calls]
        found.append(eval(calls[0][:-1] + ", out=lib.zeros(0))", given()).tolist())
        leaves = {n: t.requires_grad_() for n, t in given().items() if n != "lib"}
        eval(calls[0], {"lib": lib, **leaves}).sum().backward()
        found += [t.grad.tolist() for t in leaves.values() if t.grad is not None]
        for wrong in ("x.addmm(2, 3, m)", "lib.addmm(2, x, 3, m, m, beta=2)", "x.addr(v, 2, v)"):
            with pytest.raises(TypeError):
                eval(wrong, given())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert program(skimp) == program(torch)


def test_a_tensor_of_no_dims_is_its_own_transpose() -> None:
    for lib in (skimp, torch):
        x = lib.ones(())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert x.mT is x
            assert x.mH is not None
            assert lib.ones(2, 3).mT.shape == (3, 2)


def test_what_is_refused_is_named_as_pytorch_names_it() -> None:
    said = []
    for lib in (skimp, torch):
        for ask in (lambda x: x.mT, lambda x: x.mH, lambda x: x.H, lambda x: x.adjoint()):
            with pytest.raises(RuntimeError) as e:
                ask(lib.ones(3))
            said.append(str(e.value))
    assert said[:4] == said[4:]


@pytest.mark.parametrize("call", CALLS)
def test_words(call: str) -> None:
    assert told(skimp, call) == told(torch, call)
    always = any(name in call for name in ALWAYS)
    assert len(told(skimp, call, 2)) == (2 if always else 0)
