"""What tests of several processes need, and one of these makes: a run of PyTorch, above all.

Tests run side by side, and whichever process runs a test of a file would start all its programs.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

FOLDER = "SKIMP_TESTS_SHARED"  # the variable that names this run's folder (tests/conftest.py)
P = ParamSpec("P")
T = TypeVar("T")


def made_once(make: Callable[P, T]) -> Callable[P, T]:
    """A function of plain values to data that JSON has, called once in a run of the tests: others
    wait, and read what it gave. A failure is everyone's own.
    """

    @cache
    @wraps(make)
    def read(*args: P.args, **words: P.kwargs) -> T:
        folder = os.environ.get(FOLDER)
        if folder is None:
            return make(*args, **words)
        name = "-".join([make.__module__, make.__name__, *map(str, args)])
        with (Path(folder) / f"{name}.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            if not text:
                text = json.dumps(make(*args, **words))
                file.write(text)
            found: T = json.loads(text)
            return found

    return read
