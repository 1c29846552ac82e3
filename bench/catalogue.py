"""All the work by name: `relu` and other workloads, `program/vae`, `micro/add`, `size/exp/1000`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.micro import ROWS, small_op
from bench.programs import PROGRAMS
from bench.workloads import SMALL, WORKLOADS, Call, Kit, gelu_of

Make = Callable[[Kit], Call]

SIZES = [10**n for n in range(9)]
SHORT = 10_000  # elements; a call on fewer is timed in a loop
SIZED: dict[str, Callable[[Any, Any], Call]] = {
    "add": lambda T, x: lambda: x + x,
    "exp": lambda T, x: lambda: T.exp(x),
    "chain": lambda T, x: lambda: gelu_of(T, x),
    "sum": lambda T, x: lambda: x.sum(),
    "softmax": lambda T, x: lambda: x.softmax(0),
}


def sized(k: Kit, work: str, size: int) -> Call:
    return SIZED[work](k.T, k.T.ones(k.scaled(size)).mul_(0.5))


def program(k: Kit, name: str) -> Call:
    return PROGRAMS[name](k.T)


def micro(k: Kit, name: str) -> Call:
    return small_op(k.T, name)


PARTS: dict[str, dict[str, Make]] = {
    "workloads": WORKLOADS,
    "programs": {f"program/{name}": partial(program, name=name) for name in PROGRAMS},
    "micro": {f"micro/{name}": partial(micro, name=name) for name in ROWS},
    "sizes": {
        f"size/{work}/{size}": partial(sized, work=work, size=size)
        for work in SIZED
        for size in SIZES
    },
}
ALL: dict[str, Make] = {name: make for part in PARTS.values() for name, make in part.items()}
COMPARED = ("skimp", "torch")  # the engines that do what is not a workload


def looped(name: str) -> bool:
    """Whether a call is too short to be timed alone."""
    kind, _, rest = name.partition("/")
    if kind == "size":
        return int(rest.partition("/")[2]) <= SHORT
    return kind == "micro" or name in SMALL
