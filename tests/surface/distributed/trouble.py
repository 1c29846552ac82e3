"""Ranks of which the last does what the first argument says, while the others wait for it."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

how = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
r, last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
x = torch.full((3,), 1.0 + r)
dist.all_reduce(x)
print("sum", x.tolist(), os.environ["LOCAL_RANK"], flush=True)
if last and how == "raise":
    raise ValueError("boom")
if last and how == "exit":
    sys.exit(3)
if last and how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if last and how == "late":
    time.sleep(5.5)
if how == "sleep":
    time.sleep(60)
if last and how == "other":
    dist.broadcast(x, 0)
dist.all_reduce(x)
