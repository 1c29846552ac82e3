"""torch.distributed between processes of one host, against PyTorch's gloo.

`python -m bench.distributed`, two to three minutes: each size of each collective in turns, skimp
and gloo alternating, each in fresh processes; the figure is the smallest median of the turns. The
table is kept, and stands in the performance page (`--print`: only printed).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import page
from bench.engines import ROOT
from bench.machine import commit
from bench.results import FOLDER, load as load_results, newest

RANK = Path(__file__).with_name("rank.py")
SIZES = (1 << 10, 100 << 10, 1 << 20, 100 << 20)
GOALS = ((100 << 10, 0.2), (1 << 40, 2 / 3))  # up to so many bytes, of gloo's time
KEPT = FOLDER / "ranks" / "distributed.json"
HEAD = (
    "| collective | ranks | bytes | skimp | gloo | skimp / gloo | goal |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
)
OPS = ("all_reduce", "broadcast", "all_gather_single", "reduce_scatter_single")


def run(library: str, n: int, sizes: tuple[int, ...], ops: tuple[str, ...]) -> dict[str, float]:
    """The times of one library's ranks."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/found"
        words = [str(RANK), target, json.dumps(sizes), json.dumps(ops)]
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
        goal = next(share for most, share in GOALS if int(size) <= most)
        met = "met" if ours <= goal * theirs else "**no**"
        rows.append(
            f"| `{name}` | {n} | {int(size) >> 10} KiB | {ours:.0f} us | {theirs:.0f} us | "
            f"{ours / theirs:.2f} | {goal:.2f}: {met} |"
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ops", nargs="+", default=list(OPS))
    parser.add_argument("--print", action="store_true", help="print the table only")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = []
    for n in options.ranks:
        rows += table(n, options.turns, tuple(options.sizes), tuple(options.ops))
    told = [HEAD, *rows]
    print("\n".join(told))
    if not options.print:
        found = {"commit": commit()[0], "load": round(load, 2), "table": "\n".join(told)}
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
        newer = newest()
        page.write(load_results(newer), ROOT, newer)


if __name__ == "__main__":
    main()
