"""The life of a parameter that a group holds once.

Between uses a rank has its rows of dim 0. `gather` brings all rows into the storage of a second
parameter, which forward and backward use; `release` gives that storage's bytes back, while what
autograd has saved stays on it: the next `gather` fills it again before backward looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from skimp._engine.autograd.modes import no_grad
from skimp._engine.memory.storage import refill, vacate
from skimp._engine.tensor.tensor import Tensor, empty
from skimp.config import config
from skimp.distributed import transfers
from skimp.distributed.collectives import start
from skimp.distributed.direct import Stepwise
from skimp.distributed.groups import ProcessGroup
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.tensor.spec import Spec, attach
from skimp.distributed.work import Label, Work
from skimp.nn.parameter import Parameter

Cast = Any  # a dtype, or None for the parameter's own


class ShardedParameter:
    """One parameter of one module: its shard, and all of it for a while."""

    def __init__(
        self, owner: Any, name: str, mesh: Any, dtype: Cast = None, reduce_dtype: Cast = None
    ) -> None:
        whole: Parameter = owner._parameters[name]
        self.places = [(owner, name)]
        self.shape = tuple(whole.shape)
        self.dtype = whole._dtype if dtype is None else dtype
        self.reduce_dtype = reduce_dtype
        self.spec = Spec(mesh, self.shape, 0)
        self.group: ProcessGroup = self.spec.group
        # who has the same rows, and other gradients of them
        self.others: ProcessGroup | None = mesh.get_group(0) if mesh.ndim > 1 else None
        first, last = self.spec.rows(self.spec.rank)
        with no_grad():
            mine = whole.detach().view(self.spec.folded())[first:last].clone()
        self.shard = Parameter(mine.view(self.spec.local(self.spec.rank)), whole.requires_grad)
        attach(self.shard, self.spec)
        self.full: Parameter | None = None
        self.there = False  # all of it, now
        self.gathering: Work | None = None
        self._small = math.prod(self.shape) < config.small_below
        self._handle: Any = None
        self.show(False)

    def adopt(self) -> None:
        """Another parameter that the module was given (`to_empty`, `load_state_dict` with
        `assign`) is the part from now on.
        """
        owner, name = self.places[0]
        found = owner._parameters[name]
        if found is not self.shard and found is not self.full:
            self.shard = found
            attach(found, self.spec)
            self.show(False)

    def show(self, full: bool) -> None:
        """Which of the two the modules have."""
        shown = self.full if full else self.shard
        for owner, name in self.places:
            owner._parameters[name] = shown

    # -- all of it --------------------------------------------------------------------------------

    def begin_gather(self, hook: Callable[[Tensor], None]) -> None:
        """Begin to bring all rows here."""
        if self.there or self.gathering is not None:
            return
        self.adopt()
        self._make_room(hook)
        assert self.full is not None
        n, width = self.group.size(), math.prod(self.shape[1:])
        counts = [width * (last - first) for first, last in map(self.spec.rows, range(n))]
        sent = self.shard.detach()
        if sent._dtype is not self.dtype:
            sent = sent.to(self.dtype)
        given = np.ascontiguousarray(sent._skimp_array())
        target = self.full._storage.view(self.full._skimp_layout_of(), self.dtype.np)

        def begin(_: Any) -> Any:
            return transfers.all_gather(self.group, given, target, self.dtype, counts)

        label = Label("all_gather", (), f"of the parts of {self.places[0][1]}", target.nbytes)
        self.gathering = start(self.group, label, begin, [], None, True)

    def _make_room(self, hook: Callable[[Tensor], None]) -> None:
        if self.full is None:
            made = Parameter(empty(self.shape, self.dtype), self.shard.requires_grad)
            self.full = made
            if self.shard.requires_grad:
                self._handle = made.register_post_accumulate_grad_hook(hook)
        elif not len(self.full._storage):
            refill(self.full._storage, math.prod(self.shape) * self.dtype.itemsize)

    def end_gather(self) -> None:
        """All of it is here."""
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering, self.there = None, True
        self.show(True)

    def release(self, keep_small: bool) -> None:
        """Give the bytes back; the shard is what the modules have.

        Arrays of small ones may be held by what autograd has saved: these stay until backward
        is over.
        """
        if self.gathering is not None:
            self.end_gather()
        self.show(False)
        if self.full is None or not self.there or (keep_small and self._small):
            return
        self.there = False
        if self._small:
            self._forget()
        else:
            self.full._np = None
            vacate(self.full._storage)

    def part(self, t: Tensor) -> Tensor:
        """A tensor of this rank's rows, which says so."""
        return attach(t, self.spec)

    def keep_rows(self) -> None:
        """This rank's rows of what is whole become its part."""
        assert self.full is not None
        first, last = self.spec.rows(self.spec.rank)
        with no_grad():
            rows = self.full.detach().view(self.spec.folded())[first:last]
            self.shard.detach().copy_(rows.view(self.shard.shape))

    def _forget(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self.full = self._handle = None

    # -- gradients --------------------------------------------------------------------------------

    def reduce_gradient(self, divisor: float) -> Work | None:
        """The gradient of all of it becomes its shard's part of the mean over the ranks."""
        full = self.full
        assert full is not None
        grad = full._grad
        full._grad = None
        if grad is None:
            return None
        kind = self.reduce_dtype or grad._dtype
        with no_grad():
            if grad._dtype is not kind:
                grad = grad.to(kind)
            grad = grad.contiguous()
            grad.mul_(1.0 / divisor) if divisor != 1 else None
            made = empty(tuple(self.shard.shape), kind)
        n, width = self.group.size(), math.prod(self.shape[1:])
        counts = [width * (last - first) for first, last in map(self.spec.rows, range(n))]
        grad._storage.will_write()
        given, target = grad._skimp_array(), made._storage.view(made._skimp_layout_of(), kind.np)

        def steps() -> Iterator[Any]:
            yield transfers.reduce_scatter(self.group, given, target, kind, ReduceOp.SUM, counts)
            if self.others is not None:
                self.others.sequence += 1
                yield transfers.all_reduce(self.others, target, kind, ReduceOp.SUM)

        def begin(_: Any) -> Any:
            return Stepwise(steps())

        def finish(sent: Tensor = grad) -> None:  # which lives until then, and no longer
            self._take(made)

        label = Label("reduce_scatter", (), f"of the gradient of {self.places[0][1]}", given.nbytes)
        return start(self.group, label, begin, [], finish, True)

    def _take(self, made: Tensor) -> None:
        with no_grad():
            if made._dtype is not self.shard._dtype:
                made = made.to(self.shard._dtype)
            if self.shard._grad is not None:
                self.shard._grad.add_(made)
            else:
                self.shard._grad = attach(made, self.spec)
