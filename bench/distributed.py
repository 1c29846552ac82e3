"""torch.distributed between processes of one host, against PyTorch's gloo.

`python -m bench.distributed collectives`, two to three minutes: each size of each collective in
turns, skimp and gloo alternating, each in fresh processes; the figure is the smallest median of the
turns. `python -m bench.distributed ddp`, one to two minutes: steps of the bench's GPT, alone on
each of two ranks and with DistributedDataParallel. Without a word both. The tables are kept, and
stand in the performance page (`--print`: only printed).
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
from typing import Any

from bench import page
from bench.engines import ROOT
from bench.machine import commit
from bench.results import FOLDER, load as load_results, newest

MIB = 1 << 20
RANK, DDP = (Path(__file__).with_name(name) for name in ("rank.py", "ddp.py"))
SIZES = (1 << 10, 100 << 10, 1 << 20, 100 << 20)
GOALS = ((100 << 10, 0.2), (1 << 40, 2 / 3))  # up to so many bytes, of gloo's time
KEPT = FOLDER / "ranks" / "distributed.json"
HEAD = (
    "| collective | ranks | bytes | skimp | gloo | skimp / gloo | goal |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
)
DDP_HEAD = "| | alone | with DDP | beyond | goal |\n| --- | ---: | ---: | ---: | ---: |"
BEYOND, OF_GRADIENTS = 0.05, 0.01  # DDP's goals: time, of a step alone; memory, of the gradients
OPS = ("all_reduce", "broadcast", "all_gather_single", "reduce_scatter_single")


def run(library: str, n: int, program: Path, *given: str) -> dict[str, Any]:
    """What rank 0 of one library's ranks has found."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/found"
        words = [str(program), target, *given]
        if library == "skimp":
            command = [sys.executable, "-m", "skimp", "launch", "-n", str(n), *words]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        else:
            _gloo(n, words)
        found: dict[str, Any] = json.loads(Path(target).read_text())
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
    given = json.dumps(sizes), json.dumps(ops)
    for _ in range(turns):
        for library, known in best.items():
            for key, value in run(library, n, RANK, *given).items():
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


def ddp_table(turns: int) -> list[str]:
    """Rows of what DDP adds to a step of two ranks: time for each library, memory for skimp."""
    rows = []
    for library in ("skimp", "gloo"):
        found = run(library, 2, DDP, str(turns))
        alone, ddp = found["alone"], found["ddp"]
        for key, what in (("seconds", "time of a step"), ("computing", "computing time of a rank")):
            share = ddp[key] / alone[key] - 1
            goal = _verdict(BEYOND, share) if (library, key) == ("skimp", "seconds") else ""
            rows.append(
                f"| {library}, {what} | {alone[key] * 1e3:.0f} ms | {ddp[key] * 1e3:.0f} ms | "
                f"{share:+.1%} | {goal} |"
            )
        if library == "skimp":
            more = ddp["peak"] - alone["peak"]
            rows.append(
                f"| skimp, bytes of a rank at the peak | {alone['peak'] / MIB:.2f} MiB | "
                f"{ddp['peak'] / MIB:.2f} MiB | {more / ddp['gradients']:+.2%} of the gradients | "
                f"{_verdict(OF_GRADIENTS, more / ddp['gradients'])} |"
            )
    return rows


def _verdict(goal: float, found: float) -> str:
    return f"{goal:.0%}: {'met' if found < goal else '**no**'}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], help="which tables; all if none")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--ops", nargs="+", default=list(OPS))
    parser.add_argument("--steps", type=int, default=30, help="of each kind, with DDP and alone")
    parser.add_argument("--print", action="store_true", help="print the table only")
    options = parser.parse_args()
    for name in options.what or list(WHAT):
        load = os.getloadavg()[0]
        told = "\n".join(WHAT[name](options))
        print(told)
        if not options.print:
            _keep(name, {"commit": commit()[0], "load": round(load, 2), "table": told})


def _collectives(options: argparse.Namespace) -> list[str]:
    sizes, ops = tuple(options.sizes), tuple(options.ops)
    return [HEAD, *[row for n in options.ranks for row in table(n, options.turns, sizes, ops)]]


def _ddp(options: argparse.Namespace) -> list[str]:
    return [DDP_HEAD, *ddp_table(options.steps)]


WHAT = {"collectives": _collectives, "ddp": _ddp}


def _keep(name: str, found: dict[str, Any]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({**kept, name: found}, indent=1) + "\n")
    newer = newest()
    page.write(load_results(newer), ROOT, newer)


if __name__ == "__main__":
    main()
