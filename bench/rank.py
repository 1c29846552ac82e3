"""One rank of `python -m bench.distributed`: the median time of each size of each collective."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # whichever library runs this
import torch.distributed as dist

SECONDS = 0.3  # for each size of each collective


def rank_main(target: str, sizes: str, ops: str) -> None:
    """One rank: the median time of each collective, in microseconds."""
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
            for _ in range(_rounds(call)):
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            dist.barrier()
            found[f"{name} {size}"] = statistics.median(times) * 1e6
    if dist.get_rank() == 0:
        Path(target).write_text(json.dumps(found))


def _rounds(call: Callable[[], Any]) -> int:
    """As many as fit into the time, the same on all ranks."""
    call()
    begin = time.perf_counter()
    for _ in range(2):
        call()
    slowest = torch.tensor([time.perf_counter() - begin])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return min(max(int(SECONDS / (slowest.item() / 2)), 4), 2000)


if __name__ == "__main__":
    rank_main(*sys.argv[1:])
