"""Writes of files are whole or nothing."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import skimp
from skimp.serialization.archive import ArchiveWriter
from tests.surface.serialization.test_saving import no_globals  # noqa: F401  (a fixture of every test)

# -- writes are whole or nothing ------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    skimp.save(1, path)
    path.chmod(0o640)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        skimp.save([skimp.ones(3), lambda: 1], path)
    assert skimp.load(path) == 1
    skimp.save(2, path)
    assert skimp.load(path) == 2
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


KILLED = """
    import sys
    import skimp
    x = skimp.ones(1 << 22)
    skimp.save({"x": skimp.zeros(3)}, sys.argv[1])
    print("ready", flush=True)
    while True:
        skimp.save({"x": x}, sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_killed_save_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(KILLED), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.kill()
    process.wait()
    process.stdout.close()
    assert skimp.load(path)["x"].numel() in (3, 1 << 22)
    left = [p for p in tmp_path.iterdir() if p != path]
    if hasattr(os, "O_TMPFILE"):
        assert left == []  # but for the moment between two system calls, there is nothing to leave
    for one in left:
        os.utime(one, (0, 0))
    skimp.save(1, path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("nameless", [True, False])
def test_what_killed_saves_left_is_removed_by_the_next(
    nameless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is young, held by its writer, or not ours stays; both ways of writing replace files."""
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    kept = [".x.pt.0123456789ab.tmp", ".x.0123456789ab.skimp-tmp.pt", "x.skimp-tmp"]
    old, held, young = (tmp_path / f".a.pt.{c * 12}.skimp-tmp" for c in "abc")
    for one in [old, held, young, *(tmp_path / name for name in kept)]:
        one.write_bytes(b"half")
        os.utime(one, (0, 0))
    young.write_bytes(b"half")
    with held.open("rb") as file:
        fcntl = pytest.importorskip("fcntl")
        fcntl.flock(file, fcntl.LOCK_EX)
        skimp.save(1, tmp_path / "x.pt")
        left = {p.name for p in tmp_path.iterdir()}
    assert left == {"x.pt", held.name, young.name, *kept}
    monkeypatch.chdir(tmp_path)
    skimp.save(2, "x.pt")
    assert skimp.load("x.pt") == 2
    assert not held.exists()
    mask = os.umask(0o022)
    os.umask(mask)
    skimp.save(3, "new.pt")
    assert os.stat("new.pt").st_mode & 0o777 == 0o666 & ~mask


def test_links_are_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "x.pt", tmp_path / "link.pt"
    skimp.save(1, path)
    link.symlink_to(path)
    skimp.save(2, link)
    assert link.is_symlink()
    assert skimp.load(path) == 2
    skimp.save(3, os.devnull)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_stops_a_save_is_what_it_raises() -> None:
    """An interrupt just behind the opening of a record, too."""

    def cut() -> None:
        with ArchiveWriter(io.BytesIO(), "archive") as archive:
            kept.append(archive._zip.open("archive/data.pkl", "w"))
            raise KeyboardInterrupt

    kept: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        cut()
