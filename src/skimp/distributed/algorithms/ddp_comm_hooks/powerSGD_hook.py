"""PowerSGD: gradients as products of two thin matrices (Vogels, Karimireddy and Jaggi 2019)."""

from __future__ import annotations

from typing import Any

from skimp import linalg
from skimp._engine.tensor.tensor import Tensor, empty
from skimp._ops.random.generator import Generator
from skimp.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from skimp.distributed.groups import chosen
from skimp.distributed.reducer import GradBucket, done
from skimp.distributed.reductions import all_reduce
from skimp.utils.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps from step to step: the errors of its approximation, and the last Q."""

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,  # noqa: N803  (PyTorch's name)
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because PowerSGD can only be applied after the first two iterations in "
                "DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, list[Tensor]] = {}
        self._generator = Generator().manual_seed(random_seed)  # the same on all ranks

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count steps."""
        self.iter += bucket.is_last()

    def compresses(self, rows: int, columns: int) -> bool:
        """Whether two thin matrices are so much smaller."""
        rank = min(rows, columns, self.matrix_approximation_rank)
        return (rows + columns) * rank * self.min_compression_rate < rows * columns


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Matrices among the gradients are averaged as P Q^T of low rank, what that leaves out is added
    in the next step, and the rest is averaged as it is.
    """
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    group, buffer = chosen(state.process_group), bucket.buffer()
    kept: Tensor | None = None
    if state.use_error_feedback:
        error = state.error_dict.get(bucket.index())
        if error is not None:
            buffer.add_(error)
        kept = buffer.clone()
    grads = bucket.gradients()
    matrices = [g.view(g.shape[0], -1) for g in grads if g.dim() > 1]
    chosen_ones = [m for m in matrices if state.compresses(m.shape[0], m.shape[1])]
    taken = {m.data_ptr() for m in chosen_ones}
    for g in grads:
        if g.data_ptr() not in taken:
            all_reduce(g.div_(group.size()), group=group)
    _approximate(state, bucket.index(), chosen_ones, group)
    if kept is not None:
        state.error_dict[bucket.index()] = kept.sub_(buffer)
    state.maybe_increase_iter(bucket)
    return done(buffer)


def _approximate(state: PowerSGDState, index: int, matrices: list[Tensor], group: Any) -> None:
    """Replace each matrix by the ranks' mean, approximately."""
    rank = state.matrix_approximation_rank
    qs = state.q_memory_dict.get(index) if state.warm_start else None
    if qs is None:
        qs = [_random(state, m, min(rank, *m.shape)) for m in matrices]
    for m, q in zip(matrices, qs, strict=True):
        _orthogonalize(q, state.orthogonalization_epsilon)
        p = m @ q
        all_reduce(p, group=group)
        _orthogonalize(p, state.orthogonalization_epsilon)
        q.copy_((m.t() @ p).div_(group.size()))
        all_reduce(q, group=group)
        m.copy_(p @ q.t())
    if state.warm_start:
        state.q_memory_dict[index] = qs


def _random(state: PowerSGDState, m: Tensor, rank: int) -> Tensor:
    return empty((m.shape[1], rank), m._dtype).normal_(generator=state._generator)


def _orthogonalize(m: Tensor, epsilon: float) -> None:
    """In place: a QR decomposition, or with an epsilon Gram and Schmidt."""
    if not epsilon:
        m.copy_(linalg.qr(m)[0])
        return
    for i in range(m.shape[1]):
        column = m[:, i : i + 1]
        column.div_(column.norm() + epsilon)
        if i + 1 < m.shape[1]:
            rest = m[:, i + 1 :]
            rest.sub_(column * (column * rest).sum(0))


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """All of a bucket as one square matrix: faster, and less accurate."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    group, buffer = chosen(state.process_group), bucket.buffer()
    n = buffer.numel()
    side = int(n**0.5) + (int(n**0.5) ** 2 < n)
    square = empty((side * side,), buffer._dtype).zero_()
    square[:n].copy_(buffer)
    error = state.error_dict.get(bucket.index())
    if state.use_error_feedback and error is not None:
        square.add_(error)
    before = square.clone()
    _approximate(state, bucket.index(), [square.view(side, side)], group)
    if state.use_error_feedback:
        state.error_dict[bucket.index()] = before.sub_(square)
    buffer.copy_(square[:n])
    state.maybe_increase_iter(bucket)
    return done(buffer)
