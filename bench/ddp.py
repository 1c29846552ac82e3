"""One rank of the row of `DistributedDataParallel` in `python -m bench.distributed`: steps of the
bench's GPT in turns, alone on each rank and averaging gradients over all.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # whichever library runs this
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.workloads import WORDS, gpt_net

WIDTH, LENGTH, BATCH = 256, 256, 16
KINDS: dict[str, Callable[[Any], Any]] = {"alone": lambda net: net, "ddp": DistributedDataParallel}


class Steps:
    """Training steps of one GPT."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        torch.manual_seed(0)
        self.net = gpt_net(torch, WIDTH, LENGTH)
        self.call = wrap(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.ids, self.target = (torch.randint(0, WORDS, (BATCH, LENGTH)) for _ in range(2))

    def step(self) -> None:
        """One."""
        self.optimizer.zero_grad()
        logits = self.call(self.ids).view(-1, WORDS)
        torch.nn.functional.cross_entropy(logits, self.target.view(-1)).backward()
        self.optimizer.step()

    def timed(self) -> tuple[float, float]:
        """Seconds until the last rank has done a step, and of computing, the ranks' mean."""
        dist.barrier()
        busy, begin = time.process_time(), time.perf_counter()
        self.step()
        end, busy = time.perf_counter() - begin, time.process_time() - busy
        every = [torch.zeros(2, dtype=torch.float64) for _ in range(dist.get_world_size())]
        dist.all_gather(every, torch.tensor([end, busy], dtype=torch.float64))
        return max(t[0].item() for t in every), statistics.fmean(t[1].item() for t in every)

    def peak(self) -> tuple[int, int]:
        """Bytes at the peak of a step beyond those before it, and of the gradients; PyTorch counts
        none on a CPU.
        """
        self.optimizer.zero_grad()
        before = torch.cuda.memory_allocated()
        if before:
            torch.cuda.reset_peak_memory_stats()
        self.step()
        gradients = sum(p.grad.nbytes for p in self.net.parameters())
        return torch.cuda.max_memory_allocated() - before, gradients


def rank_main(target: str, turns: int) -> None:
    """One rank: quartiles of seconds and of computing time per step, and bytes, by kind."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {name: _measured(*both) for name, both in _turns(turns).items()}
    if dist.get_rank() == 0:
        Path(target).write_text(json.dumps(found))


def _turns(turns: int) -> dict[str, tuple[Steps, list[tuple[float, float]]]]:
    """The steps of both kinds, one after another, in turns backwards."""
    made: dict[str, tuple[Steps, list[tuple[float, float]]]] = {
        name: (Steps(wrap), []) for name, wrap in KINDS.items()
    }
    for steps, _ in made.values():
        steps.step()
    for turn in range(turns):
        for steps, times in list(made.values())[:: 1 if turn % 2 else -1]:
            times.append(steps.timed())
    return made


def _measured(steps: Steps, times: list[tuple[float, float]]) -> dict[str, float]:
    wall, busy = ([t[i] for t in times] for i in range(2))
    peak, gradients = steps.peak()
    return {
        "seconds": statistics.quantiles(wall, n=4)[0],
        "computing": statistics.quantiles(busy, n=4)[0],
        "peak": peak,
        "gradients": gradients,
    }


if __name__ == "__main__":
    rank_main(sys.argv[1], int(sys.argv[2]))
