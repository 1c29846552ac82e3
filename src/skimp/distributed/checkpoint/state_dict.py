"""torch.distributed.checkpoint.state_dict: state dicts of modules and optimizers by names, with
parts or whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skimp.distributed.fsdp.wrapper import FullyShardedDataParallel, _rows
from skimp.distributed.groups import get_rank
from skimp.distributed.tensor.spec import full_tensor, spec_of
from skimp.nn.parallel.distributed import DistributedDataParallel


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
    wrappers = (FullyShardedDataParallel, DistributedDataParallel)
    while isinstance(model, wrappers):
        model = model.module
    return model


def get_model_state_dict(
    model: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The module's, without wrappers' prefixes: this rank's parts, or whole tensors."""
    found = _inner(model).state_dict()
    if options is not None and options.full_state_dict:
        return {k: full_tensor(t) if spec_of(t) else t for k, t in found.items()}
    return dict(found)


def set_model_state_dict(
    model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Take parts, or whole tensors of which this rank keeps its part."""
    inner = _inner(model)
    parts = inner.state_dict()
    taken = {k: _rows(v, parts.get(k), get_rank()) for k, v in model_state_dict.items()}
    return inner.load_state_dict(taken, options is None or options.strict)


def get_optimizer_state_dict(
    model: Any, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The optimizer's by parameters' names, with whole tensors."""
    found: dict[str, Any] = FullyShardedDataParallel.optim_state_dict(_inner(model), optimizers)
    return found


def set_optimizer_state_dict(
    model: Any, optimizers: Any, optim_state_dict: Any, *, options: Any = None
) -> None:
    """Take one with names and whole tensors."""
    inner = _inner(model)
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
