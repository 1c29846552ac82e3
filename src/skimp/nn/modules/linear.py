"""Linear maps: Identity, Linear, Bilinear."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.checks import require_positive
from skimp._engine.tensor.options import InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import init
from skimp.nn.modules.calling import calling
from skimp.nn.modules.lazy import LazyModuleMixin
from skimp.nn.modules.module import Module
from skimp.nn.parameter import UninitializedParameter, is_lazy

SAYS = """\
Dtypes: floating point and complex numbers: input, weight and bias alike.
Raises: RuntimeError in forward for shapes and dtypes that don't fit.
Memory: a new tensor."""


class Identity(Module):
    """Its input, whatever it was made with.

    Shape: any.
    Dtypes: any.
    Raises: nothing.
    Memory: the input itself, no copy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


@options
class Linear(Module):
    """input @ weight.T + bias: a row of `weight` for each output.

    Shape: (..., in_features) to (..., out_features); weight (out_features, in_features), bias
    (out_features,).
    Dtypes: input, weight and bias alike.
    Raises: TypeError in forward for what is no tensor, RuntimeError for another width or dtype.
    Memory: a new tensor; backward keeps the input and the weight.
    Source: the initial weights: He et al. 2015 with a = sqrt(5), which is uniform within
    1 / sqrt(in_features), as the bias is.
    """

    _skimp_shows = "in_features=, out_features=, bias="
    in_features: int
    out_features: int
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, bias: bool, device: Any, dtype: Any) -> None:
        weight = (self.out_features, self.in_features)
        bias_shape = self.out_features if bias else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=bias_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias anew."""
        init._linear(self.weight, self.bias)

    forward = calling("linear", "input", "weight, bias")


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear; quantisation, which PyTorch guards by this name, is not here.

    Shape: as Linear's.
    """


@options
class Bilinear(Module):
    """input1 @ weight[k] @ input2 + bias[k], for each output k.

    Shape: (..., in1_features) and (..., in2_features), alike else, to (..., out_features); weight
    (out_features, in1_features, in2_features).
    Raises: ValueError for no in1_features; RuntimeError in forward for other shapes.
    """

    _skimp_shows = "in1_features=, in2_features=, out_features=, bias="
    in1_features: int
    in2_features: int
    out_features: int
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, bias: bool, device: Any, dtype: Any) -> None:
        require_positive(self.in1_features, "in1_features must be > 0, but got {got}")
        weight = (self.out_features, self.in1_features, self.in2_features)
        bias_shape = self.out_features if bias else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=bias_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias anew."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    forward = calling("bilinear", "input1, input2", "weight, bias")


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features the first input tells; then it is one.

    Shape: (..., any) at the first call.
    """

    cls_to_become = Linear
    weight: Any
    bias: Any

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the shape from the first input."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            assert not is_lazy(self.weight)
            self.in_features = self.weight.shape[-1]
