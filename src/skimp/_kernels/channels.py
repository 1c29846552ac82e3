"""Images times a number for each channel, plus another, perhaps plus other images, and perhaps held
between two numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._kernels import channels_compiled, channels_onednn, sharing
from skimp._kernels.channels_onednn import Limits
from skimp._kernels.pointwise import CLIP, clamp
from skimp._kernels.scratch import Scratch, give, giving, spare, take
from skimp._kernels.threads import Call

Array = np.ndarray[Any, Any]

_PART: Final = 1 << 18  # elements of what is not in its place yet
_BRIEF: Final = 1 << 15  # elements of which an array of its own costs less than scratch memory


def scaled(
    x: Array,
    a: Array,
    b: Array,
    plus: Array | None = None,
    *,
    hold: Limits | None = None,
    own: bool = False,
    out: Array,
) -> None:
    """out = x * a + b (+ plus), held between two numbers if they are given, NaN as it is; it may be
    where x is, or what is added. `own`: a and b were made of x's own moments."""
    if (found := channels_compiled.lined(x, a, b, plus, hold, out)) is not None:
        sharing.call(*found)
        return
    if channels_onednn.scaled(x, a, b, out, hold, plus, own):
        return
    if plus is None:
        np.multiply(x, a, out=out)
        np.add(out, b, out=out)
    else:
        _add_to_lines(x, a, b, plus, out)
    if hold is not None:
        clamp(out, *hold, out=out)


def _add_to_lines(x: Array, a: Array, b: Array, plus: Array, out: Array) -> None:
    """out = x * a + b + plus, which may be where one of them is."""
    with Scratch((_longest(out),), out.dtype) as room:
        for step in _adding(x, a, b, plus, out, room):
            step()


def _adding(
    x: Array, a: Array, b: Array, plus: Array, out: Array, room: Array
) -> Iterator[Callable[[], Any]]:
    """The calls that it takes, one after the other: a few images' lines are in `room` first."""
    for own, times, add, more, to in _parts(x, a, b, plus, out):
        line = room[: to.size].reshape(to.shape)
        yield partial(np.multiply, own, times, out=line)
        yield partial(np.add, line, add, out=line)
        yield partial(np.add, line, more, out=to)


def calls(
    x: Array,
    a: Array,
    b: Array,
    plus: Array | None = None,
    *,
    hold: Limits | None = None,
    own: bool = False,
    out: Array,
) -> list[Call]:
    """What `scaled` does, as calls of C."""
    if (found := channels_compiled.lined(x, a, b, plus, hold, out)) is not None:
        return [sharing.as_call(*found)]
    made = channels_onednn.calls(x, a, b, out, hold, plus, own)
    if made:
        return made
    if plus is None:
        made = [(partial(np.multiply, x, a, out=out),), (partial(np.add, out, b, out=out),)]
    else:
        room = take(_longest(out), out.dtype)
        made = [(step,) for step in _adding(x, a, b, plus, out, room)]
        made += giving(room)
    if hold is not None:
        made.append((partial(CLIP, out, *hold, out=out),))
    return made


def _step(like: Array) -> int:
    """How many images are worked on at once."""
    return max(1, _PART * len(like) // max(1, like.size))


def _longest(like: Array) -> int:
    """The elements of as many images."""
    return _step(like) * (like.size // max(1, len(like)))


def _parts(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """A few images after the other; the last array has all dims."""
    whole = arrays[-1]
    step = _step(whole)
    for i in range(0, len(whole), step):
        some = slice(i, i + step)
        yield tuple([a[some] if a.ndim == whole.ndim and len(a) > 1 else a for a in arrays])


def mixed(g: Array, x: Array, out: Array, a: Array, *rest: Array) -> None:
    """out = (x * b + c) + g * a, with b and c in `rest`; or g * a alone. It may be g itself."""
    if not rest:
        np.multiply(g, a, out=out)
    elif out.size <= _BRIEF:
        _mix(np.multiply(g, a), x, out, *rest)
    elif (room := spare(out.size, out.dtype)) is not None:
        _mix(np.multiply(g, a, out=room.reshape(out.shape)), x, out, *rest)
        give(room)
    else:
        for half in _halves((g, x, out), (a, *rest)):
            mixed(*half)


def _halves(images: Sequence[Array], numbers: Sequence[Array]) -> Iterator[tuple[Array, ...]]:
    """Both halves of images, and of numbers beside them: by the first dim that has two."""
    shape = images[0].shape
    beside = [np.broadcast_to(v, shape) for v in numbers]
    axis = next(i for i, n in enumerate(shape) if n > 1)
    return zip(*[np.array_split(v, 2, axis) for v in (*images, *beside)], strict=True)


def _mix(scaled: Array, x: Array, out: Array, b: Array, c: Array) -> None:
    np.multiply(x, b, out=out)
    np.add(out, c, out=out)
    np.add(out, scaled, out=out)
