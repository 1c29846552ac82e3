"""ZeroRedundancyOptimizer: each rank updates some of the parameters, and keeps state for these only
(Rajbhandari et al. 2020, ZeRO, stage 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.dispatch.docstrings import complete_classes
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.algorithms.join import Join, Joinable, JoinHook
from skimp.distributed.collectives import broadcast
from skimp.distributed.groups import chosen
from skimp.distributed.objects import gather_object
from skimp.optim.optimizer import Optimizer


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """`optimizer_class` over this rank's share of the parameters, the largest dealt out first to
    the rank with the fewest elements; after a step each rank sends its share to all.

    Raises: what the optimizer raises.
    Memory: the state of this rank's share alone.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        given = list(params)
        if not given:
            raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
        self.process_group = chosen(process_group)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self._class, self._words = optimizer_class, defaults
        self._parts: list[Any] = []
        self._gathered: list[Any] | None = None
        self.optim: Any = None
        Optimizer.__init__(self, given, defaults)
        Joinable.__init__(self)
        self._deal()

    def _deal(self) -> None:
        """Which rank has which parameter; the optimizer of this rank's."""
        loads = [0] * self.world_size
        self._owner: dict[int, int] = {}
        everything = [p for group in self.param_groups for p in group["params"]]
        for p in sorted(everything, key=lambda p: -p.numel()):
            rank = loads.index(min(loads))
            self._owner[id(p)] = rank
            loads[rank] += p.numel()
        self._index = {id(p): i for i, p in enumerate(everything)}
        self._all = everything
        before = {} if self.optim is None else self.optim.state
        mine = [
            {**group, "params": [p for p in group["params"] if self._owner[id(p)] == self.rank]}
            for group in self.param_groups
        ]
        self.optim = self._class(mine, **self._words)
        for p in [p for p in before if self._owner[id(p)] == self.rank]:
            self.optim.state[p] = before[p]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Another group, dealt out with the others anew."""
        super().add_param_group(param_group)
        if self.optim is not None:
            self._deal()

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's share, and get the others'."""
        Join.notify_join_context(self)
        self._tell()
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)
        self._send()
        return loss

    def _tell(self) -> None:
        """What a scheduler has changed in our groups goes to the inner optimizer's."""
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            theirs.update({k: v for k, v in ours.items() if k != "params"})

    def _send(self) -> None:
        with no_grad():
            works = [
                broadcast(p.detach(), None, self.process_group, True, self._owner[id(p)])
                for p in self._all
            ]
        for work in works:
            if work is not None:
                work.wait()

    # -- state ------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state on one rank; all ranks must call this."""
        every: list[Any] | None = [None] * self.world_size if self.rank == to else None
        mine = {self._index[id(p)]: state for p, state in self.optim.state.items()}
        gather_object(mine, every, group=self.process_group, group_dst=to)
        self._gathered = every

    def state_dict(self) -> dict[str, Any]:
        """The state as it was when it was collected, as `optimizer_class`'s own."""
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                "save the global state."
            )
        self.state.clear()
        found: dict[str, Any] = super().state_dict()
        together = {i: state for part in self._gathered for i, state in part.items()}
        found["state"] = dict(sorted(together.items()))
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of a whole state."""
        for ours, theirs in zip(self.param_groups, state_dict["param_groups"], strict=True):
            ours.update({k: v for k, v in theirs.items() if k != "params"})
        for i, state in state_dict["state"].items():
            p = self._all[i]
            if self._owner[id(p)] == self.rank:
                self.optim.state[p] = {
                    k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()
                }
        self._tell()

    # -- joining ----------------------------------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this optimizer does on a rank without inputs: a step."""
        return _Step(self)

    @property
    def join_device(self) -> Any:
        """The parameters' device."""
        return self._all[0].device

    @property
    def join_process_group(self) -> Any:
        """The group."""
        return self.process_group


class _Step(JoinHook):
    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


complete_classes(globals())
