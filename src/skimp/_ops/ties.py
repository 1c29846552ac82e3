"""Ties: a linear op's gradient that depends on its input all the same, as PyTorch's does.

PyTorch's backward of max_pool or nll_loss takes the input as an argument, so with `create_graph`
the gradient requires grad, and its derivative is zero. Ours don't need the input; a tie gives them
that dependence by where the node's first edge leads, and keeps nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden, view
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import fresh, wrap

_ZERO = Rule(
    "ZeroOfBackward0", input=lambda g, input_shape: g.new_zeros(()).expand(tuple(input_shape))
)


@hidden("_zero_of", rule=_ZERO)
def zero_of(input: Any) -> Any:
    """A zero that depends on `input`."""
    return fresh(np.zeros((), input._dtype.np), input._dtype)


def tie(g: Any, node: Any) -> Any:
    """The gradient of a node's first input, such that it depends on that input."""
    if not modes.state.grad or g._hollow:
        return g
    zero = fresh(np.zeros((), g._dtype.np), g._dtype)
    shape = tuple(g.shape)
    input = wrap(zero._storage, Layout(shape, (0,) * len(shape), 0), g._dtype)
    input._rg = True
    input._skimp_node, input._skimp_index = node._skimp_edges[:2]
    record(_ZERO, {"input": input}, zero)
    return g + zero


@view(
    fast_view="a[...]",
    function=False,
    method=False,
    rule=Rule("TiedBackward0", input=lambda g, node: tie(g, node)),
)
def _tied(layout: Layout) -> Layout:
    return layout


def tied(input: Any) -> Any:
    """`input`, such that gradients that flow into it depend on it."""
    if input._hollow or not (input._rg and modes.state.grad):
        return input
    return _tied(input)
