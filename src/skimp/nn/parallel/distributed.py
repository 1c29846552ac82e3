"""torch.nn.parallel.DistributedDataParallel: one module on many ranks, each with its own inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skimp._engine.autograd.modes import is_grad_enabled, no_grad
from skimp._engine.interrupts import region
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import tensor
from skimp.distributed import arguments
from skimp.distributed.algorithms.join import Join, Joinable, JoinHook
from skimp.distributed.collectives import broadcast
from skimp.distributed.groups import chosen
from skimp.distributed.objects import all_gather_object
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.reducer import Hook, Reducer
from skimp.distributed.reductions import all_reduce
from skimp.nn.modules.module import Module

MIB = 1 << 20
# PyTorch's is 25: these are large enough to be fast between processes of one host, and small
# enough that what the first gradients claim is less than what backward has freed by then
CAP = 4


class DistributedDataParallel(Module, Joinable):
    """Calls `module`; backward averages its gradients over the group's ranks while it runs.

    The gradients are views of buckets of about `bucket_cap_mb` MiB, so there is no second copy of
    them. At the start parameters must have the same shapes on all ranks (RuntimeError), and get
    rank 0's values. Buffers get rank 0's before each forward (`broadcast_buffers`).

    Shape: as the module's.
    Dtypes: as the module's.
    Raises: RuntimeError for a module without parameters that require grad, and for shapes that
    differ between ranks.
    Memory: one buffer for all gradients, which they are views of.
    """

    module: Module

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            process_group = device_mesh.get_group()
        self.process_group = chosen(process_group)
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        wanted = [p for _, p in named if p.requires_grad]
        if not wanted:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        if device_ids or output_device:
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                f"{device_ids}, output_device {output_device}, and module parameters "
                f"{ {p.device for p in wanted} }."
            )
        self.module, self.device_ids, self.output_device, self.dim = module, None, None, dim
        self.broadcast_buffers = broadcast_buffers is not False
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.bucket_bytes_cap = int((CAP if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        self._states = [p for _, p in named]
        self._buffers_named = [(n, b) for n, b in module.named_buffers() if n not in ignored]
        if init_sync:
            _same_parameters(wanted, self.process_group)
            from_rank(0, [*self._states, *[b for _, b in self._buffers_named]], self.process_group)
        self.reducer = Reducer(
            wanted, self.process_group, self.bucket_bytes_cap, find_unused_parameters, static_graph
        )
        self._divides_by_all = True

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["reducer"], state["process_group"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = chosen(None)
        wanted = [p for p in self._states if p.requires_grad]
        self.reducer = Reducer(
            wanted,
            self.process_group,
            self.bucket_bytes_cap,
            self.find_unused_parameters,
            self.static_graph,
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        active = Join.notify_join_context(self)
        if active is not None:
            active.wait()
            count = int(active.result()[0].item())
            self.reducer.divisor = self.process_group.size() if self._divides_by_all else count
        if self._join_config.enable:
            self._all_sync(joined=False)
        if self._sends_buffers():
            self._sync_buffers()
        output = self.module(*inputs, **kwargs)
        self.reducer.sync = self.require_backward_grad_sync
        if is_grad_enabled() and self.require_backward_grad_sync:
            self.reducer.prepare(output)
            self.require_forward_param_sync = True
        else:
            self.require_forward_param_sync = False
        return output

    @region
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients are added up on each rank alone; forward decides for its backward."""
        before = self.require_backward_grad_sync
        try:
            self.require_backward_grad_sync = False
            yield
        finally:
            self.require_backward_grad_sync = before

    # -- buffers ----------------------------------------------------------------------------------

    def _sends_buffers(self) -> bool:
        return (
            self.require_forward_param_sync and self.broadcast_buffers and bool(self._buffers_named)
        )

    def _sync_buffers(self) -> None:
        rank = self._last_active(True) if self._join_config.enable else 0
        from_rank(rank, [b for _, b in self.module.named_buffers()], self.process_group)

    def _last_active(self, mine: bool) -> int:
        """The highest of the ranks that say so."""
        found = tensor([self.process_group.rank() if mine else -1])
        all_reduce(found, ReduceOp.MAX, self.process_group)
        return int(found.item())

    # -- hooks ------------------------------------------------------------------------------------

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Let `hook(state, bucket)` communicate each bucket; it gives a future of one tensor with
        the gradients' average.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self.reducer.hook, self.reducer.state = hook, state

    def _set_static_graph(self) -> None:  # PyTorch's name
        """The same parameters are used in every step."""
        self.static_graph = self.reducer.static_graph = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:  # PyTorch's name
        """What can be said of this module's communication."""
        return {
            "world_size": self.process_group.size(),
            "rank": self.process_group.rank(),
            "module_name": type(self.module).__name__,
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "broadcast_buffers": self.broadcast_buffers,
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "num_buckets": len(self.reducer.buckets),
        }

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Any, names: Any) -> None:
        """Leave these names of a module alone when it is wrapped (PyTorch's name)."""
        module._ddp_params_and_buffers_to_ignore = list(names)

    # -- joining ----------------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A region in which ranks may have inputs of different numbers."""
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this module does on a rank without inputs."""
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _Shadow(self)

    @property
    def join_device(self) -> Any:
        """The parameters' device."""
        return self._states[0].device

    @property
    def join_process_group(self) -> Any:
        """The group."""
        return self.process_group

    def _all_sync(self, joined: bool) -> bool:
        """Whether the ranks with inputs average gradients in this step."""
        mine = not joined and self.require_backward_grad_sync
        asked = tensor([1.0 if mine else 0.0])
        all_reduce(asked, group=self.process_group)
        return bool(asked.item())


class _Shadow(JoinHook):
    """A rank without inputs does what the others' steps need."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.ddp = ddp

    def main_hook(self) -> None:
        ddp = self.ddp
        sync = ddp._all_sync(joined=True)
        if ddp._sends_buffers():
            rank = ddp._last_active(False)
            from_rank(rank, [b for _, b in ddp.module.named_buffers()], ddp.process_group)
        ddp.require_forward_param_sync = sync
        if sync:
            ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        rank = ddp._last_active(is_last_joiner)
        states = [*ddp._states, *[b for _, b in ddp.module.named_buffers()]]
        from_rank(rank, states, ddp.process_group)


def _same_parameters(parameters: Sequence[Tensor], group: Any) -> None:
    """RuntimeError unless all ranks have parameters of the same shapes and dtypes."""
    mine = [(tuple(p.shape), str(p.dtype)) for p in parameters]
    every: list[Any] = [None] * group.size()
    all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        if len(theirs) != len(every[0]):
            raise RuntimeError(
                f"DDP expects same model across all ranks, but Rank {group.rank()} has "
                f"{len(mine)} params, while rank {rank} has inconsistent {len(theirs)} params."
            )
        for i, (one, other) in enumerate(zip(every[0], theirs, strict=True)):
            if one != other:
                raise RuntimeError(
                    f"[{rank}]: params[{i}] in this process with sizes {list(other[0])} appears "
                    f"not to match sizes of the same param in process 0: {list(one[0])} "
                    f"({other[1]} and {one[1]})."
                )


def from_rank(rank: int, tensors: list[Tensor], group: Any) -> None:
    """All ranks get one rank's values; small ones travel together."""
    works = []
    with no_grad():
        for part in _parts(tensors):
            if len(part) == 1:
                whole = part[0].detach()
                works.append(broadcast(whole, group=group, group_src=rank, async_op=True))
                continue
            together = arguments.together(part)
            broadcast(together, group=group, group_src=rank)
            if group.rank() == rank:
                continue
            arguments.deal(together._skimp_array(), [t.detach() for t in part])
    for work in works:
        if work is not None:
            work.wait()


def _parts(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Large tensors alone, small ones of one dtype up to a MiB together."""
    waiting: dict[Any, list[Tensor]] = {}
    for t in tensors:
        if t.nbytes > MIB // 4:
            yield [t]
            continue
        members = waiting.setdefault(t._dtype, [])
        members.append(t)
        if sum([m.nbytes for m in members]) > MIB:
            yield waiting.pop(t._dtype)
    yield from waiting.values()
