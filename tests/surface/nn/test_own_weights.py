"""Modules whose classes say themselves what their weights are: forward methods ask them."""

from __future__ import annotations

from typing import Any

import pytest
import torch as oracle

import skimp

LAYERS: dict[str, Any] = {
    "Linear": lambda nn: (nn.Linear, (2, 2), (1, 2)),
    "Conv1d": lambda nn: (nn.Conv1d, (2, 2, 1), (1, 2, 2)),
    "ConvTranspose1d": lambda nn: (nn.ConvTranspose1d, (2, 2, 1), (1, 2, 2)),
    "LayerNorm": lambda nn: (nn.LayerNorm, (2,), (1, 2)),
    "BatchNorm1d": lambda nn: (nn.BatchNorm1d, (2,), (2, 2)),
    "PReLU": lambda nn: (nn.PReLU, (), (1, 2)),
}


def _by_property(cls: Any) -> Any:
    class Layer(cls):  # type: ignore[misc]
        weight = property(lambda self: self._parameters["weight"] * 0 + 3)

    return Layer


def _by_getattr(cls: Any) -> Any:
    class Layer(cls):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            return found * 0 + 3 if name == "weight" else found

    return Layer


def _by_getattribute(cls: Any) -> Any:
    class Layer(cls):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name == "weight":
                return super().__getattribute__("_parameters")["weight"] * 0 + 3
            return super().__getattribute__(name)

    return Layer


@pytest.mark.parametrize("way", [_by_property, _by_getattr, _by_getattribute])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_class_is_asked(layer: str, way: Any) -> None:
    def run(lib: Any) -> Any:
        cls, options, shape = LAYERS[layer](lib.nn)
        module = cls(*options)
        if "bias" in module._parameters:
            lib.nn.init.ones_(module.bias)
        module.__class__ = way(cls)  # after what it was made with has its values
        x = lib.arange(float(shape[0] * shape[1])).reshape(
            shape[0], shape[1], *[1] * (len(shape) - 2)
        )
        return [round(n, 4) for n in (module(x - 1) + 0).flatten().tolist()]

    assert run(skimp) == run(oracle)


def test_a_class_that_says_nothing_of_it_is_read_directly() -> None:
    class Layer(skimp.nn.Linear):
        def forward(self, input: Any) -> Any:
            return super().forward(input)

    class Deeper(_by_property(Layer)):  # type: ignore[misc]
        pass

    assert (Layer._skimp_direct, Deeper._skimp_direct) == (True, False)
