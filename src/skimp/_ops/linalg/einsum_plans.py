"""What an einsum does, as far as that follows from its equation and the operands' shapes: which
pairs are multiplied, in which orders of dims and in which shapes they meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.linalg.contractions import Turn, as_turned, turned
from skimp._ops.linalg.equations import Equation, Ints, Labels, read
from skimp._ops.linalg.matmul import bmm, mm
from skimp._ops.math.arithmetic import mul

Sizes = dict[int, int]
Shaped = tuple[Ints, Ints]  # the labels and sizes of dims


def _mm_round(a: Tensor, b: Tensor) -> Tensor:
    return mm(b, a)


def _bmm_round(a: Tensor, b: Tensor) -> Tensor:
    return bmm(b, a)


_ROUND = {mm: _mm_round, bmm: _bmm_round}  # products whose second operand is the first factor


class Meeting(NamedTuple):
    """The product of two operands: the order of dims and the shape in which each comes to it, the
    result's shape, and the order of its dims in the end; None where they are so already."""

    product: Callable[[Tensor, Tensor], Tensor]
    turn_a: Ints | None
    shape_a: Ints | None
    turn_b: Ints | None
    shape_b: Ints | None
    made: Ints | None
    order: Ints | None


class Sum(NamedTuple):
    """The shape without dims of size 1, the order of dims, and the dims that are summed then."""

    flat: Ints | None
    turn: Ints | None
    gone: Ints


class Pair(NamedTuple):
    """Two operands by their places, the second of which becomes free; what is summed of each before
    the product; and how they meet, or what says that of their strides."""

    first: int
    second: int
    sum_a: Sum | None
    sum_b: Sum | None
    meeting: Meeting | None
    by_strides: Callable[[Ints, Ints], Meeting] | None


class Steps(NamedTuple):
    """Diagonals of operands by their places, pairs, then what is summed of what is left, or its
    order of dims, and where dims of size 1 go."""

    diagonals: tuple[tuple[int, int, int], ...]
    pairs: tuple[Pair, ...]
    sum: Sum | None
    order: Ints | None
    gaps: Ints


def run(steps: Steps, operands: Sequence[Tensor]) -> Tensor:
    """The result of the operands."""
    terms = list(operands)
    for i, first, dim in steps.diagonals:
        terms[i] = terms[i].diagonal(0, first, dim).movedim(-1, first)
    for pair in steps.pairs:
        i, j, *_ = pair
        terms[i] = _multiplied(pair, terms[i], terms.pop(j))
    result = _summed(terms[0], steps.sum)
    if steps.order is not None:
        result = result.permute(steps.order)
    elif result is operands[0]:  # nothing is done to it: at least a view
        result = result.permute(tuple(range(result.ndim)))
    for dim in steps.gaps:
        result = result.unsqueeze(dim)
    return result


def _multiplied(pair: Pair, a: Tensor, b: Tensor) -> Tensor:
    _, _, sum_a, sum_b, meeting, by_strides = pair
    a, b = _summed(a, sum_a), _summed(b, sum_b)
    if by_strides is not None:
        meeting = by_strides(a.stride(), b.stride())
    assert meeting is not None
    product, turn_a, shape_a, turn_b, shape_b, made, order = meeting
    found = product(as_turned(a, turn_a, shape_a), as_turned(b, turn_b, shape_b))
    found = found if made is None else found.reshape(made)
    return found if order is None else found.permute(order).contiguous()


def _summed(t: Tensor, alone: Sum | None) -> Tensor:
    if alone is None:
        return t
    t = t if alone.flat is None else t.reshape(alone.flat)
    t = t if alone.turn is None else t.permute(alone.turn)
    return t.sum(alone.gone)


@lru_cache(512)
def steps_of(equation: Equation, shapes: tuple[Ints, ...], alike: bool = True) -> Steps:
    """The steps of operands of these shapes, which are of one type if `alike`."""
    labels, wanted, sizes = read(equation, shapes)
    terms: list[Shaped] = []
    diagonals: list[tuple[int, int, int]] = []
    for i, own in enumerate(labels):
        seen: Labels = []
        for label in own:
            if label in seen:
                diagonals.append((i, seen.index(label), len(seen)))
            else:
                seen.append(label)
        terms.append((tuple(seen), tuple([shapes[i][own.index(n)] for n in seen])))
    pairs: list[Pair] = []
    places = {n: d for d, n in enumerate([*wanted, *sorted(sizes.keys() - set(wanted))])}
    while len(terms) > 1:
        thin = [_thin(*term) for term in terms]
        i, j = next_pair(thin, wanted, sizes)
        kept = set(wanted).union(*[t for n, t in enumerate(thin) if n not in (i, j)])
        made, pair = _pair(i, j, terms, kept, places, sizes, alike)
        terms[i] = made, tuple([sizes[n] for n in made])
        del terms[j]
        pairs.append(pair)
    return Steps(tuple(diagonals), tuple(pairs), *_last(terms[0][0], wanted))


def _last(made: Ints, wanted: Labels) -> tuple[Sum | None, Ints | None, Ints]:
    gone = [d for d, n in enumerate(made) if n not in wanted]
    turn = (*[made.index(n) for n in wanted if n in made], *gone)
    order = None if turn == tuple(range(len(turn))) else turn
    gaps = tuple([d for d, n in enumerate(wanted) if n not in made])
    if not gone:
        return None, order, gaps
    return Sum(None, order, tuple(range(len(turn) - len(gone), len(turn)))), None, gaps


def next_pair(terms: Sequence[Ints], wanted: Labels, sizes: Sizes) -> tuple[int, int]:
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


def _thin(labels: Ints, shape: Ints) -> Ints:
    """The labels of dims of more than one element."""
    return tuple([n for n, k in zip(labels, shape, strict=True) if k != 1])


def _pair(
    i: int, j: int, terms: list[Shaped], kept: set[int], places: Sizes, sizes: Sizes, alike: bool
) -> tuple[Ints, Pair]:
    """The labels of two operands' product, and how it is made: with its dims as PyTorch has them in
    memory, by the order (`places`) of the result's labels and then all others.
    """
    sum_a, one = _alone(terms[i], kept.union(_thin(*terms[j])), places)
    sum_b, other = _alone(terms[j], kept.union(_thin(*terms[i])), places)
    a, b = _thin(*one), _thin(*other)
    larger = max(math.prod(one[1]), math.prod(other[1]))
    roles = _roles(a, b, kept, places, math.prod(one[1]) == larger)
    batch, left, inner, right = roles
    pair = Pair(i, j, sum_a, sum_b, None, None)
    if not inner:
        labels = tuple(sorted(batch + left + right, key=places.__getitem__))
        return labels, pair._replace(meeting=_aligned(one, other, labels, sizes))
    # the second operand's dims lead in the result: it is the first factor
    rest = [d for n, d in places.items() if n not in batch + left + inner]
    turned_round = bool(left and right) and max(rest) < min([places[n] for n in left])
    labels = batch + right + left if turned_round else batch + left + right
    size = math.prod([sizes[n] for n in labels])

    def by_order(first: Ints, second: Ints) -> Meeting:
        if not turned_round:
            return _matrices(one, other, roles, (first, second), sizes, alike)
        met = _matrices(other, one, (batch, right, inner, left), (second, first), sizes, alike)
        return met._replace(
            product=_ROUND[met.product],
            turn_a=met.turn_b, shape_a=met.shape_b, turn_b=met.turn_a, shape_b=met.shape_a,
        )  # fmt: skip

    if size >= larger or max(len(left), len(right)) < 2:
        return labels, pair._replace(meeting=by_order(left, right))

    @lru_cache(16)
    def by_strides(strides_a: Ints, strides_b: Ints) -> Meeting:
        """The result is cheaper to put in order than the operands, whose dims are merged as they
        lie: a view does that."""
        return by_order(_as_stored(left, one, strides_a), _as_stored(right, other, strides_b))

    return labels, pair._replace(by_strides=by_strides)


def _alone(term: Shaped, kept: set[int], places: Sizes) -> tuple[Sum | None, Shaped]:
    """What is summed of an operand before the product, for nobody else has it, and what is left."""
    labels, shape = term
    if all([n in kept or k == 1 for n, k in zip(labels, shape, strict=True)]):
        return None, term
    thin = _thin(labels, shape)
    flat = tuple([k for k in shape if k != 1])
    turn = sorted(range(len(thin)), key=lambda d: places[thin[d]])
    gone = tuple([to for to, d in enumerate(turn) if thin[d] not in kept])
    left = [d for d in turn if thin[d] in kept]
    rest = tuple([thin[d] for d in left]), tuple([flat[d] for d in left])
    order = None if turn == sorted(turn) else tuple(turn)
    return Sum(None if flat == shape else flat, order, gone), rest


def _aligned(one: Shaped, other: Shaped, labels: Ints, sizes: Sizes) -> Meeting:
    """A product over no dim, of operands with the dims of `labels`, size 1 where one has none."""
    first, second = [
        _turned(
            term, [n for n in labels if n in own], [sizes[n] if n in own else 1 for n in labels]
        )
        for term in (one, other)
        for own in (_thin(*term),)
    ]
    return Meeting(mul, *first, *second, None, None)


def _matrices(
    one: Shaped, other: Shaped, roles: tuple[Ints, ...], orders: tuple[Ints, Ints], sizes: Sizes,
    alike: bool,
) -> Meeting:  # fmt: skip
    """A product of matrices, or of a batch of them, whose rows and columns have dims in this order.

    bmm refuses operands of two types in the words that einsum has, or autocast makes them one.
    """
    batch, left, inner, right = roles
    first, second = orders
    lead = 0 if batch or not alike else 1
    groups = [math.prod([sizes[n] for n in group]) for group in roles]
    turn_a = _turned(one, batch + first + inner, [groups[n] for n in (0, 1, 2)[lead:]])
    turn_b = _turned(other, batch + inner + second, [groups[n] for n in (0, 2, 3)[lead:]])
    made = batch + first + second
    sized = tuple([sizes[n] for n in made])
    met = tuple([groups[n] for n in (0, 1, 3)[lead:]])
    order = tuple([made.index(n) for n in batch + left + right])
    return Meeting(
        mm if lead else bmm, *turn_a, *turn_b, None if sized == met else sized,
        None if orders == (left, right) else order,
    )  # fmt: skip


def _turned(term: Shaped, order: Sequence[int], form: Sequence[int]) -> Turn:
    """How an operand comes to this order and shape; its dims of size 1 stay where they are if the
    others do."""
    labels, shape = term
    turn = [labels.index(n) for n in order]
    ones = [d for d, k in enumerate(shape) if k == 1]
    dims = sorted(turn + ones) if turn == sorted(turn) else turn + ones
    return turned(shape, tuple(dims), tuple(form))


def _as_stored(labels: Ints, term: Shaped, strides: Ints) -> Ints:
    """The labels from the largest stride to the smallest, in which a view can merge them."""
    steps = dict(zip(term[0], strides, strict=True))
    return tuple(sorted(labels, key=lambda n: -steps[n]))


def _roles(a: Ints, b: Ints, kept: set[int], places: Sizes, first: bool) -> tuple[Ints, ...]:
    """The labels that both have and keep, of the first alone, that are summed in the order of the
    larger operand (the first or not), of the second alone; all but the summed ones by places."""
    shared = set(a) & set(b)
    batch, left, right = [
        tuple(sorted(group, key=places.__getitem__))
        for group in (shared & kept, set(a) - shared, set(b) - shared)
    ]
    inner = [n for n in (a if first else b) if n in shared and n not in kept]
    return batch, left, tuple(inner), right
