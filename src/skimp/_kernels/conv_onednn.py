"""Convolution by oneDNN's primitives (`onednn`), a few images or channels at a time.

oneDNN works on channels in bundles of a vector's lanes. What a primitive reads is brought into that
layout, what it makes is brought back, in scratch memory that stays in a core's cache; the layout of
the weights is made once for all images. A piece of work is some images, or where these are few some
of the channels (of groups, where there are several), and runs on one thread. How a convolution is
cut follows from its sizes alone, so its bits don't depend on the number of threads.

The three faces of the form <g, x * w> (`conv`) differ in which of the arrays is made. Shapes: x (n,
groups, ci, *size), w (groups, co, ci, *kernel), g (n, groups, co, *out), bias (groups, co).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import onednn
from skimp._kernels.blas import spread
from skimp._kernels.im2col import LANES, Ints, Window, working
from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]
Three = tuple[Array, Array, Array]  # x, w, g
Sum = tuple[Array, Array | None]  # of gradients of w, and of the bias

_LEAST: Final = 1 << 24  # multiplications of a piece, 200 us, and a large one's
_LONG: Final = 1 << 27
_MOVED: Final = 32  # multiplications that take as long as moving an element
_MOST: Final = 1 << 21  # elements of an image, before and after, that is worked on
_ROOM: Final = 1 << 19  # and of the images of a piece, unless it is one
_QUICKER: Final = 2  # than the products for which `blas.spread` knows what is worth sharing
_SUMMED: Final = 1 << 10  # multiplications that are worth adding an element of partial sums
_BUNDLE: Final = 16  # channels that are not cut
_DIMS: Final = 3
_ALIGNED: Final = 16  # elements
_TYPE: Final = np.dtype(np.float32)


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


# -- the three faces: each says whether oneDNN is there and has made it ---------------------------


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> bool:
    """out = x * weight + bias."""
    return _made("forward", (x, weight, out), w, bias)


def adjoint(g: Array, weight: Array, out: Array, w: Window) -> bool:
    """out = what each element of the input gives to the places whose kernel covers it."""
    return _made("adjoint", (out, weight, g), w, None)


def weights(g: Array, x: Array, out: Array, w: Window, bias: Array | None = None) -> bool:
    """out = for each tap, the sum of g times what the tap saw; bias = the sum of g."""
    return _made("weights", (x, out, g), w, bias)


def _made(face: str, arrays: Three, w: Window, bias: Array | None) -> bool:
    """Whether oneDNN makes it follows from shapes, strides, types and the library alone."""
    dtype = arrays[0].dtype
    if (
        onednn.library() is None
        or working(dtype) != _TYPE
        or not 0 < len(w.size) <= _DIMS
        or not all([a.dtype == dtype and a.size for a in arrays])
    ):
        return False
    lie = tuple([a.strides for a in arrays]) if dtype == _TYPE else None
    work = _work(face, w, _Sizes(len(arrays[0]), *arrays[1].shape[:3]), lie, bias is not None)
    if work is None:
        return False
    if face == "weights":
        work.sums(arrays, bias)
    else:
        work.images(arrays, bias)
    return True


# -- how the work is cut --------------------------------------------------------------------------


class _Sizes(NamedTuple):
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


class _Piece(NamedTuple):
    """Some images, and channels (of groups, where there are several) if they are cut, and how they
    are made."""

    images: slice
    channels: slice
    plan: _Plan


def _cut(face: str, w: Window, whole: _Sizes) -> tuple[list[slice], list[slice]]:
    """The images and the channels of pieces."""
    n, groups, co, ci = whole
    each = whole.effort(w)
    few = max(-(-_LEAST // each), min(-(-_LONG // each), -(-n // LANES)))
    if face == "weights":
        few = max(few, -(-_SUMMED // math.prod(w.out)))
    count = -(-n // max(1, min(n, few, _ROOM // whole.image(w))))
    images = -(-n // count)
    channels, bundle = (ci if face == "adjoint" else co), _BUNDLE
    if groups > 1:
        channels, bundle = groups, -(-_BUNDLE // ci)
    cuts = 1
    if count < LANES and n * each >= 2 * _LEAST:
        cuts = min(-(-LANES // count), -(-channels // bundle))
    step = -(-channels // (cuts * bundle)) * bundle
    return _slices(n, images), _slices(channels, step)


def _slices(length: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]


@lru_cache(512)
def _work(
    face: str, w: Window, whole: _Sizes, lie: tuple[Ints, Ints, Ints] | None, bias: bool
) -> _Work | None:
    """How it is made of arrays of these strides; None for other types. None if it is not."""
    if whole.image(w) > _MOST:
        return None
    try:
        with onednn.one_thread():
            return _Work(face, w, whole, lie, bias)
    except onednn.Unsupported:
        return None


class _Work:
    """A face of a convolution, in pieces: of the same channels, for each such channels."""

    def __init__(
        self, face: str, w: Window, whole: _Sizes, lie: tuple[Ints, Ints, Ints] | None, bias: bool
    ) -> None:
        self._face = face
        self._groups = whole.groups
        self._effort = whole.n * whole.effort(w) // _QUICKER
        images, channels = _cut(face, w, whole)
        if face == "weights" and len(images) > 1:  # partial sums, which lie as they are made
            lie = lie and (lie[0], _dense(whole.shapes(w)[1], _TYPE.itemsize), lie[2])
        plans: dict[_Sizes, _Plan] = {}
        self._pieces: list[list[_Piece]] = []
        for channel in channels:
            self._pieces.append([])
            for image in images:
                size = self._part(whole, image, channel)
                if size not in plans:
                    plans[size] = _Plan(face, w, size, lie, bias)
                self._pieces[-1].append(_Piece(image, channel, plans[size]))

    def _part(self, whole: _Sizes, images: slice, channels: slice) -> _Sizes:
        n, some = images.stop - images.start, channels.stop - channels.start
        if self._groups > 1:
            return whole._replace(n=n, groups=some)
        if self._face == "adjoint":
            return whole._replace(n=n, ci=some)
        return whole._replace(n=n, co=some)

    def _parts(self, piece: _Piece, arrays: Three) -> Three:
        """What the piece is of x, w and g."""
        x, weight, g = arrays
        images, some, _ = piece
        if self._groups > 1:
            return x[images, some], weight[some], g[images, some]
        if self._face == "adjoint":
            return x[images, :, some], weight[:, :, some], g[images]
        return x[images], weight[:, some], g[images, :, some]

    def _bias(self, piece: _Piece, bias: Array | None) -> Array | None:
        if bias is None:
            return None
        return bias[piece.channels] if self._groups > 1 else bias[:, piece.channels]

    def images(self, arrays: Three, bias: Array | None) -> None:
        """Make x or g: each piece its own part of it."""
        pieces = [piece for some in self._pieces for piece in some]
        first, ready = pieces[0].plan, None
        if len(self._pieces) == 1:  # all read the same weights
            with onednn.one_thread():
                ready = first.ready_weights(arrays[1])

        def fn(piece: _Piece, room: _Room) -> None:
            plan = piece.plan
            held = ready if plan is first or plan.reads_weights_of(first) else None
            plan.make(self._parts(piece, arrays), self._bias(piece, bias), room, held)

        self._share(pieces, fn)
        if ready is not None:
            give(ready)

    def sums(self, arrays: Three, bias: Array | None) -> None:
        """Make w and the bias: each channels' pieces are added up in lanes, every so many-th in
        one, and these at the end, whoever made them."""
        lanes: list[tuple[list[_Piece], Sum]] = []
        ends: list[tuple[Sum, list[Sum]]] = []
        for some in self._pieces:
            into = self._parts(some[0], arrays)[1], self._bias(some[0], bias)
            sums = [into] if len(some) == 1 else [_blank(into) for _ in some[:LANES]]
            lanes += [(some[lane::LANES], found) for lane, found in enumerate(sums)]
            ends.append((into, sums))

        def fn(lane: tuple[list[_Piece], Sum], room: _Room) -> None:
            pieces, total = lane
            into = total
            for number, piece in enumerate(pieces):
                if number == 1:
                    into = _blank(total)
                x, _, g = self._parts(piece, arrays)
                piece.plan.make((x, into[0], g), into[1], room)
                if number:
                    _add(total, into)

        self._share(lanes, fn)
        for into, (first, *others) in ends:
            if others or first is not into:
                for other in others:
                    _add(first, other)
                into[0][...] = first[0]
                if into[1] is not None:
                    into[1][...] = first[1]

    def _share(self, items: list[Any], fn: Callable[[Any, _Room], None]) -> None:
        shared = iter(items)  # by the threads: next() is atomic

        def work() -> None:
            with onednn.one_thread():
                room = _Room()
                for item in shared:
                    fn(item, room)
                room.close()

        spread(work, len(items), self._effort)


def _blank(like: Sum) -> Sum:
    bias = None if like[1] is None else np.empty(like[1].shape, _TYPE)
    return np.empty(like[0].shape, _TYPE), bias


def _add(total: Sum, part: Sum) -> None:
    for a, b in zip(total, part, strict=True):
        if a is not None and b is not None:
            np.add(a, b, out=a)


# -- one piece ------------------------------------------------------------------------------------


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
    found, whole = [s // _TYPE.itemsize for s in strides], 1
    for dim in range(len(shape) - 1, -1, -1):
        if shape[dim] == 1:
            found[dim] = whole
        elif strides[dim] % _TYPE.itemsize:
            return None
        whole = max(whole, found[dim] * shape[dim])
    end = 1
    for stride, size in sorted(zip(found, shape, strict=True)):
        if size > 1:
            if stride < end:
                return None
            end = stride * size
    return tuple(found)


def _dense(shape: Ints, item: int = 1) -> Ints:
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
            self._look(onednn.layout(lies.shape, _dense(lies.shape)), made)

    def _look(self, plain: onednn.Handle, made: bool) -> None:
        self.plain = plain
        if not onednn.equal(plain.value, self.wanted):
            ends = (self.wanted, plain.value) if made else (plain.value, self.wanted)
            self.move = onednn.reorder(*ends)


class _Plan:
    """oneDNN's primitive for pieces of these sizes and strides, and those that move what it reads
    and writes; and where scratch memory is used for what, in elements."""

    def __init__(
        self, face: str, w: Window, sizes: _Sizes, lie: tuple[Ints, Ints, Ints] | None, bias: bool
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

    def _reserve(self, nbytes: int) -> int:
        at = self.room
        self.room += -(-nbytes // (_ALIGNED * _TYPE.itemsize)) * _ALIGNED
        return at

    def reads_weights_of(self, other: _Plan) -> bool:
        """Whether both want them in the same layout."""
        return onednn.equal(self.sides[1].wanted, other.sides[1].wanted)

    def _idle_run(self) -> _Run:
        try:
            return self._idle.pop()
        except IndexError:  # there is none yet, or other threads use them
            return _Run(self)

    def ready_weights(self, weight: Array) -> Array | None:
        """The weights in the layout that is wanted: scratch memory, to be given back; None where
        they lie in it."""
        if self.sides[1].move is None:
            return None
        found = take(onednn.size(self.sides[1].wanted) // _TYPE.itemsize + _ALIGNED, _TYPE)
        room, run = _Room(), self._idle_run()
        room.hold(self.room)
        run.place(1, weight, room)
        run.wanted[1].at(_aligned(found))
        run.bring(1, weight, room)
        room.close()
        self._idle.append(run)
        return found

    def make(
        self, arrays: Three, bias: Array | None, room: _Room, ready: Array | None = None
    ) -> None:
        """Make what the face makes of the others; `ready` are the weights in the wanted layout."""
        room.hold(self.room)
        run = self._idle_run()
        made = self.face.made
        for number, array in enumerate(arrays):
            if number == 1 and ready is not None:
                run.wanted[1].at(_aligned(ready))
                continue
            run.place(number, array, room)
            if number != made:
                run.bring(number, array, room)
        run.compute(bias, made == 1, room)
        run.fetch(made, arrays[made], room)
        self._idle.append(run)


class _Room:
    """Scratch memory of a thread for one piece after another."""

    def __init__(self) -> None:
        self._flat: Array | None = None
        self._start = 0

    def hold(self, elements: int) -> None:
        """Have room for so many."""
        if self._flat is not None and len(self._flat) >= elements + _ALIGNED:
            return
        self.close()
        self._flat = take(elements + _ALIGNED, _TYPE)
        self._start = (_aligned(self._flat) - self._flat.ctypes.data) // _TYPE.itemsize

    def at(self, place: int) -> int:
        """The address of one."""
        assert self._flat is not None
        return self._flat.ctypes.data + (self._start + place) * _TYPE.itemsize

    def view(self, place: int, shape: Ints) -> Array:
        """An array from one on."""
        assert self._flat is not None
        start = self._start + place
        return self._flat[start : start + math.prod(shape)].reshape(shape)

    def close(self) -> None:
        if self._flat is not None:
            give(self._flat)


def _aligned(a: Array) -> int:
    """The first address in it at which a line of the cache begins."""
    line = _ALIGNED * _TYPE.itemsize
    return -(-a.ctypes.data // line) * line


class _Run:
    """The memory objects with which one thread at a time runs a plan's primitives."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._stream = onednn.stream()
        self.wanted = [onednn.Memory(side.wanted) for side in plan.sides]
        self._plain = [onednn.Memory(side.plain.value) for side in plan.sides]
        self._moves = [self._move(number) for number in range(len(plan.sides))]
        self._bias = None if plan.add is None else onednn.Memory(plan.add.value)
        pairs = list(zip(plan.face.numbers, [*self.wanted, self._bias], strict=True))
        given = [(number, memory) for number, memory in pairs if memory is not None]
        self._arguments = onednn.Arguments(plan.primitive, given)

    def _move(self, number: int) -> onednn.Arguments | None:
        move = self._plan.sides[number].move
        if move is None:
            return None
        ends = self._plain[number], self.wanted[number]
        if number == self._plan.face.made:
            ends = ends[::-1]
        return onednn.Arguments(move, list(zip((onednn.FROM, onednn.TO), ends, strict=True)))

    def place(self, number: int, array: Array, room: _Room) -> None:
        """Say where x, w or g lies."""
        side, (moved, copied) = self._plan.sides[number], self._plan.places[number]
        address = room.at(copied) if side.copied else array.ctypes.data
        if side.move is None:
            self.wanted[number].at(address)
        else:
            self._plain[number].at(address)
            self.wanted[number].at(room.at(moved))

    def bring(self, number: int, array: Array, room: _Room) -> None:
        """Bring it into the wanted layout."""
        if self._plan.sides[number].copied:
            np.copyto(room.view(self._plan.places[number][1], array.shape), array)
        self._run(self._moves[number], room)

    def fetch(self, number: int, array: Array, room: _Room) -> None:
        """And out of it."""
        self._run(self._moves[number], room)
        if self._plan.sides[number].copied:
            array[...] = room.view(self._plan.places[number][1], array.shape)

    def compute(self, bias: Array | None, made: bool, room: _Room) -> None:
        """Run the primitive; the bias is made too, or read."""
        if bias is None or self._bias is None:
            self._run(self._arguments, room)
            return
        flat = np.ascontiguousarray(bias, _TYPE)
        self._bias.at(flat.ctypes.data)
        self._run(self._arguments, room)
        if made and flat is not bias:
            bias[...] = flat.reshape(bias.shape)

    def _run(self, arguments: onednn.Arguments | None, room: _Room) -> None:
        if arguments is not None:
            arguments.run(self._stream, room.at(self._plan.scratch))
