"""What an einsum does, as far as that follows from its equation and the operands' shapes: which
pairs are multiplied, in which orders of dims and in which shapes they meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.linalg.contractions import Turn, as_turned, turned
from skimp._ops.linalg.equations import Ints, Labels, read
from skimp._ops.linalg.matmul import bmm, mm
from skimp._ops.math.arithmetic import mul

Sizes = dict[int, int]


class Product(NamedTuple):
    """Two operands' product: the dims that are summed before it, the order and shape in which each
    meets the other, the result's shape; None where they are so already."""

    product: Callable[[Tensor, Tensor], Tensor]
    gone_a: Ints | None
    turn_a: Ints | None
    shape_a: Ints | None
    gone_b: Ints | None
    turn_b: Ints | None
    shape_b: Ints | None
    made: Ints | None


class Steps(NamedTuple):
    """Products of pairs, each in the place of its first, then what is summed of the last one, its
    order of dims, and where dims of size 1 go."""

    products: tuple[tuple[int, int, Product], ...]
    gone: Ints | None
    order: Ints | None
    gaps: Ints


def run(steps: Steps, operands: Sequence[Tensor]) -> Tensor:
    """The result of the operands."""
    terms = list(operands)
    for i, j, (product, gone_a, turn_a, shape_a, gone_b, turn_b, shape_b, made) in steps.products:
        a, b = terms[i], terms.pop(j)
        a = a if gone_a is None else a.sum(gone_a)
        b = b if gone_b is None else b.sum(gone_b)
        found = product(as_turned(a, turn_a, shape_a), as_turned(b, turn_b, shape_b))
        terms[i] = found if made is None else found.reshape(made)
    result = terms[0] if steps.gone is None else terms[0].sum(steps.gone)
    if steps.order is not None:
        result = result.permute(steps.order)
    elif result is operands[0]:  # nothing is done to it: at least a view
        result = result.permute(tuple(range(result.ndim)))
    for dim in steps.gaps:
        result = result.unsqueeze(dim)
    return result


@lru_cache(512)
def steps_of(equation: str, shapes: tuple[Ints, ...]) -> Steps | None:
    """The steps of operands of these shapes; None where they follow from strides too."""
    labels, wanted, sizes = read(equation, shapes)
    if any([len(set(own)) < len(own) for own in labels]) or any([0 in s for s in shapes]):
        return None
    terms = [*zip(labels, shapes, strict=True)]
    products: list[tuple[int, int, Product]] = []
    while len(terms) > 1:
        thin = [_thin(*term) for term in terms]
        i, j = next_pair(thin, wanted, sizes)
        kept = set(wanted).union(*[t for n, t in enumerate(thin) if n not in (i, j)])
        found = _product(terms[i], terms[j], kept, sizes)
        if found is None:
            return None
        made, product = found
        terms[i] = made, tuple([sizes[n] for n in made])
        del terms[j]
        products.append((i, j, product))
    return Steps(tuple(products), *_last(terms[0][0], wanted))


def _last(made: Labels, wanted: Labels) -> tuple[Ints | None, Ints | None, Ints]:
    gone = tuple([d for d, n in enumerate(made) if n not in wanted])
    left = [n for n in made if n in wanted]
    order = tuple([left.index(n) for n in wanted if n in left])
    gaps = tuple([d for d, n in enumerate(wanted) if n not in left])
    return gone or None, order if [*order] != sorted(order) else None, gaps


def next_pair(terms: Sequence[Labels], wanted: Labels, sizes: Sizes) -> tuple[int, int]:
    """The pair whose product adds least to the memory in use; of those, the one with fewest
    multiplications.
    """

    def price(i: int, j: int) -> tuple[int, int]:
        rest = set(wanted).union(*[t for n, t in enumerate(terms) if n not in (i, j)])
        both = set(terms[i]) | set(terms[j])
        size = math.prod([sizes[n] for n in both & rest]) - sum(
            [math.prod([sizes[n] for n in g]) for g in (terms[i], terms[j])]
        )
        return size, math.prod([sizes[n] for n in both])

    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=lambda pair: price(*pair)) if len(pairs) > 1 else pairs[0]


Shaped = tuple[Labels, Ints]


def _thin(labels: Labels, shape: Ints) -> Labels:
    """The labels of dims of more than one element."""
    return [n for n, k in zip(labels, shape, strict=True) if k != 1]


def _product(
    first: Shaped, second: Shaped, kept: set[int], sizes: Sizes
) -> tuple[Labels, Product] | None:
    """The labels of two operands' product, and how it is made."""
    alone_a = _alone(first, kept.union(_thin(*second)))
    alone_b = _alone(second, kept.union(_thin(*first)))
    if alone_a is None or alone_b is None:
        return None
    (gone_a, labels_a, shape_a), (gone_b, labels_b, shape_b) = alone_a, alone_b
    a, b = _thin(labels_a, shape_a), _thin(labels_b, shape_b)
    many_a, many_b = math.prod(shape_a), math.prod(shape_b)
    roles = roles_of(a, b, kept, many_a >= many_b)
    batch, left, inner, right = roles
    groups = [math.prod([sizes[n] for n in group]) for group in roles]
    labels = batch + left + right
    size = math.prod([sizes[n] for n in labels])
    if inner and size < max(many_a, many_b) and max(len(left), len(right)) > 1:
        return None  # the order of the result's dims follows from strides
    form_a = [groups[n] for n in ((0, 1, 2) if batch else (1, 2))]
    form_b = [groups[n] for n in ((0, 2, 3) if batch else (2, 3))]
    order_a, order_b = batch + left + inner, batch + inner + right
    if not inner:
        order_a, order_b = ([n for n in labels if n in own] for own in (a, b))
        form_a, form_b = ([sizes[n] if n in own else 1 for n in labels] for own in (a, b))
    turn_a = _turned(labels_a, shape_a, order_a, form_a)
    turn_b = _turned(labels_b, shape_b, order_b, form_b)
    met = [groups[n] for n in ((0, 1, 3) if batch else (1, 3))]
    made = [sizes[n] for n in labels]
    product: Any = (bmm if batch else mm) if inner else mul
    last = tuple(made) if inner and made != met else None
    return labels, Product(product, gone_a, *turn_a, gone_b, *turn_b, last)


def _alone(term: Shaped, kept: set[int]) -> tuple[Ints | None, Labels, Ints] | None:
    """What is summed of an operand before the product, for nobody else has it, and what is left;
    None beside dims of size 1."""
    labels, shape = term
    gone = tuple([d for d, n in enumerate(labels) if shape[d] != 1 and n not in kept])
    if not gone:
        return None, labels, shape
    if 1 in shape:
        return None
    left = [d for d in range(len(shape)) if d not in gone]
    return gone, [labels[d] for d in left], tuple([shape[d] for d in left])


def _turned(labels: Labels, shape: Ints, order: Labels, form: Sequence[int]) -> Turn:
    """How an operand comes to this order and shape; its dims of size 1 stay where they are if the
    others do."""
    turn = [labels.index(n) for n in order]
    ones = [d for d, k in enumerate(shape) if k == 1]
    dims = sorted(turn + ones) if turn == sorted(turn) else turn + ones
    return turned(shape, tuple(dims), tuple(form))


def roles_of(a: Labels, b: Labels, kept: set[int], first: bool) -> tuple[Labels, ...]:
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
