"""What it costs to import a library: `python -m bench.importing skimp` prints seconds and MiB.

It imports nothing else of the benchmark but `process`, for NumPy is a part of the cost.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from bench import process


def main() -> None:
    before, start = process.resident(), time.perf_counter()
    importlib.import_module(sys.argv[1])
    found = {"seconds": time.perf_counter() - start}
    after = process.resident()
    if before is not None and after is not None:
        found["mib"] = (after - before) / 2**20
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
