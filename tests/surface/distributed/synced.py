"""What PyTorch has not on a CPU, or hangs on: SyncBatchNorm, DDP's bytes, other models per rank."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

target = sys.argv[1]
dist.init_process_group("mpi")
r, n = dist.get_rank(), dist.get_world_size()
found = {"read where they lie": dist.group.WORLD.processes is not None}

whole = torch.arange(96.0).view(8, 3, 4).sin() * 3
x = whole.chunk(n)[r].clone().requires_grad_()
norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
y = norm(x)
(y * torch.arange(96.0).view(8, 3, 4).chunk(n)[r]).sum().backward()
found["y"], found["x"] = y.tolist(), x.grad.tolist()
found["running"] = [norm[0].running_mean.tolist(), norm[0].running_var.tolist()]
norm.eval()
found["eval"] = norm(whole).sum().item()
found["kind"] = type(norm[0]).__name__

try:
    DistributedDataParallel(nn.Linear(2 + r, 1))
except RuntimeError as error:
    found["error"] = str(error)


def peak(wrap):
    """Bytes at the peak of two steps and after the second, beyond the parameters'."""
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(300, 300), nn.ReLU()) for _ in range(8)])
    model = wrap(net)
    x = torch.ones(16, 300)
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        model.zero_grad()
        model(x).sum().backward()
    gradients = sum(p.grad.nbytes for p in net.parameters())
    return [
        torch.cuda.max_memory_allocated() - start,
        torch.cuda.memory_allocated() - start,
        gradients,
    ]


found["alone"] = peak(lambda net: net)
found["ddp"] = peak(lambda net: DistributedDataParallel(net, bucket_cap_mb=0.5))
with open(f"{target}.{r}", "w") as file:
    json.dump(found, file)
