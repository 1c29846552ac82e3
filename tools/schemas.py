"""Writes what types the arguments of ops have in PyTorch, by its own schemas, as the data that
refusals are made from. Needs PyTorch; `--check` says whether the data is up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import skimp  # noqa: F401  (declares the rows)
from skimp._engine.dispatch.row import FORMS
from skimp._engine.dispatch.schemas import FILE, keys

_TYPES = {
    "Tensor": "Tensor", "int": "int", "SymInt": "int", "bool": "bool", "float": "float",
    "number": "Number", "str": "str", "ScalarType": "dtype", "Layout": "layout",
    "Device": "device", "MemoryFormat": "memory_format", "Generator": "Generator",
    "complex": "Number", "List[Optional[Tensor]]": "Tensor[]",
}  # fmt: skip

# PyTorch's bindings of these are written by hand, and take other arguments than their schemas say
# (adaptive pools: None for a size that stays)
_BY_HAND = frozenset(
    {
        "as_tensor",
        "einsum",
        "sparse_bsc_tensor",
        "sparse_bsr_tensor",
        "sparse_compressed_tensor",
        "sparse_coo_tensor",
        "sparse_csc_tensor",
        "sparse_csr_tensor",
        "tensor",
        "to",
        "type",
    }
) | {f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (2, 3)}


def kind(t: Any, length: int | None) -> str | None:
    """A type of PyTorch's as the file spells it: `Tensor`, `int[2]?`; None for one that no Python
    caller gives.
    """
    text = str(t)
    if text in _TYPES:
        return _TYPES[text]
    match = re.fullmatch(r"(Optional|List)\[(.+)\]", text)
    inner = kind(match[2], length if match[1] == "Optional" else None) if match else None
    if match is None or inner is None:
        return None
    return inner + ("?" if match[1] == "Optional" else f"[{length or ''}]")


def overload(schema: Any) -> str | None:
    """The arguments of one overload, in a line; None for one that is not for Python's callers."""
    parts, tensors = [], False
    for a in schema.arguments:
        word = kind(a.real_type, a.N)
        if word is None:
            return None
        if a.is_out:
            continue
        tensors |= word.startswith("Tensor") or a.name == "dtype"
        if a.has_default_value() and a.default_value == []:
            word += "?"  # PyTorch's parser takes None for a list that is empty by default
        name = "input" if a.name == "self" else a.name
        parts.append(f"{'*' if a.kwarg_only else ''}{name} {word}{'=' * a.has_default_value()}")
    if "*pin_memory bool?=" in parts:  # PyTorch's binding adds one that kernels don't have
        parts.append("*requires_grad bool=")
    return ", ".join(parts) if tensors else None


def lines() -> Iterator[str]:
    """One for each overload of each op that skimp has."""
    import torch

    known = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            known[name].append(schema)
    names = {key for form in FORMS.values() for key in keys(form)}
    for name in sorted((names & set(known)) - _BY_HAND):
        for text in sorted({found for s in known[name] if (found := overload(s)) is not None}):
            yield f"{name}: {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = "".join([f"{line}\n" for line in lines()])
    if not parser.parse_args().check:
        Path(FILE).write_text(text)
    elif Path(FILE).read_text() != text:
        sys.exit(f"{Path(FILE).name} is stale: run tools/schemas.py")


if __name__ == "__main__":
    main()
