"""Random programs of views, writes, gradients and draws, or with `--nets` nets that train, run with
and without a budget.

    python -m tests.engine.budget.programs --count 10000 [--seed 0] [--nets]

A program is a list of steps that its seed chooses; each run gives the bytes of all that it has in
the end. With a budget these have to be the same, and the ledger never above it.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import skimp as torch
from skimp._engine.budget import setting, spending
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget import nets

SIDE = 24
F = torch.nn.functional


class Outcome(NamedTuple):
    """What a run gave, and what it did."""

    values: list[bytes]
    steps: list[str]
    peak: int


class Program:
    """One run: tensors by number, all of them SIDE x SIDE, and what autograd knows of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.tensors = [torch.rand(SIDE, SIDE) for _ in range(3)]
        self.leaves = [torch.rand(SIDE, SIDE).requires_grad_() for _ in range(2)]
        self.tensors += self.leaves
        self.arrays: list[Any] = []
        self.steps: list[str] = []

    def run(self, length: int) -> list[bytes]:
        for _ in range(length):
            name = self.random.choice(list(STEPS))
            try:
                STEPS[name](self)
                self.steps.append(name)
            except OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.steps.append(f"{name}: {str(error)[:40]}")
        found = [*self.tensors, *[t.grad for t in self.leaves if t.grad is not None]]
        values = [t.detach().contiguous().numpy().tobytes() for t in found]
        return values + [a.tobytes() for a in self.arrays]

    def one(self) -> Any:
        return self.random.choice(self.tensors)

    def add(self, t: Any) -> None:
        self.tensors.append(t)
        if len(self.tensors) > 12:
            del self.tensors[self.random.randrange(len(self.tensors))]


UNARY = (
    lambda x: x * 2 + 1,
    lambda x: x.exp().clamp(max=3.0),
    lambda x: F.gelu(x),
    lambda x: F.relu(x),
    lambda x: torch.tanh(x),
    lambda x: x.softmax(-1),
    lambda x: F.layer_norm(x, (SIDE,)),
    lambda x: x.t().contiguous(),
    lambda x: x.cumsum(0) / SIDE,
    lambda x: x.sum(0, keepdim=True).expand(SIDE, SIDE) / SIDE,
    lambda x: x[torch.arange(SIDE - 1, -1, -1)],
    lambda x: x.sort(0)[0],
    lambda x: F.batch_norm(x, None, None, training=True),
    lambda x: F.dropout(x, 0.3),
    lambda x: x.clone(),
    lambda x: x.detach(),
    lambda x: torch.cat([x[:10], x[10:]]),
    lambda x: x.to(torch.float64).mul(0.5).to(torch.float32),
    lambda x: x.view(SIDE // 2, 2 * SIDE).view(SIDE, SIDE),
    lambda x: F.conv1d(x[None], x[:, :, None])[0] / SIDE,
    lambda x: torch.where(x > 0.5, x, -x),
    lambda x: x.flip(0),
)
BINARY = (
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x @ y / SIDE,
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.lerp(x, y, 0.3),
    lambda x, y: F.linear(x, y) / SIDE,
    lambda x, y: x - y.t(),
)
WRITES = (
    lambda x, y: x.add_(y, alpha=0.1),
    lambda x, y: x.mul_(0.9),
    lambda x, y: x[3:9].copy_(y[5:11]),
    lambda x, y: x.t()[2].zero_(),
    lambda x, y: x.relu_(),
    lambda x, y: x.clamp_(-3, 3),
    lambda x, y: x.uniform_(),
    lambda x, y: x.bernoulli_(0.4),
    lambda x, y: x.copy_(y),
    lambda x, y: x.__setitem__((slice(None), 4), 1.5),
    lambda x, y: x.index_add_(0, torch.tensor([1, 2]), y[:2]),
    lambda x, y: x.data.mul_(1.1),
)


def unary(p: Program) -> None:
    p.add(p.random.choice(UNARY)(p.one()))


def binary(p: Program) -> None:
    p.add(p.random.choice(BINARY)(p.one(), p.one()))


def view(p: Program) -> None:
    x = p.one()
    p.add(p.random.choice([x.t(), x[:], x.view(SIDE, SIDE), x.detach(), x.transpose(0, 1)]))


def write(p: Program) -> None:
    p.random.choice(WRITES)(p.one(), p.one())


def write_unrecorded(p: Program) -> None:
    with torch.no_grad():
        p.random.choice(WRITES)(p.one(), p.one())


def drop(p: Program) -> None:
    if len(p.tensors) > 4:
        del p.tensors[p.random.randrange(len(p.tensors))]


def backward(p: Program) -> None:
    loss = p.one().square().mean()
    loss.backward(retain_graph=p.random.random() < 0.3)


def backward_twice(p: Program) -> None:
    x = p.random.choice(p.leaves)
    (g,) = torch.autograd.grad((p.one() * p.one()).sum(), x, create_graph=True)
    p.add(g)


def descend(p: Program) -> None:
    with torch.no_grad():
        for x in p.leaves:
            if x.grad is not None:
                x -= 0.1 * x.grad
                x.grad = None


def look(p: Program) -> None:
    p.arrays.append(p.one().detach().numpy())
    del p.arrays[:-2]


def write_outside(p: Program) -> None:
    if p.arrays and p.arrays[-1].flags.writeable:
        p.arrays[-1][0] += 1


def checkpointed(p: Program) -> None:
    f = p.random.choice(UNARY)
    p.add(torch.utils.checkpoint.checkpoint(f, p.one(), use_reentrant=False))


def resize(p: Program) -> None:
    x = p.one().detach().clone()
    x.untyped_storage().resize_(8 * SIDE * SIDE)
    p.add(x)


def make(p: Program) -> None:
    name = p.random.choice(["randn", "rand", "ones", "zeros", "eye"])
    p.add(torch.eye(SIDE) if name == "eye" else getattr(torch, name)(SIDE, SIDE))


STEPS: dict[str, Callable[[Program], None]] = {
    "unary": unary, "unary again": unary, "binary": binary, "binary again": binary, "view": view,
    "write": write, "write unrecorded": write_unrecorded, "drop": drop, "backward": backward,
    "backward twice": backward_twice, "descend": descend, "look": look, "outside": write_outside,
    "checkpointed": checkpointed, "resize": resize, "make": make,
}  # fmt: skip


Run = Callable[[int], tuple[list[bytes], list[str]]]


def run(seed: int) -> tuple[list[bytes], list[str]]:
    """The bytes of all that a program of a seed has in the end; what it did."""
    program = Program(seed)
    values = program.run(30)
    return values, program.steps


def outcome(seed: int, run: Run) -> Outcome:
    gc.collect()
    torch.memory.reset_peak_memory_stats()
    return Outcome(*run(seed), host.peak)


def spend(seed: int, nbytes: int, run: Run) -> spending.Spending:
    """A budget in which everything may go; of "always", where it is more than there is. Nets have
    thousands of tiny tensors, and threads, which would take what the others are about to read.
    """
    kinds = random.Random(seed)
    spills, always, small = kinds.random() < 0.6, kinds.random() < 0.2, run is not nets.run
    return spending.Spending(nbytes, spills, None, always and small, least=1 if small else 1024)


def check(seed: int, run: Run = run) -> int:
    """Run a program without a budget and with one at random; how many evictions that took.
    AssertionError: it shows.
    """
    choice = random.Random(-1 - seed)
    modes = choice.choice(["always", "always", "auto", "never"])
    with torch.config.using(defer=modes):
        gc.collect()
        pool.empty_cache()
        base = host.allocated
        want = outcome(seed, run)
        share = choice.uniform(0.15, 1.0)
        before = counts.evictions
        while True:
            gc.collect()
            budget = spend(seed, base + int(share * (want.peak - base)) + 4096, run)
            try:
                setting.obey(budget)
                if choice.random() < 0.3:
                    budget.note()  # as if much had been written before
                found = outcome(seed, run)
                assert host.peak <= budget.nbytes, "above the budget"
                break
            except OutOfMemoryError:
                share += 0.2  # one of its ops needs more
            finally:
                setting.obey(None)
        assert found.steps == want.steps, "other errors"
        wrong = [
            i for i, (a, b) in enumerate(zip(want.values, found.values, strict=True)) if a != b
        ]
        assert not wrong, f"other bits in {wrong} of {len(want.values)}: {want.steps}"
    return counts.evictions - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", action="store_true", help="nets that train instead")
    options = parser.parse_args()
    gc.freeze()  # what modules hold is not looked at by each collection
    began, evictions, failed = time.monotonic(), 0, []
    for seed in range(options.seed, options.seed + options.count):
        try:
            evictions += check(seed, nets.run if options.nets else run)
        except Exception as error:  # told, and the next one
            failed.append(seed)
            print(f"{seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(
        f"{options.count} programs from {options.seed} on, {evictions} evictions, "
        f"{counts.rematerialized_bytes} bytes made again, {counts.was_read} read: "
        f"{len(failed)} failed, {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
