"""Listening to the ledger while a program runs, and reporting when the interpreter ends."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from skimp import lens as report

Destination = Path | Literal["json"]
# of files, by the end of their names
_FORMATS: Final[dict[str, Callable[[report.Report], str]]] = {
    ".json": report.to_json,
    ".html": report.to_html,
}
_SNAPSHOTS: Final = (".snapshot", ".pickle")  # PyTorch's format


def _format_of(path: Path) -> Callable[[report.Report], str]:
    if path.name.endswith(".speedscope.json"):
        return report.to_speedscope
    return _FORMATS.get(path.suffix, report.to_text)


class Recording(Protocol):
    """What listens to an engine: skimp's, or PyTorch's."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def report(self) -> report.Report: ...


@dataclass(frozen=True, slots=True)
class Wishes:
    """Where the report goes: files, or stderr as JSON, or as text where nothing is said. Quiet:
    not to stderr. `show`: the sections that the text on stderr has; who names some wants it beside
    files too.
    """

    destinations: tuple[Destination, ...]
    quiet: bool
    show: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """Those that are to be written."""
        return [one for one in self.destinations if isinstance(one, Path)]

    def nothing(self) -> bool:
        """Whether nobody will read the report: then nothing is collected for it."""
        return self.quiet and not self.files


class Listener:
    """Counts from its creation until the interpreter ends, after threads and exit hooks."""

    def __init__(self, recording: Recording, wishes: Wishes) -> None:
        self._wishes = wishes
        self._process = os.getpid()
        self._stderr = sys.stderr  # the program may put something else there
        self._recording = recording
        recording.start()
        atexit.register(self._finish)

    def stop(self) -> None:
        """Listen no longer, and report nothing."""
        self._recording.stop()
        atexit.unregister(self._finish)

    def _finish(self) -> None:
        if os.getpid() != self._process:  # a fork that ends through the same door
            return
        self._recording.stop()
        self._write(self._recording.report())

    def _write(self, result: report.Report) -> None:
        wishes = self._wishes
        for path in wishes.files:
            self._save(result, path)
        json = "json" in wishes.destinations
        if wishes.quiet or (wishes.files and not wishes.show and not json):
            return
        with suppress(AttributeError, OSError, ValueError):  # it is None, unread or closed
            sys.stdout.flush()  # the program's last words come first
        if json:
            print(report.to_json(result), file=self._stderr)
        else:
            report.show(result, self._stderr, wishes.show)

    def _save(self, result: report.Report, path: Path) -> None:
        try:
            if path.suffix in _SNAPSHOTS:
                report.dump(result, path)
            else:
                path.write_text(_format_of(path)(result), encoding="utf-8")
        except OSError as error:
            print(f"skimp run: can't write {str(path)!r}: {error.strerror}", file=self._stderr)
