"""What a budget did, told when the program has ended."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from time import process_time

from skimp._engine.budget import telling


def tell_at_exit(options: argparse.Namespace) -> None:
    """Have stderr told, unless that is not wanted, and the file that `skimp fit` waits for."""
    process, stderr = os.getpid(), sys.stderr
    began = process_time()  # what starting Python and skimp takes is no part of the program's

    def tell() -> None:
        if os.getpid() != process:  # a fork that ends through the same door
            return
        if options.outcome is not None:
            found = telling.outcome(options.budget)
            own = replace(found, seconds=found.seconds - began)
            Path(options.outcome).write_text(json.dumps(asdict(own)))
        told = not options.report or "json" in options.report  # in the report on stderr
        if options.budget is not None and not options.quiet and not told:
            print(telling.report(options.budget), file=stderr)

    atexit.register(tell)
