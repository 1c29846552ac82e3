"""Training with parameters, gradients and state held once over the ranks."""

import json
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
target, folder, what = sys.argv[1:]
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
found = {"n": n}
D, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self, d=D):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.last = nn.Linear(D, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def losses(model, optimizer, steps=4, parts=n, clip=None, accumulate=None):
    data = torch.Generator().manual_seed(5)
    said = []
    for _ in range(steps):
        x, y = torch.randn(8, D, generator=data), torch.randn(8, 5, generator=data)
        if parts > 1:
            x, y = x.chunk(parts)[r], y.chunk(parts)[r]
        optimizer.zero_grad()
        if accumulate is not None:
            accumulate(False)
            ((model(x) - y) ** 2).mean().backward()
            accumulate(True)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().float()
        if parts > 1:
            dist.all_reduce(mean)
        said.append(mean.item() / parts)
    return said


PLAIN = MixedPrecisionPolicy()


def sharded(inner=PLAIN, outer=PLAIN):
    net = Net()
    for block in net.blocks:
        fully_shard(block, mp_policy=inner)
    return fully_shard(net, mp_policy=outer)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def full(model):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {key: round(value.double().sum().item(), 3) for key, value in state.items()}


class App(Stateful):
    """A module and its optimizer, as PyTorch's recipe of checkpoints has them."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )


def moments(optimizer):
    """What the optimizer knows of all parameters."""
    parts = sum(s["exp_avg"].double().sum() for s in optimizer.state.values()).clone()
    dist.all_reduce(parts)
    return round(parts.item(), 4)


def joined(optimizer, shards):
    """Parameters after steps of which the second rank has three more."""
    ddp = DistributedDataParallel(Net())
    made = optimizer(ddp.parameters())
    with Join([ddp, made] if shards else [ddp]):
        for step in range(2 + 3 * r):
            made.zero_grad()
            ddp(torch.ones(8, D) * step + r).pow(2).mean().backward()
            made.step()
    return [p.double().sum().item() for p in ddp.parameters()]


if what == "all":
    found["joined alone"] = joined(torch.optim.Adam, False)
    found["joined"] = joined(lambda p: ZeroRedundancyOptimizer(p, torch.optim.Adam), True)
    if r == 0:
        alone = Net()
        found["alone"] = losses(alone, adam(alone), parts=1)
        found["alone state"] = full(alone)
    model = sharded()
    optimizer = adam(model)
    found["fully_shard"] = losses(model, optimizer)
    found["state"] = full(model)
    weight = dict(model.named_parameters())["blocks.0.up.weight"]
    found["part"] = [
        list(weight.to_local().shape),
        list(weight.full_tensor().shape),
        str(weight.placements),
    ]
    dcp.save({"app": App(model, optimizer), "step": 4}, checkpoint_id=folder)
    found["moments"] = moments(optimizer)

    model = sharded()
    sync = model.set_requires_gradient_sync
    found["accumulated"] = losses(model, adam(model), accumulate=sync)
    if r == 0:
        twice = Net()
        found["alone accumulated"] = losses(twice, adam(twice), parts=1, accumulate=lambda _: None)

    model = FullyShardedDataParallel(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
    found["wrapper"] = losses(model, adam(model))
    found["strategy"] = model.sharding_strategy.name
    copies = FullyShardedDataParallel(
        Net(),
        device_mesh=init_device_mesh("cpu", (n, 1), mesh_dim_names=("same", "parts")),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    )
    found["copies"] = losses(copies, adam(copies))
    whole = model.state_dict()
    found["wrapper state"] = {k: round(v.double().sum().item(), 3) for k, v in whole.items()}
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        found["rows"] = model.state_dict()["blocks.0.up.weight"].to_local().shape[0]
    again = FullyShardedDataParallel(Net())
    again.load_state_dict(whole)
    with FullyShardedDataParallel.summon_full_params(again):
        found["summoned"] = list(again.module.blocks[0].up.weight.shape)
    found["loaded"] = {k: round(v.double().sum().item(), 3) for k, v in again.state_dict().items()}

    with torch.device("meta"):
        empty = Net()
    fully_shard(empty)
    empty.to_empty(device="cpu")
    found["from meta"] = list(empty.last.weight.to_local().shape)

    model, alone = sharded(), Net()
    for each in (model, alone):
        each(torch.ones(2, D)).sum().backward()
    norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.5).item() for each in (model, alone)]
    found["norms"] = [*norms, nn.utils.clip_grad_norm_(model.parameters(), 9.0).item()]

    mesh = dist.init_device_mesh("cpu", (1, n), mesh_dim_names=("outer", "inner"))
    line = torch.ones(1)
    dist.all_reduce(line, group=mesh.get_group("inner"))
    names = [mesh.get_local_rank("inner"), mesh["inner"].size(), mesh.get_coordinate()]
    found["mesh"] = [list(mesh.shape), *names, line.item()]

    half = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    outer = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    mixed = sharded(half, outer)
    found["mixed"] = losses(mixed, adam(mixed))

    wrapped = Net()
    apply_activation_checkpointing(wrapped, check_fn=lambda m: isinstance(m, Block))
    wrapped = FullyShardedDataParallel(wrapped, auto_wrap_policy=ModuleWrapPolicy({Block}))
    found["checkpointed"] = losses(wrapped, adam(wrapped))

    scaler, stepped = ShardedGradScaler("cpu"), adam(model)
    scaler.scale(model(torch.ones(2, D)).sum()).backward()
    if r == 1:
        next(model.parameters()).grad[0] = float("inf")
    scaler.step(stepped)
    scaler.update()
    found["scaled"] = [len(stepped.state), scaler.get_scale()]
    model.zero_grad()

    net = DistributedDataParallel(Net())
    zero = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
    found["zero"] = losses(net, zero)
    found["zero states"] = sum(
        v.numel() for s in zero.optim.state.values() for v in s.values() if v.dim()
    )
    zero.consolidate_state_dict(0)
    if r == 0:
        found["zero whole"] = len(zero.state_dict()["state"])
elif what == "load":
    model = sharded()
    optimizer = adam(model)
    state = {"app": App(model, optimizer), "step": 0}
    dcp.load(state, checkpoint_id=folder)
    found["moments"] = moments(optimizer)
    found["state"], found["step"] = full(model), state["step"]

with open(f"{target}.{r}", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
