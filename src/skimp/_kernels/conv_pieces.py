"""A piece of a convolution by oneDNN: its primitive, and those that bring arrays into the layouts
that it wants and back, in scratch memory of the thread that runs it (`conv_onednn` cuts and shares
the work).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.im2col import Ints, Window
from skimp._kernels.locks import reentrant
from skimp._kernels.onednn_runs import Calls, Spot, Steps
from skimp._kernels.scratch import demand, give, spare

Array = np.ndarray[Any, Any]
Three = tuple[Array, Array, Array]  # x, w, g

TYPE: Final = np.dtype(np.float32)
ALIGNED: Final = 16  # elements
_LINE: Final = ALIGNED * TYPE.itemsize
_PRODUCTS: Final = b"gemm"  # in the name of code
_BIAS, _ROOM, _READY = 3, 4, 5  # of addresses, after those of x, w and g
_MOVED: Final = 32  # multiplications that take as long as moving an element


class _Face(NamedTuple):
    """What oneDNN calls x, w, g and the bias, where it says which layouts it wants of the first
    three, and which of them it makes."""

    numbers: Ints
    queries: Ints
    made: int


_FACES: Final = {
    "forward": _Face((1, 33, 17, 41), (129, 131, 133), 2),
    "adjoint": _Face((129, 33, 145, 0), (130, 131, 134), 0),
    "weights": _Face((1, 161, 145, 169), (129, 132, 134), 1),
}


class Sizes(NamedTuple):
    """Of a convolution, or of a piece of it."""

    n: int
    groups: int
    co: int
    ci: int

    def shapes(self, w: Window) -> tuple[Ints, Ints, Ints]:
        """Of x, w and g."""
        n, groups, co, ci = self
        return (n, groups, ci, *w.size), (groups, co, ci, *w.kernel), (n, groups, co, *w.out)

    def image(self, w: Window, bundle: int = 1) -> int:
        """The elements of an image, before and after, its channels in bundles of so many."""
        before, after = [-(-self.groups * c // bundle) * bundle for c in (self.ci, self.co)]
        return before * math.prod(w.size) + after * math.prod(w.out)

    def effort(self, w: Window) -> int:
        """What an image takes, in multiplications."""
        multiplications = self.groups * self.co * self.ci * w.taps * math.prod(w.out)
        return multiplications + _MOVED * self.image(w)


class _Lies(NamedTuple):
    """The sizes of an array as oneDNN counts its dims, and its strides in elements; none where it
    can't be told about them: then it is copied."""

    shape: Ints
    strides: Ints | None


def _images_lie(shape: Ints, strides: Ints | None) -> _Lies:
    """(n, groups, channels, *size): oneDNN knows no dim of groups."""
    n, groups, channels, *size = shape
    flat = (n, groups * channels, *size)
    if strides is None or not (groups == 1 or channels == 1 or strides[1] == channels * strides[2]):
        return _Lies(flat, None)
    return _Lies(flat, _apart(flat, (strides[0], strides[1 if channels == 1 else 2], *strides[3:])))


def _weights_lie(shape: Ints, strides: Ints | None) -> _Lies:
    """(groups, co, ci, *kernel): without a dim of groups, where there is one."""
    alone = shape[0] == 1
    return _Lies(shape[alone:], strides and _apart(shape[alone:], strides[alone:]))


def _apart(shape: Ints, strides: Ints) -> Ints | None:
    """Strides of bytes in elements, with those of dims of one element, which say nothing, put in
    order; None where elements lie over each other, backwards or between two."""
    found, whole = [s // TYPE.itemsize for s in strides], 1
    for dim in range(len(shape) - 1, -1, -1):
        if shape[dim] == 1:
            found[dim] = whole
        elif strides[dim] % TYPE.itemsize:
            return None
        whole = max(whole, found[dim] * shape[dim])
    end = 1
    for stride, size in sorted(zip(found, shape, strict=True)):
        if size > 1:
            if stride < end:
                return None
            end = stride * size
    return tuple(found)


def dense(shape: Ints, item: int = 1) -> Ints:
    return tuple([item * math.prod(shape[dim + 1 :]) for dim in range(len(shape))])


class _Side:
    """How x, w or g gets into the layout that a primitive wants, or out of it."""

    def __init__(self, lies: _Lies, wanted: Any, made: bool) -> None:
        self.wanted = wanted
        self.copied = lies.strides is None
        self.elements = math.prod(lies.shape)
        self.move: onednn.Primitive | None = None
        if lies.strides is not None:
            try:
                self._look(onednn.layout(lies.shape, lies.strides), made)
            except onednn.Unsupported:
                self.copied = True
        if self.copied:
            self._look(onednn.layout(lies.shape, dense(lies.shape)), made)

    def _look(self, plain: onednn.Handle, made: bool) -> None:
        self.plain = plain
        if not onednn.equal(plain.value, self.wanted):
            ends = (self.wanted, plain.value) if made else (plain.value, self.wanted)
            self.move = onednn.reorder(*ends)


class Plan:
    """oneDNN's primitive for pieces of these sizes and strides, and those that move what it reads
    and writes; and where scratch memory is used for what, in elements."""

    def __init__(
        self,
        face: str,
        w: Window,
        sizes: Sizes,
        lie: tuple[Ints, Ints, Ints] | None,
        bias: bool,
        few: bool,
    ) -> None:
        self.face = _FACES[face]
        self.sizes = sizes
        x, weight, g = zip(sizes.shapes(w), lie or (None, None, None), strict=True)
        lies = _images_lie(*x), _weights_lie(*weight), _images_lie(*g)
        any_ = [onednn.layout(each.shape) for each in lies]
        channels = lies[2].shape[1]
        add = onednn.layout((channels,), (1,)) if bias else None
        spans = zip(w.out, w.stride, w.reach, w.size, w.padding, strict=True)
        after = tuple([(o - 1) * t + r - s - p for o, t, r, s, p in spans])
        steps = w.stride, tuple([d - 1 for d in w.dilation]), w.padding, after
        self.primitive = onednn.convolution(face, any_, add, steps, few)
        wanted = [self.primitive.wants(query) for query in self.face.queries]
        self.sides = [
            _Side(each, layout, number == self.face.made)
            for number, (each, layout) in enumerate(zip(lies, wanted, strict=True))
        ]
        self.add = add
        self.places: list[tuple[int, int]] = []  # of each side's wanted layout, and its copy
        self.room = 0
        for side in self.sides:
            moved = self._reserve(onednn.size(side.wanted) if side.move is not None else 0)
            self.places.append((moved, self._reserve(side.elements * 4 if side.copied else 0)))
        moves = [side.move.scratch for side in self.sides if side.move is not None]
        self.scratch = self._reserve(max(self.primitive.scratch, *moves, 0))
        self.weights = 0  # elements of the layout that is wanted, if they don't lie in it
        if self.sides[1].move is not None:
            self.weights = onednn.size(self.sides[1].wanted) // TYPE.itemsize
        self.copies = any([side.copied for side in self.sides])
        self._idle: list[_Run] = []

    def runs_as(self, other: Plan) -> bool:
        """Whether both run the same code, of the same sizes on the same layouts, which needs
        nothing for each thread (but general products may cut sums for them): then bits are the
        same, however many threads each was made for, and however many images and channels are made
        at once."""
        mine, its = self.primitive, other.primitive
        same = mine.name == its.name and mine.scratch == its.scratch
        if not same or _PRODUCTS in mine.name:
            return False
        sides = zip(self.sides, other.sides, strict=True)
        return self.sizes != other.sizes or all(
            [onednn.equal(a.wanted, b.wanted) for a, b in sides]
        )

    @property
    def plain(self) -> bool:
        """Whether the code is for any convolution, and not for one such as this."""
        name = self.primitive.name
        return _PRODUCTS in name or onednn.REFERENCE in name

    def _reserve(self, nbytes: int) -> int:
        at = self.room
        self.room += -(-nbytes // (ALIGNED * TYPE.itemsize)) * ALIGNED
        return at

    def reads_weights_of(self, other: Plan) -> bool:
        """Whether both want them in the same layout."""
        return onednn.equal(self.sides[1].wanted, other.sides[1].wanted)

    def weights_room(self) -> Array | None:
        """Scratch memory, to be given back, for the weights in the layout that is wanted; None
        where they lie in it, or each piece has to bring them there."""
        return spare(self.weights + ALIGNED, TYPE) if self.weights else None

    def ready_weights(self, weight: Array, into: int, room: Room) -> None:
        """Bring the weights into that layout, at an address."""
        self._copy_into(1, weight, room)
        run = self._idle.pop() if self._idle else _Run(self)
        run.weights([0, shaping.address(weight), 0, 0, room.address, into])
        self._idle.append(run)

    def make(self, where: list[int]) -> None:
        """Make what the face makes of the others: at these addresses are x, w, g and the bias,
        scratch memory, and the weights in the wanted layout, if it is no 0."""
        run = self._idle.pop() if self._idle else _Run(self)  # no thread comes in between
        if where[_READY]:
            run.with_weights(where)
        else:
            run.all(where)
        self._idle.append(run)

    def make_of(self, where: list[int], parts: Three, room: Room) -> None:
        """`make`, where some of x, w and g have to be copied."""
        made = self.face.made
        for number, array in enumerate(parts):
            if number != made and not (number == 1 and where[_READY]):
                self._copy_into(number, array, room)
        self.make(where)
        if self.sides[made].copied:
            parts[made][...] = room.view(self.places[made][1], parts[made].shape)

    def _copy_into(self, number: int, array: Array, room: Room) -> None:
        if self.sides[number].copied:
            room.view(self.places[number][1], array.shape)[...] = array


class Ready:
    """The weights in the layout that pieces read, made by the thread that first asks."""

    def __init__(self, plan: Plan, weight: Array) -> None:
        self._plan = plan
        self._weight = weight
        self._array = plan.weights_room()
        self._address = 0 if self._array is None else _aligned(self._array)
        self._lock = reentrant()
        self._made = self._array is None

    def weights(self, room: Room) -> int:
        """Where they are; 0 where they lie in that layout."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._plan.ready_weights(self._weight, self._address, room)
                    self._made = True
        return self._address

    def close(self) -> None:
        if self._array is not None:
            give(self._array)


class Room:
    """Scratch memory of a thread for one piece after another."""

    __slots__ = ("_start", "address", "flat")

    def __init__(self, flat: Array) -> None:
        first = shaping.address(flat)
        self.flat = flat
        self.address = -(-first // _LINE) * _LINE
        self._start = (self.address - first) // TYPE.itemsize

    def view(self, place: int, shape: Ints) -> Array:
        """An array from one on."""
        start = self._start + place
        return self.flat[start : start + math.prod(shape)].reshape(shape)


def room_of(elements: int) -> Room:
    """Room for so many. OutOfMemoryError: a budget has none."""
    return Room(demand(elements + ALIGNED, TYPE))


def spare_room(elements: int) -> Room | None:
    """The same, where there is any."""
    flat = spare(elements + ALIGNED, TYPE)
    return None if flat is None else Room(flat)


def _aligned(a: Array) -> int:
    """The first address in it at which a line of the cache begins."""
    return -(-shaping.address(a) // _LINE) * _LINE


class _Run:
    """The memory objects with which one thread at a time runs a plan's primitives: all that bring
    x, w and g into the wanted layouts, compute, and bring out of it what is made; those for weights
    that are in it; and those that bring these there."""

    __slots__ = ("_stream", "all", "weights", "with_weights")

    def __init__(self, plan: Plan) -> None:
        self._stream = onednn.stream()
        wanted = [onednn.Memory(side.wanted) for side in plan.sides]
        sides = [self._side(plan, number, each) for number, each in enumerate(wanted)]
        pairs = list(zip(plan.face.numbers, wanted, strict=False))
        bias: list[Spot] = []
        if plan.add is not None:
            bias.append((onednn.Memory(plan.add.value), _BIAS, 0))
            pairs.append((plan.face.numbers[_BIAS], bias[0][0]))
        compute = [onednn.Arguments(plan.primitive, pairs)]
        (x, to_x), (w, to_w), (g, to_g) = sides
        calls = [to_x, to_w, to_g]
        last = calls.pop(plan.face.made)
        room = plan.scratch * TYPE.itemsize
        self.all = self._steps(room, [*x, *w, *g, *bias], [*calls[0], *calls[1], *compute, *last])
        ready: Spot = (wanted[1], _READY, 0)
        others = to_g if last is to_x else to_x
        self.with_weights = self._steps(room, [*x, ready, *g, *bias], [*others, *compute, *last])
        self.weights = self._steps(room, [w[0], ready], to_w)

    @staticmethod
    def _side(
        plan: Plan, number: int, wanted: onednn.Memory
    ) -> tuple[list[Spot], list[onednn.Arguments]]:
        """Where x, w or g lies, and is to lie, and what moves it."""
        side = plan.sides[number]
        moved, copied = [place * TYPE.itemsize for place in plan.places[number]]
        own = (_ROOM, copied) if side.copied else (number, 0)
        if side.move is None:
            return [(wanted, *own)], []
        plain = onednn.Memory(side.plain.value)
        ends = (wanted, plain) if number == plan.face.made else (plain, wanted)
        pairs = list(zip((onednn.FROM, onednn.TO), ends, strict=True))
        return [(plain, *own), (wanted, _ROOM, moved)], [onednn.Arguments(side.move, pairs)]

    def _steps(self, room: int, spots: list[Spot], arguments: list[onednn.Arguments]) -> Steps:
        spots += [(each.scratch, _ROOM, room) for each in arguments if each.scratch is not None]
        calls = [each.call(self._stream) for each in arguments]
        return Steps([(spots, calls)], (arguments, self._stream))


def chain(pieces: Sequence[tuple[Plan, Ints, bool]], first: Plan | None) -> Steps:
    """The steps of pieces, one after the other: each with what `Steps.behind` is told, and whether
    it reads the weights in the layout of the `first`, if there is one, into which they are brought
    before all others."""
    runs = {plan: _Run(plan) for plan, _, _ in pieces}
    parts: list[Calls] = []
    if first is not None:
        parts += runs[first].weights.behind((0, 0, 0, 0))
    for plan, behind, alike in pieces:
        run = runs[plan]
        parts += (run.with_weights if alike and first is not None else run.all).behind(behind)
    return Steps(parts, runs)
