"""einsum: the equation is read into labels of dimensions, and pairs of operands are contracted by
batched products.

A label is an int: letters are 0 to 51, the dimensions of the ellipsis are 52 and on, counted from
the last. Dimensions of size 1 are taken out before anything is multiplied and put back at the end,
so broadcasting needs no care in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import general
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.tensor.checks import same_scalar_type
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching
from skimp._ops.linalg.contractions import as_turned, turned
from skimp._ops.linalg.matmul import bmm, matmul, mm
from skimp._ops.math.arithmetic import mul

ELLIPSIS: Final = -1
_LETTERS: Final = 52
Labels = list[int]
Ints = tuple[int, ...]


@dataclass
class Term:
    """An operand and the label of each of its dimensions."""

    tensor: Tensor
    labels: Labels


@general(method=False, autocast="lower", batch=batching.products.einsum)
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
    product = _product(*args) if len(args) == 3 else None
    if product is not None:
        return product
    tensors: Sequence[Any]
    if isinstance(args[0], str):
        tensors = args[1:]
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            tensors = tensors[0]
        _require_tensors(tensors)
        labels, wanted, sizes = _read(args[0], tuple([tuple(t.shape) for t in tensors]))
    else:
        inputs, output, tensors = _parse_lists(args)
        labels, wanted, sizes = _placed(inputs, output, [tuple(t.shape) for t in tensors])
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
        return _planned_product(equation, a, b)
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


class Plan(NamedTuple):
    """A product of two operands as their orders of dims, and the shapes in which they meet: None
    where they are so already."""

    product: Callable[[Tensor, Tensor], Tensor]
    order_a: Ints | None
    shape_a: Ints | None
    order_b: Ints | None
    shape_b: Ints | None
    made: Ints | None
    order: Ints | None


def _planned_product(equation: str, a: Tensor, b: Tensor) -> Tensor | None:
    """What `_contract` makes of two operands, where that follows from their shapes."""
    if a._dtype is not b._dtype:
        return None
    plan = _plan(equation, tuple(a.shape), tuple(b.shape))
    if plan is None:
        return None
    product, order_a, shape_a, order_b, shape_b, made, order = plan
    result = product(as_turned(a, order_a, shape_a), as_turned(b, order_b, shape_b))
    if made is not None:
        result = result.reshape(made)
    return result if order is None else result.permute(order)


@lru_cache(256)
def _plan(equation: str, shape_a: Ints, shape_b: Ints) -> Plan | None:
    (a, b), wanted, sizes = _read(equation, (shape_a, shape_b))
    once = len(set(a)) == len(a) and len(set(b)) == len(b)
    alone = (set(a) ^ set(b)) - set(wanted)  # summed before the product
    if not once or alone or min((*shape_a, *shape_b), default=1) < 2:
        return None
    roles = _roles(a, b, set(wanted), math.prod(shape_a) >= math.prod(shape_b))
    batch, left, inner, right = roles
    groups = [math.prod([sizes[n] for n in group]) for group in roles]
    labels = batch + left + right
    size = math.prod([sizes[n] for n in labels])
    if (
        inner
        and size < max(math.prod(shape_a), math.prod(shape_b))
        and max(map(len, roles[1::2])) > 1
    ):
        return None  # whose order follows from strides
    found: list[Ints | None] = []
    for own, shape, order, meets in (
        (a, shape_a, batch + left + inner, [0, 1, 2] if batch else [1, 2]),
        (b, shape_b, batch + inner + right, [0, 2, 3] if batch else [2, 3]),
    ):
        turn = [own.index(n) for n in order]
        form = [groups[i] for i in meets]
        if not inner:
            turn = [own.index(n) for n in labels if n in own]
            form = [sizes[n] if n in own else 1 for n in labels]
        found += turned(shape, tuple(turn), tuple(form))
    met = [groups[i] for i in ((0, 1, 3) if batch else (1, 3))]
    made = [sizes[n] for n in labels]
    last = [labels.index(n) for n in wanted]
    turn_a, form_a, turn_b, form_b = found
    return Plan(
        (bmm if batch else mm) if inner else mul,
        turn_a,
        form_a,
        turn_b,
        form_b,
        tuple(made) if inner and made != met else None,
        tuple(last) if last != sorted(last) else None,
    )


def _roles(a: Labels, b: Labels, kept: set[int], first: bool) -> tuple[Labels, ...]:
    """The labels that both have and keep, of the first alone, that are summed in the order of the
    larger operand (the first or not), of the second alone."""
    shared = [n for n in a if n in b]
    inner = [n for n in (a if first else b) if n in shared and n not in kept]
    return (
        [n for n in shared if n in kept],
        [n for n in a if n not in shared],
        inner,
        [n for n in b if n not in shared],
    )


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


# -- reading --------------------------------------------------------------------------------------


Read = tuple[list[Labels], Labels, dict[int, int]]


def _require_tensors(operands: Any) -> None:
    for t in operands:
        if not isinstance(t, Tensor):
            raise TypeError(
                f"einsum(): argument 'operands' must be tuple of Tensors, not {type(t).__name__}"
            )


@lru_cache(512)
def _read(equation: str, shapes: tuple[Ints, ...]) -> Read:
    """The labels of each operand and of the result, and the sizes of all; nobody changes them."""
    left, arrow, right = equation.partition("->")
    inputs = [_labels(part, f"operand {i}", equation) for i, part in enumerate(left.split(","))]
    if not shapes:
        raise RuntimeError("einsum(): must provide at least one operand")
    if len(shapes) != len(inputs):
        more = "more" if len(shapes) > len(inputs) else "fewer"
        raise RuntimeError(
            f"einsum(): {more} operands were provided than specified in the equation"
        )
    return _placed(inputs, _labels(right, "output", equation) if arrow else None, shapes)


def _placed(inputs: list[Labels], output: Labels | None, shapes: Sequence[Ints]) -> Read:
    width = _ellipsis_width(inputs, shapes)
    labels = [
        _spelled(own, len(shape) - len(own) + 1 if ELLIPSIS in own else 0)
        for own, shape in zip(inputs, shapes, strict=True)
    ]
    sizes = _sizes(labels, shapes)
    return labels, _output(inputs, output, width), sizes


def _labels(text: str, what: str, equation: str) -> Labels:
    found: Labels = []
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c == " ":
            continue
        if c == ".":
            if ELLIPSIS in found:
                rest = (
                    "for which an ellipsis was already found"
                    if what != "output"
                    else "but an ellipsis (...) was already found"
                )
                raise RuntimeError(f"einsum(): found '.' for {what} {rest}")
            if text[i : i + 2] != "..":
                raise RuntimeError(
                    f"einsum(): found '.' for {what} that is not part of any ellipsis"
                )
            found.append(ELLIPSIS)
            i += 2
        elif c.isascii() and c.isalpha():
            found.append(ord(c) - 65 if c.isupper() else ord(c) - 97 + 26)
        else:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {equation.index(c)} in the equation "
                "string, subscripts must be in [a-zA-Z]"
            )
    return found


def _parse_lists(args: Any) -> tuple[list[Labels], Labels | None, list[Tensor]]:
    output = None
    if len(args) % 2:
        args, output = args[:-1], _listed(args[-1])
    tensors = list(args[::2])
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"einsum(): expected Tensor as operand {i}, but got {type(t).__name__}")
    return [_listed(labels) for labels in args[1::2]], output, tensors


def _listed(labels: Any) -> Labels:
    found = []
    for n in labels:
        if n is Ellipsis:
            found.append(ELLIPSIS)
        elif 0 <= n < _LETTERS:
            found.append(int(n))
        else:
            raise ValueError(
                "einsum(): subscript in subscript list is not within the valid range [0, "
                f"{_LETTERS})"
            )
    return found


def name(label: int) -> str:
    """The letter of a label, for messages."""
    return chr(label + 65) if label < 26 else chr(label - 26 + 97) if label < _LETTERS else "..."


# -- labels of each operand -----------------------------------------------------------------------


def _ellipsis_width(inputs: list[Labels], shapes: Sequence[Ints]) -> int:
    """How many dimensions the widest ellipsis covers."""
    widths = [0]
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        named, ndim = len([n for n in labels if n != ELLIPSIS]), len(shape)
        if ELLIPSIS in labels:
            if named > ndim:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than "
                    f"the number of dimensions ({ndim}) for operand {i}"
                )
            widths.append(ndim - named)
        elif named != ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({ndim}) for operand {i} and no ellipsis was given"
            )
    return max(widths)


def _spelled(labels: Labels, covered: int) -> Labels:
    """With the ellipsis as the labels of the dimensions that it covers."""
    found: Labels = []
    for n in labels:
        found.extend(range(_LETTERS + covered - 1, _LETTERS - 1, -1) if n == ELLIPSIS else [n])
    return found


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


def _sizes(labels: list[Labels], shapes: Sequence[Ints]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for i, (own, shape) in enumerate(zip(labels, shapes, strict=True)):
        seen: dict[int, int] = {}
        for label, n in zip(own, shape, strict=True):
            if seen.setdefault(label, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {name(label)} is repeated for operand {i} but the sizes "
                    f"don't match, {n} != {seen[label]}"
                )
        for label, n in seen.items():
            known = sizes.get(label, 1)
            if known != n and known != 1 and n != 1:
                raise RuntimeError(
                    f"einsum(): subscript {name(label)} has size {n} for operand {i} which does "
                    f"not broadcast with previously seen size {known}"
                )
            sizes[label] = n if known == 1 else known
    return sizes


def _output(inputs: list[Labels], output: Labels | None, width: int) -> Labels:
    given = [n for labels in inputs for n in labels]
    if output is None:
        once = sorted([n for n in set(given) if n != ELLIPSIS and given.count(n) == 1])
        return _spelled([ELLIPSIS], width) + once
    for n in output:
        if n != ELLIPSIS and n not in given:
            raise RuntimeError(
                f"einsum(): output subscript {name(n)} does not appear in the equation for any "
                "input operand"
            )
        if output.count(n) > 1:
            raise RuntimeError(
                f"einsum(): output subscript {name(n)} appears more than once in the output"
            )
    return _spelled(output, width)


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
    while len(terms) > 1:
        i, j = _next_pair(terms, wanted, sizes)
        rest = [t for n, t in enumerate(terms) if n not in (i, j)]
        kept = set(wanted).union(*[t.labels for t in rest])
        terms = [*rest[:i], _pair(terms[i], terms[j], kept, sizes), *rest[i:]]
    term = _summed(terms[0], set(wanted))
    order = [term.labels.index(n) for n in wanted if n in term.labels]
    result = term.tensor.permute(order) if order != list(range(len(order))) else term.tensor
    for dim, label in enumerate(wanted):
        if label not in term.labels:
            result = result.unsqueeze(dim)
    return result


def _next_pair(terms: list[Term], wanted: Labels, sizes: dict[int, int]) -> tuple[int, int]:
    """The pair whose product adds least to the memory in use; of those, the one with fewest
    multiplications.
    """

    def price(i: int, j: int) -> tuple[int, int]:
        rest = set(wanted).union(*[t.labels for n, t in enumerate(terms) if n not in (i, j)])
        both = set(terms[i].labels) | set(terms[j].labels)
        made, gone = both & rest, (terms[i].labels, terms[j].labels)
        size = math.prod([sizes[n] for n in made]) - sum(
            [math.prod([sizes[n] for n in g]) for g in gone]
        )
        return size, math.prod([sizes[n] for n in both])

    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=lambda pair: price(*pair)) if len(pairs) > 1 else pairs[0]


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
    batch, left, inner, right = _roles(a.labels, b.labels, kept, first_is_larger)
    labels = batch + left + right
    if not inner:
        return Term(mul(_aligned(a, labels), _aligned(b, labels)), labels)
    same_scalar_type(a.tensor, b.tensor)
    groups = [math.prod([sizes[n] for n in group]) for group in (batch, left, inner, right)]
    first, second = left, right
    size = groups[0] * groups[1] * groups[3]
    if size < larger.tensor.numel():  # the result is cheaper to put in order than the operands
        first, second = _as_stored(a, left), _as_stored(b, right)
    x = _merged(a, batch + first + inner, [groups[0], groups[1], groups[2]], bool(batch))
    y = _merged(b, batch + inner + second, [groups[0], groups[2], groups[3]], bool(batch))
    product = bmm(x, y) if batch else mm(x, y)
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
