"""A piece of a convolution by oneDNN: its primitive, and those that bring arrays into the layouts
that it wants and back, in scratch memory of the thread that runs it (`conv_onednn` cuts and shares
the work).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.im2col import Ints, Window
from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]
Three = tuple[Array, Array, Array]  # x, w, g

TYPE: Final = np.dtype(np.float32)
_ALIGNED: Final = 16  # elements
_PRODUCTS: Final = b"gemm"  # in the name of code
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

    def image(self, w: Window) -> int:
        """The elements of an image, before and after."""
        return self.groups * (self.ci * math.prod(w.size) + self.co * math.prod(w.out))

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
        self, face: str, w: Window, sizes: Sizes, lie: tuple[Ints, Ints, Ints] | None, bias: bool
    ) -> None:
        self.face = _FACES[face]
        x, weight, g = zip(sizes.shapes(w), lie or (None, None, None), strict=True)
        lies = _images_lie(*x), _weights_lie(*weight), _images_lie(*g)
        any_ = [onednn.layout(each.shape) for each in lies]
        channels = lies[2].shape[1]
        add = onednn.layout((channels,), (1,)) if bias else None
        spans = zip(w.out, w.stride, w.reach, w.size, w.padding, strict=True)
        after = tuple([(o - 1) * t + r - s - p for o, t, r, s, p in spans])
        steps = w.stride, tuple([d - 1 for d in w.dilation]), w.padding, after
        self.primitive = onednn.convolution(face, any_, add, steps)
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
        self._idle: list[_Run] = []

    def runs_as(self, other: Plan) -> bool:
        """Whether both run the same code on the same layouts, which needs nothing for each thread
        (but general products may cut sums for them): then bits are the same, however many threads
        each was made for."""
        mine, its = self.primitive, other.primitive
        same = mine.name == its.name and mine.scratch == its.scratch
        return (
            same
            and _PRODUCTS not in (mine.name or b"")
            and all(
                [
                    onednn.equal(a.wanted, b.wanted)
                    for a, b in zip(self.sides, other.sides, strict=True)
                ]
            )
        )

    def _reserve(self, nbytes: int) -> int:
        at = self.room
        self.room += -(-nbytes // (_ALIGNED * TYPE.itemsize)) * _ALIGNED
        return at

    def reads_weights_of(self, other: Plan) -> bool:
        """Whether both want them in the same layout."""
        return onednn.equal(self.sides[1].wanted, other.sides[1].wanted)

    def _idle_run(self) -> _Run:
        try:
            return self._idle.pop()
        except IndexError:  # there is none yet, or other threads use them
            return _Run(self)

    def weights_room(self) -> Array | None:
        """Scratch memory, to be given back, for the weights in the layout that is wanted; None
        where they lie in it."""
        if self.sides[1].move is None:
            return None
        return take(onednn.size(self.sides[1].wanted) // TYPE.itemsize + _ALIGNED, TYPE)

    def ready_weights(self, weight: Array, into: int) -> None:
        """Bring the weights into that layout, at an address."""
        room, run = Room(), self._idle_run()
        room.hold(self.room)
        run.ready_weights(weight, into, room)
        room.close()
        self._idle.append(run)

    def make(self, arrays: Three, bias: Array | None, room: Room, ready: int | None = None) -> None:
        """Make what the face makes of the others; `ready` is where the weights are in the wanted
        layout."""
        room.hold(self.room)
        run = self._idle_run()
        run.make(arrays, bias, room, ready)
        self._idle.append(run)


class Room:
    """Scratch memory of a thread for one piece after another."""

    def __init__(self) -> None:
        self._flat: Array | None = None
        self._start = self.address = 0

    def hold(self, elements: int) -> None:
        """Have room for so many."""
        if self._flat is not None and len(self._flat) >= elements + _ALIGNED:
            return
        self.close()
        self._flat = take(elements + _ALIGNED, TYPE)
        self.address = aligned(self._flat)
        self._start = (self.address - shaping.address(self._flat)) // TYPE.itemsize

    def view(self, place: int, shape: Ints) -> Array:
        """An array from one on."""
        assert self._flat is not None
        start = self._start + place
        return self._flat[start : start + math.prod(shape)].reshape(shape)

    def close(self) -> None:
        if self._flat is not None:
            give(self._flat)


def aligned(a: Array) -> int:
    """The first address in it at which a line of the cache begins."""
    line = _ALIGNED * TYPE.itemsize
    return -(-shaping.address(a) // line) * line


class _Run:
    """The memory objects with which one thread at a time runs a plan's primitives."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stream = onednn.stream()
        self._made = plan.face.made
        self._scratch = plan.scratch * TYPE.itemsize  # from the room's address on, as all here
        self._wanted = [onednn.Memory(side.wanted) for side in plan.sides]
        self._plain = [onednn.Memory(side.plain.value) for side in plan.sides]
        self._moves = [self._move(number) for number in range(len(plan.sides))]
        self._moved = [moved * TYPE.itemsize for moved, _ in plan.places]
        self._copied = [
            copied * TYPE.itemsize if side.copied else -1
            for side, (_, copied) in zip(plan.sides, plan.places, strict=True)
        ]
        self._bias = None if plan.add is None else onednn.Memory(plan.add.value)
        pairs = list(zip(plan.face.numbers, [*self._wanted, self._bias], strict=True))
        given = [(number, memory) for number, memory in pairs if memory is not None]
        self._arguments = onednn.Arguments(plan.primitive, given)

    def _move(self, number: int) -> onednn.Arguments | None:
        move = self._plan.sides[number].move
        if move is None:
            return None
        ends = self._plain[number], self._wanted[number]
        if number == self._made:
            ends = ends[::-1]
        return onednn.Arguments(move, list(zip((onednn.FROM, onednn.TO), ends, strict=True)))

    def make(self, arrays: Three, bias: Array | None, room: Room, ready: int | None) -> None:
        """Bring x, w and g into the wanted layouts, compute, and bring out of it what is made."""
        made, scratch = self._made, room.address + self._scratch
        for number, array in enumerate(arrays):
            if number == 1 and ready is not None:
                self._wanted[1].at(ready)
            elif number == made:
                self._place(number, array, room)
            else:
                self._bring(number, array, room)
        if bias is None or self._bias is None:
            self._arguments.run(self._stream, scratch)
        else:
            self._compute_with(bias, scratch)
        move = self._moves[made]
        if move is not None:
            move.run(self._stream, scratch)
        if self._copied[made] >= 0:
            arrays[made][...] = room.view(self._plan.places[made][1], arrays[made].shape)

    def ready_weights(self, weight: Array, into: int, room: Room) -> None:
        """Bring the weights into the wanted layout, at an address."""
        self._bring(1, weight, room, into)

    def _place(self, number: int, array: Array, room: Room, into: int | None = None) -> None:
        """Say where x, w or g lies, and where it is to lie."""
        copied = self._copied[number]
        address = room.address + copied if copied >= 0 else shaping.address(array)
        if self._moves[number] is None:
            self._wanted[number].at(address)
        else:
            self._plain[number].at(address)
            self._wanted[number].at(room.address + self._moved[number] if into is None else into)

    def _bring(self, number: int, array: Array, room: Room, into: int | None = None) -> None:
        """Bring it into the wanted layout."""
        self._place(number, array, room, into)
        if self._copied[number] >= 0:
            room.view(self._plan.places[number][1], array.shape)[...] = array
        move = self._moves[number]
        if move is not None:
            move.run(self._stream, room.address + self._scratch)

    def _compute_with(self, bias: Array, scratch: int) -> None:
        """Compute, and the bias is made too, or read."""
        assert self._bias is not None
        flat = np.ascontiguousarray(bias, TYPE)
        self._bias.at(shaping.address(flat))
        self._arguments.run(self._stream, scratch)
        if self._made == 1 and flat is not bias:
            bias[...] = flat.reshape(bias.shape)
