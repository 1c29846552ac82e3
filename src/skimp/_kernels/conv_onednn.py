"""Convolution by oneDNN's primitives (`onednn`), a few images or channels at a time.

oneDNN works on channels in bundles of a vector's lanes. What a primitive reads is brought into that
layout, what it makes is brought back, in scratch memory that stays in a core's cache; the layout of
the weights is made once for all images. A piece of work is some images, or where these are few some
of the channels (of groups, where there are several). How a convolution is cut follows from its
sizes alone. Either each piece runs on one of our threads; or each on all of oneDNN's, one piece
after the other, where it runs the same code on them as on one. So bits don't depend on the number
of threads.

The three faces of the form <g, x * w> (`conv`) differ in which of the arrays is made. Shapes: x (n,
groups, ci, *size), w (groups, co, ci, *kernel), g (n, groups, co, *out), bias (groups, co).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import conv_depthwise, conv_products, onednn, shaping, teams
from skimp._kernels.blas import shares, spread
from skimp._kernels.conv_lanes import Lanes, lanes
from skimp._kernels.conv_pieces import TYPE, Plan, Ready, Room, Sizes, Three, dense
from skimp._kernels.im2col import LANES, Ints, Window, working
from skimp._kernels.scratch import give
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]
Sum = tuple[Array, Array | None]  # of gradients of w, and of the bias

_LEAST: Final = 1 << 24  # multiplications of a piece, 200 us, and a large one's
_LONG: Final = 1 << 27
_TEAM: Final = 1 << 22  # and of a convolution for which threads that are awake pay
_MOST: Final = 1 << 21  # elements of an image, before and after, that is worked on
_ROOM: Final = 1 << 19  # and of the images of a piece, unless it is one
_TOGETHER: Final = 1 << 18  # and of those on which a team works at once
_QUICKER: Final = 2  # than the products for which `blas.spread` knows what is worth sharing
_SUMMED: Final = 1 << 10  # multiplications that are worth adding an element of partial sums
_BUNDLE: Final = 16  # channels that are not cut
_FEW: Final = 3  # channels of images, colours say, that are not worth a bundle
_DIMS: Final = 3


# -- the three faces: each says whether oneDNN is there and has made it ---------------------------


def forward(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> bool:
    """out = x * weight + bias."""
    return _made(w, ("forward", (x, weight, out), bias))


def adjoint(g: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> bool:
    """out = what each element of the input gives to the places whose kernel covers it, plus a bias
    (groups, ci)."""
    return _made(w, ("adjoint", (out, weight, g), bias))


def weights(g: Array, x: Array, out: Array, w: Window, bias: Array | None = None) -> bool:
    """out = for each tap, the sum of g times what the tap saw; bias = the sum of g."""
    return _made(w, ("weights", (x, out, g), bias))


def adjoint_and_weights(
    g: Array, x: Array, weight: Array, out: Array, grad: Array, w: Window, bias: Array | None
) -> bool:
    """`adjoint` into out and `weights` into grad, or neither: threads share the pieces of both."""
    return _made(w, ("weights", (x, grad, g), bias), ("adjoint", (out, weight, g), None))


Asked = tuple[str, Three, Array | None]  # a face, its x, w and g, the bias


def _made(w: Window, *asked: Asked) -> bool:
    """Whether oneDNN makes it follows from shapes, strides, types and the library alone."""
    if onednn.library() is None:
        return False
    if w.taps == 1:
        asked = tuple([each for each in asked if not conv_products.made(*each, w)])
    found: list[tuple[_Work, ...]] = []
    rest: list[Asked] = []
    some: Lanes | None = None
    for face, arrays, bias in asked:
        window = w
        if conv_depthwise.is_depthwise(arrays[1]):
            arrays, window = conv_depthwise.of_two_dims(arrays, w)
        elif face == "weights" and (some := lanes(arrays, bias, w, _TEAM, _MOST)) is not None:
            arrays, bias = some.arrays, some.bias
        # oneDNN's adjoint knows no bias: pieces add it
        works = _works_for(face, arrays, window, bias is not None and face != "adjoint")
        if works is None:
            if some is not None:
                give(some.room)
            return False
        if not (works[0].slow and conv_depthwise.made(face, arrays, bias, window, _planes)):
            found.append(works)
            rest.append((face, arrays, bias))
    if found:
        _make(found, rest)
    if some is not None:
        quietly(some.join)
    return True


def _planes(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> bool:
    """`forward` of groups of one channel, where oneDNN has code for them."""
    arrays = x, weight, out
    works = _works_for("forward", arrays, w, bias is not None)
    if works is None or works[0].slow:
        return False
    _make([works], [("forward", arrays, bias)])
    return True


def _make(found: list[tuple[_Work, ...]], asked: Sequence[Asked]) -> None:
    """Those of one piece by a team if they have one; several by a team where all have one: else
    threads share the pieces of all."""
    together = teams.size(config.threads) > 1
    works, alone, teamed, effort = [], True, False, 0
    for each in found:
        work = each[-1 if together else 0]
        works.append(work)
        alone &= work.alone
        teamed |= work.team > 1
        effort += work.effort
    if alone and (teamed or not shares(len(works), effort)):
        quietly(_make_alone, works, asked)
        return
    team = min(map(len, found)) - 1 if together else 0
    _share([each[team].job(*own[1:]) for each, own in zip(found, asked, strict=True)])


def _works_for(face: str, arrays: Three, w: Window, bias: bool) -> tuple[_Work, ...] | None:
    x, weight, g = arrays
    dtype = x.dtype
    if not dtype == weight.dtype == g.dtype:
        return None
    lie = (x.strides, weight.strides, g.strides) if dtype == TYPE else None
    if lie is None and working(dtype) != TYPE:
        return None
    return _works(face, w, len(x), weight.shape, lie, bias, config.threads)


# -- how the work is cut --------------------------------------------------------------------------


class _Piece(NamedTuple):
    """Some images, and channels (of groups, where there are several) if they are cut, and how they
    are made: how many bytes behind the first elements of x, w, g and the bias its own are, and
    whether it reads the weights in the layout of the first piece."""

    images: slice
    channels: slice
    plan: Plan
    behind: Ints
    alike: bool


def _cut(face: str, w: Window, whole: Sizes, team: int) -> tuple[list[slice], list[slice]]:
    """The images and the channels of pieces. A team, to which it is all the same how many there
    are, takes more small images and twice as many channels at once, unless they are summed."""
    n, groups, co, ci = whole
    each = whole.effort(w)
    few = max(-(-_LEAST // each), min(-(-_LONG // each), -(-n // LANES)))
    if face == "weights":
        few = max(few, -(-_SUMMED // math.prod(w.out)))
    elif math.prod(w.kernel) * ci * co > n * _read(face, w, whole):
        few = n  # each piece lays out its own weights, rather than one thread all of them
    image = whole.image(w, _BUNDLE if face == "adjoint" else 1)
    count = -(-n // max(1, min(n, few, _ROOM // image)))
    images = -(-n // count)
    channels, bundle = (ci if face == "adjoint" else co), _BUNDLE
    if groups > 1:
        channels, bundle = groups, -(-_BUNDLE // ci)
    # each brings all that it reads into its layout: none is less than the least, and better larger
    cuts = max(1, min(-(-LANES // count), -(-channels // bundle), n * each // (count * _LEAST)))
    if team > 1 and face != "weights" and groups == 1:
        cuts = -(-cuts // 2)
        images = max(images, -(-n // -(-n * image // _TOGETHER)))
    elif team > 1 and face == "weights" and bundle == 1:  # threads share groups, one each
        cuts = max(1, min(cuts, groups // team))
    step = -(-channels // (cuts * bundle)) * bundle
    return _slices(n, images), _slices(channels, step)


def _few(face: str, w: Window, whole: Sizes) -> bool:
    """Whether an image's gradient is better made by one product, which is added up where it
    belongs, than in bundles of which most channels are none; with less memory, too."""
    if face != "adjoint" or whole.groups > 1 or whole.ci > _FEW:
        return False
    return whole.ci * math.prod((*w.kernel, *w.out)) <= whole.image(w, _BUNDLE)


def _read(face: str, w: Window, whole: Sizes) -> int:
    """The elements of an image of a group from which x or g is made."""
    return whole.co * math.prod(w.out) if face == "adjoint" else whole.ci * math.prod(w.size)


def _slices(length: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]


@lru_cache(512)
def _works(
    face: str,
    w: Window,
    n: int,
    weight: Ints,
    lie: tuple[Ints, Ints, Ints] | None,
    bias: bool,
    threads: int,
) -> tuple[_Work, ...] | None:
    """How it is made of arrays of these strides (None: of other types): by pieces that threads
    share, and perhaps by a team of so many, with the same bits. None if it is not."""
    whole = Sizes(n, *weight[:3])
    if not (0 < len(w.size) <= _DIMS and all([math.prod(shape) for shape in whole.shapes(w)])):
        return None
    if whole.image(w) > _MOST:
        return None
    try:
        with onednn.team(1):
            alone = _Work(face, w, whole, lie, bias)
        if threads == 1 or whole.n * whole.effort(w) < _TEAM:
            return (alone,)
        with onednn.team(threads):
            shared = _Work(face, w, whole, lie, bias, threads)
    except onednn.Unsupported:
        return None
    return (alone, shared) if shared.runs_as(alone) else (alone,)


class _Work:
    """A face of a convolution, in pieces: of the same channels, for each such channels. Each is
    made on a team of so many of oneDNN's threads."""

    def __init__(
        self,
        face: str,
        w: Window,
        whole: Sizes,
        lie: tuple[Ints, Ints, Ints] | None,
        bias: bool,
        team: int = 1,
    ) -> None:
        self._face = face
        self.team = team
        self._groups = whole.groups
        self.effort = whole.n * whole.effort(w) // _QUICKER
        images, channels = _cut(face, w, whole, team)
        if face == "weights" and len(images) > 1:  # partial sums, which lie as they are made
            lie = lie and (lie[0], dense(whole.shapes(w)[1], TYPE.itemsize), lie[2])
        few = _few(face, w, whole)
        plans: dict[Sizes, Plan] = {}
        self._pieces: list[list[_Piece]] = []
        for channel in channels:
            self._pieces.append([])
            for image in images:
                size = self._part(whole, image, channel)
                if size not in plans:
                    plans[size] = Plan(face, w, size, lie, bias, few)
                plan, first = plans[size], next(iter(plans.values()))
                behind = self._behind(whole, lie, image.start, channel.start)
                alike = plan is first or plan.reads_weights_of(first)
                self._pieces[-1].append(_Piece(image, channel, plan, behind, alike))
        self.alone = len(images) == len(channels) == 1
        self.room = max([plan.room for plan in plans.values()])
        # by products of one row each, or tap by tap
        alone = whole.groups > 1 and whole.co == whole.ci == 1
        self.slow = alone and any([plan.plain for plan in plans.values()])

    def runs_as(self, other: _Work) -> bool:
        """Whether all pieces run the same code."""
        return all([a.runs_as(b) for a in self._plans() for b in other._plans()])

    def _plans(self) -> set[Plan]:
        return {piece.plan for some in self._pieces for piece in some}

    def _part(self, whole: Sizes, images: slice, channels: slice) -> Sizes:
        n, some = images.stop - images.start, channels.stop - channels.start
        if self._groups > 1:
            return whole._replace(n=n, groups=some)
        if self._face == "adjoint":
            return whole._replace(n=n, ci=some)
        return whole._replace(n=n, co=some)

    def _behind(
        self, whole: Sizes, lie: tuple[Ints, Ints, Ints] | None, image: int, channel: int
    ) -> Ints:
        """Where what `_parts` takes begins; nobody asks of what is copied."""
        x, weight, g = lie or (((0,) * 3,) * 3)
        seen, own, given = image * x[0], 0, image * g[0]
        if self._groups > 1:
            seen, own, given = seen + channel * x[1], channel * weight[0], given + channel * g[1]
            channel *= whole.co
        elif self._face == "adjoint":
            seen, own = seen + channel * x[2], channel * weight[2]
        else:
            own, given = channel * weight[1], given + channel * g[2]
        return seen, own, given, channel * TYPE.itemsize

    def _parts(self, piece: _Piece, arrays: Three) -> Three:
        """What the piece is of x, w and g."""
        x, weight, g = arrays
        images, some = piece.images, piece.channels
        if self._groups > 1:
            return x[images, some], weight[some], g[images, some]
        if self._face == "adjoint":
            return x[images, :, some], weight[:, :, some], g[images]
        return x[images], weight[:, some], g[images, :, some]

    def make_alone(self, arrays: Three, bias: Array | None, room: Room) -> None:
        """Make it of these arrays, of one piece."""
        plan = self._pieces[0][0].plan
        add, after = bias, None
        if self._face == "adjoint":
            add, after = None, bias
        elif add is not None and not _takes_bias(add):
            add = np.ascontiguousarray(add, TYPE)
        where = [shaping.address(a) for a in arrays]
        where += [0 if add is None else shaping.address(add), 0, 0]
        plan.make(where, lambda: arrays, room)
        if after is not None:
            add_to_channels(arrays[0], after)
        elif add is not bias and bias is not None and self._face == "weights":
            bias[...] = add

    def job(self, arrays: Three, bias: Array | None) -> _Job:
        """What makes it of these arrays."""
        return (self._sums if self._face == "weights" else self._images)(arrays, bias)

    def _images(self, arrays: Three, bias: Array | None) -> _Job:
        """Make x or g: each piece its own part of it."""
        pieces = [piece for some in self._pieces for piece in some]
        several = len(pieces) > 1 and len(self._pieces) == 1  # that read the same weights
        ready = Ready(pieces[0].plan, arrays[1]) if several else None
        x, weight, g = [shaping.address(a) for a in arrays]
        after, bias = (bias, None) if self._face == "adjoint" else (None, bias)
        flat = None if bias is None else np.ascontiguousarray(bias, TYPE)
        add = 0 if flat is None else shaping.address(flat)

        def fn(piece: _Piece, room: Room, flat: Array | None) -> None:
            held = ready.weights(room) if ready is not None and piece.alike else 0
            a, b, c, d = piece.behind
            where = [x + a, weight + b, g + c, add + d, 0, held]
            piece.plan.make(where, partial(self._parts, piece, arrays), room)
            if after is not None:
                add_to_channels(self._parts(piece, arrays)[0], self._bias(piece, after))

        tasks = [partial(fn, piece, flat=flat) for piece in pieces]  # which is read until then
        return _Job(
            tasks, self.effort, _nothing if ready is None else ready.close, self.team, self.room
        )

    def _sums(self, arrays: Three, bias: Array | None) -> _Job:
        """Make w and the bias: each channels' pieces are added up in lanes, every so many-th in
        one, and these at the end, whoever made them."""
        lanes: list[tuple[list[_Piece], Sum]] = []
        ends: list[tuple[Sum, list[Sum]]] = []
        for some in self._pieces:
            own = None if bias is None else self._bias(some[0], bias)
            into = self._parts(some[0], arrays)[1], own
            alone = len(some) == 1 and _takes_bias(into[1])
            sums = [into] if alone else [_blank(into) for _ in some[:LANES]]
            lanes += [(some[lane::LANES], found) for lane, found in enumerate(sums)]
            ends.append((into, sums))
        x, _, g = arrays
        seen, given = shaping.address(x), shaping.address(g)

        def parts(piece: _Piece, into: Sum) -> Three:
            x, _, g = self._parts(piece, arrays)
            return x, into[0], g

        def fn(pieces: list[_Piece], total: Sum, room: Room) -> None:
            into = total
            for number, piece in enumerate(pieces):
                if number == 1:
                    into = _blank(total)
                weight = shaping.address(into[0])
                add = 0 if into[1] is None else shaping.address(into[1])
                where = [seen + piece.behind[0], weight, given + piece.behind[2], add, 0, 0]
                piece.plan.make(where, partial(parts, piece, into), room)
                if number:
                    _add(total, into)

        def end() -> None:
            for into, (first, *others) in ends:
                if others or first is not into:
                    for other in others:
                        _add(first, other)
                    into[0][...] = first[0]
                    if into[1] is not None:
                        into[1][...] = first[1]

        return _Job([partial(fn, *lane) for lane in lanes], self.effort, end, self.team, self.room)

    def _bias(self, piece: _Piece, bias: Array) -> Array:
        return bias[piece.channels] if self._groups > 1 else bias[:, piece.channels]


def add_to_channels(images: Array, bias: Array) -> None:
    """images (n, groups, channels, *size) += bias (groups, channels)."""
    np.add(images, bias.reshape(*bias.shape, *(1,) * (images.ndim - 3)), out=images)


def _takes_bias(bias: Array | None) -> bool:
    """Whether it can be written where it is to be."""
    return bias is None or (bias.dtype == TYPE and bias.flags.c_contiguous)


class _Job(NamedTuple):
    """Tasks for any threads, in any order, and what comes after all of them."""

    tasks: Sequence[Callable[[Room], None]]
    effort: int
    end: Callable[[], None]
    team: int
    room: int  # that a thread needs, in elements


def _nothing() -> None:
    pass


def _share(jobs: list[_Job]) -> None:
    """Run the jobs: their tasks one after the other on a team, or shared by our own threads."""
    tasks = [task for job in jobs for task in job.tasks]
    team = jobs[0].team
    most = max([job.room for job in jobs])
    work = partial(_run, iter(tasks), team, most, iter([True]))  # shared: next() is atomic
    if team > 1:
        began = teams.begin()
        share(work, 1)
        teams.end(began)
    else:
        spread(work, len(tasks), sum([job.effort for job in jobs]))
    for job in jobs:
        job.end()


def _make_alone(works: Sequence[_Work], asked: Sequence[Asked]) -> None:
    """Make faces of one piece, one after the other."""
    room = Room()
    for work in works:
        room.hold(work.room)
    for work, (_, arrays, bias) in zip(works, asked, strict=True):
        onednn.use_threads(work.team)
        if work.team > 1:
            began = teams.begin()
            work.make_alone(arrays, bias, room)
            teams.end(began)
        else:
            work.make_alone(arrays, bias, room)
    room.close()


def _run(
    tasks: Iterable[Callable[[Room], None]], team: int, most: int, first: Iterator[bool]
) -> None:
    """What a thread does. Who is not the first leaves all to the others where it has no room."""
    room = Room()
    if next(first, False):
        room.hold(most)
    elif not room.spare(most):
        return
    onednn.use_threads(team)
    for task in tasks:
        task(room)
    room.close()


def _blank(like: Sum) -> Sum:
    bias = None if like[1] is None else np.empty(like[1].shape, TYPE)
    return np.empty(like[0].shape, TYPE), bias


def _add(total: Sum, part: Sum) -> None:
    for a, b in zip(total, part, strict=True):
        if a is not None and b is not None:
            np.add(a, b, out=a)
