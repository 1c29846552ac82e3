"""einsum: pairs of operands are contracted by batched products.

What follows from shapes is planned once (`einsum_plans`); a product of matrices, as most equations
are, needs no plan.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching
from skimp._ops.linalg.einsum_plans import run, steps_of
from skimp._ops.linalg.equations import parse, require_tensors
from skimp._ops.linalg.matmul import matmul, mm


@general(method=False, batch=batching.products.einsum)
def einsum(*args: Any) -> Tensor:
    """Sums of products by an equation of labels: `einsum("ij,jk->ik", a, b)` or `einsum(a, [0, 1],
    b, [1, 2], [0, 2])`.

    Memory: a new tensor, or a view where nothing is multiplied or summed.
    """
    equation, tensors = parse(args) if len(args) > 1 else ("", ())
    if not tensors:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    if len(tensors) == 2 and (product := _product(equation, *tensors)) is not None:
        return product
    if not all([type(t) in ORDINARY for t in tensors]):
        require_tensors(tensors)
    alike = all([t._dtype is tensors[0]._dtype for t in tensors])
    shapes = tuple([shape_of(t) for t in tensors])
    return run(steps_of(equation, shapes, alike), tensors)


# -- what is a product of matrices as it is written -----------------------------------------------


def _product(equation: Any, a: Any, b: Any) -> Tensor | None:
    """`a @ b`, either transposed or not, where the equation says no more than that; else None."""
    if type(equation) is not str or type(a) not in ORDINARY or type(b) not in ORDINARY:
        return None
    turns = _turns(equation)
    if turns is None:
        return None
    turn_a, turn_b, of_a, of_b = turns
    m, n = a.shape, b.shape
    if len(m) != len(of_a) or len(n) != len(of_b) or a._dtype is not b._dtype:
        return None
    sizes = dict(zip(of_a, m, strict=True))
    if any([sizes.setdefault(label, k) != k for label, k in zip(of_b, n, strict=True)]):
        return None
    if min(sizes.values()) < 2:  # what has size 1 may be broadcast
        return None
    x = a.transpose(-1, -2) if turn_a else a
    y = b.transpose(-1, -2) if turn_b else b
    return mm(x, y) if len(m) == 2 == len(n) else matmul(x, y)


@lru_cache(256)
def _turns(equation: str) -> tuple[bool, bool, str, str] | None:
    """Whether the factors are transposed, and their labels: of `ab,cb->ac`, of `...ab,...bc->...ac`
    with the same letters for the dots, and of `...a,ab->...b`.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    a, comma, b = left.partition(",")
    letters = [a, b, out]
    if not (arrow and comma) or not all([w.isascii() and w.isalpha() for w in letters]):
        return None
    if any([len(set(w)) < len(w) for w in letters]) or min(map(len, letters)) < 2:
        return None
    inner, lead = set(a) & set(b) - set(out), out[:-2]
    if len(inner) != 1:
        return None
    k, row, column = inner.pop(), out[-2], out[-1]
    of_b = (k + column, column + k)
    if b in of_b and a == out[:-1] + k:
        return False, b != of_b[0], a, b
    if a in (lead + row + k, lead + k + row) and b in (lead + of_b[0], lead + of_b[1]):
        return a[-1] != k, b[-1] == k, a, b
    return None


SAYS = """\
Shape: the letters of the equation name the dims; letters of one name have one size, or 1.
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for an equation or sizes that don't fit."""
