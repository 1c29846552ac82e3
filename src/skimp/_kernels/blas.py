"""The threads of NumPy's BLAS: how many there are, and that they don't stand in the way of ours.

Work that is shared among our own threads asks for one: two pools would wait for each other. And
those that wait for the next product must sleep soon (`patience.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, Final

import numpy as np

from skimp._engine.interrupts import insist, region
from skimp._kernels import batches_loops, batches_onednn, compiled, patience, products_onednn
from skimp._kernels.locks import reentrant
from skimp._kernels.openblas import FEW, library
from skimp._kernels.threads import share
from skimp.config import config

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_lock = reentrant()
_inside: list[object] = []  # the regions of one thread that are open
_before = 0
_WORTH: Final = 1 << 25  # multiplications from which its threads are worth waking
# Multiplications that take as long as an element of `config.threads_from`, where our own threads
# share them: a millisecond's work. A helper takes 60 us to wake, and each call that meets another
# at the interpreter's lock waits as long.
_QUICK: Final = 48
_LONG: Final = 1 << 29  # multiplications of which each thread has many milliseconds


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """(get, set) the number of its threads."""
    openblas = library()
    for suffix in ("64_", ""):
        get = getattr(openblas, f"scipy_openblas_get_num_threads{suffix}", None)
        put = getattr(openblas, f"scipy_openblas_set_num_threads{suffix}", None)
        if get is not None and put is not None:
            return get, put
    return None


def let_idle_threads_sleep() -> None:
    """Let BLAS's threads sleep soon where NumPy was there before skimp.

    OpenBLAS reads the variable anew, and its threads are ended, as before a fork: the next product
    starts them again. Libraries of NumPy 2.5 and later don't lend these functions: there a program
    that imports NumPy first has threads that spin, unless it sets the variable before.
    """
    if patience.CHOSEN or not patience.LATE:
        return
    openblas = library()
    read = getattr(openblas, "openblas_read_env", None)
    end = getattr(openblas, "blas_thread_shutdown_", None)
    if read is not None and end is not None:
        read()
        end()


@region
def one_thread() -> Iterator[None]:
    """Inside, a product runs on the thread that asks for it."""
    functions = _functions()
    if functions is None:
        yield
        return
    mine = object()
    try:
        _enter(mine, *functions)
        yield
    finally:
        insist(_leave, mine, functions[1])


def _enter(mine: object, get: Callable[[], int], put: Callable[[int], None]) -> None:
    global _before
    with _lock:
        if not _inside:
            _before = get()
        _inside.append(mine)
        put(1)


def _leave(mine: object, put: Callable[[int], None]) -> None:
    global _before
    with _lock:
        if mine in _inside:
            _inside.remove(mine)
        if not _inside and _before:
            put(_before)
            _before = 0  # a region that is interrupted before it begins puts nothing back


def _multiply(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b for (..., m, k) and (..., k, n), in `out` if it is given, which BLAS can write; else
    row-major.

    BLAS wakes its threads for matrices of half a million multiplications and more. Where they
    sleep, that costs more than it saves up to sixty-four times as many: those are left alone. A
    column times a row is no product to NumPy's BLAS but a loop of its own, three times as slow as
    the ufunc.
    """
    columns = b.shape[-1]
    all_of_them = a.size * columns
    if all_of_them <= FEW:
        if a.shape[-1] == 1 and a.dtype.kind == "f":
            return np.multiply(a, b, out=out, order="C")
        if a.ndim < 3 or all_of_them < batches_loops.WORTH or config.threads < 2:
            return np.matmul(a, b, out=out, order="C")
    rows, depth = a.shape[-2:]
    if a.ndim == 2 == b.ndim:
        if a.dtype.char == "f" and (
            all_of_them > products_onednn.SMALL or rows < products_onednn.THIN
        ):
            out = np.empty((rows, columns), a.dtype) if out is None else out
            if products_onednn.multiply(a, b, out, 1 if _inside else config.threads):
                return out
    elif a.shape[:-2] == b.shape[:-2] and a.dtype.char == "f" == b.dtype.char:
        out = np.empty((*a.shape[:-1], columns), a.dtype) if out is None else out
        if all_of_them < batches_onednn.WORTH:
            if config.threads > 1 and batches_loops.multiply(a, b, out):
                return out
        elif batches_onednn.multiply(a, b, out, threads_for_products()):
            return out
    functions = _functions() if FEW < rows * depth * columns < _WORTH and not _inside else None
    if functions is None:
        return np.matmul(a, b, out=out, order="C")
    mine = object()
    try:
        _enter(mine, *functions)
        return np.matmul(a, b, out=out, order="C")
    finally:
        insist(_leave, mine, functions[1])


UFUNCS: Final = (np.matmul, np.multiply, np.add)  # whose loops C calls straight
_loops: Final = compiled.loops()
multiply: Final[Callable[..., Array]] = (
    _multiply
    if _loops is None
    else _loops.multiply(_multiply, UFUNCS, FEW, batches_loops.WORTH - 1)
)


def by_address(
    kind: str, a: tuple[Ints, Ints], b: tuple[Ints, Ints], out: tuple[Ints, Ints], adds: bool
) -> Callable[[int, int, int, int, bool], None] | None:
    """What makes `multiply` (or `gemm.add_product`) of factors of one type and their result, by
    their shapes and strides, where it makes it from addresses: those three, how many threads may
    share it, and whether it is added. None where it is a call of NumPy's or of BLAS.
    """
    (shape, strides), (other, others) = a, b
    if kind != "f" or not (adds or math.prod(shape) * other[-1] > FEW):
        return None
    if len(shape) == 2 == len(other):
        found = products_onednn.prepared("f", "f", shape, other[1], strides, others, out[1])
        return None if found is None else found[0]
    if adds or len(shape) != len(other):
        return None
    return batches_onednn.prepared(a, b, out)


def multiplier(a: Array, b: Array, out: Array) -> Callable[[Array], object]:
    """`multiply` by `b` into `out` of matrices that lie as `a` does: how is asked once. `b` and
    `out` stay where they are.
    """
    made = products_onednn.repeated(a, b, out) if a.size * b.shape[-1] > FEW else None
    return partial(multiply, b=b, out=out) if made is None else made


def threads_for_products() -> int:
    """One where threads share other work, of which products are pieces."""
    return 1 if _inside else config.threads


def alone(multiplications: int) -> AbstractContextManager[None]:
    """Inside, products of so many stay on the thread that asks, if it is too few for several."""
    return one_thread() if FEW < multiplications < _WORTH and not _inside else nullcontext()


def shares(items: int, multiplications: int) -> bool:
    """Whether several threads do so many items."""
    several = items > 1 and config.threads > 1
    return several and multiplications >= _QUICK * config.threads_from


def spread(work: Callable[[], object], items: int, multiplications: int) -> None:
    """Run `work`, which does items as long as there are any, on as many threads as so many
    multiplications are worth, and products on the threads that ask for them."""
    if shares(items, multiplications):
        with one_thread():
            share(work, min(config.threads, items))
    else:
        share(work, 1)


def side_by_side(pieces: Sequence[Callable[[], object]], multiplications: int) -> None:
    """Run pieces of work that know nothing of each other, which take about as long: each on one
    thread if so many multiplications are worth it, which wait for each other less than threads that
    share first one piece and then the next.
    """
    if multiplications >= _LONG:  # where more threads than pieces have work, for long enough
        for piece in pieces:
            piece()
        return
    items = iter(pieces)

    def work() -> None:
        for piece in items:
            piece()

    spread(work, len(pieces), multiplications)


def get_num_threads() -> int:
    """How many threads one op may use (PyTorch: get_num_threads)."""
    return config.threads


def set_num_threads(threads: int) -> None:
    """Let one op use this many threads, the caller's among them (PyTorch: set_num_threads).

    Products by NumPy itself are bound by it as well: they use the same BLAS.

    Raises: RuntimeError for what is no positive int.
    """
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(threads).__name__}")
    if threads < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    config.threads = threads
    use_threads(threads)


def use_threads(threads: int) -> None:
    """Let BLAS use this many threads, whatever our own work uses."""
    functions = _functions()
    if functions is not None:
        functions[1](threads)
