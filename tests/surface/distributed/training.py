"""Data parallel training on many ranks in several ways: losses and gradients of each."""

import contextlib
import json
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as together
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

target = sys.argv[1]
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
found = {}


class Net(nn.Module):
    """Values are small integers, so that products and sums are exact on every library."""

    def __init__(self, buffers=False):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.spare = nn.Linear(3, 3)
        if buffers:
            self.register_buffer("steps", torch.zeros(1))
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_((torch.arange(p.numel()).view(p.shape) + i + 5 * r) % 5 - 2)

    def forward(self, x, spare=True):
        if hasattr(self, "steps"):
            self.steps += 1 + r
        y = self.second(torch.relu(self.first(x)))
        return self.spare(y) if spare else y


def batch(step):
    return ((torch.arange(8).view(2, 4) * (step + 1) + 3 * r) % 7 - 3).float()


def train(name, steps=4, spare=lambda step: True, hook=None, buffers=False, **options):
    net = Net(buffers)
    ddp = DistributedDataParallel(net, **options)
    if hook is not None:
        ddp.register_comm_hook(*hook)
    said = []
    for step in range(steps):
        if step != 2:  # once gradients are added to the ones before
            ddp.zero_grad(set_to_none=step % 2 == 0)
        alone = step == 1
        with ddp.no_sync() if alone else contextlib.nullcontext():
            loss = ddp(batch(step), spare(step)).sum()
            loss.backward()
        said.append(
            [loss.item(), *[None if p.grad is None else p.grad.tolist() for p in net.parameters()]]
        )
        with torch.no_grad():
            for p in net.parameters():
                if p.grad is not None and not alone:
                    p -= p.grad.sign()
    found[name] = [said, [b.tolist() for b in net.buffers()]]
    return ddp


train("plain")
train("small buckets", bucket_cap_mb=0.00002)
train("one bucket", bucket_cap_mb=100, gradient_as_bucket_view=True)
train("buffers", buffers=True)
train("own buffers", buffers=True, broadcast_buffers=False)
train("unused", spare=lambda step: step < 2 and r == 0, find_unused_parameters=True)
train("unused by all", spare=lambda step: False, find_unused_parameters=True)
train("static", static_graph=True)
train("all-reduce hook", hook=(None, default_hooks.allreduce_hook))
train("fp16 hook", hook=(None, default_hooks.fp16_compress_hook))
train("wrapped", hook=(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)))


def doubled(state, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda f: f.value()[0] * state)


train("own hook", hook=(2.0, doubled))

# PowerSGD of as many ranks as the matrices have is exact but for rounding
state = PowerSGDState(
    None, matrix_approximation_rank=6, start_powerSGD_iter=2, min_compression_rate=0.1
)
net = Net()
ddp = DistributedDataParallel(net)
ddp.register_comm_hook(state, powerSGD_hook)
for step in range(3):
    ddp.zero_grad()
    ddp(batch(step)).sum().backward()
found["powersgd"] = [round(v, 2) for p in net.parameters() for v in p.grad.view(-1).tolist()]

# what is wrong
net = DistributedDataParallel(Net())
net(batch(0), False).sum().backward()
try:
    net(batch(0), False)
except RuntimeError as error:
    found["unfinished"] = str(error)[:200]
for name, call in {
    "no parameters": lambda: DistributedDataParallel(nn.ReLU()),
    "device ids": lambda: DistributedDataParallel(Net(), device_ids=[0]),
}.items():
    try:
        call()
    except (RuntimeError, ValueError) as error:
        found[name] = [type(error).__name__, str(error)[:60]]

# other numbers of inputs
net = Net()
ddp = DistributedDataParallel(net)
with Join([ddp]):
    for step in range(2 + r):
        ddp.zero_grad()
        ddp(batch(step)).sum().backward()
found["join"] = [p.grad.tolist() for p in net.parameters()] if r == n - 1 else None
with ddp.join(divide_by_initial_world_size=False):
    for step in range(1 + r):
        ddp.zero_grad()
        ddp(batch(step)).sum().backward()
found["join, divided"] = [p.grad.tolist() for p in net.parameters()] if r == n - 1 else None
found["joined parameters"] = [p.tolist() for p in net.parameters()]

# samplers
data = TensorDataset(torch.arange(10))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
found["sampler"] = [t.tolist() for (t,) in loader]


# collectives with gradients
def gradient(f):
    x = (torch.arange(4.0) + r).requires_grad_()
    y = f(x)
    ys = list(y) if isinstance(y, (tuple, list)) else [y]
    sum((t * (i + 1 + r)).sum() for i, t in enumerate(ys)).backward()
    return [[t.tolist() for t in ys], x.grad.tolist()]


found["all_reduce"] = gradient(together.all_reduce)
found["broadcast"] = gradient(lambda x: together.broadcast(x, 1))
found["reduce"] = gradient(lambda x: together.reduce(x, 0))[1]
found["all_gather"] = gradient(together.all_gather)
found["gather"] = gradient(lambda x: together.gather(x, 0))[1]
found["scatter"] = gradient(lambda x: together.scatter(list(x.view(2, 2).unbind(0)), 0))
found["all_to_all"] = gradient(
    lambda x: together.all_to_all([torch.empty(2), torch.empty(2)], list(x.split(2)))
)
found["all_to_all_single"] = gradient(lambda x: together.all_to_all_single(torch.empty(4), x))

mesh = dist.init_device_mesh("cpu", (n,))
for name, call in {
    "sum": lambda x: functional.all_reduce(x, "sum", dist.group.WORLD),
    "gather": lambda x: functional.all_gather_single(x, 0, mesh),
    "columns": lambda x: functional.all_gather_single(x.view(2, 2), 1, (mesh, 0)),
    "scatter": lambda x: functional.reduce_scatter_single(x, "sum", 0, mesh),
    "exchange": lambda x: (
        functional.all_to_all_single(x, [1 + r] * 2, [1, 2], mesh)
        if len(x) == 3
        else functional.all_to_all_single(x, None, None, dist.group.WORLD)
    ),
}.items():
    found[f"functional {name}"] = gradient(call)
found["functional wait"] = functional.wait_tensor(  # whose gradient PyTorch leaves undefined
    functional.broadcast(torch.ones(4) + r, 1, dist.group.WORLD)
).tolist()
found["functional, several"] = [
    t.tolist() for t in functional.all_reduce_coalesced([torch.ones(2), torch.ones(1)], "max", mesh)
]
found["older"] = dist.reduce_op.SUM == dist.ReduceOp.SUM

with open(f"{target}.{r}", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
