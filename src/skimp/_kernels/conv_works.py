"""How a convolution by oneDNN is cut into pieces of some images and channels (`conv_pieces`), and
the jobs that make them (`conv_onednn` has threads do those).

The cut follows from sizes alone, and so do the bits. Shapes: x (n, groups, ci, *size), w (groups,
co, ci, *kernel), g (n, groups, co, *out), bias (groups, co).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import compiled, onednn, shaping, sharing
from skimp._kernels.conv_pieces import TYPE, Plan, Ready, Room, Sizes, Three, chain, dense
from skimp._kernels.im2col import LANES, Ints, Window
from skimp._kernels.onednn_runs import Steps
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import quietly

Array = np.ndarray[Any, Any]
Sum = tuple[Array, Array | None]  # of gradients of w, and of the bias

_LEAST: Final = 1 << 24  # multiplications of a piece, 200 us, and a large one's
_LONG: Final = 1 << 27
TEAM: Final = 1 << 22  # and of a convolution for which threads that are awake pay
MOST: Final = 1 << 21  # elements of an image, before and after, that is worked on
_ROOM: Final = 1 << 19  # and of the images of a piece, unless it is one
_TOGETHER: Final = 1 << 18  # and of those on which a team works at once
_QUICKER: Final = 2  # than the products for which `blas.spread` knows what is worth sharing
_SUMMED: Final = 1 << 10  # multiplications that are worth adding an element of partial sums
_BUNDLE: Final = 16  # channels that are not cut
_FEW: Final = 3  # channels of images, colours say, that are not worth a bundle
_DIMS: Final = 3


class _Piece(NamedTuple):
    """Some images, and channels (of groups, where there are several) if they are cut, and how they
    are made: how many bytes behind the first elements of x, w, g and the bias its own are, and
    whether it reads the weights in the layout of the first piece."""

    images: slice
    channels: slice
    plan: Plan
    behind: Ints
    alike: bool


def cut(
    face: str, w: Window, whole: Sizes, team: int, narrow: bool = False
) -> tuple[list[slice], list[slice]]:
    """The images and the channels of pieces. A team, to which it is all the same how many there
    are, takes more small images and twice as many channels at once, unless they are summed.
    `narrow`: as few at once as can be, of images those that are added up, and of groups those that
    are made at once else: the code for fewer adds in another order."""
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
    if narrow:
        images = images if face == "weights" else 1
        step = step if groups > 1 else bundle
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
def works_of(
    face: str,
    w: Window,
    n: int,
    weight: Ints,
    lie: tuple[Ints, Ints, Ints] | None,
    bias: bool,
    threads: int,
) -> tuple[Work, ...] | None:
    """How it is made of arrays of these strides (None: of other types): by pieces that threads
    share, and perhaps by a team of so many, with the same bits. None if it is not."""
    whole = Sizes(n, *weight[:3])
    if not (0 < len(w.size) <= _DIMS and all([math.prod(shape) for shape in whole.shapes(w)])):
        return None
    if whole.image(w) > MOST:
        return None
    try:
        with onednn.team(1):
            alone = Work(face, w, whole, lie, bias)
        if threads == 1 or whole.n * whole.effort(w) < TEAM:
            return (alone,)
        with onednn.team(threads):
            shared = Work(face, w, whole, lie, bias, threads)
    except onednn.Unsupported:
        return None
    return (alone, shared) if shared.runs_as(alone) else (alone,)


class Work:
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
        narrow: bool = False,
    ) -> None:
        self._face = face
        self.team = team
        self._asked = face, w, whole, lie, bias
        self._groups = whole.groups
        self.effort = whole.n * whole.effort(w) // _QUICKER
        images, channels = cut(face, w, whole, team, narrow)
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
        self.copies = any([plan.copies for plan in plans.values()])
        self.sums = face == "weights" and len(images) > 1  # what several pieces make is added up
        self._all = [piece for some in self._pieces for piece in some]
        self.tasks = len(self._all)  # that threads could share
        if self.sums:
            self.tasks = len(channels) * min(LANES, len(images))
        self.room = max([plan.room for plan in plans.values()])
        # that read the same weights, which lie behind what pieces take where one thread makes all
        weights = self._all[0].plan.weights
        self._several = face != "weights" and len(channels) == 1 < len(images)
        self._held = self._several and weights > 0
        self.whole = self.room + (weights if self._several else 0)
        self._loud = self.sums or self.copies
        self._biased = face == "adjoint"  # by NumPy
        self._idle: list[Steps] = []
        # by products of one row each, or tap by tap
        alone = whole.groups > 1 and whole.co == whole.ci == 1
        self.slow = alone and any([plan.plain for plan in plans.values()])

    def runs_as(self, other: Work) -> bool:
        """Whether all pieces run the same code."""
        return all([a.runs_as(b) for a in self._plans() for b in other._plans()])

    @cached_property
    def narrow(self) -> Work:
        """The same with less scratch memory, in more and smaller pieces, which takes longer; this
        where there is no such."""
        try:
            with onednn.team(1):
                found = Work(*self._asked, narrow=True)
        except onednn.Unsupported:
            return self
        return found if found.room < self.room and found.runs_as(self) else self

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

    def make(self, arrays: Three, bias: Array | None, room: Room) -> None:
        """Make it of these arrays, piece after piece, on the thread that asks or its team, in room
        for the `whole`."""
        if self._loud or (bias is not None and (self._biased or not _takes_bias(bias))):
            quietly(self._make_of, arrays, bias, room)
            return
        at = shaping.addresses(*arrays) if bias is None else shaping.addresses(*arrays, bias)
        if bias is None:
            at.append(0)
        at += room.address, room.address + self.room * TYPE.itemsize
        steps = self._idle.pop() if self._idle else self._steps()
        steps(at)
        self._idle.append(steps)

    def _make_of(self, arrays: Three, bias: Array | None, room: Room) -> None:
        """The same where NumPy copies, adds up or writes a bias."""
        if self._adds(bias):
            lanes, ends = self._lanes(arrays, bias)
            for pieces, total in lanes:
                self._sum_up(pieces, total, arrays, room)
            _join(ends)
            return
        at, after, _flat = self._given(arrays, bias)
        held = 0
        if self._held:
            held = room.address + self.room * TYPE.itemsize
            self._all[0].plan.ready_weights(arrays[1], held, room)
        self._make_images(self._all, at, arrays, after, held, room)

    def _adds(self, bias: Array | None) -> bool:
        """Whether what pieces make is added up, or a bias is to be made that can't be written where
        it is to be."""
        return self.sums or (self._face == "weights" and not _takes_bias(bias))

    def _steps(self) -> Steps:
        """All that makes it, by one call."""
        pieces = [(piece.plan, piece.behind, piece.alike) for piece in self._all]
        return chain(pieces, self._all[0].plan if self._held else None)

    def job(self, arrays: Three, bias: Array | None) -> Job:
        """What makes it of these arrays, shared by any threads."""
        return (self._summing if self._adds(bias) else self._apart)(arrays, bias)

    def _apart(self, arrays: Three, bias: Array | None) -> Job:
        """Make each piece its own part of what is made."""
        ready = Ready(self._all[0].plan, arrays[1]) if self._several else None
        at, after, _flat = self._given(arrays, bias)

        def fn(piece: _Piece, room: Room, _flat: Array | None) -> None:
            held = ready.weights(room) if ready is not None and piece.alike else 0
            self._make_images([piece], at, arrays, after, held, room)

        tasks = [partial(fn, piece, _flat=_flat) for piece in self._all]  # which is read until then
        return Job(tasks, _nothing if ready is None else ready.close)

    def _given(
        self, arrays: Three, bias: Array | None
    ) -> tuple[list[int], Array | None, Array | None]:
        """Where x, w, g and the bias are; the bias that is added to a piece when it is made, for
        oneDNN's adjoint knows none; and an array that is read meanwhile."""
        at = shaping.addresses(*arrays)
        if bias is None or self._face == "adjoint":
            at.append(0)
            return at, bias, None
        flat = np.ascontiguousarray(bias, TYPE)
        at.append(shaping.address(flat))
        return at, None, flat

    def _make_images(
        self,
        pieces: list[_Piece],
        at: list[int],
        arrays: Three,
        after: Array | None,
        held: int,
        room: Room,
    ) -> None:
        """Make pieces that are apart, with what `_given` found; `held`: where the weights are in
        the layout of the first piece."""
        x, weight, g, add = at
        for piece in pieces:
            a, b, c, d = piece.behind
            ready = held if piece.alike else 0
            where = [x + a, weight + b, g + c, add + d, room.address, ready]
            if self.copies:
                piece.plan.make_of(where, self._parts(piece, arrays), room)
            else:
                piece.plan.make(where)
            if after is not None:
                add_to_channels(self._parts(piece, arrays)[0], self._bias(piece, after))

    def _summing(self, arrays: Three, bias: Array | None) -> Job:
        """Make w and the bias as sums, as `_lanes` says, whoever makes which."""
        lanes, ends = self._lanes(arrays, bias)

        def fn(pieces: list[_Piece], total: Sum, room: Room) -> None:
            self._sum_up(pieces, total, arrays, room)

        tasks = [partial(fn, *lane) for lane in lanes]
        return Job(tasks, partial(_join, ends))

    def _lanes(
        self, arrays: Three, bias: Array | None
    ) -> tuple[list[tuple[list[_Piece], Sum]], list[tuple[Sum, list[Sum]]]]:
        """Each channels' pieces are added up in lanes, every so many-th in one, and these at the
        end: the lanes' pieces and sums, and what is to be made of which of these."""
        lanes: list[tuple[list[_Piece], Sum]] = []
        ends: list[tuple[Sum, list[Sum]]] = []
        for some in self._pieces:
            own = None if bias is None else self._bias(some[0], bias)
            into = self._parts(some[0], arrays)[1], own
            if len(some) == 1 and _takes_bias(own):
                lanes.append((some, into))
                continue
            sums = [_blank(into) for _ in some[:LANES]]
            lanes += [(some[lane::LANES], found) for lane, found in enumerate(sums)]
            ends.append((into, sums))
        return lanes, ends

    def _sum_up(self, pieces: list[_Piece], total: Sum, arrays: Three, room: Room) -> None:
        """Make the sum of pieces of a lane."""
        seen, given, weight = shaping.addresses(arrays[0], arrays[2], total[0])
        add = 0 if total[1] is None else shaping.address(total[1])
        into = total
        for number, piece in enumerate(pieces):
            if number == 1:
                into = _blank(total)
                weight = shaping.address(into[0])
                add = 0 if into[1] is None else shaping.address(into[1])
            behind = piece.behind
            where = [seen + behind[0], weight, given + behind[2], add, room.address, 0]
            if self.copies:
                x, _, g = self._parts(piece, arrays)
                piece.plan.make_of(where, (x, into[0], g), room)
            else:
                piece.plan.make(where)
            if number:
                _add(total, into)
        if len(pieces) > 1:
            _over(into)

    def _bias(self, piece: _Piece, bias: Array) -> Array:
        return bias[piece.channels] if self._groups > 1 else bias[:, piece.channels]


def add_to_channels(images: Array, bias: Array) -> None:
    """images (n, groups, channels, *size) += bias (groups, channels)."""
    if images.size >= sharing.FROM and (loops := compiled.taking(images, bias)) is not None:
        rows, own = images.reshape(len(images) * bias.size, -1), bias.reshape(-1)
        line = np.ones_like(own), own, None, False, 0, 0  # times one: the bits of a sum
        sharing.call(loops.lined, images.size, sharing.BRIEF, rows, *line, rows)
        return
    np.add(images, bias.reshape(*bias.shape, *(1,) * (images.ndim - 3)), out=images)


def _takes_bias(bias: Array | None) -> bool:
    """Whether it can be written where it is to be."""
    return bias is None or (bias.dtype == TYPE and bias.flags.c_contiguous)


class Job(NamedTuple):
    """Tasks for any threads, in any order, and what comes after all of them."""

    tasks: Sequence[Callable[[Room], None]]
    end: Callable[[], None]


def _join(ends: list[tuple[Sum, list[Sum]]]) -> None:
    """Write the sums of lanes where they belong."""
    for into, (first, *others) in ends:
        for other in others:
            _add(first, other)
            _over(other)
        into[0][...] = first[0]
        if into[1] is not None:
            into[1][...] = first[1]
        _over(first)


def _nothing() -> None:
    pass


def _blank(like: Sum) -> Sum:
    """Room for such a sum, until it is `_over`."""
    weights, bias = like
    of_bias = None if bias is None else take(bias.size, TYPE).reshape(bias.shape)
    return take(weights.size, TYPE).reshape(weights.shape), of_bias


def _over(part: Sum) -> None:
    for a in part:
        if a is not None:
            give(a)


def _add(total: Sum, part: Sum) -> None:
    for a, b in zip(total, part, strict=True):
        if a is not None and b is not None:
            np.add(a, b, out=a)
