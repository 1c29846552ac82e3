"""Ties: a linear op's gradient that depends on its input all the same, as PyTorch's does.

PyTorch's backward of max_pool or nll_loss takes the input as an argument, so with `create_graph`
the gradient requires grad, and its derivative is zero. Ours don't need the input; a tie gives them
that dependence for one number instead of the input's bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general, view
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import fresh


@general(
    "_zero_of",
    method=False,
    namespaces=(),
    rule=Rule(
        "ZeroOfBackward0", input=lambda g, input_shape: g.new_zeros(()).expand(tuple(input_shape))
    ),
)
def zero_of(input: Any) -> Any:
    """A zero that depends on `input`."""
    return fresh(np.zeros((), input._dtype.np), input._dtype)


@view(
    "_tied",
    fast_view="a[...]",
    function=False,
    method=False,
    rule=Rule("TiedBackward0", input=lambda g, zero: g + zero if modes.state.grad else g),
)
def _tied(layout: Layout, zero: Any) -> Layout:
    return layout


def tied(input: Any) -> Any:
    """`input`, such that gradients that flow into it depend on it."""
    if input._hollow or not (input._rg and modes.state.grad):
        return input
    return _tied(input, zero_of(input))
