"""A budget whose disk is full: what is in the file stays there, its places are used again, and once
there is room the file grows again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import spill
from skimp._engine.budget.spill import PAGE, File
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, held, is_away, numbers
from tests.engine.memory.test_interrupts import Moments
from tests.support.running import default_mode

pytestmark = default_mode  # what waits, and so has no bytes, follows the mode

Fill = Callable[[int], None]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fill]:
    """A disk on which a file may have so many bytes, until it has more room."""
    room = [1 << 40]
    pwrite = os.pwrite

    def write(fd: int, data: Any, offset: int) -> int:
        if offset + len(data) > room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data, offset)

    monkeypatch.setattr(spill.os, "pwrite", write)
    monkeypatch.setattr(spill, "AGAIN", 1e9)
    spill.seal()
    yield lambda nbytes: room.__setitem__(0, nbytes)
    spill.seal()


def pages(n: int, value: int) -> Any:
    return np.full(n * PAGE, value, np.uint8)


def is_as_written(place: spill.Place, value: int) -> bool:
    into = np.empty(place.nbytes, np.uint8)
    place.read(into)
    return bool((into == value).all())


def test_on_a_full_disk_places_that_nobody_has_are_joined_and_cut(disk: Fill) -> None:
    file = File(spill.places.directory())
    disk(4 * PAGE)
    made = [file.write(pages(1, i)) for i in range(4)]
    for _ in range(2):  # asked, and known
        with pytest.raises(OSError, match="No space left"):
            file.write(pages(1, 9))
    assert file.end == 4 * PAGE
    assert not file.has_room()
    del made[1:3]  # whose places touch
    assert file.has_room()
    two = file.write(pages(2, 5))
    assert not file.has_room()
    del two
    one = file.write(pages(1, 6))
    other = file.write(pages(1, 7))
    with pytest.raises(OSError, match="No space left"):
        file.write(pages(1, 9))
    assert [is_as_written(p, i) for p, i in zip([*made, one, other], (0, 3, 6, 7), strict=True)]
    assert file.end == 4 * PAGE


def test_a_file_that_could_not_grow_tries_again_later(disk: Fill, monkeypatch: Any) -> None:
    file = File(spill.places.directory())
    disk(PAGE)
    first = file.write(pages(1, 1))
    with pytest.raises(OSError, match="No space left"):
        file.write(pages(1, 2))
    disk(2 * PAGE)
    with pytest.raises(OSError, match="No space left"):
        file.write(pages(1, 2))
    monkeypatch.setattr(spill, "AGAIN", 0.0)
    assert file.has_room()
    second = file.write(pages(1, 2))
    assert is_as_written(first, 1)
    assert is_as_written(second, 2)


def test_no_two_places_lie_over_each_other_after_an_interrupt() -> None:
    at, came = 1, True
    while came:
        file = File(spill.places.directory())
        first = file.write(pages(2, 1))
        one = Moments(at)
        with contextlib.suppress(KeyboardInterrupt):
            one.run(lambda f=file: f.write(pages(1, 2)))
        second, third = file.write(pages(2, 3)), file.write(pages(1, 4))
        assert is_as_written(first, 1), at
        assert is_as_written(second, 3), at
        assert is_as_written(third, 4), at
        at, came = at + 1, one.interrupted
    assert at > 5


@pytest.mark.parametrize("frees", [True, False])
def test_a_budget_writes_again_when_there_is_room(
    disk: Fill, frees: bool, monkeypatch: Any
) -> None:
    """Because somebody is done with what is in the file, or because the disk has room again."""
    with torch.memory.budget(held() + 3 * MIB):
        budget: Any = host.budget
        disk(2 * MIB)
        made: list[Any] = []
        with pytest.raises(OutOfMemoryError, match="Nothing is spilled now: No space left"):
            made.extend(numbers(i) for i in range(9))
        assert not budget.spills
        count = len(made)
        assert count >= 4
        if frees:
            del made[next(i for i, t in enumerate(made) if is_away(t))]
            del made[next(i for i, t in enumerate(made) if not is_away(t))]
        else:
            disk(1 << 40)
            monkeypatch.setattr(spill, "AGAIN", 0.0)
        made.append(numbers(count))
        for _ in range(2):
            for t in made:
                assert t.sum().item() > 0
        assert budget.spills
        assert budget.error is None
    wanted = [numbers(i) for i in range(count + 1)]
    for t in made:
        assert sum([torch.equal(t, one) for one in wanted]) == 1


def test_what_the_full_disk_refused_goes_by_its_recipe(disk: Fill) -> None:
    disk(0)
    with torch.memory.budget(held() + 8 * MIB):
        budget: Any = host.budget
        budget.note()
        x = numbers(0).view(512, 512)
        y = x.sort(1)[0]
        want = y.sum().item()
        y._storage.recipe[0].seconds = 1e9  # to read would be cheaper
        assert budget._evict(y._storage)
        assert y._storage.place is None
        assert is_away(y)
        assert not budget.spills
        assert y.sum().item() == want


def test_what_was_just_written_is_had_from_the_page_cache(monkeypatch: Any) -> None:
    """Places that are written again and again are brought to the disk once there are many, or late;
    what was is not kept in the page cache.
    """
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(spill.os, "posix_fadvise", lambda fd, *asked: told.append(asked))
    monkeypatch.setattr(spill, "BEHIND", 3 * PAGE)
    file = File(spill.places.directory())
    for i in range(8):
        place = file.write(pages(2, i))
        place.expect()
        assert is_as_written(place, i)
        del place
    assert not told
    place = file.write(pages(1, 9))
    another = file.write(pages(2, 10))  # where the first ones were
    assert is_as_written(place, 9)
    assert (place.offset, PAGE, os.POSIX_FADV_DONTNEED) in told
    monkeypatch.setattr(spill, "LATE", 0.0)
    file.write(pages(1, 11))
    assert is_as_written(another, 10)
    assert (another.offset, 2 * PAGE, os.POSIX_FADV_DONTNEED) in told


def test_what_was_read_ahead_and_nobody_reads_leaves_the_page_cache(monkeypatch: Any) -> None:
    told: list[tuple[int, int, int, int]] = []
    monkeypatch.setattr(spill.os, "posix_fadvise", lambda *asked: told.append(asked))
    file = File(spill.places.directory())
    places = [file.write(pages(1, i)) for i in range(2 * spill.NEAR)]
    file.cached = {}
    for place in places:
        place.expect()
    assert len(file.ahead) == spill.NEAR
    last = places[-1].offset
    del place, places[-1]
    file.write(pages(2, 9))  # takes back what nobody has
    told.clear()
    file.bring_to_disk()
    gone = [
        (at, at + n) for fd, at, n, _ in told if fd == file.fd
    ]  # also others' files are told of
    assert gone[0] == (0, spill.NEAR * PAGE)
    assert any([start <= last < end for start, end in gone])
