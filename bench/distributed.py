"""torch.distributed between processes of one host, against PyTorch's gloo.

`python -m bench.distributed`: each size of each collective in turns, skimp and gloo alternating,
each in fresh processes; the figure is the smallest median of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (1 << 10, 100 << 10, 1 << 20, 100 << 20)
OPS = ("all_reduce", "broadcast", "all_gather_single", "reduce_scatter_single")


def rank_main(target: str, sizes: str, ops: str) -> None:
    """One rank: the median time of each collective, in microseconds."""
    import torch  # whichever library runs this
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    found = {}
    for size in json.loads(sizes):
        k = max(n, size // 4 // n * n)
        x, part = torch.ones(k), torch.ones(k // n)
        calls: dict[str, Any] = {
            "all_reduce": lambda x=x: dist.all_reduce(x),
            "broadcast": lambda x=x: dist.broadcast(x, 0),
            "all_gather_single": lambda x=x, part=part: dist.all_gather_single(x, part),
            "reduce_scatter_single": lambda x=x, part=part: dist.reduce_scatter_single(part, x),
        }
        for name in json.loads(ops):
            call, times = calls[name], []
            for _ in range(3):
                call()
            rounds = 2000 if size < 1 << 20 else 5 if size > 1 << 24 else 40
            for _ in range(rounds):
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            dist.barrier()
            found[f"{name} {size}"] = statistics.median(times) * 1e6
    if dist.get_rank() == 0:
        Path(target).write_text(json.dumps(found))


def run(library: str, n: int, sizes: tuple[int, ...], ops: tuple[str, ...]) -> dict[str, float]:
    """The times of one library's ranks."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/found"
        words = [__file__, "--rank", target, json.dumps(sizes), json.dumps(ops)]
        if library == "skimp":
            command = [sys.executable, "-m", "skimp", "launch", "-n", str(n), *words]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        else:
            _gloo(n, words)
        found: dict[str, float] = json.loads(Path(target).read_text())
        return found


def _gloo(n: int, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(n)}
    common["OMP_NUM_THREADS"] = "1"
    processes = [
        subprocess.Popen([sys.executable, *words], env={**common, "RANK": str(r)}, stderr=-3)
        for r in range(n)
    ]
    if any([p.wait() for p in processes]):
        raise RuntimeError("gloo's ranks failed")


def table(n: int, turns: int, sizes: tuple[int, ...], ops: tuple[str, ...]) -> list[str]:
    """Rows of a table: skimp's time, gloo's, and the ratio."""
    best: dict[str, dict[str, float]] = {"skimp": {}, "gloo": {}}
    for _ in range(turns):
        for library, known in best.items():
            for key, value in run(library, n, sizes, ops).items():
                known[key] = min(value, known.get(key, value))
    rows = []
    for key, ours in best["skimp"].items():
        theirs = best["gloo"][key]
        name, size = key.split()
        rows.append(
            f"| `{name}` | {n} | {int(size) >> 10} KiB | {ours:.0f} us | {theirs:.0f} us | "
            f"{ours / theirs:.2f} |"
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ops", nargs="+", default=list(OPS))
    options = parser.parse_args()
    if options.rank:
        rank_main(*options.rank)
        return
    print("| collective | ranks | bytes | skimp | gloo | skimp / gloo |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for n in options.ranks:
        for row in table(n, options.turns, tuple(options.sizes), tuple(options.ops)):
            print(row)


if __name__ == "__main__":
    main()
