"""What recurrent layers over whole sequences have in common: one op for a direction of a layer, a
loop over steps on arrays, nothing recorded. A cell's step is an op of its own, which goes through
a sequence of one.

Forward keeps the gates. Backward makes cells and results again of them, which is a hundredth of a
step, turns the gates into factors of the gradients, some steps at once, and goes back step by step
with a few products. Sigmoids are
(1 + tanh(x / 2)) / 2, so that one tanh between two factors does all gates.
Each gate of a step lies by itself: ufuncs take five times as long over columns of a matrix.

A step's input may be the product with its weights already (of packed sequences): `w_ih` is None.

Shapes: input (time, batch, features), gates (time, gates, batch, hidden), states (batch, hidden),
gradients of the gates, which products read (time, batch, gates * hidden).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import calls, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array
from skimp._kernels.blas import multiply
from skimp._ops.nn.linear import linear
from skimp._ops.reduce.softmax import contiguous_array
from skimp._ops.shape.joining import stack

State = tuple[Any, ...]  # what a step hands on: its result first
# the step's share of the input projection, the state -> the new state
Cell = Callable[[Any, State], State]
# weight_ih, weight_hh, bias_ih, bias_hh -> the bias of the input projection, the cell
Build = Callable[[Sequence[Any]], tuple[Any, Cell]]

_SOME: Final = 1 << 16  # elements of the gates that are worked on at once


def is_plain(tensors: Any) -> bool:
    """Whether the loops take these: of one type that BLAS has, and not empty."""
    given = [t for t in tensors if t is not None]
    dtype = given[0]._dtype
    return dtype in dtypes.FLOATING and all(
        [t._dtype is dtype and t.numel() > 0 and not (t._conj or t._skimp_neg) for t in given]
    )


def makes_step(input: Any, state: Any, weights: Any, gates: int) -> bool:
    """Whether one op makes a step of these, whose shapes nobody has looked at. The cell in ops
    takes others, refuses or broadcasts them, and maps weights of many samples at once."""
    dtype = input._dtype
    shapes = []
    for t in (input, *state, *weights):
        if t is not None:
            if t._dtype is not dtype or t._conj or t._skimp_neg:
                return False
            a = t._np
            shapes.append(tuple(t.shape) if a is None else a.shape)
    x, h, *_ = shapes
    if dtype not in dtypes.FLOATING or len(x) != 2 or len(h) != 2 or weights[0]._hollow:
        return False
    rows, n = h
    width, wide = x[1], gates * n
    biases = [(wide,)] * (len(shapes) - len(state) - 3)
    fitting = [(rows, width), *[h] * len(state), (wide, width), (wide, n), *biases]
    return shapes == fitting and rows * width * n > 0


def rows(x: Array) -> Array:
    """(time, batch, n) as (time * batch, n)."""
    return x.reshape(-1, x.shape[-1])


@cache
def line(numbers: tuple[float, ...], dtype: Any) -> tuple[Array, Array]:
    """(scale, shift) with which tanh(x * scale) * scale + shift is each gate's activation, beside
    gates of a step."""
    scale = np.array(numbers, dtype).reshape(-1, 1, 1)
    return scale, 1 - scale


def added(b_ih: Any, b_hh: Any) -> Any:
    """The sum of the biases that there are."""
    if b_ih is None or b_hh is None:
        return b_hh if b_ih is None else b_ih
    return b_ih + b_hh


def bias_of(b_ih: Array | None, b_hh: Array | None, gates: int) -> Array | None:
    """The sum of the biases that there are, a row for each gate."""
    bias = added(b_ih, b_hh)
    return None if bias is None else bias.reshape(gates, -1)


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


def of_w_ih(grads: Array, input: Any, needs: Any) -> Any:
    """The gradient of w_ih from those of the gates."""
    if "w_ih" not in needs:
        return None
    x = rows(contiguous_array(input))
    made, into = blank((grads.shape[-1], x.shape[1]), input._dtype)
    multiply(rows(grads).T, x, out=into)
    return made


def of_w_hh(grads: Array, out: Array, h0: Array, reverse: bool, like: Any, needs: Any) -> Any:
    """The gradient of w_hh from those of the gates behind the hidden part, and the results."""
    if "w_hh" not in needs:
        return None
    first, rest, before = (-1, slice(None, -1), slice(1, None)) if reverse else (
        0, slice(1, None), slice(None, -1))  # fmt: skip
    made, into = blank((grads.shape[-1], h0.shape[-1]), like._dtype)
    multiply(grads[first].T, h0, out=into)
    if len(grads) > 1:
        into += multiply(rows(grads[rest]).T, rows(out[before]))
    return made


def place_of(gates: Any) -> Array:
    """The memory of all gates as (time, batch, gates * hidden), to be written to."""
    time, many, batch, n = tuple(gates.shape)
    d: Array = gates._skimp_writable().reshape(time, batch, many * n)
    return d


def arrays(tensors: Iterable[Any]) -> list[Any]:
    """Their elements; None stays."""
    found = []
    for t in tensors:
        a = None if t is None else t._np
        found.append(a if a is not None or t is None else t._skimp_array())
    return found


def product(a: Array, b: Array, like: Any) -> Any:
    """a @ b as a tensor."""
    made, into = blank((len(a), b.shape[1]), like._dtype)
    multiply(a, b, out=into)
    return made


def of_side(d: Array, x: Array, w: Array | None, names: Any, like: Any, needs: Any) -> Any:
    """The gradients of what a cell multiplies, and of the weights by which it does, of which
    `names` are the names, from those of the gates, (batch, gates * hidden)."""
    given, weights = names
    if given not in needs:
        of_given = None
    else:
        of_given = tensor(d, like) if w is None else product(d, w, like)
    return of_given, product(d.T, x, like) if weights in needs else None


def tensor(a: Array, like: Any) -> Any:
    """A copy as a tensor."""
    made, into = blank(a.shape, like._dtype)
    into[...] = a
    return made


def of_bias(grads: Array, bias: str, like: Any, needs: Any) -> Any:
    """The gradient of a bias from those of the gates."""
    if bias not in needs:
        return None
    made, into = blank((grads.shape[-1],), like._dtype)
    np.add.reduce(grads if grads.ndim == 2 else rows(grads), axis=0, out=into)
    return made


def of_biases(grads: Array, like: Any, needs: Any) -> tuple[Any, Any]:
    """The gradients of two biases that are added to the same gates."""
    first = of_bias(grads, "b_ih", like, needs)
    if first is None:
        return None, of_bias(grads, "b_hh", like, needs)
    return first, tensor(first._skimp_array(), first) if "b_hh" in needs else None


def input_back(grads: Array, w_ih: Any, input: Any, needs: Any, place: Any) -> Any:
    """The gradient of the input of all steps, in `place`, a row-major tensor that nobody reads any
    more, if it fits there."""
    if "input" not in needs:
        return None
    if w_ih is None:
        return tensor(grads.reshape(tuple(input.shape)), input)
    shape = shape_of(input)
    if place is not None and shape_of(place) == shape and place._dtype is input._dtype:
        made, into = place, place._skimp_writable()
    else:
        made, into = blank(shape, input._dtype)
    multiply(rows(grads), w_ih._skimp_array(), out=rows(into))
    return made


def padded(cell: Cell, xs: Any, state: State, reverse: bool) -> tuple[Any, State]:
    """(the results of all steps, the last state) of a cell in ops, over the product of the input
    with its weights, (time, batch, gates * hidden)."""
    steps = xs.unbind(0)
    found = []
    for x in reversed(steps) if reverse else steps:
        state = cell(x, state)
        found.append(state[0])
    return stack(found[::-1] if reverse else found), state


def in_ops(
    build: Build, input: Any, state: State, weights: Any, reverse: bool = False
) -> tuple[Any, State]:
    """(the results of all steps, the last state), a step at a time, in ops; of a cell, its step."""
    bias, cell = build(weights)
    xs = input if weights[0] is None else linear(input, weights[0], bias)
    if input.ndim == 3:
        return padded(cell, xs, state, reverse)
    state = cell(xs, state)
    return state[0], state


def rematerialize(cell: Any, given: tuple[Any, ...], grads: tuple[Any, ...], needs: Any) -> Any:
    """The gradients through a graph of their own: the steps once more, in ops, from aliases: a
    state that was made with a weight has the weight's gradient in its own history, not in this."""
    names = tuple(given[-1])
    found = [g for g in grads if g is not None]
    create = modes.state.grad
    with modes.enable_grad():
        values = [v if v is None or not v._rg else ops.view(v, shape_of(v)) for v in given[:-1]]
        outs: Sequence[Any] = tuple(cell(*values))
    outs = [o for o, g in zip(outs, grads, strict=True) if g is not None]
    wanted = [v for n, v in zip(names, values, strict=True) if n in needs]
    made = iter(calls.grad(outs, wanted, found, create_graph=create, allow_unused=True))
    return tuple([next(made) if n in needs else None for n in names])
