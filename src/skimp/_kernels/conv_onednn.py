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
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import conv_depthwise, conv_lanes, conv_products, onednn, teams
from skimp._kernels.blas import shares
from skimp._kernels.conv_lanes import Lanes, lanes
from skimp._kernels.conv_pieces import ALIGNED, TYPE, Room, Three, dense, room_of, spare_room
from skimp._kernels.conv_works import MOST, TEAM, Work, works_of
from skimp._kernels.im2col import Ints, Window, working
from skimp._kernels.scratch import give, spare, take
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]

_SEEN: Final = 1 << 17  # elements of what is copied for products, at most,
_WIDE: Final = 1 << 15  # and of the weights: of more channels convolutions are as quick
_FORTH: Final = ("forward",)
_BACK: Final = "weights", "adjoint"


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


class _Way(NamedTuple):
    """How a face is made of arrays of some shapes, strides and types: as a product, or by oneDNN's
    convolutions, alone and perhaps by a team, of arrays that are depthwise, of this window, or of
    images in groups (`conv_lanes`)."""

    product: conv_products.Product | None
    works: tuple[Work, ...]
    window: Window
    depthwise: bool
    groups: int


def _made(w: Window, *asked: Asked) -> bool:
    """Whether oneDNN makes it follows from shapes, strides, types and the library alone."""
    if w.seen is not None and _made_of_seen(w, w.seen, asked):
        return True
    ways: list[_Way] = []
    for face, arrays, bias in asked:
        way = _way_for(face, arrays, w, bias is not None)
        if way is None:
            return False
        ways.append(way)
    found: list[tuple[Work, ...]] = []
    rest: list[Asked] = []
    some: Lanes | None = None
    for way, (face, arrays, bias) in zip(ways, asked, strict=True):
        works = way.works
        if way.product is not None:
            way.product.make(*arrays, bias)
            continue
        if way.depthwise:
            lifted = len(way.window.size) > len(w.size)
            arrays = conv_depthwise.with_two_dims(arrays) if lifted else arrays
            if works[0].slow and conv_depthwise.made(face, arrays, bias, way.window, _planes):
                continue
        elif way.groups:
            some = lanes(arrays, bias, way.groups)
            arrays, bias = some.arrays, some.bias
        found.append(works)
        rest.append((face, arrays, bias))
    if found:
        _make(found, rest)
    if some is not None:
        quietly(some.join)
    return True


def _made_of_seen(w: Window, few: Window, asked: Sequence[Asked]) -> bool:
    """By products, of what a kernel of one tap by steps sees: of a copy without what lies between,
    where that is not long; whether it is made. A gradient's bits don't depend on whether the other
    is asked for, too: both are made so, or neither."""
    first, (x, weight, g), bias = asked[0]
    shape = (*x.shape[: -len(few.size)], *few.size)
    if math.prod(shape) > _SEEN or weight.size > _WIDE:
        return False
    if first == "adjoint" and bias is not None:
        return False
    lie, types = (
        (dense(shape, x.itemsize), weight.strides, g.strides),
        (x.dtype, weight.dtype, g.dtype),
    )
    products: dict[str, conv_products.Product] = {}
    for face in _FORTH if first in _FORTH else _BACK:
        biased = bias is not None and face != "adjoint"
        way = _way(face, few, len(x), weight.shape, lie, types, biased, config.threads)
        if way is None or way.product is None:
            return False
        products[face] = way.product
    room = take(math.prod(shape), TYPE)
    own = room.reshape(shape)
    for face, (x, weight, g), bias in asked:
        if face != "adjoint":
            own[...] = x[w.steps]
        products[face].make(own, weight, g, bias)
        if face == "adjoint":
            x[...] = 0
            x[w.steps] = own
    give(room)
    return True


def _planes(x: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> bool:
    """`forward` of groups of one channel, where oneDNN has code for them."""
    arrays = x, weight, out
    way = _way_for("forward", arrays, w, bias is not None)
    if way is None or way.works[0].slow:
        return False
    _make([way.works], [("forward", arrays, bias)])
    return True


class _Crew(NamedTuple):
    """Who makes faces: works for one thread each, with what `shares` asks of their pieces, and such
    for a team, if there are."""

    works: tuple[Work, ...]
    tasks: int
    effort: int
    team: tuple[Work, ...] | None


@lru_cache(512)
def _crew(found: tuple[tuple[Work, ...], ...]) -> _Crew:
    """Those of one piece are made by a team if they have one; several by a team where all have
    one."""
    alone, last = tuple([each[0] for each in found]), tuple([each[-1] for each in found])
    teams_of = [work.team > 1 for work in last]
    teamed = all(teams_of) or (any(teams_of) and all([work.alone for work in last]))
    tasks, effort = sum([work.tasks for work in alone]), sum([work.effort for work in alone])
    return _Crew(alone, tasks, effort, last if teamed else None)


def _make(found: Sequence[tuple[Work, ...]], asked: Sequence[Asked]) -> None:
    """By a team, if there is one now; else threads share the pieces of all, if that pays."""
    works, tasks, effort, team = _crew(tuple(found))
    if team is not None and teams.size(config.threads) > 1:
        _make_here(team, asked)
    elif shares(tasks, effort):
        _share(works, asked)
    else:
        _make_here(works, asked)


def _way_for(face: str, arrays: Three, w: Window, bias: bool) -> _Way | None:
    """How a face is made of these arrays; None if it is not."""
    x, weight, g = arrays
    strides, types = (x.strides, weight.strides, g.strides), (x.dtype, weight.dtype, g.dtype)
    return _way(face, w, len(x), weight.shape, strides, types, bias, config.threads)


@lru_cache(512)
def _way(
    face: str,
    w: Window,
    n: int,
    kernels: Ints,
    strides: tuple[Ints, Ints, Ints],
    types: tuple[Any, Any, Any],
    bias: bool,
    threads: int,
) -> _Way | None:
    """The same of n images and weights of this shape."""
    dtype = types[0]
    if onednn.library() is None or not dtype == types[1] == types[2] or working(dtype) != TYPE:
        return None
    lie = strides if dtype == TYPE else None
    made = None if lie is None else conv_products.product(face, w, n, kernels, lie, bias)
    if made is not None:
        return _Way(made, (), w, False, 0)
    groups, depthwise = 0, conv_depthwise.is_depthwise(kernels)
    if depthwise:
        w, kernels, strides = conv_depthwise.of_two_dims(w, kernels, strides)
    elif face == "weights" and lie is not None:
        groups = conv_lanes.groups(n, kernels, lie, w, TEAM, MOST)
        if groups:
            n, kernels, strides = conv_lanes.grouped(n, kernels, lie, groups)
    lie = lie and strides
    works = works_of(face, w, n, kernels, lie, bias and face != "adjoint", threads)
    return None if works is None else _Way(None, works, w, depthwise, groups)


# -- who makes it ---------------------------------------------------------------------------------


def _share(works: Sequence[Work], asked: Sequence[Asked]) -> None:
    """Make faces in pieces that our own threads share."""
    most = max([work.room for work in works])
    room = spare_room(most)
    if room is None:
        quietly(_make_narrow, works, asked)
        return
    jobs = [work.job(*own[1:]) for work, own in zip(works, asked, strict=True)]
    tasks = [task for job in jobs for task in job.tasks]
    left = iter(tasks)  # shared: next() is atomic
    threads = min(config.threads, len(tasks))
    share(partial(_run, left, room), threads, partial(_help, left, most))
    for job in jobs:
        job.end()


def _make_here(works: Sequence[Work], asked: Sequence[Asked]) -> None:
    """Make faces one after the other, each by its team."""
    most = team = 0
    for work in works:
        if work.whole > most:
            most = work.whole
    flat = spare(most + ALIGNED, TYPE)
    if flat is None:
        quietly(_make_narrow, works, asked)
        return
    room = Room(flat)
    began: tuple[float, float] | None = None
    for work, (_, arrays, bias) in zip(works, asked, strict=True):
        if work.team != team:
            if began is not None:
                teams.end(began)
            team = work.team
            onednn.use_threads(team)
            began = teams.begin() if team > 1 else None
        work.make(arrays, bias, room)
    if began is not None:
        teams.end(began)
    give(flat)


def _make_narrow(works: Sequence[Work], asked: Sequence[Asked]) -> None:
    """Make one face after the other on this thread, where there is little room for scratch memory.
    OutOfMemoryError: there is none for the smallest pieces."""
    for work, (_, arrays, bias) in zip(works, asked, strict=True):
        room = room_of(work.narrow.room)
        job = work.narrow.job(arrays, bias)
        _run(job.tasks, room)
        job.end()


def _help(tasks: Iterable[Callable[[Room], None]], most: int) -> None:
    """What a helper does. It leaves all to the others where it has no room."""
    room = spare_room(most)
    if room is not None:
        _run(tasks, room)


def _run(tasks: Iterable[Callable[[Room], None]], room: Room) -> None:
    """What a thread does."""
    onednn.use_threads(1)
    for task in tasks:
        task(room)
    give(room.flat)
