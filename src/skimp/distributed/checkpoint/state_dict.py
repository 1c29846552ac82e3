"""torch.distributed.checkpoint.state_dict: state dicts of modules and optimizers by names, with
parts or whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.fsdp.wrapper import FullyShardedDataParallel, named_state, own_rows
from skimp.distributed.groups import get_rank
from skimp.distributed.objects import broadcast_object_list
from skimp.distributed.tensor.spec import full_tensor, spec_of
from skimp.nn.modules.compiled import OptimizedModule
from skimp.nn.parallel.distributed import DistributedDataParallel

# what programs name in annotations
FQNS_T = set[str]
PrimitiveType = Tensor | int | float | str
ValueType = PrimitiveType | list[PrimitiveType] | tuple[PrimitiveType, ...] | dict[str, Any]
DictValueType = dict[str, ValueType]
ListDictValueType = list[DictValueType]
OptimizerStateType = dict[str, DictValueType | ListDictValueType]


@dataclass
class StateDictOptions:
    """What a state dict has."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False


def _inner(model: Any) -> Any:
    while True:
        if isinstance(model, (FullyShardedDataParallel, DistributedDataParallel)):
            model = model.module
        elif isinstance(model, OptimizedModule):
            model = model._orig_mod
        else:
            return model


def get_model_state_dict(
    model: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The module's, without wrappers' prefixes: this rank's parts, or whole tensors."""
    found = _inner(model).state_dict()
    if options is None or not options.full_state_dict:
        return dict(found)
    whole = {k: full_tensor(t) if spec_of(t) else t for k, t in found.items()}
    return {} if options.cpu_offload and get_rank() else whole  # as PyTorch: the first rank's


def set_model_state_dict(
    model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Take parts, or whole tensors of which this rank keeps its part."""
    inner = _inner(model)
    model_state_dict = _of_rank_0(model_state_dict, options)
    parts = inner.state_dict()
    taken = {k: own_rows(v, parts.get(k)) for k, v in model_state_dict.items()}
    without_bytes = any([t.is_meta for t in parts.values()])
    return inner.load_state_dict(taken, options is None or options.strict, without_bytes)


def _of_rank_0(state: Any, options: StateDictOptions | None) -> Any:
    """The state that rank 0 has, where the options say that only it has one."""
    if options is None or not options.broadcast_from_rank0:
        return state
    told = [state if get_rank() == 0 else None]
    broadcast_object_list(told, 0)
    return told[0]


def get_optimizer_state_dict(
    model: Any, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The optimizer's by parameters' names, with this rank's parts, or whole tensors. One that has
    no state yet makes it, so that there is something to load into.
    """
    _init_optim_state(optimizers)
    if options is None or not options.full_state_dict:
        return named_state(_inner(model), optimizers, lambda part: part)
    whole = named_state(_inner(model), optimizers, full_tensor)
    return {} if options.cpu_offload and get_rank() else whole


def _init_optim_state(optim: Any) -> None:  # PyTorch's name
    """Let an optimizer make its state: a step of size 0 with gradients of 0."""
    if optim.state:
        return
    parameters = [p for group in optim.param_groups for p in group["params"]]
    if any(p.grad is not None for p in parameters):
        raise RuntimeError(
            "state_dict can only be used if the optimizer states are initialized (usually after "
            "one step() with gradients) or gradients are None. For the later case, state_dict will "
            "fake the gradients as zero to initialize the optimizer states. However, the gradients "
            "are not None."
        )
    rates = [group.get("lr") for group in optim.param_groups]
    for p in parameters:
        p.grad = p.detach().new_zeros(p.shape)
    for group in optim.param_groups:
        group["lr"] = 0.0
    optim.step()
    for group, rate in zip(optim.param_groups, rates, strict=True):
        group["lr"] = rate
    optim.zero_grad(set_to_none=True)


def set_optimizer_state_dict(
    model: Any, optimizers: Any, optim_state_dict: Any, *, options: Any = None
) -> None:
    """Take one with names and whole tensors."""
    _init_optim_state(optimizers)
    inner = _inner(model)
    optim_state_dict = _of_rank_0(optim_state_dict, options)
    ready = FullyShardedDataParallel.optim_state_dict_to_load(inner, optimizers, optim_state_dict)
    optimizers.load_state_dict(ready)


def get_state_dict(
    model: Any, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The module's and the optimizer's."""
    return (
        get_model_state_dict(model, options=options),
        get_optimizer_state_dict(model, optimizers, options=options),
    )


def set_state_dict(
    model: Any,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Take both."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    if optim_state_dict:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found
