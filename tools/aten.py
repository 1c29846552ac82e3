"""Write `src/skimp/library/aten.txt`: the names of PyTorch's overloads.

Needs PyTorch. `--check` says whether the file is as it would be written.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import torch

FILE = Path(__file__).parents[1] / "src/skimp/library/aten.txt"
HEAD = """\
# The overloads of ops in torch.ops.aten: their names, then the ops that have just these.
# Written by tools/aten.py from the schemas that PyTorch carries.
"""


def text() -> str:
    overloads: dict[str, set[str]] = defaultdict(set)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            overloads[name].add(schema.overload_name or "default")
    groups: dict[str, list[str]] = defaultdict(list)
    for name, found in overloads.items():
        groups[" ".join(sorted(found))].append(name)
    lines = [f"{names}: {' '.join(sorted(ops))}\n" for names, ops in sorted(groups.items())]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text() != text())
    FILE.write_text(text())
