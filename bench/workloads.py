"""The work, written once for any module with PyTorch's API.

Each function sets up on a `Kit` and returns the call that is measured. The sizes are those of
`side`, `rows` and so on divided by the kit's `shrink`, which is 1 in a measurement; tests shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]


def itself(f: Any) -> Any:
    return f


@dataclass(frozen=True)
class Kit:
    """The module under test, what wraps pure functions (torch.compile), and a divisor of sizes."""

    T: Any
    wrap: Callable[[Any], Any] = itself
    shrink: int = 1

    def scaled(self, size: int) -> int:
        return max(size // self.shrink, 1)

    def randn(self, rows: int, columns: int) -> Any:
        """Normal numbers, in memory when this returns; a part of them, repeated, to save time."""
        rows, columns = self.scaled(rows), self.scaled(columns)
        times = math.gcd(rows, 64)
        return resident(self.T.randn(rows // times, columns).repeat(times, 1))

    def zeros(self, rows: int, columns: int) -> Any:
        return resident(self.T.zeros(self.scaled(rows), self.scaled(columns)).add_(0))


def resident(x: Any) -> Any:
    """x, computed and in memory now: an engine may defer."""
    x.data_ptr()
    return x


# -- pointwise ------------------------------------------------------------------------------------

SIDE = 10_000


def relu(k: Kit) -> Call:
    x, f = k.randn(SIDE, SIDE), k.wrap(k.T.nn.functional.relu)
    return lambda: f(x)


def relu_(k: Kit) -> Call:
    x, f = k.randn(SIDE, SIDE), k.T.nn.functional.relu_
    return lambda: f(x)


def exp(k: Kit) -> Call:
    x, T = k.randn(SIDE, SIDE), k.T
    f = k.wrap(lambda x: T.exp(x))
    return lambda: f(x)


def exp_slice(k: Kit) -> Call:
    x, T = k.zeros(SIDE, SIDE), k.T

    def call() -> Any:
        x[:] = T.exp(x)
        return x.zero_()

    return call


def add(k: Kit) -> Call:
    x, y = k.randn(SIDE, SIDE), k.randn(SIDE, SIDE)
    return lambda: y + x


def add_(k: Kit) -> Call:
    x, y = k.zeros(SIDE, SIDE), k.randn(SIDE, SIDE)

    def call() -> Any:
        nonlocal y
        y += x
        return y

    return call


def add_out(k: Kit) -> Call:
    x, y, T = k.zeros(SIDE, SIDE), k.randn(SIDE, SIDE), k.T
    return lambda: T.add(x, y, out=y)


def gelu_of(T: Any, x: Any) -> Any:
    """The tanh form of GELU written out, as programs had it before libraries did."""
    return 0.5 * x * (1.0 + T.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))


def gelu_fwd(k: Kit) -> Call:
    x, T = k.randn(SIDE, SIDE), k.T
    f = k.wrap(lambda x: gelu_of(T, x))
    return lambda: f(x)


def gelu_train(k: Kit) -> Call:
    x, T = k.randn(SIDE // 2, SIDE).requires_grad_(), k.T
    f = k.wrap(lambda x: gelu_of(T, x).sum())

    def step() -> Any:
        x.grad = None
        f(x).backward()
        return x.grad

    return step


# -- copies and reductions ------------------------------------------------------------------------


def clone(k: Kit) -> Call:
    x = k.randn(SIDE, SIDE)
    return lambda: x.clone()


def transpose_contiguous(k: Kit) -> Call:
    x = k.randn(SIDE, SIDE)
    return lambda: x.t().contiguous()


def mask_select(k: Kit) -> Call:
    x = k.randn(SIDE, SIDE)
    mask = resident(x > 1)
    return lambda: x[mask]


def total(k: Kit) -> Call:
    x = k.randn(SIDE, SIDE)
    return lambda: x.sum()


# -- rows and matrices ----------------------------------------------------------------------------

ROWS, COLUMNS = 8192, 4096


def softmax(k: Kit) -> Call:
    x, F = k.randn(ROWS, COLUMNS), k.T.nn.functional
    return lambda: F.softmax(x, dim=-1)


def layer_norm(k: Kit) -> Call:
    x, F = k.randn(ROWS, COLUMNS), k.T.nn.functional
    width = x.shape[1]
    weight, bias = k.T.ones(width), k.T.zeros(width)
    return lambda: F.layer_norm(x, (width,), weight, bias)


def cross_entropy(k: Kit) -> Call:
    x, F = k.randn(ROWS, COLUMNS).requires_grad_(), k.T.nn.functional
    target = k.T.randint(0, x.shape[1], (x.shape[0],))

    def step() -> Any:
        x.grad = None
        F.cross_entropy(x, target).backward()
        return x.grad

    return step


def mm(k: Kit) -> Call:
    x = k.randn(3000, 3000)
    return lambda: x.mm(x)


def mm_loop(k: Kit) -> Call:
    T, times = k.T, k.scaled(1000)

    def call() -> Any:
        z = None
        for _ in range(times):
            x = T.rand(100, 100)
            y = x.mm(x)
            z = y.sum()
        return z

    return call


# -- training steps -------------------------------------------------------------------------------


def trained(k: Kit, net: Any, optimizer: Any, x: Any, target: Any) -> Call:
    """One step of a classifier; the call returns its loss."""
    F = k.T.nn.functional

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp(k: Kit) -> Call:
    T, nn = k.T, k.T.nn
    T.manual_seed(0)
    wide, inner, batch = k.scaled(784), k.scaled(1024), k.scaled(512)
    net = nn.Sequential(
        nn.Linear(wide, inner), nn.ReLU(),
        nn.Linear(inner, inner), nn.ReLU(),
        nn.Linear(inner, 10),
    )  # fmt: skip
    optimizer = T.optim.AdamW(net.parameters(), lr=1e-3)
    return trained(k, net, optimizer, T.randn(batch, wide), T.randint(0, 10, (batch,)))


def small_mlp(k: Kit) -> Call:
    T, nn = k.T, k.T.nn
    T.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 64), nn.Tanh(), nn.Linear(64, 27))
    optimizer = T.optim.SGD(net.parameters(), lr=1e-2)
    return trained(k, net, optimizer, T.randn(32, 30), T.randint(0, 27, (32,)))


def conv(k: Kit) -> Call:
    T, nn = k.T, k.T.nn
    T.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    batch = max(k.scaled(64), 2)  # a batch norm needs two
    optimizer = T.optim.SGD(net.parameters(), lr=1e-2)
    return trained(k, net, optimizer, T.randn(batch, 3, 32, 32), T.randint(0, 10, (batch,)))


HEADS, LAYERS, WORDS = 8, 4, 512


def gpt(k: Kit) -> Call:
    T = k.T
    T.manual_seed(0)
    width, batch, length = max(k.scaled(256) // HEADS, 2) * HEADS, k.scaled(16), k.scaled(256)
    net = gpt_net(T, width, length)
    optimizer = T.optim.AdamW(net.parameters(), lr=1e-3)
    ids, target = (T.randint(0, WORDS, (batch, length)) for _ in range(2))
    f = k.wrap(net)
    return trained(k, lambda x: f(x).view(-1, WORDS), optimizer, ids, target.view(-1))


def gpt_net(T: Any, width: int, length: int) -> Any:
    """A decoder of four layers, in the way of GPT-2."""
    nn, F = T.nn, T.nn.functional
    Module: Any = nn.Module

    class Block(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            parts = self.qkv(self.before(x)).split(c, dim=2)
            q, key, v = (p.view(b, t, HEADS, c // HEADS).transpose(1, 2) for p in parts)
            a = F.scaled_dot_product_attention(q, key, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(F.gelu(self.up(self.between(x))))

    class GPT(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.head = nn.Linear(width, WORDS)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(T.arange(length))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return GPT()


# -- small ops ------------------------------------------------------------------------------------


def us_add(k: Kit) -> Call:
    a, b = k.T.randn(10), k.T.randn(10)
    return lambda: a + b


def us_add_(k: Kit) -> Call:
    a = k.T.randn(10)
    return lambda: a.add_(0.0)


def us_add_grad(k: Kit) -> Call:
    g, b = k.T.randn(10).requires_grad_(), k.T.randn(10)
    return lambda: g + b


def us_slice(k: Kit) -> Call:
    x = k.T.arange(40).reshape(2, 4, 5)
    return lambda: x[:, 0:2, 2:4]


def us_transpose(k: Kit) -> Call:
    x = k.T.arange(40).reshape(2, 4, 5)
    return lambda: x.transpose(0, 1)


def us_reshape(k: Kit) -> Call:
    x = k.T.arange(40).reshape(2, 4, 5)
    return lambda: x.view(8, 5)


def us_backward(k: Kit) -> Call:
    g, b = k.T.randn(10).requires_grad_(), k.T.randn(10)

    def call() -> None:
        (g * b).sum().backward()
        g.grad = None

    return call


def us_item(k: Kit) -> Call:
    b = k.T.randn(10)
    return lambda: b[3].item()


def us_detach(k: Kit) -> Call:
    g = k.T.randn(10).requires_grad_()
    return lambda: g.detach()


# -- by name --------------------------------------------------------------------------------------

LARGE: dict[str, Callable[[Kit], Call]] = {
    f.__name__: f
    for f in (
        relu, relu_, exp, exp_slice, add, add_, add_out, clone, transpose_contiguous, mask_select,
        total, gelu_fwd, gelu_train, softmax, layer_norm, cross_entropy, mm, mm_loop, mlp,
        small_mlp, gpt, conv,
    )
}  # fmt: skip
SMALL: dict[str, Callable[[Kit], Call]] = {
    f.__name__: f
    for f in (
        us_add, us_add_, us_add_grad, us_slice, us_transpose, us_reshape, us_backward, us_item,
        us_detach,
    )
}  # fmt: skip
WORKLOADS = LARGE | SMALL
COMPILED = ("relu", "exp", "gelu_fwd", "gelu_train", "gpt")  # those that use `wrap`
