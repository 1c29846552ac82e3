"""einsum: pairs of operands are contracted by batched products.

Dimensions of size 1 are taken out before anything is multiplied and put back at the end, so
broadcasting needs no care in between. What follows from shapes alone is planned once
(`einsum_plans`); here is the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching
from skimp._ops.linalg.einsum_plans import next_pair, roles_of, run, steps_of
from skimp._ops.linalg.equations import Labels, parse_lists, placed, read, require_tensors
from skimp._ops.linalg.matmul import bmm, matmul, mm
from skimp._ops.math.arithmetic import mul


@dataclass
class Term:
    """An operand and the label of each of its dimensions."""

    tensor: Tensor
    labels: Labels


@general(method=False, batch=batching.products.einsum)
def einsum(*args: Any) -> Tensor:
    """Sums of products by an equation of labels: `einsum("ij,jk->ik", a, b)` or `einsum(a, [0, 1],
    b, [1, 2], [0, 2])`.

    Memory: a new tensor, or a view where nothing is multiplied or summed.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    tensors: Sequence[Any]
    if isinstance(args[0], str):
        tensors = args[1:]
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            tensors = tensors[0]
        product = _product(args[0], *tensors) if len(tensors) == 2 else None
        if product is None:
            product = _planned(args[0], tensors)
        if product is not None:
            return product
        labels, wanted, sizes = read(args[0], tuple([tuple(t.shape) for t in tensors]))
    else:
        inputs, output, tensors = parse_lists(args)
        labels, wanted, sizes = placed(inputs, output, [tuple(t.shape) for t in tensors])
    terms = [_term(t, own) for t, own in zip(tensors, labels, strict=True)]
    if len(terms) == 1:
        return _contract(terms, wanted, sizes)
    return _contract([_thin(t) for t in terms], wanted, sizes)


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


def _planned(equation: str, tensors: Sequence[Any]) -> Tensor | None:
    """What `_contract` would make of them, where that follows from their shapes."""
    for t in tensors:
        if type(t) not in ORDINARY:
            require_tensors(tensors)
            return None
        if t._dtype is not tensors[0]._dtype:
            return None
    steps = steps_of(equation, tuple([shape_of(t) for t in tensors]))
    return None if steps is None else run(steps, tensors)


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


def _term(t: Tensor, labels: Labels) -> Term:
    """An operand whose repeated labels have become diagonals."""
    if len(set(labels)) == len(labels):
        return Term(t, labels)
    seen: Labels = []
    dim = 0
    for label in labels:
        if label not in seen:
            seen.append(label)
            dim += 1
            continue
        first = seen.index(label)
        t = t.diagonal(0, first, dim).movedim(-1, first)
    return Term(t, seen)


def _thin(term: Term) -> Term:
    """Without dimensions of size 1."""
    t, labels = term.tensor, term.labels
    if 1 not in shape_of(t):
        return term
    for dim in range(len(labels) - 1, -1, -1):
        if t.shape[dim] == 1:
            t = t.squeeze(dim)
            labels = labels[:dim] + labels[dim + 1 :]
    return Term(t, labels)


# -- contracting ----------------------------------------------------------------------------------


def _contract(terms: list[Term], wanted: Labels, sizes: dict[int, int]) -> Tensor:
    given = terms[0].tensor
    while len(terms) > 1:
        i, j = next_pair([t.labels for t in terms], wanted, sizes)
        rest = [t for n, t in enumerate(terms) if n not in (i, j)]
        kept = set(wanted).union(*[t.labels for t in rest])
        terms = [*rest[:i], _pair(terms[i], terms[j], kept, sizes), *rest[i:]]
    term = _summed(terms[0], set(wanted))
    order = [term.labels.index(n) for n in wanted if n in term.labels]
    result = term.tensor
    if result is given or order != sorted(order):  # at least a view of an operand
        result = result.permute(order)
    for dim, label in enumerate(wanted):
        if label not in term.labels:
            result = result.unsqueeze(dim)
    return result


def _summed(term: Term, kept: set[int]) -> Term:
    """Summed over the labels that nobody else reads."""
    gone = [d for d, n in enumerate(term.labels) if n not in kept]
    if not gone:
        return term
    return Term(term.tensor.sum(gone), [n for n in term.labels if n in kept])


def _pair(a: Term, b: Term, kept: set[int], sizes: dict[int, int]) -> Term:
    """The product of two operands, summed over what is not kept."""
    a, b = _summed(a, kept | set(b.labels)), _summed(b, kept | set(a.labels))
    first_is_larger = a.tensor.numel() >= b.tensor.numel()
    larger = a if first_is_larger else b
    batch, left, inner, right = roles_of(a.labels, b.labels, kept, first_is_larger)
    labels = batch + left + right
    if not inner:
        return Term(mul(_aligned(a, labels), _aligned(b, labels)), labels)
    # bmm refuses operands of two types in the words that einsum has, or autocast makes them one
    batched = bool(batch) or a.tensor._dtype is not b.tensor._dtype
    groups = [math.prod([sizes[n] for n in group]) for group in (batch, left, inner, right)]
    first, second = left, right
    size = groups[0] * groups[1] * groups[3]
    if size < larger.tensor.numel():  # the result is cheaper to put in order than the operands
        first, second = _as_stored(a, left), _as_stored(b, right)
    x = _merged(a, batch + first + inner, [groups[0], groups[1], groups[2]], batched)
    y = _merged(b, batch + inner + second, [groups[0], groups[2], groups[3]], batched)
    product = bmm(x, y) if batched else mm(x, y)
    made = product.reshape([sizes[n] for n in batch + first + second])
    if (first, second) != (left, right):
        made = made.permute([(batch + first + second).index(n) for n in labels]).contiguous()
    return Term(made, labels)


def _as_stored(term: Term, labels: Labels) -> Labels:
    """The labels from the largest stride to the smallest, in which a view can merge them."""
    if len(labels) < 2:
        return labels
    strides = dict(zip(term.labels, term.tensor.stride(), strict=True))
    return sorted(labels, key=lambda n: -strides[n])


def _aligned(term: Term, labels: Labels) -> Tensor:
    """The operand with its dimensions in the order of `labels`, size 1 where it has none."""
    t = term.tensor.permute([term.labels.index(n) for n in labels if n in term.labels])
    for dim, label in enumerate(labels):
        if label not in term.labels:
            t = t.unsqueeze(dim)
    return t


def _merged(term: Term, labels: Labels, groups: list[int], batched: bool) -> Tensor:
    t = term.tensor.permute([term.labels.index(n) for n in labels])
    return t.reshape(groups if batched else groups[1:])


SAYS = """\
Shape: the letters of the equation name the dims; letters of one name have one size, or 1.
Dtypes: integers, floating point and complex numbers, alike.
Raises: RuntimeError for an equation or sizes that don't fit."""
