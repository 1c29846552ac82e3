"""FullyShardedDataParallel: fully_shard as a wrapper, with policies that say which modules below
are units.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from skimp._engine.interrupts import insist, region
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.device_mesh import DeviceMesh, init_device_mesh
from skimp.distributed.fsdp.policies import (
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
)
from skimp.distributed.fsdp.units import FSDPModule, make_unit, whole
from skimp.distributed.groups import chosen, get_rank
from skimp.distributed.tensor.spec import attach, full_tensor, spec_of
from skimp.nn.modules.module import Module
from skimp.nn.parallel.distributed import from_rank
from skimp.nn.utils.clip_grad import clip_grad_norm_


class FullyShardedDataParallel(Module):
    """Calls `module`, whose parameters are held once over the group's ranks.

    `auto_wrap_policy(module=, recurse=, nonwrapped_numel=)` says which modules below are units.

    Shape: as the module's.
    Dtypes: as the module's.
    Raises: what `fully_shard` raises.
    Memory: of each parameter, its gradient and the optimizer's state this rank's rows; a unit's
    parameters whole while it runs.
    """

    module: Module

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: Any = None,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Any] | None = None,
        param_init_fn: Callable[..., Any] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = True,
        ignored_states: Any = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        mesh = device_mesh or _mesh(strategy, process_group)
        self.sharding_strategy = strategy
        self.process_group = mesh.get_group(mesh.ndim - 1)
        policy = MixedPrecisionPolicy() if mixed_precision is None else mixed_precision.policy()
        if sync_module_states:
            for group in mesh.get_all_groups():
                from_rank(0, [*module.parameters(), *module.buffers()], group)
        ignored = {p for m in ignored_modules or () for p in m.parameters()}
        ignored |= {p for p in ignored_states or () if isinstance(p, Tensor)}
        shard = functools.partial(
            make_unit,
            mesh=mesh,
            mp_policy=policy,
            ignored_params=ignored,
            reshard_after_forward=strategy is not ShardingStrategy.SHARD_GRAD_OP,
        )
        if auto_wrap_policy is not None:
            _wrap(module, auto_wrap_policy, shard)
        if not isinstance(module, FSDPModule):
            shard(module)
        self.module = module
        self._kind: tuple[StateDictType, Any] = (StateDictType.FULL_STATE_DICT, None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*args, **kwargs)

    @region
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on each rank, whole."""
        inner: Any = self.module
        try:
            inner.set_requires_gradient_sync(False)
            yield
        finally:
            insist(inner.set_requires_gradient_sync, True)

    @staticmethod
    def summon_full_params(module: Module, *_: Any, writeback: bool = True, **__: Any) -> Any:
        """A region in which all parameters are whole; what is written to them stays."""
        return whole(module, writeback)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """As `nn.utils.clip_grad_norm_`, of the gradients of all ranks."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    # -- state ------------------------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: Any = None, *_: Any
    ) -> None:
        """What `state_dict` gives from now on."""
        for m in module.modules():
            if isinstance(m, FullyShardedDataParallel):
                m._kind = (state_dict_type, state_dict_config)

    @staticmethod
    @region
    def state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: Any = None, *_: Any
    ) -> Iterator[None]:
        """What `state_dict` gives inside."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        before = [m._kind for m in found]
        try:
            FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config)
            yield
        finally:
            insist(_set_kinds, found, before)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """All of each tensor (all ranks must ask), or this rank's part."""
        found = self.module.state_dict(*args, **kwargs)
        kind, config = self._kind
        if kind is not StateDictType.FULL_STATE_DICT:
            return found
        full = {key: full_tensor(t) if spec_of(t) else t for key, t in found.items()}
        first_only = isinstance(config, FullStateDictConfig) and config.rank0_only
        return {} if first_only and get_rank() else full

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Take whole tensors, of which this rank keeps its part, or parts."""
        parts = self.module.state_dict()
        taken = {key: own_rows(value, parts.get(key)) for key, value in state_dict.items()}
        return self.module.load_state_dict(taken, strict, assign)

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, *_: Any) -> Any:
        """The optimizer's state by parameters' names, each tensor whole."""
        return named_state(model, optim, full_tensor)

    @staticmethod
    def optim_state_dict_to_load(model: Module, optim: Any, optim_state_dict: Any, *_: Any) -> Any:
        """What this rank's optimizer loads of a state with names and whole tensors."""
        by_name = dict(_plain_names(model))
        place = {
            id(p): i for i, p in enumerate([p for g in optim.param_groups for p in g["params"]])
        }
        state = {}
        for name, values in optim_state_dict["state"].items():
            p: Any = by_name[name]
            state[place[id(p)]] = {key: own_rows(v, p) for key, v in values.items()}
        groups = [
            {**g, "params": [place[id(by_name[name])] for name in g["params"]]}
            for g in optim_state_dict["param_groups"]
        ]
        return {"state": state, "param_groups": groups}


def _mesh(strategy: ShardingStrategy, groups: Any) -> DeviceMesh:
    """The mesh of a group; of two, of which the first has parts and the second the same, or for a
    hybrid strategy without groups: of the host's ranks, and of hosts.
    """
    if isinstance(groups, (list, tuple)):
        return DeviceMesh._of_two(groups[1], groups[0], "cpu")
    size = chosen(groups).size()
    hosts = size // int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if groups is None and strategy.name.lstrip("_").startswith("HYBRID") and hosts > 1:
        return init_device_mesh("cpu", (hosts, size // hosts))
    return DeviceMesh.from_group(chosen(groups), "cpu")


def named_state(model: Module, optim: Any, shown: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """An optimizer's state by parameters' names; what `shown` makes of each part."""
    names = {id(p): name for name, p in _plain_names(model)}
    state = {}
    for p, values in optim.state.items():
        spec = spec_of(p)
        state[names[id(p)]] = {
            key: v if spec is None or not _is_part(v, p) else shown(attach(v.detach(), spec))
            for key, v in values.items()
        }
    groups = [
        {
            **{k: v for k, v in g.items() if k != "params"},
            "params": [names[id(p)] for p in g["params"]],
        }
        for g in optim.param_groups
    ]
    return {"state": state, "param_groups": groups}


def _plain_names(model: Module) -> Iterator[tuple[str, Any]]:
    inner = model.module if isinstance(model, FullyShardedDataParallel) else model
    yield from inner.named_parameters()


def _is_part(value: Any, p: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape == p.shape


def own_rows(value: Any, like: Any) -> Any:
    """This rank's part of a whole tensor; anything else as it is."""
    spec = spec_of(like)
    if spec is None or not isinstance(value, Tensor) or spec_of(value) is not None:
        return value
    if tuple(value.shape) != spec.shape or value.dim() == 0:
        return value
    first, last = spec.rows(spec.rank)
    return value[first:last]


def _wrap(module: Module, policy: Any, shard: Callable[..., Any]) -> int:
    """Make units of the modules below that a policy wants; how many elements are in none."""
    run = getattr(policy, "wants", policy)
    left = sum([p.numel() for p in module.parameters(recurse=False)])
    for child in module.children():
        left += _below(child, run, shard)
    return left


def _below(module: Module, policy: Any, shard: Callable[..., Any]) -> int:
    n = sum([p.numel() for p in module.parameters()])
    if policy(module=module, recurse=True, nonwrapped_numel=n):
        n = _wrap(module, policy, shard)
    if policy(module=module, recurse=False, nonwrapped_numel=n):
        shard(module)
        return 0
    return n


def _set_kinds(modules: list[Any], kinds: list[Any]) -> None:
    for module, kind in zip(modules, kinds, strict=True):
        module._kind = kind
