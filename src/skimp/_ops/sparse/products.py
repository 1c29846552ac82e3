"""Products of a sparse matrix's entries with rows of a dense one: two kernels, each the other's
derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import compiled
from skimp._kernels.rows import merge_rows

_BLOCK = 1 << 18  # elements of gathered rows at a time


def _blocks(count: int, width: int) -> Any:
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


_both: dict[str, Any] = {}


def _weighted(values: Tensor, x: Tensor, to: Tensor, of: Tensor, n: int) -> Any:
    return _both["spmm"](values, x, to, of, n)


def _paired(left: Tensor, right: Tensor, to: Tensor, of: Tensor) -> Any:
    return _both["sddmm"](left, right, to, of)


@hidden(rule=Rule("SpmmBackward0",
    values=lambda g, x, to, of: _paired(g, conj(x), to, of),
    x=lambda g, values, x_shape, to, of: _weighted(conj(values), g, of, to, x_shape[0]),
))  # fmt: skip
def _spmm(values: Tensor, x: Tensor, to: Tensor, of: Tensor, n: int) -> Tensor:
    """(n, columns): row to[e] is the sum over entries e of values[e] * x[of[e]]."""
    v, rows, where, source = [t._skimp_array() for t in (values, x, to, of)]
    made, into = blank((n, rows.shape[1]), x._dtype)
    into.fill(0)
    rows = np.ascontiguousarray(rows)  # or each `take` would do it
    if (loops := compiled.taking(into, rows, v)) is not None:
        to_rows, of_rows = np.ascontiguousarray(where), np.ascontiguousarray(source)
        if loops.weighed(into, to_rows, rows, of_rows, v):
            return made

    def give(entries: Array, out: Array) -> None:
        rows.take(source.take(entries), 0, out=out, mode="clip")
        out *= v.take(entries)[:, None]

    merge_rows(into, where, give)
    return made


@hidden(rule=Rule("SddmmBackward0",
    left=lambda g, right, to, of, left_shape: _weighted(g, conj(right), to, of, left_shape[0]),
    right=lambda g, left, to, of, right_shape: _weighted(g, conj(left), of, to, right_shape[0]),
))  # fmt: skip
def _sddmm(left: Tensor, right: Tensor, to: Tensor, of: Tensor) -> Tensor:
    """For every entry e the sum of the products of the rows left[to[e]] and right[of[e]]."""
    a, b, rows, others = (
        left._skimp_array(),
        right._skimp_array(),
        to._skimp_array(),
        of._skimp_array(),
    )
    made, into = blank((rows.size,), right._dtype)
    for block in _blocks(rows.size, 2 * a.shape[1]):
        one, other = a.take(rows[block], 0), b.take(others[block], 0)
        np.einsum("ij,ij->i", one, other, out=into[block])
    return made


_both.update(spmm=_spmm, sddmm=_sddmm)
