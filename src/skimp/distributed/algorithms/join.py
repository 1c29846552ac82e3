"""Ranks with inputs of different numbers: who has no more shadows the others' communication."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, NamedTuple

from skimp._ops.create.creation import tensor
from skimp.distributed.groups import get_rank
from skimp.distributed.reductions import all_reduce
from skimp.distributed.work import Work

SKEW = 1000  # iterations that a rank may be short of without a warning


class JoinHook:
    """What a rank without inputs does instead of a training step, and at the end."""

    def main_hook(self) -> None:
        """Communicate as the others do in one step."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all ranks have joined."""


class JoinConfig(NamedTuple):
    """What a `Join` tells those that take part."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


class Joinable:
    """What can take part in a `Join`: its constructor must call this one."""

    def __init__(self) -> None:
        super().__init__()
        self._join_config = JoinConfig(False, False, False)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of this one."""
        raise NotImplementedError

    @property
    def join_device(self) -> Any:
        """The device of its communication."""
        raise NotImplementedError

    @property
    def join_process_group(self) -> Any:
        """The group of its communication."""
        raise NotImplementedError


class Join:
    """A region in which ranks may run out of inputs at different times. Each of `joinables` calls
    `notify_join_context` in each step.

    RuntimeError with `throw_on_early_termination`, on all ranks, when the first has no more.
    """

    def __init__(
        self,
        joinables: list[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._enable = enable
        self._throws = throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        for i, joinable in enumerate(joinables):
            joinable._join_config = JoinConfig(enable, throw_on_early_termination, i == 0)
        self._group = joinables[0].join_process_group
        if any(joinable.join_process_group is not self._group for joinable in joinables):
            raise ValueError("Using join context manager with multiple process groups")

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._enable or kind is not None:
            return
        last, steps = True, 0
        while self._active():
            if self._throws:
                all_reduce(tensor([1.0]), group=self._group)
                raise RuntimeError(f"Rank {get_rank(self._group)} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            last, steps = False, steps + 1
            if steps == SKEW:
                warnings.warn(
                    f"Detected uneven input skew of greater than {SKEW}. This means that rank "
                    f"{get_rank(self._group)} has at least {SKEW} fewer inputs than other "
                    "currently-active ranks.",
                    stacklevel=2,
                )
        for hook in self._hooks:
            hook.post_hook(last)

    def _active(self) -> int:
        """How many ranks still have inputs; shadows `notify_join_context`."""
        count = tensor([0.0])
        all_reduce(count, group=self._group)
        return int(count.item())

    @staticmethod
    def notify_join_context(joinable: Any) -> Work | None:
        """Say that this rank still has inputs; the work whose result is how many have."""
        config = joinable._join_config
        if not (config.enable and config.is_first_joinable):
            return None
        group = joinable.join_process_group
        work = all_reduce(tensor([1.0]), group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = tensor([0.0])
            all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError(
                    "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
        return work
