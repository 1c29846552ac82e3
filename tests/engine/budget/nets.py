"""Random nets that train: convolutions, norms, shortcuts and joins, cells, attention, checkpoints,
optimizers, sometimes several beside each other in threads. `programs.py` runs them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import skimp as torch
from skimp.errors import OutOfMemoryError

nn, F = torch.nn, torch.nn.functional


class Shortcut(nn.Module):
    """x + f(x), or f(x) beside x."""

    def __init__(self, inner: Any, joins: bool, inplace: bool) -> None:
        super().__init__()
        self.inner, self.joins, self.inplace = inner, joins, inplace

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        if self.joins:
            return torch.cat([x, y], 1)
        if self.inplace:
            y += x
            return F.relu(y, inplace=True)
        return F.relu(x + y)


class Checkpointed(nn.Module):
    def __init__(self, inner: Any, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Cells(nn.Module):
    """A cell along the first dim of its input; all of its states, or the last."""

    def __init__(self, kind: Any, n: int, hidden: int, last: bool) -> None:
        super().__init__()
        self.cell, self.last = kind(n, hidden), last

    def forward(self, x: Any) -> Any:
        state, found = None, []
        for one in x:
            state = self.cell(one) if state is None else self.cell(one, state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return found[-1] if self.last else torch.stack(found)


class Gates(nn.Module):
    """A recurrent cell by hand, whose gates are pieces of one product."""

    def __init__(self, n: int, hidden: int) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(n, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.hidden = hidden

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.shape[1], self.hidden)
        found = []
        for one in x:
            i, f, g, o = (self.of_input(one) + self.of_state(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.stack(found)


class Sequence(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]


class Attention(nn.Module):
    def __init__(self, n: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.heads, self.dropout = nn.LayerNorm(n), heads, dropout
        self.qkv, self.out = nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x: Any) -> Any:
        n, rows, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return x + self.out(y.transpose(1, 2).reshape(n, rows, width))


def activation(r: random.Random) -> Any:
    inplace = r.random() < 0.5
    return r.choice(
        [nn.ReLU(inplace), nn.LeakyReLU(0.1, inplace), nn.SiLU(inplace), nn.ELU(1.0, inplace),
         nn.GELU(), nn.Tanh(), nn.Hardswish(inplace), nn.Softplus()]
    )  # fmt: skip


def norm(r: random.Random, n: int) -> Any:
    return r.choice(
        [nn.BatchNorm2d(n), nn.BatchNorm2d(n), nn.GroupNorm(2, n), nn.Identity(),
         nn.InstanceNorm2d(n, affine=True)]
    )  # fmt: skip


def maybe(r: random.Random, inner: Any) -> Any:
    return Checkpointed(inner, r.random() < 0.3) if r.random() < 0.2 else inner


def images(r: random.Random, drops: bool) -> tuple[Any, tuple[int, ...]]:
    """A net of images, with its input's shape but for the batch."""
    side, n = r.choice([8, 16, 32]), r.choice([4, 8, 16])
    blocks: list[Any] = [nn.Conv2d(3, n, 3, padding=1)]
    for _ in range(r.randint(1, 4)):
        kind = r.choice(["plain", "shortcut", "join", "depthwise", "pool", "up"])
        if kind == "pool" and side > 4:
            blocks.append(r.choice([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 2, 1)]))
            side //= 2
        elif kind == "up" and side < 32:
            blocks.append(nn.Upsample(scale_factor=2, mode=r.choice(["nearest", "bilinear"])))
            side *= 2
        elif kind in ("shortcut", "join"):
            more = n if kind == "shortcut" else r.choice([4, 8])
            inner = [nn.Conv2d(n, more, 3, padding=1), norm(r, more)]
            if r.random() < 0.5:
                inner += [activation(r), nn.Conv2d(more, more, 1, bias=False), norm(r, more)]
            joins = kind == "join"
            blocks.append(maybe(r, Shortcut(nn.Sequential(*inner), joins, r.random() < 0.5)))
            n += more if joins else 0
        else:
            more = r.choice([4, 8, 16])
            first = (
                nn.Conv2d(n, n, 3, padding=1, groups=n) if kind == "depthwise" else nn.Identity()
            )
            inner = [first, nn.Conv2d(n, more, 3, padding=1), norm(r, more), activation(r)]
            if drops and r.random() < 0.4:
                inner.append(r.choice([nn.Dropout(0.2), nn.Dropout2d(0.2)]))
            blocks.append(maybe(r, nn.Sequential(*inner)))
            n = more
    blocks += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * n, 5)]
    return nn.Sequential(*blocks), (3, 32, 32) if side > 16 else (3, 16, 16)


def sequences(r: random.Random, drops: bool) -> tuple[Any, tuple[int, ...]]:
    """A recurrent net; the batch comes second."""
    n, hidden, layers = r.choice([8, 16, 32]), r.choice([16, 32, 64]), r.choice([1, 2])
    both = r.random() < 0.3
    dropout = 0.2 if drops and layers > 1 and r.random() < 0.5 else 0.0
    made = [
        lambda: Cells(nn.LSTMCell, n, hidden, False),
        lambda: Cells(nn.GRUCell, n, hidden, False),
        lambda: Cells(nn.RNNCell, n, hidden, False),
        lambda: Gates(n, hidden),
        lambda: Sequence(nn.LSTM(n, hidden, layers, dropout=dropout, bidirectional=both)),
        lambda: Sequence(nn.GRU(n, hidden, layers, dropout=dropout, bidirectional=both)),
    ]
    kind = r.randrange(len(made))
    width = hidden * (2 if both and kind > 3 else 1)
    blocks = [maybe(r, made[kind]()), nn.LayerNorm(width)]
    if drops and r.random() < 0.5:
        blocks.append(nn.Dropout(0.3))
    if r.random() < 0.5:
        blocks.append(Cells(nn.LSTMCell, width, hidden, True))
        width = hidden
    return nn.Sequential(*blocks, nn.Linear(width, 5)), (r.choice([4, 9]), -1, n)


def rows(r: random.Random, drops: bool) -> tuple[Any, tuple[int, ...]]:
    """A transformer."""
    n = r.choice([16, 32])
    dropout = 0.1 if drops else 0.0
    blocks: list[Any] = []
    for _ in range(r.randint(1, 3)):
        if r.random() < 0.5:
            block: Any = nn.TransformerEncoderLayer(
                n, 4, 2 * n, dropout, batch_first=True, norm_first=r.random() < 0.5
            )
        else:
            more = [nn.LayerNorm(n), nn.Linear(n, 2 * n), activation(r), nn.Linear(2 * n, n)]
            block = nn.Sequential(Attention(n, 4, dropout), *more)
        blocks.append(maybe(r, block))
    return nn.Sequential(*blocks, nn.Linear(n, 5)), (r.choice([8, 32]), n)


KINDS: tuple[Callable[[random.Random, bool], tuple[Any, tuple[int, ...]]], ...] = (
    images, images, sequences, rows,
)  # fmt: skip


def optimizer(r: random.Random, net: Any) -> Any:
    kind, lr = r.randrange(8), 0.01
    foreach = r.choice([None, True, False])
    weights = list(net.parameters())
    if kind == 0:
        return torch.optim.SGD(weights, lr)
    if kind == 1:
        return torch.optim.SGD(weights, lr, momentum=0.9, nesterov=True, foreach=foreach)
    if kind == 2:
        return torch.optim.Adam(weights, lr, foreach=foreach, amsgrad=r.random() < 0.3)
    if kind == 3:
        return torch.optim.RMSprop(weights, lr, momentum=0.5, foreach=foreach)
    if kind == 4:
        return torch.optim.Adagrad(weights, lr, foreach=foreach)
    if kind == 5:
        return torch.optim.NAdam(weights, lr)
    return torch.optim.AdamW(weights, lr, foreach=foreach)


class Training:
    """One run of a net, by what its seed chooses. `drops`: it draws numbers as it runs, which in
    several threads would be whose turn it is.
    """

    def __init__(self, seed: int, drops: bool) -> None:
        self.random = random.Random(seed)
        self.error = ""
        self.numbers = torch.Generator().manual_seed(seed)
        self.kept: list[Any] = []  # results of before, with their graphs or without
        self.net, self.shape = self.random.choice(KINDS)(self.random, drops)
        self.optimizer = optimizer(self.random, self.net)
        self.same_size = self.random.random() < 0.6
        self.size = self.random.choice([2, 4, 16])
        self.mean = (
            torch.optim.swa_utils.AveragedModel(self.net) if self.random.random() < 0.2 else None
        )

    def data(self) -> Any:
        n = self.size if self.same_size else self.random.randint(1, 16) + 1
        if -1 in self.shape:
            return torch.randn([n if s < 0 else s for s in self.shape], generator=self.numbers)
        return torch.randn(n, *self.shape, generator=self.numbers)

    def loss(self, x: Any) -> Any:
        r = self.random
        if r.random() < 0.2:
            x.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=r.random() < 0.1):
            y = self.net(x)
        if r.random() < 0.2:
            self.kept.append(y.detach() if r.random() < 0.7 else y)
            del self.kept[:-2]
        y = y.float().flatten(0, -2)
        loss = F.cross_entropy(y, y.detach().roll(1, 0).argmax(1)) + y.square().mean()
        if x.requires_grad and r.random() < 0.5:
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + (g.flatten(1).norm(dim=1) - 1).square().mean()
        return loss

    def steps(self, count: int) -> Iterator[Any]:
        """The loss of each."""
        r = self.random
        x = self.data()
        for _ in range(count):
            if r.random() < 0.7:
                x = self.data()
            if r.random() < 0.8:
                self.optimizer.zero_grad(set_to_none=r.random() < 0.8)
            loss = self.loss(x.detach())
            loss.backward()
            if r.random() < 0.3:
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            if r.random() < 0.8:
                self.optimizer.step()
            if self.mean is not None:
                self.mean.update_parameters(self.net)
            if r.random() < 0.1:
                self.look()
            if r.random() < 0.1:
                self.load()
            yield loss.detach()

    def look(self) -> None:
        self.net.eval()
        with torch.no_grad():
            self.kept.append(self.net(self.data()))
        self.net.train()

    def load(self) -> None:
        state = {k: v.clone() for k, v in self.net.state_dict().items()}
        try:
            self.net.load_state_dict(state)
        except RuntimeError as error:  # it tells all that went wrong as one, as PyTorch does
            raise OutOfMemoryError(str(error)) from None

    def found(self) -> list[Any]:
        """All that it has in the end."""
        state = self.optimizer.state_dict()["state"]
        return [
            *self.net.state_dict().values(),
            *[p.grad for p in self.net.parameters() if p.grad is not None],
            *[t for one in state.values() for t in one.values() if torch.is_tensor(t)],
            *self.kept,
            *([] if self.mean is None else self.mean.state_dict().values()),
        ]

    def train(self, count: int) -> list[Any]:
        """All that it has after so many steps, or up to an error of its own, and each loss."""
        losses: list[Any] = []
        try:
            losses.extend(self.steps(count))
        except OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.error = str(error)[:60]
        return [*losses, *self.found()]


def contents(tensors: list[Any]) -> list[bytes]:
    return [t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors]


def run(seed: int) -> tuple[list[bytes], list[str]]:
    """A net, or several in threads of their own, that step as the system lets them: the bytes of
    all that they have in the end, and what they were.
    """
    r = random.Random(seed + 1)
    count, threads = r.choice([2, 4, 8]), r.choice([1, 1, 1, 2, 3])
    torch.manual_seed(seed)
    nets = [Training(seed + i, threads == 1) for i in range(threads)]
    found: dict[int, list[Any]] = {}
    errors: list[BaseException] = []

    def work(i: int) -> None:
        try:
            found[i] = nets[i].train(count)
        except BaseException as error:  # raised again below
            errors.append(error)

    others = [threading.Thread(target=work, args=(i,)) for i in range(1, threads)]
    for one in others:
        one.start()
    work(0)
    for one in others:
        one.join()
    if errors:
        raise errors[0]
    values = contents([t for i in range(threads) for t in found[i]])
    return values, [f"{type(one.optimizer).__name__} of {one.net}: {one.error}" for one in nets]
