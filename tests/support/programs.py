"""Programs that take the library as their argument, run on both: the same values, or the same
refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as oracle

import skimp
from tests.support.autograd_twin import first_line, outcome
from tests.support.samples import told

Program = Callable[[Any], Any]


def into(
    programs: dict[str, Program], refused: type[Exception] | None = None
) -> Callable[[Program], Program]:
    """A decorator that puts a program into the dict, by its name; PyTorch refuses it with this
    class of error.
    """

    def put(f: Program) -> Program:
        f.refused = refused  # type: ignore[attr-defined]
        programs[f.__name__] = f
        return f

    return put


def plain(x: Any) -> Any:
    """What can be compared between engines."""
    if isinstance(x, (skimp.Tensor, oracle.Tensor)):
        values = x.detach().resolve_conj().numpy()
        return (values.tolist(), str(x.dtype), x.requires_grad)
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, (int, float, str, type(None))):
        return x
    if isinstance(x, (skimp.Size, oracle.Size)):
        return list(x)
    return x.name() if hasattr(x, "name") else repr(x)


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, (float, complex)):
        return bool(np.isclose(a, b, 1e-5, 1e-6))
    return bool(a == b)


def same(program: Program, error: type[Exception] | None = None) -> None:
    """A program ends on both sides with equal values; or both refuse it with one sentence and this
    class of error, which the case says, here or in `into`.
    """
    ours, theirs = outcome(lambda: program(skimp)), outcome(lambda: program(oracle))
    error = error or getattr(program, "refused", None)
    told(theirs[1] if theirs[0] == "error" else None, error)
    assert ours[0] == theirs[0], (ours, theirs)
    if error is None:
        assert agree(plain(ours[1]), plain(theirs[1])), (ours[1], theirs[1])
    else:
        assert type(ours[1]).__name__ == error.__name__
        assert first_line(ours[1]) == first_line(theirs[1])


def leaf(torch: Any, *shape: int) -> Any:
    return torch.ones(*(shape or (4,)), requires_grad=True)
