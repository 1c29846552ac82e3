"""The gradients of a module's parameters, averaged over a group while backward still runs.

A bucket is some gradients that are communicated at once. Between ranks of one host they are sent
from where they lie. Otherwise, and for communication hooks, a bucket is one tensor, of which its
parameters' gradients are views: it is made when the first of them arrives, and gone when the
program forgets the gradients. When the last has arrived, and all buckets before it have begun, its
all-reduce begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.autograd.leaves import reached
from skimp._engine.autograd.modes import no_grad
from skimp._engine.autograd.nodes import AccumulateGrad
from skimp._engine.memory.layout import Layout, contiguous_strides, is_non_overlapping_and_dense
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, alias, empty
from skimp._ops.create.creation import tensor
from skimp.distributed.groups import ProcessGroup
from skimp.distributed.reduce_ops import PremulSum, ReduceOp
from skimp.distributed.reductions import all_reduce, all_reduce_coalesced
from skimp.distributed.transfers import sends_apart
from skimp.distributed.work import progress
from skimp.utils.futures import Future

Hook = Callable[[Any, "GradBucket"], Any]
FIRST = 1 << 20  # bytes of the first bucket: communication begins early
UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your module has parameters that were not used in producing loss. You can "
    "enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by making "
    "sure all `forward` function outputs participate in calculating loss. "
)


class GradBucket:
    """Gradients that are communicated at once: what a communication hook gets."""

    def __init__(self, index: int, parameters: Sequence[Tensor], last: bool) -> None:
        self._index, self._parameters, self._last = index, list(parameters), last
        self._sizes = [p.numel() for p in parameters]
        self.nbytes = sum([p.nbytes for p in parameters])
        self._shapes = [tuple(p.shape) for p in parameters]
        self._buffer: Callable[[], Tensor | None] = lambda: None
        self.places = range(len(self._parameters))
        self.waiting = set(self.places)
        self.apart = False  # whether its gradients are sent from where they lie
        self.work: Any = None

    def index(self) -> int:
        """Its number: the order in which buckets are communicated."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of this backward."""
        return self._last

    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients it has."""
        return list(self._parameters)

    def buffer(self) -> Tensor:
        """All its gradients, as one tensor of one dim; made when there is none."""
        found = self._buffer()
        if found is None:
            found = empty((sum(self._sizes),), self._parameters[0]._dtype)
            found.zero_()
            self._buffer = weakref.ref(found)
            self._held: Tensor | None = found  # until the gradients hold it
        return found

    def set_buffer(self, tensor: Tensor) -> None:
        """Other values for the gradients."""
        if tensor.numel() != sum(self._sizes):
            raise RuntimeError(f"set_buffer: {tensor.numel()} elements for {sum(self._sizes)}")
        self.buffer().copy_(tensor.view(-1))

    def gradients(self) -> list[Tensor]:
        """Its gradients, views of the buffer."""
        return [self.view(i) for i in range(len(self._sizes))]

    def view(self, i: int) -> Tensor:
        """One gradient: a view of the buffer, in no relation to its history."""
        buffer = self.buffer()
        start = sum(self._sizes[:i])
        made = alias(buffer, Layout(self._shapes[i], self._strides(i), start))
        made._of_bucket = buffer  # type: ignore[attr-defined]  # which lives as long as its gradients
        return made

    def _strides(self, i: int) -> tuple[int, ...]:
        whole = self._parameters[i]._skimp_layout_of()
        dense = is_non_overlapping_and_dense(whole)
        return whole.strides if dense else contiguous_strides(self._shapes[i])

    def place(self, i: int) -> Tensor:
        """The parameter's gradient, zeros if there is none, as one that is sent from where it lies:
        as its parameter does, so that all ranks agree. It is returned in the order of its memory.
        """
        p = self._parameters[i]
        grad = p._grad
        if (
            grad is not None
            and grad._np is not None
            and p._np is not None
            and grad._dtype is p._dtype
            and grad._np.flags.c_contiguous
            and p._np.flags.c_contiguous
        ):
            return grad
        strides = self._strides(i)
        if (
            grad is None
            or grad._dtype is not p._dtype
            or grad._skimp_layout_of().strides != strides
        ):
            flat = empty((self._sizes[i],), p._dtype)
            made = alias(flat, Layout(self._shapes[i], strides, 0))
            made.zero_() if grad is None else made.copy_(grad)
            p._grad = grad = made
        return alias(grad, Layout((self._sizes[i],), (1,), grad._skimp_layout_of().offset))

    def holds(self, i: int) -> bool:
        """Whether the parameter's gradient is the view of this bucket's buffer."""
        grad, buffer = self._parameters[i]._grad, self._buffer()
        return (
            grad is not None and buffer is not None and getattr(grad, "_of_bucket", None) is buffer
        )


class Reducer:
    """The buckets of a module's parameters."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        group: ProcessGroup,
        cap: int,
        find_unused: bool,
        static_graph: bool,
    ) -> None:
        self.group, self.find_unused, self.static_graph = group, find_unused, static_graph
        self.parameters = list(parameters)
        self.buckets = _buckets(self.parameters, cap)
        self._place = {
            id(p): (bucket, i) for bucket in self.buckets for i, p in enumerate(bucket.parameters())
        }
        self.hook: Hook | None = None
        self.state: Any = None
        self.sync = True
        self.divisor = group.size()
        self._next = 0
        self._running = self._touched = False
        self._unused: list[Tensor] | None = None
        self._before: dict[int, Tensor | None] = {}
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(_weakly(self))

    # -- one backward -----------------------------------------------------------------------------

    def prepare(self, outputs: Any) -> None:
        """Before backward: all gradients are waited for, but those that it will not reach."""
        if self._running and self._touched:
            raise RuntimeError(UNFINISHED + self._missing())
        self._start()
        if self.find_unused or (self.static_graph and self._unused is None):
            used = _reached(outputs)
            self._unused = [p for p in self.parameters if id(p) not in used]
        for p in self._unused or ():
            bucket, i = self._place[id(p)]
            self._before[id(p)] = p._grad
            if bucket.apart and p._grad is not None:
                p._grad = p._grad.clone()  # what is sent is averaged where it lies
            self._fill(bucket, i)
            bucket.waiting.discard(i)
        if self._unused and len(self._unused) == len(self.parameters):
            self._launch()

    def _start(self) -> None:
        self._next, self._running, self._touched = 0, True, False
        self._before = {}
        for bucket in self.buckets:
            bucket.waiting.update(bucket.places)
            bucket.apart = self.hook is None and sends_apart(self.group, bucket.nbytes)
            bucket.work = None

    def _missing(self) -> str:
        names = [
            str(j)
            for j, p in enumerate(self.parameters)
            if self._place[id(p)][1] in self._place[id(p)][0].waiting
        ]
        return (
            f"Parameter indices which did not receive grad for rank {self.group.rank()}: "
            f"{' '.join(names)}"
        )

    def arrived(self, p: Tensor) -> None:
        """A gradient is complete: into its bucket, and the bucket on its way if it is full."""
        if not self.sync:
            return
        if not self._running:
            self._start()  # a backward without a forward of ours
        self._touched = True
        bucket, i = self._place[id(p)]
        if not bucket.apart:
            self._fill(bucket, i)
        bucket.waiting.discard(i)
        if self._next:
            progress.poll()
        if not bucket.waiting:
            self._launch()

    def _fill(self, bucket: GradBucket, i: int) -> None:
        """The gradient becomes what is sent: a view of the bucket, with its values."""
        if bucket.apart or bucket.holds(i):
            return
        p = bucket._parameters[i]
        with no_grad():
            view = bucket.view(i)
            if p._grad is not None:
                view.copy_(p._grad)
            else:
                view.zero_()
            p._grad = view

    def _launch(self) -> None:
        while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
            self._begin(self.buckets[self._next])
            self._next += 1
        if self._next == len(self.buckets):
            self._finish()

    def _begin(self, bucket: GradBucket) -> None:
        with no_grad():
            if self.hook is not None:
                bucket.work = self.hook(self.state, bucket)
                return
            if bucket.apart:
                grads = [bucket.place(i) for i in bucket.places]
                average = PremulSum(1.0 / self.divisor)
                bucket.work = all_reduce_coalesced(grads, average, self.group, async_op=True)
                return
            buffer = bucket.buffer()
            buffer.mul_(1.0 / self.divisor)
            bucket.work = all_reduce(buffer, group=self.group, async_op=True)

    def _finish(self) -> None:
        self._running = False
        used_somewhere = self._used_somewhere()
        with no_grad():
            for bucket in self.buckets:
                self._take(bucket)
        for p in self._unused or ():
            if id(p) not in used_somewhere:
                p._grad = self._before.get(id(p))
        self._before = {}

    def _take(self, bucket: GradBucket) -> None:
        found = bucket.work.wait()
        bucket.work = None
        if self.hook is not None:
            value = found[0] if isinstance(found, (list, tuple)) else found
            if value is not bucket.buffer():
                bucket.set_buffer(value)
        bucket._held = None

    def _used_somewhere(self) -> set[int]:
        """Of the parameters that this rank did not use, those that another one did."""
        if not self.find_unused or self.group.size() == 1:
            return set()
        unused = {id(p) for p in self._unused or ()}
        used = tensor([int(id(p) not in unused) for p in self.parameters], dtype=dtypes.int32)
        all_reduce(used, ReduceOp.MAX, self.group)
        return {id(p) for p, yes in zip(self.parameters, used.tolist(), strict=True) if yes}

    def shadow(self) -> None:
        """The communication of one backward, of a rank that has no more inputs."""
        self._start()
        for p in self.parameters:
            bucket, i = self._place[id(p)]
            p._grad = None
            self._fill(bucket, i)
            bucket.waiting.discard(i)
        self._launch()


def _weakly(reducer: Reducer) -> Callable[[Tensor], None]:
    """A hook that doesn't keep the reducer."""
    ref = weakref.ref(reducer)

    def hook(p: Tensor) -> None:
        found = ref()
        if found is not None:
            found.arrived(p)

    return hook


def _buckets(parameters: Sequence[Tensor], cap: int) -> list[GradBucket]:
    """Parameters by dtype, the last first, because their gradients come first."""
    groups: list[list[Tensor]] = []
    open_by_dtype: dict[Any, tuple[list[Tensor], int]] = {}
    for p in reversed(parameters):
        n = p.numel() * p._dtype.itemsize
        members, held = open_by_dtype.get(p._dtype, ([], 0))
        limit = min(cap, FIRST) if groups and members is groups[0] else cap
        if not members or held + n > limit:
            members, held = [], 0
            groups.append(members)
        members.append(p)
        open_by_dtype[p._dtype] = members, held + n
    return [GradBucket(i, g, i == len(groups) - 1) for i, g in enumerate(groups)]


def _reached(outputs: Any) -> set[int]:
    """The leaves that a backward from the outputs will reach."""
    tensors = tensors_in(outputs)
    nodes = reached([t._skimp_node for t in tensors if t._skimp_node is not None])
    leaves = [node.variable for node in nodes if type(node) is AccumulateGrad]
    leaves += [t for t in tensors if t._rg and t._skimp_node is None]
    return {id(t) for t in leaves}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dicts and objects with attributes."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return [t for v in vars(value).values() for t in tensors_in(v)]
    return []


def done(value: Any) -> Future:
    """A future that has its value."""
    made = Future()
    made.set_result(value)
    return made
