"""A process of an engine, seen from outside: asked for one thing at a time, and stopped in between.

Stopped with SIGSTOP, not merely waiting for its next command: the threads of a product may go on
spinning after it, those of NumPy's OpenBLAS for 100 ms and more, PyTorch's for 1 to 8, on a core
that the next engine's work needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import Any, Self

from bench.engines import TIMEOUT, Engine, command, ended, too_long

Answer = dict[str, Any]


class Worker:
    """A process that runs `bench.measure`, and those that it forks; they load at once."""

    def __init__(
        self, engine: Engine, shrink: int = 1, timeout: float = TIMEOUT, threads: int | None = None
    ) -> None:
        words = [engine.name, f"--shrink={shrink}"]
        if threads is not None:
            words.append(f"--threads={threads}")
        self.timeout = timeout
        self._failed: Answer = {}
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it
        self._process = subprocess.Popen(
            **command("measure", *words, engine=engine),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            process_group=0,  # signals reach what it starts, a compiler, as well
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, words: str) -> Answer:
        """What it says to the command. A process that is gone, or late, only has an error."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended: the answer says how
            self._process.stdin.write(words.encode() + b"\n")
        line = None if self._failed else self._line()
        if line is None:
            return self._failed
        if words != "end":  # whose process goes now, with its memory
            self._signal(signal.SIGSTOP)
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """End it, whatever it does."""
        self._end()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                file.close()

    def _line(self) -> bytes | None:
        """The next line; None when none comes, and then `_failed` says why."""
        assert self._process.stdout
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._unread:
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([self._process.stdout], [], [], left)[0]:
                self._failed = {"error": too_long(self.timeout)}
                self._end()
                return None
            read = os.read(self._process.stdout.fileno(), 65536)
            if not read:
                status = self._end()
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace")
                self._failed = {"error": ended(status, said)}
                return None
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # else its number may be another's by now
            os.killpg(self.pid, number)

    def _end(self) -> int:
        self._signal(signal.SIGKILL)  # also to what it has started
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
