"""Expressions over runs of memory, and over others in their place: optimizers' updates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final

from skimp._engine.eval.expr import Array, Expr, Leaf, walk
from skimp._engine.eval.pieces import Cut, cuts
from skimp._engine.eval.plan import Prepared, prepare
from skimp._engine.eval.run import block_for, threads_for
from skimp._engine.eval.runner import Runner, share_plan, spare_runner
from skimp._kernels.threads import quietly, whole
from skimp.config import config

_SHORTEST: Final = 1 << 10  # elements of a block, where a budget has no room for longer ones

Job = tuple[tuple[Array, ...], tuple[Array, ...]]
_Piece = tuple[Job, slice, int]


def evaluate_jobs(roots: tuple[Expr, ...], outs: tuple[Array, ...], jobs: list[Job]) -> None:
    """Write expressions over runs of memory, and the same over others in their place.

    `outs` and all that roots read are 1-d arrays of one length. A job has an array for each of
    `outs` and one for each leaf, in the order of `leaves_of(roots)`; they are 1-d arrays of one
    length, of the same types, and share memory as `outs` and the leaves do: element for element.
    The first job may be `outs` themselves. The threads share the blocks of all jobs.
    """
    total = sum([written[0].size for written, _ in jobs])
    block, threads = block_for(total, config.block), threads_for(total)
    prepared = prepare(roots, outs, block)
    whole_jobs = threads == 1 and outs[0].size <= prepared.plan.block[0]
    runner = spare_runner(prepared) if whole_jobs else None
    if runner is not None:
        quietly(_run_jobs, _pieces(jobs, prepared), runner)  # left as halfway as PyTorch's ops are
    else:
        whole(partial(_share_jobs, prepared, roots, outs, jobs, block, threads))


def _share_jobs(
    prepared: Prepared,
    roots: tuple[Expr, ...],
    outs: tuple[Array, ...],
    jobs: list[Job],
    block: int,
    threads: int,
) -> None:
    """In shorter blocks where there is no room for the registers of those."""
    while (runner := spare_runner(prepared)) is None and block > _SHORTEST:
        block //= 4
        prepared = prepare(roots, outs, block)
    share_plan(runner or Runner(prepared), partial(_run_jobs, _pieces(jobs, prepared)), threads)


def _pieces(jobs: list[Job], prepared: Prepared) -> Iterator[_Piece]:
    part = prepared.plan.block[0]
    return iter([(job, *cut) for job in jobs for cut in _cuts(job[0][0].size, part)])


@lru_cache(maxsize=256)
def _cuts(size: int, part: int) -> list[Cut]:
    """`cuts`, to be read alone: jobs of few sizes come again and again."""
    return cuts(size, part)


def _run_jobs(pieces: Iterator[_Piece], runner: Runner) -> None:
    for (written, read), box, length in pieces:  # shared: next() is atomic
        runner.leaves = read
        at_once = length == written[0].size
        outs = list(written) if at_once else [out[box] for out in written]
        runner.run((box,), (length,), length, outs)
    runner.close()


def leaves_of(roots: tuple[Expr, ...]) -> list[Leaf]:
    """The leaves of expressions in the order of their plan, which holds for leaves that share no
    memory.
    """
    found: dict[Leaf, None] = {}
    for node in walk(roots):
        for arg in node.args:
            if type(arg) is Leaf:
                found[arg] = None
    return list(found)
