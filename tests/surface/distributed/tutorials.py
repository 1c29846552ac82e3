"""What PyTorch's tutorials of many processes teach, each as a short training that starts its own
ranks: the losses of each rank.
"""

import functools
import json
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

warnings.simplefilter("ignore")


class Digits(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 8, 5)
        self.fc1, self.fc2 = nn.Linear(128, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return F.log_softmax(self.fc2(F.dropout(F.relu(self.fc1(x)), training=self.training)), 1)


def toy():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 5)
    )


def batches(steps, rank):
    torch.manual_seed(100 + rank)
    return [(torch.randn(20, 10), torch.randn(20, 5)) for _ in range(steps)]


def trained(model, optimizer, rank, steps=5):
    losses = []
    for x, y in batches(steps, rank):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def averaged_by_hand(rank, size):
    """Synchronous SGD: each gradient summed and divided by the program."""
    torch.manual_seed(1234)
    model = Digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    x, y = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    losses = []
    for step in range(4):
        mine = slice((step * size + rank) * 8 % 64, (step * size + rank) * 8 % 64 + 8)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x[mine]), y[mine])
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
            p.grad.data /= size
        optimizer.step()
        losses.append(loss.item())
    return losses


def ring(rank, size):
    """An all-reduce of sends and receives."""
    given = torch.arange(4.0) * (rank + 0.1)
    total, sent, got = given.clone(), given.clone(), torch.zeros(4)
    for _ in range(size - 1):
        work = dist.isend(sent, (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        work.wait()
        total += got
        sent = got.clone()
    return total.tolist()


def data_parallel(rank, size):
    """DDP with a sampler, a checkpoint that rank 0 writes and all read."""
    model = DistributedDataParallel(toy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(48, 10), torch.randn(48, 5))
    sampler = DistributedSampler(data)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    path = os.path.join(os.environ["FOLDER"], "model.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location={"cpu:0": "cpu"}, weights_only=True))
    return losses + trained(model, optimizer, rank)


def hooked(rank, size):
    """A communication hook that sends float16."""
    model = DistributedDataParallel(toy())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return trained(model, torch.optim.Adam(model.parameters(), lr=1e-2), rank)


def uneven(rank, size):
    """Ranks with other numbers of inputs."""
    model = DistributedDataParallel(toy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Join([model]):
        return trained(model, optimizer, rank, 4 + rank)


def sharded_optimizer(rank, size):
    """ZeRO's first stage."""
    model = DistributedDataParallel(toy())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    return trained(model, optimizer, rank)


def fully_sharded(rank, size):
    """FSDP2, layer by layer, with clipped gradients."""
    model = toy()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for x, y in batches(5, rank):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def half(rank, size):
    """FSDP2 that computes in bfloat16 and reduces in float32."""
    model, policy = toy(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)), mp_policy=policy)
    return [round(v, 2) for v in trained(model, torch.optim.SGD(model.parameters(), 0.05), rank)]


def wrapped(rank, size):
    """FSDP1 with a policy of sizes."""
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=300)
    model = FullyShardedDataParallel(
        toy(), auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
    )
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), rank)


def restore(model, optimizer, folder):
    """Read a checkpoint of both into the parts that this rank has."""
    ours, its = get_state_dict(model, optimizer)
    state = {"model": ours, "optimizer": its}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )


def saved_and_loaded(rank, size):
    """A checkpoint of parts, read into another model and optimizer."""
    folder = os.path.join(os.environ["FOLDER"], "parts")
    mesh, losses = init_device_mesh("cpu", (size,)), []
    for turn in range(2):
        model = toy()
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if turn:
            restore(model, optimizer, folder)
        losses += trained(model, optimizer, rank)
        if not turn:
            ours, its = get_state_dict(model, optimizer)
            dcp.save({"model": ours, "optimizer": its}, checkpoint_id=folder)
    return losses


def hybrid(rank, size):
    """Parts over one dim of a mesh and the same along the other, in both APIs; a checkpoint of it
    that is read into parts over all ranks.
    """
    folder = os.path.join(os.environ["FOLDER"], "hybrid")
    mesh, losses = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("same", "parts")), []
    if size > 2:  # of parts that one rank has, PyTorch makes NO_SHARD, which averages nothing
        wrapper = FullyShardedDataParallel(
            toy(),
            device_mesh=mesh,
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        losses += trained(wrapper, torch.optim.SGD(wrapper.parameters(), lr=0.05), rank)
    for turn, over in enumerate([mesh, init_device_mesh("cpu", (size,))]):
        model = toy()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=over)
        fully_shard(model, mesh=over)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if turn:
            restore(model, optimizer, folder)
        losses += trained(model, optimizer, rank)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        losses.append(getattr(norm, "full_tensor", lambda n=norm: n)().item())
        ours, its = get_state_dict(model, optimizer)
        held = [its["state"][name]["exp_avg"].to_local().numel() for name in its["state"]]
        losses += [len(ours["0.weight"].placements), *held]
        if not turn:
            dcp.save({"model": ours, "optimizer": its}, checkpoint_id=folder)
    return losses


ALL = [
    averaged_by_hand, ring, data_parallel, hooked, uneven, sharded_optimizer, fully_sharded, half,
    wrapped, saved_and_loaded, hybrid,
]  # fmt: skip


def work(rank, size, target, meeting):
    os.makedirs(target, exist_ok=True)
    os.environ["FOLDER"] = target
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    found = {}
    for f in ALL:
        found[f.__name__] = f(rank, size)
        dist.barrier()
    with open(os.path.join(target, f"found.{rank}"), "w") as file:
        json.dump(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    method, target, *sizes = sys.argv[1:]
    # forked ranks need not import PyTorch again, which takes longer than what they do
    start = (
        mp.spawn
        if method == "spawn"
        else functools.partial(mp.start_processes, start_method="fork")
    )
    for size in map(int, sizes):
        with tempfile.TemporaryDirectory() as folder:
            where = os.path.join(target, str(size))
            start(work, args=(size, where, os.path.join(folder, "meeting")), nprocs=size)
