"""The same work in NumPy, as a careful person writes it: results go to arrays that are used again.

Each function takes `Arrays`, the source of inputs, and returns the call. A buffer is made by the
first call, so it counts as memory of the work. What is not here (attention, convolutions, the
bookkeeping of autograd) nobody would write by hand for a program of this size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.workloads import COLUMNS, ROWS, SIDE

Array = NDArray[Any]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Arrays:
    """Where inputs come from; `shrink` divides the sizes, as in `workloads.Kit`."""

    shrink: int = 1

    def scaled(self, size: int) -> int:
        return max(size // self.shrink, 1)

    def randn(self, rows: int, columns: int) -> Array:
        rows, columns = self.scaled(rows), self.scaled(columns)
        times = math.gcd(rows, 64)
        return np.tile(self.normal(rows // times, columns), (times, 1))

    def zeros(self, rows: int, columns: int) -> Array:
        return np.full((self.scaled(rows), self.scaled(columns)), 0, np.float32)

    def normal(self, *shape: int) -> Array:
        return np.random.default_rng(0).standard_normal(shape, np.float32)

    def integers(self, high: int, *shape: int) -> Array:
        return np.random.default_rng(0).integers(0, high, shape)

    def linear(self, inputs: int, outputs: int) -> tuple[Array, Array]:
        """Weight (outputs, inputs) and bias (outputs,), drawn as torch.nn.Linear does."""
        rng, bound = np.random.default_rng(0), inputs**-0.5
        weight = rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)
        return weight, rng.uniform(-bound, bound, outputs).astype(np.float32)


class Buffers:
    """Arrays by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def like(self, x: Array, name: str = "result") -> Array:
        return self.of(x.shape, name)

    def of(self, shape: tuple[int, ...], name: str) -> Array:
        if name not in self._kept:
            self._kept[name] = np.empty(shape, np.float32)
        return self._kept[name]


# -- pointwise ------------------------------------------------------------------------------------


def relu(a: Arrays) -> Call:
    x, kept = a.randn(SIDE, SIDE), Buffers()
    return lambda: np.maximum(x, 0, out=kept.like(x))


def relu_(a: Arrays) -> Call:
    x = a.randn(SIDE, SIDE)
    return lambda: np.maximum(x, 0, out=x)


def exp(a: Arrays) -> Call:
    x, kept = a.randn(SIDE, SIDE), Buffers()
    return lambda: np.exp(x, out=kept.like(x))


def exp_slice(a: Arrays) -> Call:
    x = a.zeros(SIDE, SIDE)

    def call() -> Array:
        np.exp(x, out=x)
        x.fill(0)
        return x

    return call


def add(a: Arrays) -> Call:
    x, y, kept = a.randn(SIDE, SIDE), a.randn(SIDE, SIDE), Buffers()
    return lambda: np.add(y, x, out=kept.like(x))


def add_(a: Arrays) -> Call:
    x, y = a.zeros(SIDE, SIDE), a.randn(SIDE, SIDE)
    return lambda: np.add(y, x, out=y)


def gelu_into(x: Array, out: Array, tanh: Array) -> Array:
    """GELU of x into `out`; `tanh` keeps the tanh of the inner polynomial."""
    np.multiply(x, x, out=tanh)
    tanh *= x
    tanh *= 0.044715
    tanh += x
    tanh *= 0.7978845608
    np.tanh(tanh, out=tanh)
    np.add(tanh, 1, out=out)
    out *= x
    out *= 0.5
    return out


def gelu_fwd(a: Arrays) -> Call:
    x, kept = a.randn(SIDE, SIDE), Buffers()
    return lambda: gelu_into(x, kept.like(x), kept.like(x, "tanh"))


def gelu_train(a: Arrays) -> Call:
    """d/dx of 0.5 x (1 + t), t = tanh(u): 0.5 (1 + t) + 0.5 x (1 - t^2) u'."""
    x, kept = a.randn(SIDE // 2, SIDE), Buffers()

    def step() -> Array:
        tanh, grad = kept.like(x, "tanh"), kept.like(x)
        gelu_into(x, grad, tanh).sum()
        np.multiply(x, x, out=grad)
        grad *= 3 * 0.044715
        grad += 1
        grad *= 0.7978845608
        grad *= x
        square = np.multiply(tanh, tanh, out=kept.like(x, "square"))
        np.subtract(1, square, out=square)
        grad *= square
        grad += tanh
        grad += 1
        grad *= 0.5
        return grad

    return step


# -- copies and reductions ------------------------------------------------------------------------


def copied(a: Arrays, transpose: bool) -> Call:
    x, kept = a.randn(SIDE, SIDE), Buffers()
    source = x.T if transpose else x

    def call() -> Array:
        out = kept.like(source)
        np.copyto(out, source)
        return out

    return call


def clone(a: Arrays) -> Call:
    return copied(a, transpose=False)


def transpose_contiguous(a: Arrays) -> Call:
    return copied(a, transpose=True)


def mask_select(a: Arrays) -> Call:
    x = a.randn(SIDE, SIDE)
    mask = x > 1
    return lambda: x[mask]


def total(a: Arrays) -> Call:
    x = a.randn(SIDE, SIDE)
    return lambda: x.sum()


# -- rows and matrices ----------------------------------------------------------------------------


def softmax_into(x: Array, out: Array) -> Array:
    np.subtract(x, x.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(1, keepdims=True)
    return out


def softmax(a: Arrays) -> Call:
    x, kept = a.randn(ROWS, COLUMNS), Buffers()
    return lambda: softmax_into(x, kept.like(x))


def layer_norm(a: Arrays) -> Call:
    x, kept = a.randn(ROWS, COLUMNS), Buffers()
    weight, bias = np.ones(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)

    def call() -> Array:
        out: Array = np.subtract(x, x.mean(1, keepdims=True), out=kept.like(x))
        variance = np.einsum("ij,ij->i", out, out) / x.shape[1]
        out /= np.sqrt(variance + 1e-5)[:, None]
        out *= weight
        out += bias
        return out

    return call


def cross_entropy(a: Arrays) -> Call:
    x, kept = a.randn(ROWS, COLUMNS), Buffers()
    target = a.integers(x.shape[1], x.shape[0])
    each = np.arange(x.shape[0])

    def step() -> Array:
        grad = softmax_into(x, kept.like(x))
        np.log(grad[each, target]).mean()
        grad[each, target] -= 1
        grad /= x.shape[0]
        return grad

    return step


def mm(a: Arrays) -> Call:
    x, kept = a.randn(3000, 3000), Buffers()
    return lambda: np.matmul(x, x, out=kept.like(x))


def mm_loop(a: Arrays) -> Call:
    rng, times = np.random.default_rng(0), a.scaled(1000)

    def call() -> Any:
        z = None
        for _ in range(times):
            x = rng.random((100, 100), np.float32)
            z = (x @ x).sum()
        return z

    return call


# -- training steps -------------------------------------------------------------------------------


class Dense:
    """A linear layer with its gradients, and moments if AdamW trains it."""

    def __init__(self, weight: Array, bias: Array) -> None:
        self.values = [weight, bias]
        self.grads = [np.zeros_like(weight), np.zeros_like(bias)]
        self.moments = [(np.zeros_like(v), np.zeros_like(v), np.empty_like(v)) for v in self.values]

    def forward(self, x: Array) -> Array:
        self.input = x
        out: Array = x @ self.values[0].T
        out += self.values[1]
        return out

    def gradients(self, grad: Array) -> None:
        np.matmul(grad.T, self.input, out=self.grads[0])
        grad.sum(0, out=self.grads[1])

    def backward(self, grad: Array) -> Array:
        self.gradients(grad)
        return grad @ self.values[0]

    def sgd(self, lr: float) -> None:
        for value, grad in zip(self.values, self.grads, strict=True):
            grad *= lr
            value -= grad

    def adamw(self, lr: float, step: int, decay: float = 0.01) -> None:
        """Loshchilov & Hutter, with PyTorch's defaults: betas 0.9 and 0.999, eps 1e-8."""
        for value, grad, (mean, square, scratch) in zip(
            self.values, self.grads, self.moments, strict=True
        ):
            value *= 1 - lr * decay
            mean *= 0.9
            mean += np.multiply(grad, 0.1, out=scratch)
            grad *= grad
            grad *= 0.001
            square *= 0.999
            square += grad
            np.sqrt(square, out=scratch)
            scratch /= math.sqrt(1 - 0.999**step)
            scratch += 1e-8
            np.divide(mean, scratch, out=scratch)
            scratch *= lr / (1 - 0.9**step)
            value -= scratch


def classified(logits: Array, target: Array) -> tuple[Any, Array]:
    """The cross-entropy of the rows, and its gradient, which takes the place of the logits."""
    each = np.arange(len(target))
    grad = softmax_into(logits, logits)
    loss = -np.log(grad[each, target]).mean()
    grad[each, target] -= 1
    grad /= len(target)
    return loss, grad


def mlp(a: Arrays) -> Call:
    wide, inner, batch = a.scaled(784), a.scaled(1024), a.scaled(512)
    layers = [Dense(*a.linear(*sizes)) for sizes in ((wide, inner), (inner, inner), (inner, 10))]
    x, target = a.normal(batch, wide), a.integers(10, batch)
    count = 0

    def step() -> Any:
        nonlocal count
        count += 1
        out = x
        for layer in layers[:-1]:
            out = layer.forward(out)
            np.maximum(out, 0, out=out)
        loss, grad = classified(layers[-1].forward(out), target)
        for layer in layers[:0:-1]:
            grad = layer.backward(grad)
            grad *= layer.input > 0
        layers[0].gradients(grad)
        for layer in layers:
            layer.adamw(1e-3, count)
        return loss

    return step


def small_mlp(a: Arrays) -> Call:
    first, last = Dense(*a.linear(30, 64)), Dense(*a.linear(64, 27))
    x, target = a.normal(32, 30), a.integers(27, 32)

    def step() -> Any:
        hidden = first.forward(x)
        np.tanh(hidden, out=hidden)
        loss, grad = classified(last.forward(hidden), target)
        grad = last.backward(grad)
        grad *= 1 - hidden * hidden
        first.gradients(grad)
        first.sgd(1e-2)
        last.sgd(1e-2)
        return loss

    return step


# -- small ops ------------------------------------------------------------------------------------


def us_add(a: Arrays) -> Call:
    x, y = a.normal(10), a.normal(10)
    return lambda: x + y


def us_add_(a: Arrays) -> Call:
    x = a.normal(10)
    return lambda: np.add(x, 0.0, out=x)


def us_slice(a: Arrays) -> Call:
    x = np.arange(40).reshape(2, 4, 5)
    return lambda: x[:, 0:2, 2:4]


def us_transpose(a: Arrays) -> Call:
    x = np.arange(40).reshape(2, 4, 5)
    return lambda: x.swapaxes(0, 1)


def us_reshape(a: Arrays) -> Call:
    x = np.arange(40).reshape(2, 4, 5)
    return lambda: x.reshape(8, 5)


def us_item(a: Arrays) -> Call:
    x = a.normal(10)
    return lambda: x[3].item()


BY_HAND: dict[str, Callable[[Arrays], Call]] = {
    f.__name__: f
    for f in (
        relu, relu_, exp, exp_slice, add, add_, clone, transpose_contiguous, mask_select, total,
        gelu_fwd, gelu_train, softmax, layer_norm, cross_entropy, mm, mm_loop, mlp, small_mlp,
        us_add, us_add_, us_slice, us_transpose, us_reshape, us_item,
    )
}  # fmt: skip
BY_HAND["add_out"] = add_  # in NumPy they are the same call
