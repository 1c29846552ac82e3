"""Runs expressions: whole arrays where they are small, planned blocks on threads where large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from skimp._engine.eval.expr import Array, Expr, Kernel, Leaf, Shape, walk
from skimp._engine.eval.passes import run_pass, run_passes
from skimp._engine.eval.pieces import cuts
from skimp._engine.eval.plan import Prepared, prepare
from skimp._engine.eval.program import BRIEF, Plan
from skimp._engine.eval.runner import Runner, share_plan
from skimp._engine.interrupts import insist
from skimp._kernels import bare, compiled, shaping, sharing, teams
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import Call, at_once, quietly, whole
from skimp.config import config

_LEAST_BLOCK: Final = 1 << 14  # elements below which Python's time per step would show
_LONGER: Final = 8  # blocks in one of work that is one kernel,
_LONGEST: Final = 32  # up to so many where each thread
_MANY: Final = 16  # has so many of them
_DOUBLED_FROM: Final = 1 << 25  # elements
_SPREAD_FROM: Final = 1 << 12  # elements from which an array of one number repays making it


class Observer(Protocol):
    """Is told, on the thread that asked for values, when they are computed."""

    def evaluation_begins(self) -> None: ...
    def evaluation_ends(self) -> None: ...


OBSERVERS: list[Observer] = []


def evaluate(root: Expr, out: Array, then: Sequence[Call] = ()) -> None:
    """Write root's values to `out`, which is C-contiguous, of root's shape and dtype.

    `out` may be the very memory of leaves with the same layout (donation); other overlaps cost a
    copy. With calls of functions of C for `then`, either all of `out` is written and these are
    made, or nothing has happened, whenever a signal handler raises.
    """
    if OBSERVERS:
        observed(_evaluate, root, out, then)
    elif then or root.size > 1 or not run_pass(root, out):
        _evaluate(root, out, then)


def observed(work: Callable[..., None], *args: Any) -> None:
    """Make a call that computes what was deferred, with those told who watch that."""
    for one in OBSERVERS:
        one.evaluation_begins()
    try:
        work(*args)
    finally:
        for one in OBSERVERS:
            one.evaluation_ends()


def _evaluate(root: Expr, out: Array, then: Sequence[Call]) -> None:
    small = out.size < config.small_below
    if not (small or _is_plain(root, out)):
        _evaluate_blocks((root,), (out,), then)
    elif not then:
        _evaluate_whole(root, out)
    elif root.size == 1 and root.kernel.ufunc is not None and _share_call(root, out, then):
        pass
    elif root.size == 1 and (calls := _call_of(root, out)):
        at_once([*calls, *then])
    elif small:
        value = np.empty(root.shape, root.dtype)
        _evaluate_whole(root, value)
        at_once([(bare.copyto, out, value), *then])
    else:
        _evaluate_over(root, out, then)


def _in_turn(work: Callable[[], object], then: Sequence[Call]) -> None:
    work()
    at_once(then)


def evaluate_many(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> None:
    """Write several expressions at once; what those of the same shape have in common runs once."""
    by_shape: dict[Shape, list[int]] = {}
    for number, root in enumerate(roots):
        by_shape.setdefault(root.shape, []).append(number)
    leaves = {leaf for root in roots for leaf in root.leaves}
    if len(by_shape) > 1 and any(_meets(out, leaves) for out in outs):
        _evaluate_apart(roots, outs)
        return
    for numbers in by_shape.values():
        _evaluate_blocks(tuple(roots[n] for n in numbers), tuple(outs[n] for n in numbers))


def _evaluate_apart(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> None:
    """Read everything before anything is written."""
    values = [np.empty(root.shape, root.dtype) for root in roots]
    evaluate_many(roots, tuple(values))
    for out, value in zip(outs, values, strict=True):
        out[...] = value


def _meets(out: Array, leaves: Any) -> bool:
    for leaf in leaves:  # noqa: SIM110  # `any` and a generator are calls, for one or two
        if bare.may_share_memory(out, leaf.array):
            return True
    return False


def _is_plain(root: Expr, out: Array) -> bool:
    """Whether one NumPy call does as well as blocks: one kernel, dense arrays, one thread."""
    if root.size != 1 or not config.small_below:
        return False
    # as `threads_for` has it
    few = out.size < config.threads_from * (BRIEF if root.kernel.brief else 1)
    return (few or config.sharers(out.size) == 1) and _is_dense(root)


def _is_dense(root: Expr) -> bool:
    """Whether the one kernel reads arrays that are as long as the result in one run."""
    for arg in root.args[:1] if root.kernel.beside else root.args:
        if type(arg) is Leaf and not arg.array.flags.c_contiguous:
            return False
    return True


# -- whole arrays ---------------------------------------------------------------------------------


def _evaluate_whole(root: Expr, out: Array) -> None:
    if root.size > 1:
        quietly(_evaluate_nodes, root, out)
        return
    kernel, read = root.kernel, _operands(root, out.shape)
    if kernel.aliases or not _meets(out, root.leaves):
        if compiled.loops() is None or not sharing.ran(kernel.ufunc, read, out, kernel.numbers):
            quietly(partial(kernel.fn, *read, out=out))
        return
    value = np.empty(root.shape, root.dtype)
    quietly(partial(kernel.fn, *read, out=value))
    out[...] = value


def _share_call(root: Expr, out: Array, then: Sequence[Call]) -> bool:
    """Have a team write a kernel of leaves, and make the calls `then`; whether that is done."""
    kernel = root.kernel
    found = sharing.listed(kernel.ufunc, _operands(root, out.shape), out, kernel.numbers)
    if found is None:
        return False
    at_once([found.call, *then])
    teams.done(found.began, found.seconds)
    return True


def _call_of(root: Expr, out: Array) -> list[Call]:
    """The calls of C that write a kernel of leaves, if that is all."""
    kernel = root.kernel
    if kernel.listed is None and not (kernel.aliases or not _meets(out, root.leaves)):
        return []
    return kernel.calls(tuple(_operands(root, out.shape)), out)


def _evaluate_over(root: Expr, out: Array, then: Sequence[Call]) -> None:
    """The values of one kernel over what it reads, in pieces."""
    kernel, flat = root.kernel, out.reshape(-1)
    operands = _operands(root, out.shape)
    if any([a.ndim and a.shape != out.shape for a in operands]):
        _evaluate_blocks((root,), (out,), then)
        return
    rows = [a.reshape(-1) if a.ndim else a for a in operands]
    pieces = [cut for cut, _ in cuts(flat.size, config.block)]

    def make(number: int, rooms: list[Array]) -> None:
        piece = pieces[number]
        kernel.fn(*[a[piece] if a.ndim else a for a in rows], out=rooms[0])

    _put_in_place(make, [[flat[piece]] for piece in pieces], then)


def _put_in_place(
    make: Callable[[int, list[Array]], None], places: list[list[Array]], then: Sequence[Call]
) -> None:
    """Write blocks over what they are made of: `make(number, rooms)` writes each into scratch
    memory, and one call of C puts it in its place. What a signal handler leaves undone another
    thread does, where none runs.
    """
    done: list[None] = []  # an item for each block that is in its place, and one for `then`
    note = (done.append, None)

    def rest() -> None:
        flat = [take(place.size, place.dtype) for place in places[0]]  # no block is longer
        for number in range(len(done), len(places)):
            block = places[number]
            rooms = [a[: to.size].reshape(to.shape) for a, to in zip(flat, block, strict=True)]
            quietly(make, number, rooms)
            at_once([*[(bare.copyto, *pair) for pair in zip(block, rooms, strict=True)], note])
        for a in flat:
            give(a)
        if len(done) == len(places):
            at_once([*then, note])

    try:
        rest()
    except BaseException:
        if done:
            insist(whole, rest)
        raise


def _evaluate_nodes(root: Expr, out: Array) -> None:
    values: dict[int, Array] = {}
    value = out
    for node in walk((root,)):
        kernel = node.kernel
        args = [
            values[id(arg)] if type(arg) is Expr else operand(arg, kernel, out.shape)
            for arg in node.args
        ]
        direct = node is root and (kernel.aliases or not _meets(out, root.leaves))
        value = values[id(node)] = out if direct else np.empty(node.shape, node.dtype)
        kernel.fn(*args, out=value)
    if value is not out:
        out[...] = value


def _operands(root: Expr, shape: Shape) -> list[Any]:
    """What a kernel of leaves and numbers reads (`operand`, of which most need nothing)."""
    kernel = root.kernel
    found: list[Any] = []
    for arg in root.args:
        if type(arg) is not Leaf:
            found += (operand(arg, kernel, shape) if kernel.dense else arg,)
        elif kernel.strided:
            found += (arg.array,)
        else:
            found += (operand(arg, kernel, shape),)
    return found


def operand(arg: Any, kernel: Kernel, shape: Shape) -> Any:
    """What the kernel reads, in a layout that gives the bits of contiguous arrays."""
    if type(arg) is not Leaf:
        spread = kernel.dense and (not kernel.strided or math.prod(shape) >= _SPREAD_FROM)
        return np.full(shape, arg) if spread else arg
    array = arg.array
    if kernel.strided or (array.flags.c_contiguous and array.shape == shape):
        return array
    return np.ascontiguousarray(shaping.broadcast(array, shape))


# -- blocks ---------------------------------------------------------------------------------------


def _evaluate_blocks(
    roots: tuple[Expr, ...], outs: tuple[Array, ...], then: Sequence[Call] = ()
) -> None:
    if outs[0].size == 0:
        at_once(then)
        return
    prepared = _prepared(roots, outs)
    if _overlaps(prepared, outs):
        work = partial(_evaluate_apart, roots, outs)
        whole(partial(_in_turn, work, then)) if then else work()
        return
    domain = prepared.plan.domain
    over = tuple([out.reshape(domain) for out in outs])
    passes = prepared.plan.passes
    if passes is not None and run_passes(prepared, passes, over, then):
        return
    if not (then or any(prepared.donors)):
        run_blocks(prepared, over)
        return
    if _threads_of(prepared.plan) > 1:  # what is read is gone then: it must not stop halfway
        whole(partial(_in_turn, partial(run_blocks, prepared, over), then))
        return
    runner = Runner(prepared)
    calls = _listed(prepared, over, runner)
    if calls:
        at_once([*calls, *then])
    else:
        boxes = list(prepared.plan.boxes())

        def make(number: int, rooms: list[Array]) -> None:
            box, shape = boxes[number]
            runner.run(box, shape, shape, rooms)

        _put_in_place(make, [[out[box] for out in over] for box, _ in boxes], then)
    runner.close()


def _prepared(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> Prepared:
    """The plan, with longer blocks where one kernel reads and writes memory: nothing is gained by
    what stays in the cache, and fewer blocks mean fewer moments in the interpreter.
    """
    elements = outs[0].size
    if len(roots) == 1 == roots[0].size and _is_dense(roots[0]):
        longer = elements // (_MANY * config.threads * config.block)
        longer = min(max(longer, _LONGER), _LONGEST)
        prepared = prepare(roots, outs, block_for(elements, longer * config.block))
        if not prepared.plan.scratch:
            return prepared
    return prepare(roots, outs, block_for(elements, usual_block(elements)))


def usual_block(elements: int) -> int:
    """`config.block`, twice as much where the registers' memory is little beside the result's."""
    return config.block * (2 if elements >= _DOUBLED_FROM else 1)


def block_for(elements: int, most: int) -> int:
    """`most`, or less where the threads would not all have blocks to run."""
    threads = threads_for(elements)
    if threads == 1:
        return most
    return min(most, max(_LEAST_BLOCK, elements // (2 * threads)))


def _overlaps(prepared: Prepared, outs: tuple[Array, ...]) -> bool:
    """Whether an output shares memory with a leaf other than element for element."""
    for out, donors in zip(outs, prepared.donors, strict=True):
        if not out.flags.c_contiguous:
            raise ValueError(f"evaluate: out has strides {out.strides}; it must be C-contiguous")
        for number, leaf in enumerate(prepared.leaves):
            if number not in donors and bare.may_share_memory(leaf, out):
                return True
    return False


def _listed(prepared: Prepared, outs: tuple[Array, ...], runner: Runner) -> list[Call]:
    """What `run_blocks` calls, where that is ufuncs, on one thread, in few blocks of one shape."""
    boxes = prepared.plan.kept_boxes
    if boxes is None or not prepared.plan.by_ufuncs:
        return []
    shape = boxes[0][1]
    if any([own != shape for _, own in boxes]):  # registers would be filled anew on the way
        return []
    found: list[Call] = []
    for box, _ in boxes:
        found += quietly(runner.calls, box, shape, [out[box] for out in outs])
    return found


def _threads_of(plan: Plan) -> int:
    return threads_for(math.prod(plan.shape), plan.weight)


def run_blocks(prepared: Prepared, outs: tuple[Array, ...]) -> None:
    """Run the plan on every block, writing to `outs`, which are views over the plan's domain."""
    boxes = prepared.plan.boxes()  # shared by the threads

    def work(runner: Runner) -> None:
        for box, shape in boxes:
            runner.run(box, shape, shape, [out[box] for out in outs])
        runner.close()

    share_plan(Runner(prepared), work, _threads_of(prepared.plan))


def threads_for(elements: int, steps: int = BRIEF) -> int:
    """How many threads work on this many elements, with so many brief `steps` for each."""
    worth = elements * min(steps, BRIEF) >= config.threads_from * BRIEF
    return config.sharers(elements) if worth else 1
