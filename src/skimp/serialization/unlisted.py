"""What a file is told whose names are not on the list: which, and the line that allows them."""

from __future__ import annotations

import pickle
from typing import IO, Any

from skimp.serialization import listed, names
from skimp.serialization.scan import globals_after

SHOWN = 20  # names in one message


def blocked(module: str, full: str) -> pickle.UnpicklingError:
    """The error for a module that touches the system."""
    return pickle.UnpicklingError(
        f"Weights only load failed. Trying to load unsupported GLOBAL {full} whose module {module} "
        "is blocked. No file needs it to hold data: do not use this file."
    )


def unlisted(module: str, name: str, whole: bool, file: IO[bytes]) -> pickle.UnpicklingError:
    """The error for a name that is not on the list, with the line that puts it there."""
    full = f"{module}.{name}"
    if name in names.ABSENT and module.partition(".")[0] == "torch":
        return pickle.UnpicklingError(
            f"Weights only load failed. The file holds {full}, which skimp does not have; "
            "convert those tensors with PyTorch, to float32 for example, and save the file again."
        )
    return pickle.UnpicklingError(
        f"Weights only load failed. Unsupported global: GLOBAL {full} was not an allowed global by "
        f"default. Please use `torch.serialization.add_safe_globals([{name}])` or the "
        f"`torch.serialization.safe_globals([{name}])` context manager to allowlist this global if "
        f"you trust this class/function. {_way_out(module, name, whole, file)}"
    )


def _way_out(module: str, name: str, whole: bool, file: IO[bytes]) -> str:
    if not whole and listed.find(module, name) is not None:
        return (
            "It is on the longer list of `torch.load(..., weights_only=False)`, which runs no code "
            "of the file's either."
        )
    wanted = [(module, name), *globals_after(file)]
    own = {
        (where, what): None
        for where, what in wanted
        if f"{where}.{what}" not in names.DEFAULT
        and where.partition(".")[0] not in names.BLOCKED
        and (listed.find(where, what) is None or not whole)
    }
    lines = []
    for where in dict.fromkeys(where for where, _ in own):
        words = sorted({what.partition(".")[0] for place, what in own if place == where})[:SHOWN]
        if where != "__main__" and all(_is_name(word) for word in (*where.split("."), *words)):
            lines.append(f"from {where} import {', '.join(words)}")
    shown = ", ".join([what for _, what in own if _is_name(what.partition(".")[0])][:SHOWN])
    lines = lines[:SHOWN]
    text = "\n    ".join([*lines, f"torch.serialization.add_safe_globals([{shown}])"])
    return (
        "skimp builds only what is on its list and what the program has named, with "
        "weights_only=False too: loading runs no code of the file's. If you trust it, write before "
        f"the call of load:\n    {text}"
    )


def _is_name(word: Any) -> bool:
    return word.isidentifier() and len(word) < 100
