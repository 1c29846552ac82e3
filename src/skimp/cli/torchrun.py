"""`skimp torchrun`: the command line of PyTorch's torchrun."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from skimp.cli import launch

USAGE = "skimp torchrun [options] script.py [args ...]"


def add_to(commands: Any) -> None:
    """Declare the command and its options, torchrun's."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "torchrun",
        usage=USAGE,
        help="run a program on many ranks, with torchrun's options",
        description="Run a program on many ranks. Options are torchrun's; on one host mpiexec "
        "starts them, on several (--nnodes) each host's ranks start themselves and meet at "
        "--master-addr. Nothing is elastic: --max-restarts starts all ranks of a host again.",
        allow_abbrev=False,
    )
    number = {"type": int, "metavar": "N"}
    for names, words in _OPTIONS:
        given: dict[str, Any] = number if words is int else {}
        spelled = [s for n in names for s in dict.fromkeys((n, n[:2] + n[2:].replace("-", "_")))]
        if words is bool:
            given = {"action": "store_true"}
        parser.add_argument(*spelled, **given)
    parser.add_argument("program", help="the script, or the module's name with -m")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own")


_OPTIONS: tuple[tuple[tuple[str, ...], type], ...] = (
    (("--nnodes",), str),
    (("--nproc-per-node",), str),
    (("--node-rank",), int),
    (("--master-addr",), str),
    (("--master-port",), int),
    (("--max-restarts",), int),
    (("--standalone",), bool),
    (("--rdzv-backend",), str),
    (("--rdzv-endpoint",), str),
    (("--rdzv-id",), str),
    (("--rdzv-conf",), str),
    (("--monitor-interval",), str),
    (("--start-method",), str),
    (("--role",), str),
    (("-m", "--module"), bool),
    (("--no-python",), bool),
    (("--run-path",), bool),
    (("--log-dir",), str),
    (("-r", "--redirects"), str),
    (("-t", "--tee"), str),
    (("--local-addr",), str),
)


def main(options: argparse.Namespace, words: Sequence[str] = ()) -> int:
    """Run the program on all ranks; the exit code."""
    nodes = int(str(options.nnodes or 1).partition(":")[0])
    each = _per_node(options.nproc_per_node)
    command = _command(options)
    run = {
        "TORCHELASTIC_RUN_ID": options.rdzv_id or uuid.uuid4().hex,
        "GROUP_WORLD_SIZE": str(nodes),
    }
    for left in range(options.max_restarts or 0, -1, -1):
        if nodes == 1:
            code = launch.under_mpiexec(command, each, None, bool(options.tee), **run)
        else:
            code = launch.by_themselves(command, _environments(options, nodes, each, run))
        if code in (0, launch.INTERRUPTED) or not left:
            return code
        print(f"skimp torchrun: exit code {code}; {left} restarts left", file=sys.stderr)
    return 0


def _per_node(text: str | None) -> int:
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    if text == "gpu":
        raise ValueError("Cuda is not available.")
    return int(text or 1)


def _command(options: argparse.Namespace) -> list[str]:
    if options.no_python:
        return [options.program, *options.args]
    words = [sys.executable, "-m", "skimp", "run", "--quiet"]
    return [*words, *(["-m"] if options.module else []), options.program, *options.args]


def _environments(
    options: argparse.Namespace, nodes: int, each: int, run: dict[str, str]
) -> list[dict[str, str]]:
    """The variables of this host's ranks, which start themselves."""
    host, _, port = (options.rdzv_endpoint or "").partition(":")
    node = options.node_rank or 0
    common = {
        **run,
        "MASTER_ADDR": options.master_addr or host or "127.0.0.1",
        "MASTER_PORT": str(options.master_port or port or 29500),
        "LOCAL_WORLD_SIZE": str(each),
        "GROUP_RANK": str(node),
    }
    found = []
    for local in range(each):
        made = launch.environment(nodes * each, **common)
        made.update(RANK=str(node * each + local), LOCAL_RANK=str(local))
        del made["TORCHELASTIC_USE_AGENT_STORE"]  # rank 0 has the store
        found.append(made)
    return found
