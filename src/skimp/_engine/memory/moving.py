"""Pages of free bytes that lie scattered move to the one place at which a block is wanted.

The system moves pages by entries of its tables: 1 MiB takes 9 us, and 500 where they are given back
and others come, zeroed, fault by fault (docs/notes/memory.md). What was in them is lost.

Before Linux 6.17 a move reaches as far as the system holds addresses for one thing. Where pages
came from and where they went it does not from then on: these places are a segment's `seams`. Each
makes a move take longer (4 us, or 14 where it has to begin anew), and a training step adds 50 to
100. So once there are many, free addresses are asked for anew, as one thing, without pages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final

from skimp._engine.interrupts import insist
from skimp._engine.memory import allocator
from skimp._engine.memory.segments import SEWN, Claim, Range, Segment

LEAST: Final = 64 << 10  # bytes that lie together, from which moving them repays itself
MANY: Final = 1 << 13  # seams, beyond which nothing moves: Linux allows a process 65,530 mappings


def move_in(segment: Segment, claim: Claim, least: int, left: deque[Claim]) -> bool:
    """Take a place for `claim` beside free bytes that have pages, if there is one, and have those
    that lack come from others, those at the highest addresses first, as many as there are; what
    still lacks comes when it is touched. False: that can't be, or fewer than `least` would have
    pages. Claims to be put back are in `left` afterwards.
    """
    if len(segment.seams) > MANY:
        renew(segment, left)
    ranges = list(segment.ranges)
    there = sum([end - start for start, end, warm in ranges if warm and end - start >= LEAST])
    if there < least or not segment.moves or len(segment.seams) > MANY:
        return False
    sources: list[Claim] = []
    claim.warm = False  # nor counted, until it has them
    try:
        parts = segment.take_beside(claim)
        lacking = least - claim.size + claim.cold
        if claim.segment is None or _gather(segment, claim.cold, sources) < lacking:
            return False  # others have taken some
        if not _move_all(segment, sources, parts):
            segment.moves = False
            return False
        held = segment.held
        for one in sources:  # first: nobody may see more than there is
            held.freed = held.freed + one.size  # one step with the next line
            one.warm = False
        held.allocated = held.allocated + claim.cold  # one step with the next line
        claim.cold, claim.warm = 0, True
        held.rise()
        return True
    finally:
        try:
            if not claim.warm:
                insist(_leave, segment, claim)
        finally:
            left.extend(sources)


def renew(segment: Segment, left: deque[Claim]) -> None:
    """Have free addresses be without seams, and without pages, if there are many seams. Claims to
    be put back are in `left` afterwards.
    """
    if len(segment.seams) < min(segment.many, MANY) or not segment.moves:
        return
    reached = -1  # up to where all is one thing
    for found in list(segment.ranges):
        end = _renew(segment, found, reached, left)
        if end is None:
            break
        reached = end
    segment.many = len(segment.seams) + SEWN


def _renew(segment: Segment, found: Range, reached: int, left: deque[Claim]) -> int | None:
    """Renew one free range, and return up to where all is one thing then; None: that can't be."""
    one = Claim(found.end - found.start)
    one.warm = found.warm
    try:
        if not segment.take_upper(found, one):
            return reached  # somebody else has it by now
        start, end = one.start, one.start + one.size
        if not allocator.renew(segment.buffer, start, end):
            return None
        if found.warm:
            segment.held.freed = segment.held.freed + one.size  # one step with the next line
            one.warm = False
        _be_one(segment, start, end, start == reached)
        return end
    finally:
        left.append(one)  # last: whoever finds it there puts it back


def _leave(segment: Segment, claim: Claim) -> None:
    """A place that may have some pages by now is free again, and has none; or all, where none can
    be given back.
    """
    held = segment.held
    if claim.segment is segment:
        if allocator.discard(segment.buffer, claim.start, claim.start + claim.size):
            held.freed = held.freed + claim.size - claim.cold  # one step with the next line
            claim.cold, claim.warm = claim.size, False
        else:
            held.allocated = held.allocated + claim.cold  # one step with the next line
            claim.cold, claim.warm = 0, True
        segment.put(claim)
    claim.cold, claim.warm = 0, True


def _gather(segment: Segment, nbytes: int, sources: list[Claim]) -> int:
    """Take so many bytes that have pages, or as many as there are; returns how many."""
    lacking = nbytes
    for found in reversed(list(segment.ranges)):
        if found.warm and found.end - found.start >= LEAST and lacking:
            one = Claim(lacking)
            sources.append(one)  # first: an interrupt may come
            if segment.take_upper(found, one):
                lacking -= one.size
    sources[:] = [one for one in sources if one.segment is not None]
    return nbytes - lacking


def _move_all(segment: Segment, sources: list[Claim], parts: list[tuple[int, int]]) -> bool:
    """Move the sources' pages to where they are wanted; False: the system refuses."""
    across = allocator.moves_across()
    for start, end, to in _ways(sources, parts):
        for a, b in [(start, end)] if across else _pieces(segment.seams, start, end):
            if not allocator.move(segment.buffer, a, to + a - start, b - a):
                return False
            _sew(segment, a, b, to + a - start)
    return True


def _ways(sources: list[Claim], parts: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """From where, up to where and to which place each one moves."""
    wanted = iter(parts)
    to = last = -1
    for one in sources:
        start, end = one.start, one.start + one.size
        while start < end:
            if to == last:
                to, last = next(wanted)
            middle = min(end, start + last - to)
            yield start, middle, to
            to += middle - start
            start = middle


def _pieces(seams: list[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts between two addresses that have no seam inside."""
    for seam in [*seams[bisect_right(seams, start) : bisect_left(seams, end)], end]:
        yield start, seam
        start = seam


def _sew(segment: Segment, start: int, end: int, to: int) -> None:
    """What was from `start` to `end` is from `to` on, with the seams inside, and leaves them."""
    last = to + end - start
    while True:
        before = segment.seams
        seams = before[:]
        inside = seams[bisect_right(seams, start) : bisect_left(seams, end)]
        there = slice(bisect_left(seams, to), bisect_right(seams, last))
        seams[there] = [to, *[at + to - start for at in inside], last]
        for seam in (start, end):
            at = bisect_left(seams, seam)
            if seams[at : at + 1] != [seam]:
                seams.insert(at, seam)
        if segment.seams is before:  # one step with the next line
            segment.seams = seams
            return


def _be_one(segment: Segment, start: int, end: int, with_before: bool) -> None:
    """From `start` to `end` there are no seams any more; `with_before`: nor at `start`."""
    while True:
        before = segment.seams
        inside = slice(bisect_right(before, start - with_before), bisect_left(before, end))
        stay = [at for at in before[inside] if at == allocator.SMALL_PAGES]
        seams = [*before[: inside.start], *stay, *before[inside.stop :]]
        if segment.seams is before:  # one step with the next line
            segment.seams = seams
            return
