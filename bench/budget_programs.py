"""Eight programs that are trained within a budget: what keeps much for backward, of every shape.

Each function of the library (`torch`) gives a module, an optimizer and a step: its loss is what the
step returns. Their activations are many times their parameters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.workloads import gpt_net


class Trained(NamedTuple):
    """What is trained, and one step of it."""

    parameters: list[Any]
    optimizers: list[Any]
    step: Callable[[], float]


def _training(T: Any, net: Any, loss: Callable[[], Any], optimizer: Any = None) -> Trained:
    optimizer = optimizer or T.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return float(value.item())

    return Trained(list(net.parameters()), [optimizer], step)


def gpt(T: Any) -> Trained:
    """The bench's GPT, of half its batch."""
    net = gpt_net(T, 256, 256)
    ids, target = T.randint(0, 512, (8, 256)), T.randint(0, 512, (8 * 256,))
    optimizer = T.optim.AdamW(net.parameters(), lr=1e-3)
    return _training(
        T, net, lambda: T.nn.functional.cross_entropy(net(ids).view(-1, 512), target), optimizer
    )


def _norm_relu(nn: Any, before: int, after: int, side: int = 3, step: int = 1) -> Any:
    convolution = nn.Conv2d(before, after, side, step, side // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())


def resnet(T: Any) -> Trained:
    """For 32 x 32 images: three stages of three blocks."""
    nn = T.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int, step: int) -> None:
            super().__init__()
            self.first = _norm_relu(nn, before, after, 3, step)
            self.second = nn.Sequential(
                nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
            )
            self.beside = nn.Conv2d(before, after, 1, step) if step > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            return T.relu(self.second(self.first(x)) + self.beside(x))

    stages = [(16, 16, 1)] * 3 + [(16, 32, 2), (32, 32, 1), (32, 32, 1)]
    stages += [(32, 64, 2), (64, 64, 1), (64, 64, 1)]
    net = nn.Sequential(
        _norm_relu(nn, 3, 16), *[Block(*s) for s in stages],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return _classifying(T, net, T.randn(32, 3, 32, 32))


def _classifying(T: Any, net: Any, images: Any) -> Trained:
    labels = T.randint(0, 10, (images.shape[0],))
    return _training(T, net, lambda: T.nn.functional.cross_entropy(net(images), labels))


def densenet(T: Any) -> Trained:
    """Twelve layers, each of which reads all before it."""
    nn = T.nn

    class Dense(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, growth: int, count: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [_norm_relu(nn, channels + growth * i, growth) for i in range(count)]
            )

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = T.cat([x, layer(x)], 1)
            return x

    net = nn.Sequential(
        _norm_relu(nn, 3, 16), Dense(16, 12, 6), _norm_relu(nn, 88, 44, 1), nn.AvgPool2d(2),
        Dense(44, 12, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(116, 10),
    )  # fmt: skip
    return _classifying(T, net, T.randn(16, 3, 32, 32))


def unet(T: Any) -> Trained:
    """Three levels down and up, 4 images of 64 x 64."""
    nn = T.nn

    class Unet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64)
            self.down = nn.ModuleList(
                [_pair(nn, a, b) for a, b in zip((3, *widths), widths, strict=False)]
            )
            self.deep = _pair(nn, 64, 128)
            self.wider = nn.ModuleList(
                [nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths)]
            )
            self.up = nn.ModuleList([_pair(nn, 2 * w, w) for w in reversed(widths)])
            self.out = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for block in self.down:
                x = block(x)
                kept.append(x)
                x = T.nn.functional.max_pool2d(x, 2)
            x = self.deep(x)
            for wider, block in zip(self.wider, self.up, strict=True):
                x = block(T.cat([kept.pop(), wider(x)], 1))
            return self.out(x)

    net = Unet()
    images, masks = T.randn(4, 3, 64, 64), T.rand(4, 1, 64, 64).round()
    loss = T.nn.functional.binary_cross_entropy_with_logits
    return _training(T, net, lambda: loss(net(images), masks))


def _pair(nn: Any, before: int, after: int) -> Any:
    return nn.Sequential(_norm_relu(nn, before, after), _norm_relu(nn, after, after))


def lstm(T: Any) -> Trained:
    """A cell over 128 steps."""
    nn = T.nn
    net = nn.ModuleList([nn.LSTMCell(32, 128), nn.Linear(128, 32)])
    x, y = T.randn(128, 512, 32), T.randn(512, 32)

    def loss() -> Any:
        h = c = T.zeros(512, 128)
        for t in range(128):
            h, c = net[0](x[t], (h, c))
        return T.nn.functional.mse_loss(net[1](h), y)

    return _training(T, net, loss)


def tree_lstm(T: Any) -> Trained:
    """A graph of another shape at each step: random binary trees of 24 leaves, 256 at once."""
    nn, width, shapes = T.nn, 256, random.Random(0)
    net = nn.ModuleDict(
        {"leaf": nn.Linear(64, 2 * width), "inner": nn.Linear(2 * width, 5 * width)}
    )
    words, y = T.randn(24, 256, 64), T.randn(256, width)

    def joined(a: Any, b: Any) -> Any:
        i, f, g, o, u = net["inner"](T.cat([a[0], b[0]], 1)).chunk(5, 1)
        c = i.sigmoid() * u.tanh() + f.sigmoid() * a[1] + g.sigmoid() * b[1]
        return o.sigmoid() * c.tanh(), c

    def loss() -> Any:
        nodes = [tuple(net["leaf"](w).tanh().chunk(2, 1)) for w in words]
        while len(nodes) > 1:
            at = shapes.randrange(len(nodes) - 1)
            nodes[at : at + 2] = [joined(nodes[at], nodes[at + 1])]
        return T.nn.functional.mse_loss(nodes[0][0], y)

    return _training(T, net, loss)


def unrolled_gan(T: Any) -> Trained:
    """The generator's gradient goes through four steps of the discriminator."""
    nn, F = T.nn, T.nn.functional
    made = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 64))  # fmt: skip
    judge = [T.randn(64, 256) * 0.1, T.randn(256, 256) * 0.06, T.randn(256, 1) * 0.06]
    real, noise = T.randn(1024, 64), T.randn(1024, 64)

    def judged(x: Any, w: list[Any]) -> Any:
        return T.tanh(T.tanh(x @ w[0]) @ w[1]) @ w[2]

    def loss() -> Any:
        w = [p.detach().requires_grad_() for p in judge]
        fake = made(noise)
        for _ in range(4):
            error = F.softplus(-judged(real, w)).mean() + F.softplus(judged(fake, w)).mean()
            grads = T.autograd.grad(error, w, create_graph=True)
            w = [p - 0.1 * g for p, g in zip(w, grads, strict=True)]
        return F.softplus(-judged(fake, w)).mean()

    return _training(T, made, loss, T.optim.Adam(made.parameters(), lr=1e-3))


def transformer(T: Any) -> Trained:
    """Encoder and decoder of two layers each."""
    nn = T.nn
    net = nn.Transformer(128, 4, 2, 2, 512, dropout=0.1, batch_first=True)
    source, target = T.randn(16, 128, 128), T.randn(16, 128, 128)
    return _training(T, net, lambda: net(source, target).square().mean())


PROGRAMS: dict[str, Callable[[Any], Trained]] = {
    f.__name__: f for f in (gpt, resnet, unet, lstm, tree_lstm, unrolled_gan, densenet, transformer)
}
