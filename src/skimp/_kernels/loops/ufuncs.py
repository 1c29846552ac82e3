"""NumPy's own loops, called straight: small arrays, and long ones by a team."""

from __future__ import annotations

from typing import Any

import cython


def ran(
    steps: Any, operands: Any, n: Any, block: Any, registers: Any, outs: Any, threads: Any,
    asked: Any = False,
) -> Any:  # fmt: skip
    """Steps (ufunc, numbers of operands, of which the last is written) over runs of n elements,
    `block` of them at a time, by so many threads; from `registers` to `outs` operands are registers
    of a block for each. By NumPy's own loops (`passes.h`). Whether it is done, as nothing is where
    types or layouts are none of theirs; or whether it would be, if that is what is `asked`."""
    if cython.compiled:
        return passes_ran(steps, operands, n, block, registers, outs, threads, asked)  # type: ignore[name-defined] # noqa: F821
    for first in range(0, 0 if asked else n, block):
        stepped(steps, operands, registers, outs, first, min(first + block, n))
    return True


def stepped(
    steps: Any, operands: Any, registers: Any, outs: Any, first: Any, last: Any
) -> list[Any]:
    """The operands of a block, after the steps."""
    parts = [a.reshape(-1)[first:last] if a.ndim else a for a in operands]
    for k in range(registers, outs):
        parts[k] = operands[k][: last - first]
    for ufunc, *args in steps:
        *read, out = [parts[k] for k in args]
        ufunc(*read, out=out)
    return parts


def ufunc(function: Any) -> Any:
    """A ufunc of NumPy's, whose loops are called straight where arrays are small (`bare.h`)."""
    return bare_ufunc(function) if cython.compiled else function  # type: ignore # noqa: F821


def exponential(function: Any) -> Any:
    """NumPy's `exp`, of float32 by a loop of ours where the processor has the vectors for it
    (`exponentials.h`)."""
    return exponentials_ufunc(function) if cython.compiled else function  # type: ignore # noqa: F821


def reduction(function: Any) -> Any:
    """Its `reduce`, likewise, along one dim or all."""
    reduce = function.reduce
    return bare_reduce(function, reduce) if cython.compiled else reduce  # type: ignore # noqa: F821


def concatenate(function: Any) -> Any:
    """NumPy's `concatenate`, likewise."""
    return joins_concatenate(function) if cython.compiled else function  # type: ignore # noqa: F821


def stack(function: Any) -> Any:
    """The same of what puts arrays side by side along a new dim."""
    return joins_stack(function) if cython.compiled else function  # type: ignore # noqa: F821


def multiply(instead: Any, ufuncs: Any, most: Any, most_of_batch: Any) -> Any:
    """`blas.multiply`, which is asked instead where something is not for NumPy's loops
    (`matmul.h`): other types, more multiplications. `ufuncs`: NumPy's matmul, multiply and add."""
    if cython.compiled:
        return matmul_multiply(instead, ufuncs, most, most_of_batch)  # type: ignore # noqa: F821
    return instead


def times(instead: Any, ufuncs: Any, most: Any, most_of_batch: Any, largest: Any) -> Any:
    """`products.times`, likewise; where something is added, factors have fewer elements than the
    `largest`."""
    if cython.compiled:
        return matmul_times(instead, ufuncs, most, most_of_batch, largest)  # type: ignore # noqa: F821
    return instead


def empty(function: Any) -> Any:
    """NumPy's `empty`, of a tuple of sizes and a type, whose longer arrays begin with a line of the
    cache (`lines.h`)."""
    return lines_function(function) if cython.compiled else function  # type: ignore # noqa: F821
