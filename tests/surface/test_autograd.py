"""The names of skimp.autograd that programs use beside backward()."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp


def test_gradients_for_any_iterable_of_inputs() -> None:
    inputs = {"a": skimp.ones(2, requires_grad=True), "b": skimp.ones(2, requires_grad=True)}
    y = (inputs["a"] * 2 + inputs["b"]).sum()
    found = skimp.autograd.grad(y, inputs.values(), retain_graph=True)
    assert [g.tolist() for g in found] == [[2.0, 2.0], [1.0, 1.0]]
    y.backward(inputs=iter(inputs.values()))
    assert inputs["a"].grad is not None


NO_TENSORS = [
    "grad(x.sum(), 3)",
    "grad(x.sum(), 'x')",
    "grad(x.sum(), [1.0])",
    "grad(None, x)",
    "grad([2.0], x)",
    "backward(len)",
    "backward(['y'])",
    "backward(x.sum(), inputs=[1])",
]


@pytest.mark.parametrize("call", NO_TENSORS)
def test_what_is_no_tensor_is_refused_alike(call: str) -> None:
    def refusal(lib: Any) -> tuple[type[Exception], str]:
        space = {**vars(lib.autograd), "x": lib.ones(2, requires_grad=True)}
        with pytest.raises((TypeError, RuntimeError, AssertionError)) as refused:
            eval(call, space)
        return refused.type, str(refused.value)

    assert refusal(skimp) == refusal(torch)


def test_variables_are_tensors() -> None:
    for lib in (torch, skimp):
        variable = lib.autograd.Variable
        x = lib.ones(2, requires_grad=True) * 2
        v = variable(x)
        assert type(v) is lib.Tensor
        assert isinstance(x, variable)
        assert v.grad_fn is None
        assert not v.requires_grad
        assert v.data_ptr() == x.data_ptr()
        assert variable(lib.ones(2), requires_grad=True).is_leaf
        assert variable().shape == (0,)
        with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
            variable([1.0])
        with pytest.warns(UserWarning, match="volatile was removed"):
            variable(lib.ones(1), volatile=True)


def test_anomaly_mode_as_a_switch() -> None:
    for lib in (skimp, torch):
        lib.set_anomaly_enabled(True)
        on: Any = lib.is_anomaly_enabled()
        lib.set_anomaly_enabled(False)
        assert (on, lib.is_anomaly_enabled()) == (True, False)
