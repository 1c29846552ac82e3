"""Three training steps of equal layers; each rank writes its bytes at the peak and after."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

target, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("mpi")
start = torch.cuda.memory_allocated()
net = nn.Sequential()
for _ in range(layers):  # each is whole only while it is made
    net.append(fully_shard(nn.Linear(width, width, bias=False)))
fully_shard(net)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
x = torch.ones(2, width)
losses = []
for step in range(3):
    if step == 1:
        torch.cuda.reset_peak_memory_stats()
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
del loss
found = {
    "peak": torch.cuda.max_memory_allocated() - start,
    "after": torch.cuda.memory_allocated() - start,
    "losses": losses,
}
with open(f"{target}.{dist.get_rank()}", "w") as file:
    json.dump(found, file)
