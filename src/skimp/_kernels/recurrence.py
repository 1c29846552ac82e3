"""Steps of recurrent nets: products of a state with weights that stay, and what is made of them.

Who goes through a sequence asks once for a step, and then makes it again and again: by one call of
oneDNN (`recurrence_onednn`) where that has it, else by BLAS and NumPy. For one step alone no
weights are laid out.

Shapes: states (batch, n), gates (gates, batch, hidden), weights (gates * hidden, n).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from skimp._kernels import bare, recurrence_onednn
from skimp._kernels.blas import multiplier, multiply
from skimp._kernels.recurrence_onednn import Line
from skimp._kernels.scratch import Scratch

Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], object]


@contextmanager
def activation(
    weights: Array, gates: int, batch: int, tanh: bool, line: Line | None = None
) -> Iterator[Step]:
    """`step(h, into)`: into += h @ weights of each gate, and then, if asked for, its tanh: with a
    line tanh(into * line[0]) * line[0] + line[1], which are a number for each gate."""
    with recurrence_onednn.activation(weights, gates, batch, tanh, line) as step:
        if step is not None:
            yield step
            return
    each = weights.reshape(gates, -1, weights.shape[1])
    across = np.ascontiguousarray(each.transpose(0, 2, 1))
    product = np.empty((gates, batch, each.shape[1]), weights.dtype)

    def run(h: Array, into: Array) -> None:
        into += multiply(h, across, out=product)
        _bend(into, tanh, line)

    yield run


def activate(weights: Array, tanh: bool, line: Line | None, h: Array, into: Array) -> None:
    """A step of `activation`, for who makes one."""
    into += _by_gate(multiply(h, weights.T), into)
    _bend(into, tanh, line)


def _bend(into: Array, tanh: bool, line: Line | None) -> None:
    if line is not None:
        into *= line[0]
    if tanh:
        bare.tanh(into, out=into)
    if line is not None:
        into *= line[0]
        into += line[1]


@contextmanager
def projection(
    weights: Array, bias: Array | None, gates: int, batch: int, some: int
) -> Iterator[Step]:
    """`project(x, into)`: into = x @ weights of each gate + bias, for some steps, (steps, batch, n)
    and (steps, gates, batch, hidden); most times so many at once. A bias is a row for each gate.
    """
    beside = None if bias is None else np.repeat(bias[:, None], batch, 1)
    with recurrence_onednn.projection(weights, gates, batch, some) as add:

        def run(x: Array, into: Array) -> None:
            if add is None or len(x) != some:
                _project(x, weights, beside, into)
            else:
                into[...] = 0 if beside is None else beside
                add(x, into)

        yield run


def project(x: Array, weights: Array | None, bias: Array | None, into: Array) -> None:
    """A step of `projection`, (batch, n) and (gates, batch, hidden), for who makes one. Without
    weights x is the product."""
    given = _by_gate(x if weights is None else multiply(x, weights.T), into)
    if bias is None:
        into[...] = given
    else:
        bare.add(given, bias[:, None], out=into)


def _by_gate(product: Array, into: Array) -> Array:
    """A step's product (batch, gates * hidden) as its gates."""
    gates, batch, n = into.shape
    if batch == 1 or gates == 1:  # which lie so, and NumPy adds one run sooner than three to three
        return product.reshape(into.shape)
    return product.reshape(batch, gates, n).transpose(1, 0, 2)


def _project(x: Array, weights: Array, beside: Array | None, into: Array) -> None:
    with Scratch((math.prod(x.shape[:-1]), len(weights)), into.dtype) as made:
        multiply(x.reshape(len(made), -1), weights.T, out=made)
        time, gates, batch, n = into.shape
        by_gate = made.reshape(time, batch, gates, n).transpose(0, 2, 1, 3)
        if beside is None:
            into[...] = by_gate
        else:
            bare.add(by_gate, beside, out=into)


@contextmanager
def product(like: Array, weights: Array, out: Array) -> Iterator[Callable[[Array], object]]:
    """`step(d)`: out = d @ weights, for matrices that lie as `like` does."""
    with recurrence_onednn.product(like, weights, out) as step:
        yield multiplier(like, weights, out) if step is None else step
