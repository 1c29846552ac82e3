"""The same work on any module with PyTorch's API, timed; several engines alternate in fresh
processes.

    python bench/workloads.py skimp              one JSON line per workload python
    bench/workloads.py skimp 'us_|exp'    those whose name matches python bench/workloads.py
    skimp,torch 'exp'  a table: medians of alternating runs, and their ratio

An engine is torch, torch+thp (PyTorch with THP_MEM_ALLOC_ENABLE=1), or skimp. Each workload runs
warm; `seconds` is the median of one call, `extra_mib` the peak of resident memory over its calls
above that after the set-up (VmHWM, Linux).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[], Any]
ROUNDS = 3


# -- measuring ------------------------------------------------------------------------------------


def peak_reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def touch(result: Any) -> None:
    """Ask for the address, so that an engine that defers has really computed."""
    for t in result if isinstance(result, (tuple, list)) else (result,):
        if hasattr(t, "data_ptr"):
            t.data_ptr()


def median_call(f: Work, budget: float = 2.0, least: int = 3, most: int = 200) -> float:
    """Seconds of one call, after two that warm up."""
    touch(f())
    touch(f())
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < least or (time.perf_counter() - begin < budget and len(times) < most):
        start = time.perf_counter()
        touch(f())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def median_small(f: Work, n: int) -> float:
    """Seconds of one call of a small op, from loops of n."""

    def loop() -> float:
        start = time.perf_counter()
        for _ in range(n):
            f()
        return (time.perf_counter() - start) / n

    loop()
    return statistics.median(loop() for _ in range(5))


# -- the work -------------------------------------------------------------------------------------


def large(T: Any) -> dict[str, Callable[[], Work]]:
    """Work on 10000 x 10000 float32 (400 MB) and its like, by name: each entry sets up and returns
    the call.
    """
    F = T.nn.functional

    def big() -> Any:
        return T.randn(10000, 10000)

    def on(f: Callable[[Any], Any]) -> Callable[[], Work]:
        def make() -> Work:
            x = big()
            return lambda: f(x)

        return make

    def exp_slice() -> Work:
        x = T.zeros(10000, 10000)

        def f() -> Any:
            x[:] = T.exp(x)
            return x.zero_()

        return f

    def add() -> Work:
        x, y = big(), big()
        return lambda: y + x

    def add_() -> Work:
        x, y = T.zeros(10000, 10000), big()

        def f() -> Any:
            nonlocal y
            y += x
            return y

        return f

    def add_out() -> Work:
        x, y = T.zeros(10000, 10000), big()
        return lambda: T.add(x, y, out=y)

    def mask_select() -> Work:
        x = big()
        mask = x > 1
        return lambda: x[mask]

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + T.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))

    def gelu_train() -> Work:
        x = T.randn(5000, 10000).requires_grad_()

        def step() -> Any:
            x.grad = None
            gelu(x).sum().backward()
            return x.grad

        return step

    def mm() -> Work:
        x = T.randn(3000, 3000)
        return lambda: x.mm(x)

    def mm_loop() -> Work:
        def f() -> Any:
            z = None
            for _ in range(1000):
                x = T.rand(100, 100)
                z = x.mm(x).sum()
            return z

        return f

    return {
        "relu": on(F.relu), "relu_": on(F.relu_), "exp": on(T.exp), "exp_slice": exp_slice,
        "add": add, "add_": add_, "add_out": add_out, "clone": on(lambda x: x.clone()),
        "transpose_contiguous": on(lambda x: x.t().contiguous()), "mask_select": mask_select,
        "total": on(lambda x: x.sum()), "gelu_fwd": on(gelu), "gelu_train": gelu_train, "mm": mm,
        "mm_loop": mm_loop,
    }  # fmt: skip


def small(T: Any) -> dict[str, tuple[Work, int]]:
    """Small ops, by name: the call, and how many of them one loop makes."""
    a, b, g = T.randn(10), T.randn(10), T.randn(10).requires_grad_()
    x = T.arange(40).reshape(2, 4, 5)

    def backward() -> None:
        (g * b).sum().backward()
        g.grad = None

    return {
        "us_add": (lambda: a + b, 20000), "us_add_": (lambda: a.add_(0.0), 20000),
        "us_add_grad": (lambda: g + b, 20000), "us_slice": (lambda: x[:, 0:2, 2:4], 20000),
        "us_transpose": (lambda: x.transpose(0, 1), 20000),
        "us_reshape": (lambda: x.view(8, 5), 20000), "us_backward": (backward, 5000),
        "us_item": (lambda: b[3].item(), 20000), "us_detach": (lambda: g.detach(), 20000),
    }  # fmt: skip


# -- one engine, here -----------------------------------------------------------------------------


def run_here(engine: str, pick: re.Pattern[str]) -> None:
    T = importlib.import_module(engine)
    importlib.import_module(f"{engine}.nn.functional")
    for name, (f, n) in small(T).items():
        if pick.search(name):
            tell(name, lambda f=f, n=n: {"seconds": median_small(f, n)})
    for name, make in large(T).items():
        if pick.search(name):
            tell(name, lambda make=make: measured(make))
            gc.collect()


def measured(make: Callable[[], Work]) -> dict[str, float]:
    f = make()
    gc.collect()
    peak_reset()
    before = status("VmRSS")
    seconds = median_call(f)
    return {"seconds": seconds, "extra_mib": round((status("VmHWM") - before) / 2**20, 1)}


def tell(name: str, measure: Callable[[], dict[str, float]]) -> None:
    try:
        found: dict[str, Any] = measure()
    except Exception as e:  # one workload that an engine can't do does not end the others
        found = {"error": f"{type(e).__name__}: {e}"[:200]}
    print(json.dumps({"name": name, **found}), flush=True)


# -- engines in turn ------------------------------------------------------------------------------


def run_apart(engine: str, name: str) -> dict[str, Any]:
    """One workload in a fresh process."""
    module, _, switch = engine.partition("+")
    extra = {"THP_MEM_ALLOC_ENABLE": "1"} if switch == "thp" else {}
    command = [sys.executable, __file__, module, f"^{re.escape(name)}$"]
    done = subprocess.run(
        command, env={**os.environ, **extra}, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {"name": name, "error": done.stderr.strip()[-200:]}


def compare(engines: list[str], pick: re.Pattern[str]) -> None:
    """A table of medians over alternating rounds, and the ratio of the first engine to each other
    one.
    """
    names = [n for n in names_of_all() if pick.search(n)]
    print(
        f"{'workload':22}"
        + "".join(f"{e:>24}" for e in engines)
        + "".join(f"{'/ ' + e:>12}" for e in engines[1:])
    )
    for name in names:
        rows: dict[str, list[dict[str, Any]]] = {e: [] for e in engines}
        for _ in range(ROUNDS):
            for e in engines:
                rows[e].append(run_apart(e, name))
        print(row_of(name, engines, rows), flush=True)


def row_of(name: str, engines: list[str], rows: dict[str, list[dict[str, Any]]]) -> str:
    text = f"{name:22}"
    for e in engines:
        good = [r for r in rows[e] if "seconds" in r]
        if not good:
            text += f"{'error':>24}"
            continue
        seconds = statistics.median(r["seconds"] for r in good)
        size = f"{seconds * 1e6:.2f} us" if name.startswith("us_") else f"{seconds * 1e3:.1f} ms"
        mib = f"{max(r['extra_mib'] for r in good):.0f} MiB" if "extra_mib" in good[0] else ""
        text += f"{size:>13}{mib:>11}"
    for e in engines[1:]:
        pairs = zip(rows[engines[0]], rows[e], strict=True)
        ratios = [
            a["seconds"] / b["seconds"] for a, b in pairs if "seconds" in a and "seconds" in b
        ]
        text += f"{statistics.median(ratios):>12.2f}" if ratios else f"{'-':>12}"
    return text


def names_of_all() -> list[str]:
    import torch

    return [*small(torch), *large(torch)]


def main(argv: list[str]) -> int:
    if len(argv) not in (2, 3):
        print(__doc__)
        return 2
    pick = re.compile(argv[2] if len(argv) > 2 else ".")
    engines = argv[1].split(",")
    if len(engines) == 1 and "+" not in engines[0]:
        run_here(engines[0], pick)
    else:
        compare(engines, pick)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
