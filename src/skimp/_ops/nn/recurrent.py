"""What recurrent layers over whole sequences have in common: one op for a direction of a layer, a
loop over steps on arrays, nothing recorded.

Forward keeps the gates and what else all steps have made. Backward turns them into factors of the
gradients, some steps at once, and goes back step by step with a few products. Sigmoids are
(1 + tanh(x / 2)) / 2, so that one tanh between two factors does all gates.
Each gate of a step lies by itself: ufuncs take five times as long over columns of a matrix.

Shapes: input (time, batch, features), gates (time, gates, batch, hidden), states (batch, hidden),
gradients of the gates, which products read (time, batch, gates * hidden).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import calls, modes
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array
from skimp._kernels.blas import multiply
from skimp._ops.reduce.softmax import contiguous_array
from skimp._ops.shape.joining import stack

State = tuple[Any, ...]  # what a step hands on: its result first

_SOME: Final = 1 << 16  # elements of the gates that are worked on at once


def is_plain(tensors: Any) -> bool:
    """Whether the loops take these: of one type that BLAS has, and not empty."""
    given = [t for t in tensors if t is not None]
    dtype = given[0]._dtype
    return dtype in dtypes.FLOATING and all(
        [t._dtype is dtype and t.numel() > 0 and not (t._conj or t._skimp_neg) for t in given]
    )


def rows(x: Array) -> Array:
    """(time, batch, n) as (time * batch, n)."""
    return x.reshape(-1, x.shape[-1])


def each(numbers: tuple[float, ...], dtype: Any) -> Array:
    """A number for each gate, beside gates of a step."""
    return np.array(numbers, dtype).reshape(-1, 1, 1)


def most(time: int, elements: int) -> int:
    """How many of so many steps are worked on at once, with so many elements each: a power of two,
    as a product is made for each number of them."""
    return 1 << (min(time, max(1, _SOME // elements)).bit_length() - 1)


def some_steps(time: int, elements: int, back: bool) -> Iterator[slice]:
    """Steps from the first to the last, or `back`, as many at once as stay in the cache with so
    many elements each."""
    some = most(time, elements)
    starts = range(0, time, some)
    for start in reversed(starts) if back else starts:
        yield slice(start, min(start + some, time))


def one_by_one(some: slice, back: bool) -> Iterable[int]:
    """Each of some steps."""
    steps = range(some.start, some.stop)
    return reversed(steps) if back else steps


def times_last(into: Array, first: Array, others: Array, steps: slice) -> None:
    """into *= what was before each of the steps: `first`, and then others."""
    if steps.start:
        into *= others[steps.start - 1 : steps.stop - 1]
    else:
        into[0] *= first
        into[1:] *= others[: steps.stop - 1]


def of_w_ih(grads: Array, input: Any) -> Any:
    """The gradient of w_ih from those of the gates."""
    made, into = blank((grads.shape[-1], input.shape[-1]), input._dtype)
    multiply(rows(grads).T, rows(contiguous_array(input)), out=into)
    return made


def of_w_hh(grads: Array, out: Array, h0: Array, reverse: bool, like: Any) -> Any:
    """The gradient of w_hh from those of the gates behind the hidden part."""
    first, rest, before = (-1, slice(None, -1), slice(1, None)) if reverse else (
        0, slice(1, None), slice(None, -1))  # fmt: skip
    made, into = blank((grads.shape[-1], h0.shape[-1]), like._dtype)
    multiply(grads[first].T, h0, out=into)
    if len(out) > 1:
        into += multiply(rows(grads[rest]).T, rows(out[before]))
    return made


def tensor(a: Array, like: Any) -> Any:
    """A copy as a tensor."""
    made, into = blank(a.shape, like._dtype)
    into[...] = a
    return made


def of_bias(grads: Array, bias: Any) -> Any:
    """The gradient of a bias from those of the gates."""
    return None if bias is None else tensor(np.add.reduce(rows(grads), axis=0), bias)


def of_biases(grads: Array, bias: Any) -> tuple[Any, Any]:
    """The gradients of two biases that are added to the same gates."""
    made = of_bias(grads, bias)
    return made, None if made is None else tensor(made._skimp_array(), made)


def input_back(grads: Array, w_ih: Any, input: Any, needs: Any) -> Any:
    """The gradient of the input of all steps."""
    if "input" not in needs:
        return None
    made, into = blank(tuple(input.shape), input._dtype)
    multiply(rows(grads), w_ih._skimp_array(), out=rows(into))
    return made


def in_ops(
    step: Callable[[Any, State], State], input: Any, state: State, reverse: bool
) -> tuple[Any, State]:
    """(the results of all steps, the last state), a step at a time, in ops."""
    found = []
    for x in reversed(input.unbind(0)) if reverse else input.unbind(0):
        state = step(x, state)
        found.append(state[0])
    return stack(found[::-1] if reverse else found), state


def rematerialize(cell: Any, given: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
    """The gradients through a graph of their own: the steps once more, in ops."""
    names = tuple(given[-1])
    values = given[:-1]
    found = [g for g in grads if g is not None]
    create = modes.state.grad
    with modes.enable_grad():
        outs = [o for o, g in zip(cell(*values), grads, strict=True) if g is not None]
    wanted = [v for n, v in zip(names, values, strict=True) if n in needs]
    made = iter(calls.grad(outs, wanted, found, create_graph=create, allow_unused=True))
    return tuple([next(made) if n in needs else None for n in names])
